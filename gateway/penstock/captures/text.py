"""Numbers, names and bytes as people read them. Nothing that a peer sent reaches a terminal as a control character."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["column", "columns", "counted", "dump", "duration", "printable", "shortened", "size", "spelled", "told"]

_ROW: Final = 16
_WIDE: Final = ("W", "F")
_MARKS: Final = ("Mn", "Me")


def printable(text: str) -> str:
    """The text with everything escaped that has no shape of its own: control characters above all."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def columns(text: str) -> int:
    """How many columns of a terminal printable text takes: signs of East Asian scripts and emoji two, marks none."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(sign: str) -> int:
    if unicodedata.category(sign) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(sign) in _WIDE else 1


def shortened(text: str, most: int) -> str:
    """At most so many columns; where there are more, the last one is an ellipsis."""
    if columns(text) <= most:
        return text
    taken = 0
    for at, sign in enumerate(text):
        taken += _columns_of(sign)
        if taken > most - 1:
            return text[:at] + "…"
    return text


def column(text: str, width: int) -> str:
    """The text in a column of a table: shortened to so many columns of a terminal, or filled up to them."""
    text = shortened(text, width)
    return text + " " * (width - columns(text))


def size(count: int) -> str:
    """Bytes, in the unit that needs the fewest digits: `17 B`, `1.5 KiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def counted(count: int, what: str) -> str:
    """So many of them: `1 record`, `2 records`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def duration(ns: int | None) -> str:
    """A time between, in the unit that suits it: `17 ns`, `2.5 ms`, `61.0 s`; nothing where there is none."""
    if ns is None:
        return ""
    for unit, length in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)):
        if abs(ns) >= length:
            return f"{ns / length:.1f} {unit}"
    return f"{ns} ns"


def spelled(value: Any, most: int = 60) -> str:
    """A field's value, on one line."""
    if isinstance(value, (list, tuple)):
        inner = ", ".join(spelled(each, most) for each in value[:8]) + (", …" if len(value) > 8 else "")
        return shortened(f"[{inner}]", most)
    if isinstance(value, dict):
        return shortened("{" + ", ".join(f"{key}: {spelled(each, most)}" for key, each in value.items()) + "}", most)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shortened(printable(str(value)), most)


def told(fields: Mapping[str, Any]) -> str:
    """A message's fields on one line, without those that say nothing."""
    shown = []
    for name, value in fields.items():
        if name == "headers" and isinstance(value, list):
            shown.append(f"{len(value)} headers")
        elif value is not None and value != "" and value != {} and value != []:
            shown.append(f"{name}={spelled(value)}")
    return " ".join(shown)


def dump(data: bytes, offset: int, wrong: int | None = None) -> list[str]:
    """Bytes in rows of 16, in hexadecimal and as ASCII, each row with the place of its first byte; a mark stands below
    the byte at `wrong`."""
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
