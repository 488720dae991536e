"""The bytes of another server's records are those that the embedded store makes of the same appends, always."""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.records_only import RecordsOnly
from support.store import BASIN, STREAM, Wall, appending

from penstock.backends.byte_view import BytesSettings, open_bytes_on_records
from penstock.backends.byte_view.labels import LABEL
from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.model.byte_events import join_events
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import AppendBytes, GetByteStreamInfo, ReadBytes, Truncate
from penstock.model.envelope import ENVELOPE_MARK, wrap
from penstock.model.operations import Append, CreateBasin, CreateStream
from penstock.model.records import Header, Headers

KEY, FENCE = (Header(b"k", b"v"),), (Header(b"", b"fence"),)
LABELLED = (Header(LABEL, b"1 raw"),)
ENVELOPES = [
    wrap(KEY, b"x"),
    wrap(KEY, b""),
    wrap((), b""),
    wrap(FENCE, b""),
    wrap((), ENVELOPE_MARK),
    wrap(LABELLED, b"raw"),
]

BODIES = st.one_of(
    st.binary(max_size=20), st.sampled_from([*ENVELOPES, ENVELOPE_MARK, ENVELOPE_MARK + b"junk", bytes(8)])
)
EVENTS = st.lists(BODIES, min_size=1, max_size=6).map(join_events)
BYTES = st.one_of(EVENTS, EVENTS, st.binary(min_size=1, max_size=30), EVENTS.map(lambda data: data[:-1]))
RECORDS = st.lists(st.tuples(st.sampled_from([(), (), KEY, FENCE]), BODIES), min_size=1, max_size=4).map(
    lambda records: _append(records)
)
LAYOUTS = st.lists(st.sampled_from([4, 8, 16]), unique=True).map(lambda bits: Layout(sum(bits)))
ACTIONS = st.lists(st.one_of(BYTES, BYTES, RECORDS, st.sampled_from(["restart", "truncate"])), max_size=8)
CUTS = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90)), max_size=4)


def _append(records: list[tuple[Headers, bytes]]) -> Append:
    headers = {index: some for index, (some, body) in enumerate(records) if some}
    bodies = [b"" if some == FENCE else body for some, body in records]
    return appending(*bodies, headers=headers)


async def whole(back: Back, step: int = 1 << 20) -> tuple[int, bytes]:
    info = await back.perform(GetByteStreamInfo(STREAM))
    data = b""
    while (at := info.start_offset + len(data)) < info.length:
        read = await back.perform(ReadBytes(STREAM, at, step))
        assert read.data
        data += read.data
    return info.start_offset, data


@examples(most=60)
@given(ACTIONS, LAYOUTS, CUTS)
def test_the_same_bytes_as_the_embedded_store(actions: list[bytes | Append | str], layout: Layout, cuts: list) -> None:
    trio.run(_same_bytes, actions, layout, cuts)


async def _same_bytes(actions: list[bytes | Append | str], layout: Layout, cuts: list[tuple[int, int]]) -> None:
    wall = Wall()
    ours = BytesSettings(envelopes=layout, mark_every_bytes=16, read_ahead_bytes=16)
    with tempfile.TemporaryDirectory() as directory:
        model_settings = EmbeddedSettings(directory=Path(directory) / "model", envelopes=layout)
        server_settings = EmbeddedSettings(directory=Path(directory) / "server")
        async with open_embedded(model_settings, wall) as model, open_embedded(server_settings, wall) as server:
            for store in (model, server):
                await store.perform(CreateBasin(BASIN))
                await store.perform(CreateStream(STREAM))
            todo = list(actions)
            while todo:
                async with open_bytes_on_records(RecordsOnly(server), "x", server, ours, clock=wall) as back:
                    await _act(todo, model, back)
            async with open_bytes_on_records(RecordsOnly(server), "x", server, ours, clock=wall) as back:
                start, expected = await whole(model)
                assert await whole(back, 7) == (start, expected)
                for offset, size in cuts:
                    if start <= offset < start + len(expected):
                        read = await back.perform(ReadBytes(STREAM, offset, size))
                        assert read.data == expected[offset - start :][:size]
                        twin = await model.perform(ReadBytes(STREAM, offset, size))
                        assert (read.at_tail, read.dropped) == (twin.at_tail, twin.dropped)


async def _act(todo: list[bytes | Append | str], model: Back, back: Back) -> None:
    while todo:
        action = todo.pop(0)
        if action == "restart":
            return
        if isinstance(action, Append):
            await model.perform(action)
            await back.perform(action)
        elif isinstance(action, bytes):
            ack = await back.perform(AppendBytes(STREAM, action))
            assert ack.offset == (await model.perform(AppendBytes(STREAM, action))).offset
        else:
            info = await model.perform(GetByteStreamInfo(STREAM))
            at = (info.start_offset + info.length) // 2
            assert await back.perform(Truncate(STREAM, at)) == await model.perform(Truncate(STREAM, at))
