"""Bytes of records that segment clients cannot be given as they are: left out, enveloped, refused (docs/loss.md)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.store import BASIN, STREAM, Fails, Wall, appending, fence
from support.store.byte_reads import events, forget_recent, nothing, read

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_events import join_events
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import GetByteStreamInfo, Seal
from penstock.model.failures import FailureCode
from penstock.model.features import Feature
from penstock.model.operations import CreateBasin, CreateStream
from penstock.model.records import Header

KEY = (Header(b"k", b"v"),)
COMMANDS = frozenset({Feature.COMMAND})


class TestLoss:
    """Records of others that do not stand in the bytes as they are (docs/loss.md)."""

    async def _fill(self, back: EmbeddedBack) -> None:
        """An event, a record with headers, an empty one, a command, an event."""
        await back.perform(events(b"1"))
        await back.perform(appending(b"2", headers={0: KEY}))
        await back.perform(appending(b"", b"3"))
        await back.perform(fence(b""))
        await back.perform(events(b"4"))

    @pytest.mark.parametrize("forget", [False, True], ids=["memory", "file"])
    async def test_what_is_left_out_is_counted(self, back: EmbeddedBack, forget: bool) -> None:
        await self._fill(back)
        if forget:
            forget_recent(back)
        found = await read(back, 0)
        assert found.data == join_events([b"1", b"2", b"3", b"4"])
        assert found.dropped == dict.fromkeys(Feature, 1)
        counted = [(await read(back, offset, 9)).dropped for offset in range(0, 36, 9)]
        assert counted == [{}, {Feature.HEADERS: 1}, {Feature.EMPTY_BODY: 1}, {Feature.COMMAND: 1}]

    @pytest.mark.parametrize("forget", [False, True], ids=["memory", "file"])
    @pytest.mark.parametrize(
        ("feature", "seq_num", "offset", "behind"),
        [(Feature.HEADERS, 1, 9, 18), (Feature.EMPTY_BODY, 2, 18, None), (Feature.COMMAND, 4, 27, None)],
    )
    async def test_what_is_refused_is_said(
        self, back: EmbeddedBack, forget: bool, feature: Feature, seq_num: int, offset: int, behind: int | None
    ) -> None:
        await self._fill(back)
        if forget:
            forget_recent(back)
        refuse = frozenset({feature})
        assert len((await read(back, 0, refuse=refuse)).data) == offset
        with Fails(FailureCode.NOT_REPRESENTABLE, feature.value) as caught:
            await read(back, offset, refuse=refuse)
        assert caught.failure.details == {"seq_num": seq_num}
        if behind is not None:
            assert f"offset {behind}" in caught.failure.message
            assert (await read(back, behind, refuse=refuse)).data == join_events([b"3", b"4"])

    async def test_at_the_tail_it_is_said_at_once(self, back: EmbeddedBack) -> None:
        """Not only when a byte follows, which may be never."""
        for forget in (False, True):
            await back.perform(events(b"x"))
            offset = (await back.perform(GetByteStreamInfo(STREAM))).length
            assert await read(back, offset, refuse=COMMANDS) == nothing(offset)
            await back.perform(fence(b""))
            if forget:
                forget_recent(back)
            assert await read(back, offset) == nothing(offset)
            with Fails(FailureCode.NOT_REPRESENTABLE):
                await read(back, offset, refuse=COMMANDS, wait=20)

    async def test_what_was_left_out_behind_the_last_byte_is_counted_at_the_end(self, back: EmbeddedBack) -> None:
        await back.perform(appending(b"x", b""))
        await back.perform(fence(b""))
        await back.perform(Seal(STREAM))
        for _ in range(2):
            assert (await read(back, 0)).dropped == {}
            end = await read(back, 9)
            assert (end.end_of_stream, end.dropped) == (True, {Feature.EMPTY_BODY: 1, Feature.COMMAND: 1})
            with Fails(FailureCode.NOT_REPRESENTABLE):
                await read(back, 9, refuse=COMMANDS)
            forget_recent(back)

    async def test_envelopes_are_not_counted(self, settings: EmbeddedSettings, wall: Wall) -> None:
        layout = Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY | Layout.ENVELOPE_COMMANDS
        async with open_embedded(replace(settings, envelopes=layout), wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            await self._fill(back)
            assert (await read(back, 0)).dropped == {}
            with Fails(FailureCode.NOT_REPRESENTABLE):
                await read(back, 9, refuse=frozenset({Feature.HEADERS}))
