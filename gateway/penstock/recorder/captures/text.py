"""Text forms of numbers, names and bytes. No control character of a peer reaches a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final

__all__ = [
    "column",
    "columns",
    "counted",
    "dump",
    "duration",
    "fields_text",
    "printable",
    "shortened",
    "size",
    "value_text",
]

_ROW: Final = 16
_WIDE: Final = ("W", "F")
_MARKS: Final = ("Mn", "Me")


def printable(text: str) -> str:
    """Return the text with all unprintable characters escaped, control characters above all."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def columns(text: str) -> int:
    """Return the width of printable text in terminal columns: two for East Asian wide characters and emoji, none for
    marks."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(sign: str) -> int:
    if unicodedata.category(sign) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(sign) in _WIDE else 1


def shortened(text: str, most: int) -> str:
    """Return the text shortened to `most` columns; a cut is marked with an ellipsis in the last one."""
    if columns(text) <= most:
        return text
    taken = 0
    for at, sign in enumerate(text):
        taken += _columns_of(sign)
        if taken > most - 1:
            return text[:at] + "…"
    return text


def column(text: str, width: int) -> str:
    """Return the text cut or padded to exactly `width` terminal columns."""
    text = shortened(text, width)
    return text + " " * (width - columns(text))


def size(count: int) -> str:
    """Return a size in the unit that needs the fewest digits: `17 B`, `1.5 KiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 record`, `2 records`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def duration(ns: int | None) -> str:
    """Return a duration in a suitable unit: `17 ns`, `2.5 ms`, `61.0 s`; "" for None."""
    if ns is None:
        return ""
    for unit, length in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)):
        if abs(ns) >= length:
            return f"{ns / length:.1f} {unit}"
    return f"{ns} ns"


def value_text(value: Any, most: int = 60) -> str:
    """Return a field's value on one line of at most `most` columns."""
    if isinstance(value, (list, tuple)):
        inner = ", ".join(value_text(each, most) for each in value[:8]) + (", …" if len(value) > 8 else "")
        return shortened(f"[{inner}]", most)
    if isinstance(value, dict):
        return shortened("{" + ", ".join(f"{key}: {value_text(each, most)}" for key, each in value.items()) + "}", most)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shortened(printable(str(value)), most)


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a message on one line, without empty ones."""
    shown = []
    for name, value in fields.items():
        if name == "headers" and isinstance(value, list):
            shown.append(f"{len(value)} headers")
        elif value is not None and value != "" and value != {} and value != []:
            shown.append(f"{name}={value_text(value)}")
    return " ".join(shown)


def dump(data: bytes, offset: int, wrong: int | None = None) -> list[str]:
    """Return a hex and ASCII dump: rows of 16 bytes, each with the offset of its first byte. A mark below a row points
    to the byte at `wrong`."""
    lines = []
    for start in range(0, len(data), _ROW):
        row = data[start : start + _ROW]
        digits = " ".join(f"{byte:02x}" for byte in row)
        signs = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{offset + start:10}  {digits:<47}  |{signs}|")
        if wrong is not None and start <= wrong - offset < start + len(row):
            column = wrong - offset - start
            lines.append(f"{'^^':>{14 + 3 * column}}{'^':>{49 - 2 * column}}")
    if wrong is not None and wrong == offset + len(data):
        lines.append(f"{wrong:10}  ^^ here")
    return lines
