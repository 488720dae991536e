"""A server that knows nothing of partitions: the gateway looks for the other shape before each creation."""

from typing import Any

import pytest
import trio
from support.backs import DecodedBack
from support.store import BASIN, appending

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.backends.partition_checks import PartitionChecks
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    FromSeqNum,
    Operation,
    Read,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig


class _Server(DecodedBack):
    """Counts what it is asked."""

    looks = 0

    async def perform(self, operation: Operation[Any]) -> Any:
        self.looks += isinstance(operation, CheckTail)
        return await super().perform(operation)


@pytest.fixture
async def server(tmp_path: Any) -> Any:
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as back:
        await back.perform(CreateBasin(BASIN, BasinConfig(create_stream_on_append=True, create_stream_on_read=True)))
        yield _Server(back)


async def _refused(back: PartitionChecks, name: str) -> list[FailureCode]:
    """Return the codes with which a creation, an append, a session and a read are refused."""
    stream = StreamRef(BASIN, name)
    codes: list[FailureCode] = []
    for operation in (CreateStream(stream), appending(b"x", stream=stream), CheckTail(stream)):
        with pytest.raises(OperationFailed, match=f"'{name}'.*partitions") as refused:
            await back.perform(operation)
        codes.append(refused.value.failure.code)
    for session in (back.append_session(stream), back.read_session(Read(stream, FromSeqNum(0)))):
        with pytest.raises(OperationFailed, match=f"'{name}'.*partitions") as refused:
            async with session:
                pass
        codes.append(refused.value.failure.code)
    return codes


async def test_neither_shape_is_created_beside_the_other(server: _Server) -> None:
    back = PartitionChecks(server)
    await back.perform(CreateStream(StreamRef(BASIN, "before/0")))
    await back.perform(CreateStream(StreamRef(BASIN, "before")))
    assert not server.looks, "nothing is looked up before a listener needs it"
    back.declare_partitioned(BASIN)
    for first, second in (("t", "t/0"), ("set/0", "set")):
        await back.perform(CreateStream(StreamRef(BASIN, first)))
        codes = await _refused(back, second)
        assert codes == [FailureCode.INVALID, *[FailureCode.STREAM_NOT_FOUND] * 4]
        await back.perform(DeleteStream(StreamRef(BASIN, first)))
        await back.perform(appending(b"x", stream=StreamRef(BASIN, second)))
        assert await _refused(back, first) == codes


async def test_a_stream_is_looked_up_once_and_appends_keep_their_order(server: _Server) -> None:
    back = PartitionChecks(server)
    back.declare_partitioned(BASIN)
    stream = StreamRef(BASIN, "t")
    await server.perform(CreateStream(stream))
    server.looks = 0
    first: list[int] = []

    async def append(number: int) -> None:
        first.append(number)
        appended = await back.perform(appending(b"%d" % number, stream=stream))
        assert appended.start.seq_num == first.index(number)

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(append, number)
            if number % 10 == 0:
                await trio.lowlevel.checkpoint()
    assert server.looks == 1
