"""Comparison of records on both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from penstock.routing.mirror.hashing import alone, chain
from penstock.routing.mirror.state import MirrorDifference, MirroredStream
from penstock_codecs.model import Headers, Record

__all__ = ["compare_records"]

_Said = tuple[bytes, Headers, int]


def compare_records(state: MirroredStream, primary: Sequence[Record], secondary: Sequence[Record]) -> MirroredStream:
    """Return the state after comparing these records, which follow the ones compared before. Both sequences have the
    same length.

    A record that differs counts once, by the first cause that applies: body, headers, timestamp. If the two sequences
    differ only in order, each record out of place counts as "order".
    """
    of_primary = [_said(record, state.timestamps) for record in primary]
    of_secondary = [_said(record, state.timestamps) for record in secondary]
    before = bytes.fromhex(state.primary_hash), bytes.fromhex(state.secondary_hash)
    primary_hash = chain(before[0], primary, state.timestamps)
    same = of_primary == of_secondary and before[0] == before[1]
    secondary_hash = primary_hash if same else chain(before[1], secondary, state.timestamps)
    if of_primary != of_secondary:
        reordered = Counter(of_primary) == Counter(of_secondary)
        for primary_form, secondary_form, ours, theirs in zip(
            of_primary, of_secondary, primary, secondary, strict=True
        ):
            if primary_form != secondary_form:
                cause = "order" if reordered else _cause(primary_form, secondary_form)
                state = state.with_difference(MirrorDifference(cause, ours.seq_num, theirs.seq_num))
    return replace(
        state,
        compared=primary[-1].seq_num + 1,
        hashed=state.hashed + len(primary),
        primary_hash=primary_hash.hex(),
        secondary_hash=secondary_hash.hex(),
        primary_last=alone(primary[-1], state.timestamps),
        secondary_last=alone(secondary[-1], state.timestamps),
    )


def _said(record: Record, timestamps: bool) -> _Said:
    return record.body, tuple(record.headers), record.timestamp if timestamps else 0


def _cause(primary_form: _Said, secondary_form: _Said) -> str:
    differing = (
        name
        for name, a, b in zip(("body", "headers", "timestamp"), primary_form, secondary_form, strict=True)
        if a != b
    )
    return next(differing)
