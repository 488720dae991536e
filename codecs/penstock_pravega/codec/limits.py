"""Limits of the segment protocol (segment fact sheet, 1.1). Sizes are in bytes unless the name says otherwise."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from penstock.model.limits import MIB

SEGMENT_MAX_LENGTH: Final = 0xFFFFFF
"""Largest length field of a message: the bytes after its 8-byte header. In requests 8 less, as the real server counts
the header too."""
SEGMENT_MAX_NAME: Final = 1024
"""Longest name of a segment, in bytes: scope (255), stream (250), number, epoch and transaction make up 570."""
SEGMENT_MAX_ITEMS: Final = 4096
"""Most items of a list inside one message. The protocol sets none; each item costs more memory than wire bytes, and
others wait meanwhile. Real clients send up to a thousand: segments of a stream, transactions of a commit."""
SEGMENT_MAX_EVENT: Final = 8 * MIB
"""Largest payload of one event that the real clients write."""
SEGMENT_VERSIONS: Final = (16, 5)
"""Highest and lowest wire version that Penstock announces: releases 0.3 to 0.13 (1.2)."""


class SegmentLimits(Struct, frozen=True):
    """Limits of one connection of the segment protocol; the defaults admit every real client."""

    max_message_bytes: int = SEGMENT_MAX_LENGTH
    """Largest length field that is accepted; also that of a message assembled from Partials."""
    max_append_bytes: int = 2 * (SEGMENT_MAX_EVENT + 8)
    """Largest append that an AppendBlock and its end form (released): two of the largest events."""
    block_piece_bytes: int = 1 * MIB
    """Size of a piece of a draft block. Pieces hold whole events; a piece ends with the event that reaches this
    size."""
    max_writers: int = 10_000
    """Most writers that are set up on one connection."""
