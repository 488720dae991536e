"""A stream and its partitions exclude each other where a listener shows both as one object."""

from collections.abc import Callable

import pytest
import trio
from msgspec.structs import replace
from support.store import BASIN, Wall, appending

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    EnsureStream,
    FromSeqNum,
    ListStreams,
    Read,
)
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig

UNASKED = BasinConfig(create_stream_on_append=True, create_stream_on_read=True)


async def _session(back: EmbeddedBack, stream: StreamRef) -> None:
    async with back.append_session(stream):
        pass


async def _read(back: EmbeddedBack, stream: StreamRef) -> None:
    async with back.read_session(Read(stream, FromSeqNum(0))):
        pass


CREATIONS: dict[str, tuple[Callable[[EmbeddedBack, StreamRef], object], FailureCode]] = {
    "create": (lambda back, stream: back.perform(CreateStream(stream)), FailureCode.INVALID),
    "ensure": (lambda back, stream: back.perform(EnsureStream(stream)), FailureCode.INVALID),
    "append": (lambda back, stream: back.perform(appending(b"x", stream=stream)), FailureCode.STREAM_NOT_FOUND),
    "session": (_session, FailureCode.STREAM_NOT_FOUND),
    "read": (_read, FailureCode.STREAM_NOT_FOUND),
    "tail": (lambda back, stream: back.perform(CheckTail(stream)), FailureCode.STREAM_NOT_FOUND),
}


@pytest.mark.parametrize("creation", CREATIONS)
@pytest.mark.parametrize(("first", "second"), [("t", "t/7"), ("t/7", "t")])
async def test_nothing_creates_one_shape_beside_the_other(
    settings: EmbeddedSettings, wall: Wall, creation: str, first: str, second: str
) -> None:
    """Nor when the other one is only in the file, or was deleted and its deletion is not durable yet."""
    create, code = CREATIONS[creation]
    async with open_embedded(replace(settings, cached_streams=1), wall) as back:
        back.declare_partitioned("other-basin")
        await back.perform(CreateBasin(BASIN, UNASKED))
        for name in ("free", "free/0", first):
            await back.perform(CreateStream(StreamRef(BASIN, name)))
        back.declare_partitioned(BASIN)
        for again in range(2):
            with pytest.raises(OperationFailed, match=f"'{second}'.* cannot be created: .*partition") as refused:
                await create(back, StreamRef(BASIN, second))  # type: ignore[misc]
            assert refused.value.failure.code is code
            await back.perform(CreateStream(StreamRef(BASIN, f"x-{again}")))  # evicts the first one
        for name in ("t/x", "t/01", "t/1234567", "a/t", "t/7/1", "tt"):
            await create(back, StreamRef(BASIN, name))  # type: ignore[misc]
        back.store.catalog.delete(back.store.catalog.find(StreamRef(BASIN, first)))
        await create(back, StreamRef(BASIN, second))  # type: ignore[misc]
        names = [info.name for info in (await back.perform(ListStreams(BASIN))).items]
        assert second in names and first not in names and {"free", "free/0"} <= set(names)


async def test_of_two_creations_at_once_one_fails(back: EmbeddedBack) -> None:
    back.declare_partitioned(BASIN, "of-a-route/")
    failed: list[FailureCode] = []

    async def create(name: str) -> None:
        try:
            await back.perform(CreateStream(StreamRef(BASIN, f"of-a-route/{name}")))
        except OperationFailed as error:
            failed.append(error.failure.code)

    async with trio.open_nursery() as nursery:
        for name in ("t", "t/0", "t/1"):
            nursery.start_soon(create, name)
    page = await back.perform(ListStreams(BASIN, "of-a-route/"))
    names = [info.name.removeprefix("of-a-route/") for info in page.items]
    assert names in (["t"], ["t/0", "t/1"]), names
    assert failed == [FailureCode.INVALID] * (3 - len(names))
