"""Input into a stream: batches, conditions, and what is acknowledged before a failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio
from support.store import STREAM, appending, bodies, records

from penstock.app.streams.appending import AppendSettings, AppendSummary, append_input
from penstock.app.streams.formats import PARSERS, BadInput
from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Appended, FromSeqNum
from penstock.model.records import Header, StreamRef


async def pieces(*data: bytes) -> AsyncGenerator[bytes, None]:
    for piece in data:
        yield piece


async def append(
    back: Back, *data: bytes, form: str = "lines", settings: AppendSettings | None = None, stream: StreamRef = STREAM
) -> AppendSummary:
    summary = AppendSummary()
    await append_input(back, stream, pieces(*data), PARSERS[form](), settings or AppendSettings(), summary)
    return summary


async def test_each_piece_is_a_batch(back: Back) -> None:
    acknowledged: list[Appended] = []
    summary = AppendSummary(on_progress=acknowledged.append)
    data = pieces(b"a\nb\nc", b"c\n", b"d")
    await append_input(back, STREAM, data, PARSERS["lines"](), AppendSettings(), summary)
    assert await bodies(back, FromSeqNum(0)) == [b"a", b"b", b"cc", b"d"]
    assert [(one.start.seq_num, one.end.seq_num) for one in acknowledged] == [(0, 2), (2, 3), (3, 4)]
    assert summary.count == 4
    assert summary.start is not None and summary.start.seq_num == 0
    assert summary.end is not None and summary.end.seq_num == 4


async def test_nothing(back: Back) -> None:
    assert (await append(back)).count == 0


async def test_more_than_a_batch_may_hold(back: Back) -> None:
    """By number, and by bytes."""
    assert (await append(back, b"x\n" * 2500)).count == 2500
    assert (await append(back, (b"y" * 300_000 + b"\n") * 5)).count == 5
    assert len(await bodies(back, FromSeqNum(0))) == 2505


async def test_headers_and_timestamps(back: Back) -> None:
    text = b'{"body":"a","headers":{"k":"v"},"timestamp":1000}\n{"body":"b","timestamp":2000}'
    settings = AppendSettings(headers=(Header(b"from", b"test"),))
    await append(back, text, form="json", settings=settings)
    first, second = await records(back, FromSeqNum(0))
    assert first.headers == (Header(b"k", b"v"), Header(b"from", b"test"))
    assert (second.headers, first.timestamp, second.timestamp) == ((Header(b"from", b"test"),), 1000, 2000)


async def test_timestamps_are_left_to_the_server(back: Back) -> None:
    text = b'{"body":"a","timestamp":1000}'
    await append(back, text, form="json", settings=AppendSettings(timestamps=False))
    (record,) = await records(back, FromSeqNum(0))
    assert record.timestamp > 1_000_000


async def test_what_stands_before_a_wrong_record_is_appended(back: Back) -> None:
    summary = AppendSummary()
    data = pieces(b'{"body":"a"}\n', b'{"body":"b"}\n{"wrong":1}\n{"body":"c"}\n')
    with pytest.raises(BadInput, match="line 3"):
        await append_input(back, STREAM, data, PARSERS["json"](), AppendSettings(), summary)
    assert summary.count == 2
    assert await bodies(back, FromSeqNum(0)) == [b"a", b"b"]


async def test_conditions(back: Back) -> None:
    """The numbers that follow are conditions, too: another writer cannot come between two batches."""
    settings = AppendSettings(match_seq_num=0)
    assert (await append(back, b"a\n", b"b\n", settings=settings)).count == 2
    with pytest.raises(OperationFailed) as caught:
        await append(back, b"c\n", settings=settings)
    assert caught.value.failure.code is FailureCode.SEQ_NUM_MISMATCH

    acknowledged = trio.Event()

    async def with_another() -> AsyncGenerator[bytes, None]:
        yield b"c\n"
        await acknowledged.wait()
        await back.perform(appending(b"other"))
        yield b"d\n"

    summary = AppendSummary(on_progress=lambda _appended: acknowledged.set())
    with pytest.raises(OperationFailed):
        await append_input(back, STREAM, with_another(), PARSERS["lines"](), AppendSettings(match_seq_num=2), summary)
    assert summary.count == 1
    assert await bodies(back, FromSeqNum(0)) == [b"a", b"b", b"c", b"other"]
    with pytest.raises(OperationFailed) as caught:
        await append(back, b"e\n", settings=AppendSettings(fencing_token="mine"))
    assert caught.value.failure.code is FailureCode.FENCING_TOKEN_MISMATCH


async def test_a_refusal_ends_an_input_that_waits(back: Back) -> None:
    async def endless() -> AsyncGenerator[bytes, None]:
        yield b"x\n"
        await trio.sleep_forever()

    settings = AppendSettings(match_seq_num=7)
    with pytest.raises(OperationFailed), trio.fail_after(20):
        await append_input(back, STREAM, endless(), PARSERS["lines"](), settings, AppendSummary())


async def test_a_stream_that_is_not_there(back: Back) -> None:
    with pytest.raises(OperationFailed) as caught:
        await append(back, b"a\n", stream=STREAM._replace(stream="none"))
    assert caught.value.failure.code is FailureCode.STREAM_NOT_FOUND
