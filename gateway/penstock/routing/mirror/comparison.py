"""Comparison of records on both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.records import Headers, Record
from penstock.routing.mirror.hashing import HashedParts, alone, chain
from penstock.routing.mirror.state import MirrorDifference, MirroredStream

__all__ = ["compare_records"]

_ComparedForm = tuple[bytes, Headers, int]


def compare_records(
    state: MirroredStream, primary: Sequence[Record], secondary: Sequence[Record], *, given_timestamps: bool = True
) -> MirroredStream:
    """Return the state after comparing these records, which follow the ones compared before. Both sequences have the
    same length. `given_timestamps`: the copies were appended with the primary's timestamps.

    A record that differs counts once, by the first cause that applies: body, headers, timestamp. If the two sequences
    differ only in order, each record out of place counts as "order". Differences in headers or timestamps that the
    state does not compare count as `unkept`.
    """
    parts = state.parts
    of_primary = [_compared_form(record, parts) for record in primary]
    of_secondary = [_compared_form(record, parts) for record in secondary]
    before = bytes.fromhex(state.primary_hash), bytes.fromhex(state.secondary_hash)
    primary_hash = chain(before[0], primary, parts)
    same = of_primary == of_secondary and before[0] == before[1]
    secondary_hash = primary_hash if same else chain(before[1], secondary, parts)
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
        primary_last=alone(primary[-1], parts),
        secondary_last=alone(secondary[-1], parts),
        unkept=state.unkept + (0 if all(parts) else _count_unkept(primary, secondary, parts, given_timestamps)),
    )


def _compared_form(record: Record, parts: HashedParts) -> _ComparedForm:
    headers = tuple(record.headers) if parts.headers else ()
    return record.body, headers, record.timestamp if parts.timestamps else 0


def _count_unkept(
    primary: Sequence[Record], secondary: Sequence[Record], parts: HashedParts, given_timestamps: bool
) -> int:
    """Return the number of records that differ only in what is not compared."""
    return sum(
        _compared_form(ours, parts) == _compared_form(theirs, parts)
        and (tuple(ours.headers) != tuple(theirs.headers) or (given_timestamps and ours.timestamp != theirs.timestamp))
        for ours, theirs in zip(primary, secondary, strict=True)
    )


def _cause(primary_form: _ComparedForm, secondary_form: _ComparedForm) -> str:
    differing = (
        name
        for name, a, b in zip(("body", "headers", "timestamp"), primary_form, secondary_form, strict=True)
        if a != b
    )
    return next(differing)
