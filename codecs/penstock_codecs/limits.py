"""Numbers that the protocols set, with their sources. Sizes are in bytes unless the name says otherwise.

Numbers that an operator may change are fields of a dataclass; numbers that the wire fixes are constants.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

KIB: Final = 1024
MIB: Final = 1024 * 1024

# ---- S2 (fact sheet 2.1, 5.1, 1.4) ---------------------------------------------------------------------------
S2S_MAX_FRAME_LENGTH: Final = 2 * MIB
"""Largest value of a frame's 24-bit length: flag byte and payload (2.1)."""
S2S_MAX_PAYLOAD: Final = S2S_MAX_FRAME_LENGTH - 1
"""Largest payload, both before and after decompression (2.1)."""
S2S_COMPRESSION_THRESHOLD: Final = 1 * KIB
"""Payloads smaller than this are never compressed (2.1)."""
S2_MAX_RECORD: Final = 1 * MIB
"""Largest metered size of one record (5.1)."""
S2_MAX_BATCH_RECORDS: Final = 1000
S2_MAX_BATCH_BYTES: Final = 1 * MIB
"""Largest metered size of a batch, appended or read (5.1, 2.4)."""
S2_MAX_RECORD_HEADERS: Final = 262_000
"""Most headers of one record. A header takes up to 4 bytes more in protobuf than it is metered at, so a record of 1 MiB
with more of them would not fit into a frame, and could not be read over S2S."""
S2_MAX_UNARY_BODY: Final = 2 * MIB
"""Largest unary request body, after decompression (5.1)."""
S2_MAX_UNARY_WAIT_SECONDS: Final = 60
"""Longest wait of a unary read, in seconds (5.4)."""
S2_MAX_FENCING_TOKEN: Final = 36
S2_MAX_REQUEST_TOKEN: Final = 36
S2_MAX_ENCRYPTION_KEY: Final = 44
"""Most characters of an encryption key: 32 bytes in base64."""
S2_MIN_BASIN_NAME: Final = 8
S2_MAX_BASIN_NAME: Final = 48
S2_MAX_STREAM_NAME: Final = 512
"""Longest stream name, in bytes of UTF-8 (1.4)."""
S2_MAX_LIST: Final = 1000
S2_HEARTBEAT_SECONDS: Final = (5.0, 15.0)
"""Range of the random time without records, in seconds, after which a heartbeat is sent (2.4)."""
S2_COMPRESS_RESPONSE_FROM: Final = 1 * KIB
"""JSON and protobuf responses larger than this may be compressed (1.1)."""
S3P_MAX_HEADER_LINE: Final = 32
"""Longest `*<n>` or `$<n>` line with its CRLF; bounds the wait for a missing CRLF (fact sheet 3, items 4 and 6)."""
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
SEGMENT_MAX_TABLE_KEY: Final = 8 * KIB
SEGMENT_MAX_TABLE_VALUE: Final = 1 * MIB - 8 * KIB
"""Largest key and value of a table, in bytes (1.1)."""
SEGMENT_VERSIONS: Final = (16, 5)
"""Highest and lowest wire version that Penstock announces: releases 0.3 to 0.13 (1.2)."""
MAX_MESSAGE_ITEMS: Final = 100_000
"""Most elements of all arrays of one message: each costs more memory than bytes."""


# ---- S3P (specification 0.2.0, section 11; defaults of the reference server, fact sheet 1) -----------------------
class S3PLimits(Struct, frozen=True):
    """Limits of an S3P server; the defaults are the reference server's."""

    max_name_bytes: int = 256
    max_records_per_append: int = 1000
    max_record_bytes: int = 1 * MIB - 8
    """A record of this size has the largest metered size that S2 allows, so S2's readers can be given it."""
    max_append_bytes: int = 1 * MIB
    """Sum of the record bytes of one APPEND, without framing (fact sheet 3, item 37)."""
    default_count: int = 1000
    max_count: int = 1000
    max_block_ms: int = 10_000
    max_option_pairs: int = 64
    """The specification sets none; without one an options array is an unbounded buffer (item 29)."""
    max_option_bytes: int = 256
    """Longest command name, option key or option value."""


# ---- Segment protocol (segment fact sheet, 1.1) ----------------------------------------------------------------------


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


# ---- Kafka ---------------------------------------------------------------------------------------------------
