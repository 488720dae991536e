"""Trims by other clients of the server: finding the number of the first record that is left."""

from __future__ import annotations

from contextlib import suppress

from penstock.backends.positions.index import Outrun
from penstock.backends.sequence_numbering.numbered import end_of, records_before
from penstock.backends.sequence_numbering.state import IndexedStream
from penstock.core.marks import Mark
from penstock.core.native import Scanned
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import FromByteOffset, FromRecordId

__all__ = ["is_there", "note_trim", "truncated_at"]


def truncated_at(error: OperationFailed) -> int:
    """Return the first offset that is kept, from an OFFSET_TRUNCATED error. Raises any other error again."""
    offset = error.failure.details.get("offset")
    if error.failure.code is not FailureCode.OFFSET_TRUNCATED or not isinstance(offset, int):
        raise error
    return offset


def is_there(stream: IndexedStream, scanned: Scanned, begin: Mark) -> bool:
    """Return whether a scan from `begin` begins with that record, rather than with a later one after a trim.

    True without comparison for the streams of an exclusive gateway, and for a server that reports truncation as an
    error.
    """
    if not scanned.bodies:
        return False
    if scanned.timestamps is None or scanned.places is None:
        return True  # such a server reports truncation as an error
    return stream.settings.exclusive or (scanned.timestamps[0], scanned.places[0]) == begin.record_id


async def note_trim(stream: IndexedStream, at: Mark, scanned: Scanned | None, end: Mark) -> None:
    """Record in the index that the records before the first one at or after `at` are gone.

    Finds the number of that record by counting backwards from the next mark. `scanned`: the scan from `at`, or None if
    the server has offsets. `end`: that of the numbered records before the scan. Raises OperationFailed.
    """
    version = stream.index.version
    if scanned is None and at.offset >= end.offset:
        if stream.end == end:
            with suppress(Outrun):  # by another gateway that has numbered more: then the next read finds the number
                await stream.index.trimmed(end._replace(offset=at.offset), version)
    elif scanned is None:
        await stream.index.trimmed(await _first_by_offset(stream, at))
    elif not scanned.bodies:
        await stream.index.trimmed(end)
    else:
        assert scanned.timestamps is not None and scanned.places is not None
        first = at._replace(timestamp=scanned.timestamps[0], place=scanned.places[0])
        await stream.index.trimmed(await _first_by_id(stream, first, end))


async def _first_by_id(stream: IndexedStream, first: Mark, end: Mark) -> Mark:
    while first.record_id < end.record_id:
        mark = await stream.index.before(FromRecordId(first.record_id))
        if mark.record_id == first.record_id:
            return mark
        following = await stream.index.behind(mark.seq_num) or stream.end
        count = await _count(stream, first, following)
        scanned = await stream.scan(first, 1)
        if is_there(stream, scanned, first):  # so nothing was trimmed while counting
            return first._replace(seq_num=following.seq_num - count)
        if not scanned.bodies:
            break
        assert scanned.timestamps is not None and scanned.places is not None
        first = first._replace(timestamp=scanned.timestamps[0], place=scanned.places[0])
    return end


async def _first_by_offset(stream: IndexedStream, first: Mark) -> Mark:
    """Return the mark of the first record from `first.offset` on, or the next mark if that offset is inside an event.

    The offset at which the next event begins is unknown then.
    """
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


async def _count(stream: IndexedStream, first: Mark, following: Mark) -> int:
    """Return the number of records from `first` up to `following`, or 0 if `following` is inside an event."""
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
