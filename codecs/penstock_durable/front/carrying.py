"""Records on their way to readers of Durable Streams: bodies, without headers and commands; see docs/loss.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import structlog

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.features import Feature, feature_of
from penstock.model.records import RecordBatch, StreamRef
from penstock.observe.metrics.clients import count_dropped
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_durable.codec import check_message

__all__ = ["Taken", "take"]

log = structlog.get_logger()


class Taken(NamedTuple):
    """The part of a batch that readers get. `next_seq`: the record behind it. `refusal`: the reason why that record
    cannot be read, None if it can."""

    bodies: list[bytes]
    next_seq: int
    refusal: OperationFailed | None


def take(batch: RecordBatch, ref: StreamRef, policy: LossPolicy, *, messages: bool) -> Taken:
    """Apply the policy to a batch of stream `ref`. `messages`: it consists of JSON messages, so every body must be
    one."""
    bodies: list[bytes] = []
    dropped: Counter[Feature] = Counter()
    next_seq, refusal = batch.next_seq_num, None
    try:
        for number, body in _carried(batch, policy, dropped):
            if messages:
                check_message(body, number)
            bodies.append(body)
    except OperationFailed as error:
        refused = error.failure.details["seq_num"]
        assert isinstance(refused, int)
        next_seq, refusal = refused, error
    if dropped:
        count_dropped(dropped)
        log.info("records_dropped", stream=str(ref), **{kind.name.lower(): count for kind, count in dropped.items()})
    return Taken(bodies, next_seq, refusal)


def _carried(batch: RecordBatch, policy: LossPolicy, dropped: Counter[Feature]) -> Iterator[tuple[int, bytes]]:
    """Yield number and body of each record that is not dropped. Raises NOT_REPRESENTABLE at one that is refused."""
    columns = batch.columns
    if not columns.headers and all(columns.bodies):
        yield from zip(columns.seq_nums, columns.bodies, strict=True)
        return
    for record in batch.records():
        feature = feature_of(record.headers, record.body)
        if feature is Feature.HEADERS and policy.headers is Loss.DROP:
            dropped[feature] += 1
            feature = feature_of((), record.body)
        if feature is None:
            yield record.seq_num, record.body
        elif policy.about(feature) is Loss.DROP:
            dropped[feature] += 1
        else:
            reason = f"record {record.seq_num} {feature.value}, which Durable Streams cannot carry (loss)"
            raise fail(FailureCode.NOT_REPRESENTABLE, reason, seq_num=record.seq_num)
