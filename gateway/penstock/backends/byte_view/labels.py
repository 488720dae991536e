"""Labels: headers that mark a record at another server whose bytes are not simply the event of its body.

The embedded store keeps a layout with each batch; another server keeps records and nothing else, so the record itself
must tell its layout. Nearly always it is the plain record of an event and has no label. Else it has exactly one header,
the *label*:

    name `penstock-bytes`, value `1 raw`     the body is a piece of the stream's bytes, as it is
    name `penstock-bytes`, value `1 event`   the bytes are the event of the body, also of an empty one, and of one that
                                             looks like an envelope

`1` is the version. A record with any other value, or with more headers, is an ordinary record. Pieces are a little
smaller than in the embedded store, so that a record has room for the label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import groupby
from typing import Final, NamedTuple
from zlib import crc32

from penstock.model.byte_events import EVENT_HEADER_BYTES
from penstock.model.byte_layout import MAX_BODY, Layout, Run, byte_length, event_of, runs_of, starts_of, to_bytes
from penstock.model.byte_rendering import Rendered, render
from penstock.model.envelope import ENVELOPE_MARK, wrap
from penstock.model.failures import FailureCode, fail
from penstock.model.limits import MAX_BATCH_BYTES
from penstock.model.records import NO_HEADERS, Columns, Header, Headers, is_command, metered_size

__all__ = [
    "LABEL",
    "PIECE",
    "Fingerprint",
    "LabelledBatch",
    "batches_of",
    "count_bytes",
    "parts_of",
    "render_records",
    "starts",
]

LABEL: Final = b"penstock-bytes"
PIECE: Final = MAX_BODY - 64
"""Largest body of a labelled record, in bytes: its envelope, label included, fits into a record of any protocol."""

_VALUES: Final = {Layout.RAW: b"1 raw", Layout.SENT: b"1 event"}
_HEADERS: Final[Mapping[Layout, Headers]] = {layout: (Header(LABEL, value),) for layout, value in _VALUES.items()}
_LAYOUTS: Final[Mapping[Headers, Layout]] = {headers: layout for layout, headers in _HEADERS.items()}


# ---- records into bytes ----------------------------------------------------------------------------------------------


def parts_of(columns: Columns, envelopes: Layout) -> Iterator[tuple[Columns, Layout]]:
    """Split records into runs of one layout, without their labels. Records without a label have `envelopes`."""
    labels = {index: _LAYOUTS[some] for index, some in columns.headers.items() if some in _LAYOUTS}
    if not labels:
        yield columns, envelopes
        return
    start, count = 0, len(columns.bodies)
    while start < count:
        layout, stop = labels.get(start), start + 1
        while stop < count and labels.get(stop) is layout:
            stop += 1
        yield _slice(columns, start, stop, layout), envelopes if layout is None else layout
        start = stop


def _slice(columns: Columns, start: int, stop: int, layout: Layout | None) -> Columns:
    headers: Mapping[int, Headers] = NO_HEADERS
    if layout is None:
        headers = {index - start: some for index, some in columns.headers.items() if start <= index < stop}
    return Columns(
        columns.seq_nums[start:stop], columns.timestamps[start:stop], columns.bodies[start:stop], dict(headers)
    )


def count_bytes(columns: Columns, envelopes: Layout) -> int:
    """Return the length of these records in bytes of the stream."""
    return sum(byte_length(part, layout) for part, layout in parts_of(columns, envelopes))


def starts(columns: Columns, envelopes: Layout) -> list[int]:
    """Return the offset at which each record's bytes begin, relative to the first one's, and the end of the last."""
    starts_found = [0]
    for part, layout in parts_of(columns, envelopes):
        base = starts_found.pop()
        starts_found += [base + start for start in starts_of(part, layout)]
    return starts_found


def render_records(columns: Columns, envelopes: Layout, first_offset: int) -> Rendered:
    """Render records as bytes of the stream; the first one begins at `first_offset`."""
    pieces = []
    for part, layout in parts_of(columns, envelopes):
        pieces.append(render(part, layout, first_offset))
        first_offset = pieces[-1].end_offset
    if len(pieces) == 1:
        return pieces[0]
    marks = [mark for piece in pieces for mark in piece.marks]
    return Rendered(pieces[0].first_offset, b"".join([piece.data for piece in pieces]), marks)


# ---- bytes into records ----------------------------------------------------------------------------------------------


class Fingerprint(NamedTuple):
    """The fingerprint of a batch: number of records and of bytes, CRC-32 of the first record, digest of all bytes."""

    records: int
    length: int
    head: int
    digest: bytes

    @classmethod
    def of(cls, records: int, data: bytes, first: int) -> Fingerprint:
        """Return the fingerprint of a batch of `records` records with the bytes `data`, `first` of them the first's."""
        return cls(records, len(data), crc32(data[:first]), blake2b(data, digest_size=16).digest())


class LabelledBatch(NamedTuple):
    """Records for one append to the back. `metered`: their metered size. `print`: the fingerprint of their bytes."""

    bodies: list[bytes]
    headers: Mapping[int, Headers]
    metered: int
    print: Fingerprint


def batches_of(pieces: Iterable[bytes], envelopes: Layout, *, labels: bool) -> list[LabelledBatch]:
    """Split appended bytes into records, in batches that any server accepts; no record spans two of `pieces`.

    `labels`: whether the back can carry headers. Raises NOT_REPRESENTABLE if it cannot, and a label is needed
    or the bytes contain the envelope of a record with headers.
    """
    batches: list[LabelledBatch] = []
    for data in pieces:
        for raw, runs in groupby(runs_of(data, envelopes), lambda run: bool(run.layout & Layout.RAW)):
            if raw:
                _check(labels, "are not whole events, or an event larger than a record may be")
                batches += _raw(b"".join([body for run in runs for body in run.bodies]))
            else:
                batches += [batch for run in runs for batch in _events(run, envelopes, labels)]
    return batches


def _events(run: Run, envelopes: Layout, labels: bool) -> Iterator[LabelledBatch]:
    """Make records of a run of events, with labels where needed."""
    bodies = run.bodies
    data = run.data
    if data is None:
        data = to_bytes(Columns(range(len(bodies)), (), bodies, dict(run.headers)), run.layout)
    if run.headers or not all(bodies) or (envelopes and ENVELOPE_MARK in data):
        yield from _one_by_one(run, envelopes, labels)
    else:
        yield LabelledBatch(
            bodies, NO_HEADERS, len(data), Fingerprint.of(len(bodies), data, EVENT_HEADER_BYTES + len(bodies[0]))
        )


def _one_by_one(run: Run, envelopes: Layout, labels: bool) -> Iterator[LabelledBatch]:
    some: list[_Record] = []
    for index, body in enumerate(run.bodies):
        headers = run.headers.get(index, ())
        event = event_of(headers, body, run.layout)
        if headers in _LAYOUTS:  # keep the envelope of a record whose own headers look like a label
            headers, body = (), wrap(headers, body)
        if headers and not is_command(headers):
            _check(labels, "contain an envelope with headers")
        if event_of(headers, body, envelopes) != event:
            _check(labels, "contain an event that is empty, or that looks like an envelope")
            if len(body) > PIECE:
                yield from _fitting(some)
                yield from _raw(event)
                some = []
                continue
            headers = _HEADERS[Layout.SENT]
        some.append(_Record(headers, body, event))
    yield from _fitting(some)


class _Record(NamedTuple):
    headers: Headers
    body: bytes
    data: bytes


def _raw(data: bytes) -> Iterator[LabelledBatch]:
    for start in range(0, len(data), PIECE):
        piece = data[start : start + PIECE]
        yield from _fitting([_Record(_HEADERS[Layout.RAW], piece, piece)])


def _check(labels: bool, what: str) -> None:
    if not labels:
        raise fail(
            FailureCode.NOT_REPRESENTABLE,
            f"the bytes {what}, which takes a header, and this back carries none: "
            "headers in its loss table refuses or drops them",
        )


def _fitting(records: list[_Record]) -> Iterator[LabelledBatch]:
    """Make one batch of these records, or two halves if labels make it larger than a batch may be."""
    if not records:
        return
    bodies = [record.body for record in records]
    headers = {index: record.headers for index, record in enumerate(records) if record.headers}
    metered = metered_size(bodies, headers)
    if metered <= MAX_BATCH_BYTES or len(records) == 1:
        data = b"".join([record.data for record in records])
        yield LabelledBatch(bodies, headers, metered, Fingerprint.of(len(records), data, len(records[0].data)))
    else:
        half = len(records) // 2
        yield from _fitting(records[:half])
        yield from _fitting(records[half:])
