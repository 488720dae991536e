"""Draft blocks in every shape that the seed's last paragraph describes, client wired to server, at every cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.draft_blocks import HELLO, READ, SETUP, WORLDWIDE, Event, KeepAlive, begin, data, end
from support.segment import pull, ready_client

from penstock_codecs import conformance
from penstock_codecs.segment import (
    Fill,
    SegmentLimits,
    SegmentServer,
    draft,
    draft_order,
    join_events,
    split_events,
)
from penstock_codecs.segment.draft_order import TRANSITIONS, Kind, State


def split(*cuts: int, body: bytes = b"worldwide") -> list[draft.Partial]:
    return draft.partials(Event(body), cuts)


ONE = split(6)
"""Wire: 8 + 1 + 6 before the end, 11 bytes after it."""
TWO = split(1, 9)
NINE_LEFT = split(8)
"""The rest is as long as the wrapper, so the block's length is what was announced."""
READ_PARTS = draft.partials(READ, [2, 9])

SHAPES: dict[str, tuple[list[Any], list[Any]]] = {
    "whole events": ([begin(13), Event(b"hello"), end(13)], [begin(13), data(HELLO), end(13)]),
    "skip-copied": (
        [begin(30), data(HELLO + WORLDWIDE), end(30)],
        [begin(30), data(HELLO + WORLDWIDE), end(30)],
    ),
    "skip-copied, empty events in it": (
        [begin(46), data(bytes(8) + HELLO + bytes(8) + WORLDWIDE), end(46)],
        [begin(46), data(bytes(8) + HELLO + bytes(8) + WORLDWIDE), end(46)],
    ),
    "nothing": ([begin(0), end(0)], [begin(0), end(0)]),
    "ended early": ([begin(20), Event(b"hello"), Fill(7), end(13)], [begin(20), data(HELLO), end(13)]),
    "ended at once": ([begin(9), Fill(9), end(0)], [begin(9), end(0)]),
    "empty events before padding": (
        [begin(50), Event(b"hello"), Event(b""), Event(b""), Fill(21), end(29)],
        [begin(50), data(HELLO + bytes(16)), end(29)],
    ),
    "empty events before others": (
        [begin(21), Event(b""), Event(b"hello"), end(21)],
        [begin(21), data(bytes(8) + HELLO), end(21)],
    ),
    "split": (
        [begin(28), Event(b"hello"), ONE[0], end(30), ONE[1]],
        [begin(28), data(HELLO + WORLDWIDE), end(30)],
    ),
    "split, nothing but that": ([begin(15), ONE[0], end(17), ONE[1]], [begin(15), data(WORLDWIDE), end(17)]),
    "split into three": (
        [begin(23), Event(b"hello"), TWO[0], end(30), TWO[1], TWO[2]],
        [begin(23), data(HELLO + WORLDWIDE), end(30)],
    ),
    "split, two parts before the end": (
        [begin(40), Event(b"hello"), TWO[0], TWO[1], end(30), TWO[2]],
        [begin(40), data(HELLO + WORLDWIDE), end(30)],
    ),
    "split with the same length": (
        [begin(17), NINE_LEFT[0], end(17), NINE_LEFT[1]],
        [begin(17), data(WORLDWIDE), end(17)],
    ),
    "split, then padding": (
        [begin(60), Event(b"hello"), ONE[0], Fill(32), end(30), ONE[1]],
        [begin(60), data(HELLO + WORLDWIDE), end(30)],
    ),
    "empty events around a split": (
        [begin(52), Event(b""), Event(b"hello"), ONE[0], Event(b""), Event(b""), end(46), ONE[1]],
        [begin(52), data(bytes(8) + HELLO + bytes(8) + WORLDWIDE), end(46)],
    ),
    "other messages before the rest": (
        [begin(28), Event(b"hello"), ONE[0], end(30), KeepAlive(b"xyz"), READ, SETUP, ONE[1], READ],
        [begin(28), KeepAlive(b"xyz"), READ, SETUP, data(HELLO + WORLDWIDE), end(30), READ],
    ),
    "split, all of it inside": (
        [begin(48), Event(b"hello"), ONE[0], ONE[1], end(30)],
        [begin(48), data(HELLO + WORLDWIDE), end(30)],
    ),
    "split inside, an event between": (
        [begin(48), ONE[0], Event(b"hello"), ONE[1], end(30)],
        [begin(48), data(HELLO + WORLDWIDE), end(30)],
    ),
    "a request in parts around a block": (
        [READ_PARTS[0], READ_PARTS[1], begin(13), Event(b"hello"), end(13), READ_PARTS[2]],
        [begin(13), data(HELLO), end(13), READ],
    ),
    "a request begun in parts inside a block": (
        [begin(24), Event(b"hello"), READ_PARTS[0], end(13), READ_PARTS[1], READ_PARTS[2]],
        [begin(24), data(HELLO), end(13), READ],
    ),
    "two blocks": (
        [begin(13), Event(b"hello"), end(13), begin(17, 13), Event(b"worldwide"), end(17, 13)],
        [begin(13), data(HELLO), end(13), begin(17, 13), data(WORLDWIDE, 13), end(17, 13)],
    ),
    "a block in parts": (
        [*draft.partials(begin(13), [5]), Event(b"hello"), end(13)],
        [begin(13), data(HELLO), end(13)],
    ),
}
EACH = pytest.mark.parametrize(("said", "heard"), [pytest.param(*shape, id=name) for name, shape in SHAPES.items()])


def spoken(said: Sequence[Any]) -> bytes:
    client, _ = ready_client()
    return b"".join(piece for message in said for piece in client.send(message))


@EACH
def test_shapes(said: list[Any], heard: list[Any]) -> None:
    _, server = ready_client()
    server.receive(spoken(said))
    assert pull(server) == heard
    assert server.buffered == 0


@EACH
def test_shapes_at_every_cut(said: list[Any], heard: list[Any]) -> None:
    whole = spoken(said)
    for cut in range(1, len(whole)):
        _, server = ready_client()
        got = []
        for piece in (whole[:cut], whole[cut:]):
            server.receive(piece)
            got += pull(server)
        assert got == heard, f"cut at {cut}"
    _, server = ready_client()
    got = []
    for byte in whole:
        server.receive(bytes([byte]))
        got += pull(server)
    assert got == heard


@EACH
def test_shapes_that_break_off(said: list[Any], heard: list[Any]) -> None:
    """What was heard before is a part of what would have been heard, and the end says that something was missing."""
    whole = spoken(said)
    for cut in range(len(whole)):
        make = lambda: ready_client()[1]  # noqa: E731
        events, _ = conformance.trace(make, [whole[:cut]])
        assert [repr(event) for event in heard][: len(events)] == list(events)


def server_with(piece: int) -> SegmentServer:
    return ready_client(server=SegmentServer(SegmentLimits(block_piece_bytes=piece)))[1]


BODIES = st.lists(st.binary(max_size=30) | st.just(b""), max_size=12)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, bytes, int]:
    """A block in some shape: its bytes, its content, what was announced."""
    client, _ = ready_client()
    bodies = draw(BODIES)
    last = draw(st.none() | st.binary(max_size=40))
    inside: list[Any] = [Event(body) for body in bodies]
    after: list[Any] = []
    content = join_events(bodies)
    if last is not None:
        whole = join_events([last])
        parts = draft.partials(Event(last), draw(st.lists(st.integers(0, len(whole)), min_size=1, max_size=4)))
        count = draw(st.integers(1, len(parts) - 1))
        inside += parts[:count]
        after = parts[count:]
        content += whole
    if fill := draw(st.integers(0, 40)):
        inside.append(Fill(fill))
    length = sum(m.length if isinstance(m, Fill) else 8 + len(m.data) + isinstance(m, draft.Partial) for m in inside)
    said = [begin(length), *inside, end(len(content)), *after]
    return b"".join(piece for message in said for piece in client.send(message)), content, length


@given(blocks(), st.integers(1, 100), st.lists(st.integers(0, 2**16), max_size=10))
def test_any_block(block: tuple[bytes, bytes, int], piece: int, cuts: list[int]) -> None:
    """Whatever its shape and however cut: its content, in pieces of whole events that the cuts do not change."""
    said, content, length = block
    whole = conformance.trace(lambda: server_with(piece), [said])
    assert conformance.trace(lambda: server_with(piece), conformance.pieces_of(said, cuts)) == whole
    server = server_with(piece)
    server.receive(said)
    first, *pieces, last = pull(server)
    assert (first, last) == (begin(length), end(len(content)))
    assert b"".join(one.data for one in pieces) == content
    offset = 0
    for one in pieces:
        assert one.offset == offset
        events = split_events(one.data)
        assert len(one.data) >= piece or one is pieces[-1]
        assert len(one.data) - len(join_events(events[-1:])) < piece
        offset += len(one.data)


def test_the_table_of_transitions_is_used_whole() -> None:
    """Every row is taken by the shapes above, so that none is there for nothing."""
    taken: set[tuple[State, Kind]] = set()

    class Watched(dict[tuple[State, Kind], Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            if key in self:
                taken.add(key)
            return super().get(key, default)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft_order, "TRANSITIONS", Watched(TRANSITIONS))
        for said, _ in SHAPES.values():
            _, server = ready_client()
            server.receive(spoken(said))
            pull(server)
    assert taken == set(TRANSITIONS)
    assert all(row.clause for row in TRANSITIONS.values())
