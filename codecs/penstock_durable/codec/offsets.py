"""Offsets of Durable Streams, which stand for sequence numbers (protocol, section 6).

An offset is opaque to clients, and sorts as text in the order of the stream. Ours is `N_0` with 16 digits each: N is
the sequence number of the next record to read. The second number is always 0; the form is that of the reference
server, whose conformance suite writes the first offset of a stream so.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from penstock.model.failures import FailureCode, fail

__all__ = ["FIRST", "MOST_RECORDS", "Sentinel", "is_offset", "parse_offset", "spell_offset"]

MOST_RECORDS: Final = 10**16 - 1
"""The largest sequence number that an offset can express."""
_OFFSET: Final = re.compile(r"([0-9]{16})_0{16}")

_OPAQUE: Final = re.compile(r"[!-~]{1,256}")


class Sentinel(Enum):
    """Offsets that clients may send, and servers never do."""

    BEGINNING = auto()
    """`-1`: the first record that is kept."""
    NOW = auto()
    """`now`: the tail."""


_SENTINELS: Final = {"-1": Sentinel.BEGINNING, "now": Sentinel.NOW}


def is_offset(text: str) -> bool:
    """Return whether a server may tell this offset: 1 to 256 visible ASCII characters, and no sentinel. A client
    compares offsets of one stream as text, and does not interpret them."""
    return bool(_OPAQUE.fullmatch(text)) and text not in _SENTINELS


def spell_offset(seq_num: int) -> str:
    """Return the offset at which the record with this sequence number begins. Raises ValueError beyond MOST_RECORDS."""
    if seq_num > MOST_RECORDS:
        raise ValueError(f"sequence number {seq_num} has no offset")
    return f"{seq_num:016d}_{0:016d}"


FIRST: Final = spell_offset(0)


def parse_offset(text: str) -> int | Sentinel:
    """Return the sequence number of an offset, or the sentinel. Raises BAD_QUERY for any other text."""
    if (sentinel := _SENTINELS.get(text)) is not None:
        return sentinel
    if (match := _OFFSET.fullmatch(text)) is None:
        raise fail(FailureCode.BAD_QUERY, f"{text!r:.80} is not an offset of this server")
    return int(match[1])
