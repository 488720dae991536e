"""Draft blocks in every shape that the seed's last paragraph describes, client wired to server, at every cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.segment.draft_blocks import SHAPES, Event, begin, end
from support.segment.messages import pull, ready_client

from penstock.wire import conformance
from penstock_pravega.codec import SegmentLimits, SegmentServer, draft, draft_order, join_events, split_events
from penstock_pravega.codec.draft_order import TRANSITIONS, DraftKind, DraftState
from penstock_pravega.codec.encoder import Fill

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
    """A shape that is cut short gives only events with which the whole one begins."""
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
    """Blocks of many shapes: the bytes, the content, and the announced length."""
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
    """A block of any shape, cut anywhere, gives its content in pieces of whole events, independent of the cuts."""
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
    taken: set[tuple[DraftState, DraftKind]] = set()

    class Watched(dict[tuple[DraftState, DraftKind], Any]):
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
