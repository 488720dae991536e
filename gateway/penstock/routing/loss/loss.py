"""Handling of records that a protocol of plain bodies cannot carry, in both directions; see docs/loss.md.

A record of such a protocol is a body of at least one byte (as in S3P 0.2.0, sections 3 and 8.2). Records of other
protocols may have headers, an empty body, or be commands (S2 fact sheet, 5.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from penstock.model.envelope import is_marked, unwrap, wrap
from penstock.model.failures import FailureCode, fail
from penstock.model.features import Feature, feature_of
from penstock.model.operations import Capability
from penstock.model.records import NO_HEADERS, Headers, RecordBatch, RecordId, equal_runs

__all__ = ["Carried", "Loss", "LossPolicy", "LossRefusal", "carry", "take_in"]


class Loss(Enum):
    """The action on a record, or a part of one, that cannot be carried as it is."""

    REFUSE = "refuse"
    """It fails with an error that names the record."""
    ENVELOPE = "envelope"
    """The record travels as an envelope in the body (`penstock.model.envelope`)."""
    DROP = "drop"
    """It is left out, and counted."""


class LossPolicy(msgspec.Struct, frozen=True):
    """The action for each feature.

    A command record is an operation that has been executed already, so by default it is left out.
    """

    headers: Loss = Loss.REFUSE
    empty_body: Loss = Loss.REFUSE
    command_records: Loss = Loss.DROP

    def about(self, feature: Feature) -> Loss:
        """Return the action for records with this feature."""
        match feature:
            case Feature.COMMAND:
                return self.command_records
            case Feature.HEADERS:
                return self.headers
            case Feature.EMPTY_BODY:
                return self.empty_body

    @property
    def envelopes(self) -> bool:
        """True if any action is ENVELOPE; bodies that look like an envelope are then enveloped and unwrapped as
        well."""
        return Loss.ENVELOPE in (self.headers, self.empty_body, self.command_records)

    @property
    def enveloped(self) -> frozenset[Capability]:
        """The capabilities that a server gets by envelopes."""
        able = {Capability.HEADERS} if self.headers is Loss.ENVELOPE else set()
        return frozenset(able | ({Capability.EMPTY_BODIES} if self.empty_body is Loss.ENVELOPE else set()))


class LossRefusal(NamedTuple):
    """The first record that the policy refuses, and the feature that it is refused for."""

    record_id: RecordId
    feature: Feature


class Carried(msgspec.Struct):
    """The records of a batch that can be delivered, as columns, up to the first refused record.

    `last` is the identifier of the batch's last record, delivered or not.
    """

    timestamps: Sequence[int]
    seqs: Sequence[int]
    bodies: list[bytes]
    last: RecordId
    refusal: LossRefusal | None = None
    dropped: Counter[Feature] = msgspec.field(default_factory=Counter)


def carry(batch: RecordBatch, policy: LossPolicy) -> Carried:
    """Apply the policy to records on their way to a client. Raises ValueError if the batch has no ids."""
    columns = batch.columns
    seqs = _places(batch)
    last = RecordId(columns.timestamps[-1], seqs[-1])
    plain = not columns.headers and all(columns.bodies)
    if plain and not (policy.envelopes and any(map(is_marked, columns.bodies))):
        return Carried(columns.timestamps, seqs, columns.bodies, last)
    return _carry_one_by_one(batch, seqs, policy, last)


def _places(batch: RecordBatch) -> Sequence[int]:
    """Return the second half of each record's identifier, as a column: `record_ids()` makes an object per record."""
    if batch.first_id is None:
        raise ValueError("this batch has no identifier for its first record")
    ms, seq = batch.first_id
    timestamps = batch.columns.timestamps
    if timestamps[-1] == ms:
        return range(seq, seq + batch.count)
    seqs: list[int] = []
    for start, stop in equal_runs(timestamps):
        seq = seq if timestamps[start] == ms else 0
        seqs += range(seq, seq + stop - start)
    return seqs


def _carry_one_by_one(batch: RecordBatch, seqs: Sequence[int], policy: LossPolicy, last: RecordId) -> Carried:
    columns = batch.columns
    timestamps: list[int] = []
    places: list[int] = []
    bodies: list[bytes] = []
    carried = Carried(timestamps, places, bodies, last)
    for index, (timestamp, seq, body) in enumerate(zip(columns.timestamps, seqs, columns.bodies, strict=True)):
        headers = columns.headers.get(index, ())
        feature = feature_of(headers, body)
        if feature is Feature.HEADERS and policy.headers is Loss.DROP:
            carried.dropped[feature] += 1
            headers, feature = (), feature_of((), body)
        loss = policy.about(feature) if feature else None
        if feature and loss is Loss.REFUSE:
            carried.refusal = LossRefusal(RecordId(timestamp, seq), feature)
            break
        if feature and loss is Loss.DROP:
            carried.dropped[feature] += 1
            continue
        if feature or (policy.envelopes and is_marked(body)):
            body = wrap(headers, body)
        timestamps.append(timestamp)
        places.append(seq)
        bodies.append(body)
    return carried


def take_in(bodies: list[bytes], policy: LossPolicy) -> tuple[list[bytes], Mapping[int, Headers]]:
    """Return bodies and headers of records that a client appends; envelopes are unwrapped if the policy uses them.

    Raises NOT_REPRESENTABLE for a record that has the mark of an envelope but is malformed, or whose content the policy
    would not put into an envelope: it could not be read back.
    """
    if not (policy.envelopes and any(map(is_marked, bodies))):
        return bodies, NO_HEADERS
    taken = list(bodies)
    headers_by_index: dict[int, Headers] = {}
    for index, body in enumerate(bodies):
        if is_marked(body):
            headers, taken[index] = _opened(index + 1, body, policy)
            if headers:
                headers_by_index[index] = headers
    return taken, headers_by_index


def _opened(number: int, body: bytes, policy: LossPolicy) -> tuple[Headers, bytes]:
    try:
        headers, inside = unwrap(body)
    except ValueError as error:
        raise fail(FailureCode.NOT_REPRESENTABLE, f"record {number} begins like an envelope, but {error}") from None
    feature = feature_of(headers, inside)
    if feature and policy.about(feature) is not Loss.ENVELOPE:
        raise fail(
            FailureCode.NOT_REPRESENTABLE,
            f"the record in the envelope of record {number} {feature.value}, which is not enveloped here",
        )
    return headers, inside
