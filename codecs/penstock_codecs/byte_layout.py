"""How records stand in a stream's bytes, and back (segment fact sheet, 1.5; docs/loss.md).

A record is an Event message: type 0, the length of its body, the body. The exceptions are fixed when a batch is
appended, by its *layout*, because byte offsets never change afterwards:

| layout | what a record's bytes are |
|---|---|
| none of these | the event; of a record with headers the event without them; a command, or a record without a body: nothing |
| ENVELOPE_HEADERS, ENVELOPE_EMPTY, ENVELOPE_COMMANDS | such a record is the event of its envelope (`envelope`), and so is a body that looks like one |
| SENT | the event, also of an empty body: a segment client wrote it |
| RAW | the body as it is, without a header: bytes that are no events, and events larger than a record may be |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag
from typing import Final, NamedTuple

from penstock_codecs.features import Feature
from penstock_codecs.limits import S2_MAX_RECORD
from penstock_codecs.model import Columns, Headers

__all__ = ["MAX_BODY", "Layout", "Run", "byte_length", "event_of", "features_of", "runs_of", "to_bytes"]

MAX_BODY: Final = S2_MAX_RECORD - 8
"""Largest body of a record made of bytes, in bytes: what every protocol's readers can be given."""


class Layout(IntFlag):
    """How the records of one batch stand in the stream's bytes; stored with the batch. The numbers never change."""

    PLAIN = 0
    RAW = 1
    SENT = 2
    ENVELOPE_HEADERS = 4
    ENVELOPE_EMPTY = 8
    ENVELOPE_COMMANDS = 16

    @property
    def envelopes(self) -> Layout:
        """The bits that say what is enveloped."""


class Run(NamedTuple):
    """Records that bytes stand for: one batch of at most 1,000 records and 1 MiB metered, and its layout."""

    layout: Layout
    bodies: list[bytes]
    headers: Mapping[int, Headers]


def runs_of(data: bytes, envelopes: Layout) -> list[Run]:
    """The records that appended bytes become; `to_bytes` of the runs, joined, is `data` again, whatever it is.

    Whole events become a record each (SENT), in batches that every protocol can read. Where `data` is not whole
    events throughout, it becomes raw pieces of at most `MAX_BODY` bytes; so does an event whose body is larger,
    header included. An event that is an envelope of something that `envelopes` names is unwrapped where wrapping
    it again gives the same bytes.
    """


def byte_length(columns: Columns, layout: Layout) -> int:
    """How many bytes these records take in the stream; the same as `len(to_bytes(...))`, and cheap where it is plain."""


def event_of(headers: Headers, body: bytes, layout: Layout) -> bytes:
    """The bytes of one record."""


def to_bytes(columns: Columns, layout: Layout) -> bytes:
    """The bytes of these records."""


def features_of(columns: Columns, layout: Layout) -> Mapping[int, Feature]:
    """What the layout leaves out, or envelopes, by index: for counting what is dropped and refusing what is refused.

    Empty for RAW, and for SENT except for what was unwrapped from envelopes.
    """
