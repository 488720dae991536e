"""Records that a writer appends: its position is stored with them, or neither is."""

import pytest
from msgspec.structs import replace
from support.store import BASIN, STREAM, Fails, Wall, bodies

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_operations import NO_ATTRIBUTE, AppendAs, GetAttribute, Seal, WriterPosition
from penstock.model.failures import FailureCode
from penstock.model.operations import Append, CreateBasin, FromSeqNum
from penstock.model.records import Header, metered_size
from penstock.model.streams import BasinConfig

WRITER = bytes(range(16))


def written(*texts: bytes, at: int, after: int | None = None, **more: object) -> AppendAs:
    headers = {0: (Header(b"k", b"v"),)}
    given = AppendAs(
        STREAM, list(texts), metered_size(texts, headers), headers, writer=WriterPosition(WRITER, at, after)
    )
    return replace(given, **more)


async def position(back: EmbeddedBack) -> int:
    return await back.perform(GetAttribute(STREAM, WRITER))


async def test_the_position_rises_with_the_records(back: EmbeddedBack) -> None:
    await back.perform(written(b"a", b"b", at=1, after=NO_ATTRIBUTE))
    await back.perform(written(b"c", at=2, after=1))
    assert await position(back) == 2
    assert await bodies(back, FromSeqNum(0)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(("at", "after"), [(1, None), (0, None), (5, 3), (5, NO_ATTRIBUTE)])
async def test_a_stale_writer_is_refused_and_told_its_position(back: EmbeddedBack, at: int, after: int | None) -> None:
    await back.perform(written(b"a", at=1))
    with Fails(FailureCode.STALE_WRITER_POSITION) as failed:
        await back.perform(written(b"again", at=at, after=after))
    assert failed.failure.details == {"position": 1}
    assert (await bodies(back, FromSeqNum(0)), await position(back)) == ([b"a"], 1)


async def test_an_append_that_fails_otherwise_leaves_the_position(back: EmbeddedBack) -> None:
    await back.perform(written(b"a", at=1))
    with Fails(FailureCode.SEQ_NUM_MISMATCH):
        await back.perform(written(b"b", at=2, match_seq_num=7))
    await back.perform(Seal(STREAM))
    with Fails(FailureCode.STREAM_SEALED):
        await back.perform(written(b"c", at=0))
    assert await position(back) == 1


async def test_writers_and_others_share_a_stream(back: EmbeddedBack) -> None:
    await back.perform(written(b"a", at=1))
    await back.perform(Append(STREAM, [b"plain"], 13))
    await back.perform(written(b"b", at=2, after=1))
    assert await bodies(back, FromSeqNum(0)) == [b"a", b"plain", b"b"]


async def test_position_and_records_outlast_a_restart(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN, BasinConfig(create_stream_on_append=True)))
        await back.perform(written(b"a", at=1))
    async with open_embedded(settings, wall) as back:
        assert await position(back) == 1
        with Fails(FailureCode.STALE_WRITER_POSITION):
            await back.perform(written(b"a", at=1))
