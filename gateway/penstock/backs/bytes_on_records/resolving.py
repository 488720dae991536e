"""What became of appends whose acknowledgement is missing: the bytes at the back tell."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from penstock.backs.bytes_on_records.counting import Counter
from penstock.backs.bytes_on_records.intents import Found, Group, Matcher
from penstock.backs.bytes_on_records.streams import Stream
from penstock_codecs.model import RecordBatch

__all__ = ["look_again", "resolve"]


async def resolve(stream: Stream, counter: Counter) -> list[list[Found]]:
    """Find out what the back has of what is unresolved: of each intent, the batches that it has.

    Raises OperationFailed where the back cannot be asked, and Replaced; then it stays unresolved.
    """
    async with stream.resolving:
        group = stream.writers.unresolved
        if group is None:
            return []
        found = await _look(stream, counter, group)
        stream.writers.settle(found)
        return found


async def look_again(stream: Stream, counter: Counter) -> None:
    """See what came late: what the back has of what it did not have before is not to be sent again.

    Raises as `resolve`.
    """
    async with stream.resolving:
        group = stream.writers.late
        if group is None:
            return
        writers = stream.writers
        for intent, some in zip(group.intents, await _look(stream, counter, group), strict=True):
            if some and intent.writer is not None:
                writers.keep_partial(intent.writer, (*writers.partial.get(intent.writer, ()), *some))


async def _look(stream: Stream, counter: Counter, group: Group) -> list[list[Found]]:
    """The batches that the back has of each intent; the others may come late, behind the tail of now."""
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
    base = await counter.place_of(stream, tail.seq_num, group.base)
    missing = [
        intent._replace(prints=intent.prints[len(some) :])
        for intent, some in zip(group.intents, resolved, strict=True)
        if len(some) < len(intent.prints)
    ]
    stream.writers.late = Group(0, base, missing) if missing else None
    return resolved


def _records(stream: Stream, batch: RecordBatch, begin: int) -> Iterator[tuple[int, int, int, bytes]]:
    data = stream.render(batch, begin).data
    timestamps = batch.columns.timestamps
    for (start, stop, seq_num), timestamp in zip(stream.spans(batch, begin), timestamps, strict=True):
        yield seq_num, timestamp, start, data[start - begin : stop - begin]
