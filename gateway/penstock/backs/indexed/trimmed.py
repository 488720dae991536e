"""What somebody else trimmed: finding out which number the first record has that is left."""

from __future__ import annotations

from penstock.backs.indexed.numbered import end_of, records_before
from penstock.backs.indexed.state import StreamState
from penstock.backs.native import Scanned
from penstock.positions.marks import Mark
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.operations import FromByteOffset, FromRecordId

__all__ = ["is_there", "note_trim", "truncated_at"]


def truncated_at(error: OperationFailed) -> int:
    """The first offset that is kept. Raises the error again where it says something else."""
    offset = error.failure.details.get("offset")
    if error.failure.code is not FailureCode.OFFSET_TRUNCATED or not isinstance(offset, int):
        raise error
    return offset


def is_there(stream: StreamState, scanned: Scanned, begin: Mark) -> bool:
    """Whether what was read begins with the record that it was read from. Who has a stream to himself knows what is
    there without looking."""
    if not scanned.bodies:
        return False
    if scanned.timestamps is None or scanned.places is None:
        return True  # truncation is an error there
    return stream.settings.exclusive or (scanned.timestamps[0], scanned.places[0]) == begin.record_id


async def note_trim(stream: StreamState, at: Mark, scanned: Scanned | None) -> None:
    """The records before the first one at or after `at` are gone: find its number, from the next mark backwards, and
    let the index know. `scanned`: what was found there, where the server has no offsets. Raises OperationFailed."""
    if scanned is None:
        await stream.index.trimmed(await _first_by_offset(stream, at))
    elif not scanned.bodies:
        await stream.index.trimmed(stream.end)
    else:
        assert scanned.timestamps is not None and scanned.places is not None
        first = at._replace(timestamp=scanned.timestamps[0], place=scanned.places[0])
        await stream.index.trimmed(await _first_by_id(stream, first))


async def _first_by_id(stream: StreamState, first: Mark) -> Mark:
    while first.record_id < stream.end.record_id:
        mark = await stream.index.before(FromRecordId(first.record_id))
        if mark.record_id == first.record_id:
            return mark
        following = await stream.index.behind(mark.seq_num) or stream.end
        count = await _count(stream, first, following)
        scanned = await stream.scan(first, 1)
        if is_there(stream, scanned, first):  # so nothing went while that was counted
            return first._replace(seq_num=following.seq_num - count)
        if not scanned.bodies:
            break
        assert scanned.timestamps is not None and scanned.places is not None
        first = first._replace(timestamp=scanned.timestamps[0], place=scanned.places[0])
    return stream.end


async def _first_by_offset(stream: StreamState, first: Mark) -> Mark:
    """Where it was truncated inside an event, the next mark: nobody knows where the event after that begins."""
    if first.offset >= stream.end.offset:
        return stream.end._replace(offset=max(first.offset, stream.end.offset))
    mark = await stream.index.before(FromByteOffset(first.offset + 1))
    if mark.offset == first.offset:
        return mark
    following = await stream.index.behind(mark.seq_num) or stream.end
    try:
        count = await _count(stream, first, following)
    except OperationFailed as error:
        if error.failure.retryable:
            raise
        return following
    seq_num = following.seq_num - count
    if not count or seq_num <= mark.seq_num:
        return following
    return Mark(seq_num, mark.timestamp, mark.place + seq_num - mark.seq_num, first.offset)


async def _count(stream: StreamState, first: Mark, following: Mark) -> int:
    """How many records there are from `first` up to `following`; 0 where that is inside an event."""
    counted = 0
    at = first
    while True:
        scanned = await stream.scan(at)
        before = records_before(scanned, following)
        counted += before
        if scanned.offsets is not None and scanned.offsets[-1] >= following.offset:
            return counted if following.offset in scanned.offsets else 0
        if before < len(scanned.bodies) or not before:
            return counted
        at = end_of(scanned)
