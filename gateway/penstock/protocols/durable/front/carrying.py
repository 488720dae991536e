"""Records on their way to readers of Durable Streams: bodies, without headers and commands; see docs/loss.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_codecs.durable import check_message
from penstock_codecs.envelope import is_marked, wrap
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.features import Feature, feature_of
from penstock_codecs.model import RecordBatch

__all__ = ["Taken", "take"]


class Taken(NamedTuple):
    """The part of a batch that readers get. `next_seq`: the record behind it. `refusal`: the reason why that record
    cannot be read, None if it can."""

    bodies: list[bytes]
    next_seq: int
    refusal: OperationFailed | None


def take(batch: RecordBatch, policy: LossPolicy, *, messages: bool) -> Taken:
    """Apply the policy to a batch. `messages`: the stream consists of JSON messages, so every body must be one."""
    bodies: list[bytes] = []
    number = batch.first_seq_num
    try:
        for number, body in _carried(batch, policy):
            if messages:
                check_message(body, number)
            bodies.append(body)
    except OperationFailed as error:
        refused = error.failure.details["seq_num"]
        assert isinstance(refused, int)
        return Taken(bodies, refused, error)
    return Taken(bodies, batch.next_seq_num, None)


def _carried(batch: RecordBatch, policy: LossPolicy) -> Iterator[tuple[int, bytes]]:
    """Yield number and body of each record that is not dropped. Raises NOT_REPRESENTABLE at one that is refused."""
    columns = batch.columns
    if not columns.headers and all(columns.bodies) and not policy.envelopes:
        yield from zip(columns.seq_nums, columns.bodies, strict=True)
        return
    for record in batch.records():
        headers, body = record.headers, record.body
        feature = feature_of(headers, body)
        if feature is Feature.HEADERS and policy.headers is Loss.DROP:
            headers, feature = (), feature_of((), body)
        loss = policy.about(feature) if feature else None
        if feature and loss is Loss.REFUSE:
            why = f"record {record.seq_num} {feature.value}, which Durable Streams cannot carry (loss)"
            raise fail(FailureCode.NOT_REPRESENTABLE, why, seq_num=record.seq_num)
        if loss is Loss.DROP:
            continue
        wraps = feature or (policy.envelopes and is_marked(body))
        yield record.seq_num, wrap(headers, body) if wraps else body
