"""Text forms of numbers and names; names come from clients, so they are escaped."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import Any, Final
from unicodedata import bidirectional

__all__ = ["LONGEST", "bits", "clock", "count", "duration", "name", "plain", "size"]

LONGEST: Final = 80
"""Maximum number of characters of a name that are shown."""
_FROM_THE_RIGHT: Final = frozenset({"R", "AL", "AN"})
_MS: Final = 1_000
_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_BINARY: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


def name(value: Any, absent: str = "none") -> str:
    """Return a name from outside as HTML. Characters that are invisible or change the direction of writing become
    numbers."""
    if value is None:
        return f'<span class="absent">{html.escape(absent)}</span>'
    text = plain(value)
    # Right-to-left letters would move adjacent numbers to their other side.
    return f"<bdi>{text}</bdi>" if any(bidirectional(each) in _FROM_THE_RIGHT for each in text) else text


def plain(value: Any) -> str:
    """Return a name as escaped text without elements."""
    text = str(value)
    shown = "".join(each if each.isprintable() else f"\\u{{{ord(each):x}}}" for each in text[:LONGEST])
    return html.escape(shown) + ("…" if len(text) > LONGEST else "")


def bits(data: bytes | bytearray | None) -> str:
    """Return the beginning of a body as HTML: as text if it is UTF-8, otherwise its bytes."""
    if data is None:
        return ""
    try:
        return name(bytes(data).decode())
    except UnicodeDecodeError:
        return name(bytes(data).hex(" "))


def count(value: Any) -> str:
    """Return an integer; "" for null."""
    return "" if value is None else f"{value:,}"


def size(value: int | float | None) -> str:
    """Return a size in bytes with its unit; "" for null."""
    if value is None:
        return ""
    amount, unit = float(value), "B"
    for larger in _BINARY:
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:,.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def duration(us: int | float | None) -> str:
    """Return a duration, given in us; "" for null."""
    if us is None:
        return ""
    for least, unit in ((_MINUTE, "min"), (_SECOND, "s"), (_MS, "ms")):
        if us >= least:
            return f"{us / least:.3g} {unit}" if us < 1_000 * least else f"{us / least:,.0f} {unit}"
    return f"{us:.0f} µs"


def clock(us: int) -> str:
    """Return a date and time, UTC."""
    return f"{datetime.fromtimestamp(us / _SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"
