"""What became of appends whose acknowledgement is missing: the bytes at the back tell."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from penstock.backs.bytes_on_records.counting import Counter
from penstock.backs.bytes_on_records.intents import Found, Matcher
from penstock.backs.bytes_on_records.streams import Stream
from penstock_codecs.model import RecordBatch

__all__ = ["resolve"]


async def resolve(stream: Stream, counter: Counter) -> list[list[Found]]:
    """Find out what the back has of what is unresolved: of each intent, the batches that it has.

    Raises OperationFailed where the back cannot be asked, and Replaced; then it stays unresolved.
    """
    async with stream.resolving:
        group = stream.writers.unresolved
        if group is None:
            return []
        tail = await counter.catch_up(stream)
        matcher = Matcher(some for intent in group.intents for some in intent.prints)
        at = group.base.offset
        async with counter.batches(stream, group.base.seq_num, tail.seq_num) as batches:
            while not matcher.done and (batch := await batches.next()) is not None:
                records = list(_records(stream, batch, at))
                matcher.feed(records)
                at = records[-1][2] + len(records[-1][3])
        found = iter(matcher.found)
        resolved = [list(islice(found, len(intent.prints))) for intent in group.intents]
        stream.writers.settle(resolved)
        return resolved


def _records(stream: Stream, batch: RecordBatch, begin: int) -> Iterator[tuple[int, int, int, bytes]]:
    data = stream.render(batch, begin).data
    timestamps = batch.columns.timestamps
    for (start, stop, seq_num), timestamp in zip(stream.spans(batch, begin), timestamps, strict=True):
        yield seq_num, timestamp, start, data[start - begin : stop - begin]
