"""Numbers and names as people read them; names come from clients, so nothing in them can act."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import Any, Final
from unicodedata import bidirectional

__all__ = ["LONGEST", "bits", "clock", "count", "duration", "name", "plain", "size"]

LONGEST: Final = 80
"""Characters of a name that are shown."""
_FROM_THE_RIGHT: Final = frozenset({"R", "AL", "AN"})
_MS: Final = 1_000
_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_BINARY: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


def name(value: Any, absent: str = "none") -> str:
    """A name from outside, as HTML. What cannot be seen, or changes the direction of writing, stands as its number."""
    if value is None:
        return f'<span class="absent">{html.escape(absent)}</span>'
    text = plain(value)
    # Letters that are written from the right would take the numbers beside them to their other side.
    return f"<bdi>{text}</bdi>" if any(bidirectional(each) in _FROM_THE_RIGHT for each in text) else text


def plain(value: Any) -> str:
    """The same without any element, for where only text can stand."""
    text = str(value)
    shown = "".join(each if each.isprintable() else f"\\u{{{ord(each):x}}}" for each in text[:LONGEST])
    return html.escape(shown) + ("…" if len(text) > LONGEST else "")


def bits(data: bytes | bytearray | None) -> str:
    """The beginning of a body, as HTML: its text if that is what it is, else its bytes."""
    if data is None:
        return ""
    try:
        return name(bytes(data).decode())
    except UnicodeDecodeError:
        return name(bytes(data).hex(" "))


def count(value: Any) -> str:
    """A whole number; an empty text for null."""
    return "" if value is None else f"{value:,}"


def size(value: int | float | None) -> str:
    """Bytes."""
    if value is None:
        return ""
    amount, unit = float(value), "B"
    for larger in _BINARY:
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:,.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def duration(us: int | float | None) -> str:
    """A time that passed, given in us."""
    if us is None:
        return ""
    for least, unit in ((_MINUTE, "min"), (_SECOND, "s"), (_MS, "ms")):
        if us >= least:
            return f"{us / least:.3g} {unit}" if us < 1_000 * least else f"{us / least:,.0f} {unit}"
    return f"{us:.0f} µs"


def clock(us: int) -> str:
    """A time of day, UTC."""
    return f"{datetime.fromtimestamp(us / _SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"
