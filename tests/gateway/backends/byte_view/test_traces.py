"""The memory for traces of streams is the same however many streams there are."""

from __future__ import annotations

from support.records_only import RecordsOnly
from support.store import BASIN, STREAM, Fails, sending

from penstock.backends.byte_view import BytesOnRecords
from penstock.backends.byte_view.traces import BloomFilter
from penstock.model.byte_operations import GetByteStreamInfo
from penstock.model.failures import FailureCode
from penstock.model.operations import DeleteStream
from penstock.model.records import StreamRef


def test_what_was_seen_is_found_and_little_else() -> None:
    traces = BloomFilter()
    size = len(traces._marks)
    for number in range(20_000):
        traces.add(StreamRef(BASIN, f"seen-{number}"))
    assert all(StreamRef(BASIN, f"seen-{number}") in traces for number in range(20_000))
    assert sum(StreamRef(BASIN, f"other-{number}") in traces for number in range(20_000)) < 20
    assert len(traces._marks) == size


async def test_a_stream_that_only_looks_as_if_it_was_seen(back: BytesOnRecords, records: RecordsOnly) -> None:
    back._streams._touched._marks[:] = b"\xff" * len(back._streams._touched._marks)
    missing = StreamRef(BASIN, "missing")
    with Fails(FailureCode.STREAM_NOT_FOUND):
        async with back.append_session(missing, create_if_missing=False):
            raise AssertionError("entered")
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(DeleteStream(missing))
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(GetByteStreamInfo(missing))
    assert (await back.perform(sending(b"a"))).offset == 9
    await back.perform(DeleteStream(STREAM))
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(sending(b"a"))
