"""The laws that every codec keeps, for both dialects and both roles; and that memory stays flat whatever comes."""

from __future__ import annotations

import contextlib
import tracemalloc
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.segment.messages import MESSAGES, WRITER, joined, message_of, pull, ready_client

from penstock.model.failures import RemoteProtocolError
from penstock.model.limits import MIB
from penstock.wire import conformance
from penstock.wire.codec import NEED_DATA, Role, installed_codecs
from penstock_pravega.codec import (
    PLUGIN,
    BlockData,
    Dialect,
    SegmentServer,
    append_messages,
    draft,
    join_events,
    released,
    split_events,
)
from penstock_pravega.codec.frames import FrameFault, Frames
from penstock_pravega.codec.layout import HEADER, HEADER_BYTES, Direction
from penstock_pravega.codec.limits import SegmentLimits

ENDS = pytest.mark.parametrize(
    ("role", "dialect"),
    [pytest.param(role, dialect, id=f"{role.value}-{dialect}") for role in Role for dialect in PLUGIN.dialects],
)
TYPES = [cls.type_id.to_bytes(4, "big", signed=True) for _, cls in MESSAGES]
TOKENS = [bytes(4), bytes(8), b"\0\0\0\1", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\xff\xff\xff", WRITER.bytes]


@st.composite
def near_misses(draw: st.DrawFn, role: Role, dialect: str) -> bytes:
    """A good conversation with a few bytes changed, put in, or taken out; types and lengths above all."""
    data = bytearray(PLUGIN.sample(role, dialect))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        put = draw(st.sampled_from(TOKENS) | st.sampled_from(TYPES) | st.binary(max_size=3))
        data[at : at + draw(st.sampled_from([0, len(put)]))] = put
    return bytes(data)


def conversations(dialect: str) -> st.SearchStrategy[bytes]:
    """Well-formed messages in any order, most of which break its rules sooner or later."""
    ours = [cls for one, cls in MESSAGES if one.value == dialect]
    start = PLUGIN.sample(Role.SERVER, dialect)[: 16 if dialect == "released" else 0]
    return st.lists(st.sampled_from(ours).flatmap(message_of), max_size=6).map(lambda said: start + joined(*said))


def test_the_plug_in_is_registered() -> None:
    assert installed_codecs()["segment"] is PLUGIN
    with pytest.raises(ValueError, match="modern"):
        PLUGIN.make(Role.CLIENT, "modern")


@ENDS
def test_the_sample_is_good_wherever_it_is_cut(role: Role, dialect: str) -> None:
    make = partial(PLUGIN.make, role, dialect)
    data = PLUGIN.sample(role, dialect)
    events, ending = conformance.trace(make, [data])
    assert ending == "Pull.PAUSED" and len(events) >= 4
    for cut in range(len(data)):
        conformance.cut_anywhere(make, data, [cut])
        conformance.prefix(make, data, cut)
    conformance.cut_anywhere(make, data, range(len(data)))


@ENDS
@examples(most=700)
@given(data=st.data())
def test_near_misses(role: Role, dialect: str, data: st.DataObject) -> None:
    make = partial(PLUGIN.make, role, dialect)
    said = data.draw(near_misses(role, dialect))
    conformance.no_surprise(make, said)
    conformance.cut_anywhere(make, said, data.draw(st.lists(st.integers(0, len(said)), max_size=8)))
    conformance.prefix(make, said, data.draw(st.integers(0, len(said))))


@ENDS
@examples(most=300)
@given(data=st.data())
def test_any_messages_in_any_order(role: Role, dialect: str, data: st.DataObject) -> None:
    make = partial(PLUGIN.make, role, dialect)
    said = data.draw(conversations(dialect))
    conformance.no_surprise(make, said)
    conformance.cut_anywhere(make, said, data.draw(st.lists(st.integers(0, len(said)), max_size=8)))


@ENDS
@examples(most=700)
@given(st.lists(st.sampled_from(TOKENS) | st.sampled_from(TYPES) | st.binary(max_size=6), max_size=20).map(b"".join))
def test_garbage(role: Role, dialect: str, garbage: bytes) -> None:
    make = partial(PLUGIN.make, role, dialect)
    conformance.no_surprise(make, garbage)
    conformance.cut_anywhere(make, garbage, range(len(garbage)))


TIGHT = SegmentLimits(max_message_bytes=500, max_append_bytes=500, block_piece_bytes=200, max_writers=3)
MOST_HELD = 2 * 508 + 200 + 100
"""Two messages, a piece, and what came last."""


@examples(most=200)
@given(st.sampled_from(PLUGIN.dialects), st.data())
def test_a_server_holds_no_more_than_its_limits(dialect: str, data: st.DataObject) -> None:
    said = data.draw(near_misses(Role.SERVER, dialect)) + data.draw(st.sampled_from([b"\0", b"\xff", b"a"])) * 5000
    conformance.bounded(lambda: SegmentServer(TIGHT, observer=True), said, MOST_HELD, piece=100)


def block_server() -> SegmentServer:
    return ready_client()[1]


def fed(server: SegmentServer, said: bytes, times: int) -> int:
    """Bytes of block data that came while `said` was fed so often; none of it is kept."""
    size = 0
    for _ in range(times):
        server.receive(said)
        while (event := server.next_event()) is not NEED_DATA:
            assert isinstance(event, BlockData) and event.offset == size
            size += len(event.data)
    return size


GIB = 1 << 30
TRICKLES: dict[str, tuple[bytes, bool]] = {
    "events": (join_events([bytes([1]) * 65_528] * 16), True),
    "padding": (bytes(MIB), False),
}


@pytest.mark.parametrize("trickle", TRICKLES)
def test_a_block_of_1_gib_keeps_memory_flat(trickle: str) -> None:
    """Announced, and really sent: only a piece and an event are held, and all of it arrives."""
    chunk, stored = TRICKLES[trickle]
    server = block_server()
    server.receive(joined(draft.BeginAppendBlock(WRITER, 0, GIB)))
    assert len(pull(server)) == 1
    tracemalloc.start()
    try:
        size = fed(server, chunk, GIB // len(chunk))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB
    server.receive(joined(draft.EndAppendBlock(WRITER, size, size)))
    assert (size, pull(server)) == (GIB if stored else 0, [draft.EndAppendBlock(WRITER, size, size)])


def test_empty_events_that_were_counted_come_in_pieces() -> None:
    """64 MiB of zeros turn out to be 8 million empty events, since something follows them."""
    server = block_server()
    zeros, last = 64 * MIB, join_events([b"x"])
    server.receive(joined(draft.BeginAppendBlock(WRITER, 0, zeros + len(last))))
    assert len(pull(server)) == 1
    tracemalloc.start()
    try:
        assert fed(server, bytes(MIB), 64) == 0
        assert server.buffered == 0
        server.receive(last)
        size = 0
        while isinstance(event := server.next_event(), BlockData):
            size += len(event.data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == zeros  # the last event waits for its piece to be full, or for the end
    assert peak < 8 * MIB
    server.receive(joined(draft.EndAppendBlock(WRITER, zeros + 9, zeros + 9)))
    assert [type(event).__name__ for event in pull(server)] == ["BlockData", "EndAppendBlock"]


@pytest.mark.parametrize(
    "announcement",
    [
        pytest.param(joined(draft.KeepAlive())[:4] + b"\0\xff\xff\xff", id="draft"),
        pytest.param(joined(released.Hello(16, 5)) + b"\0\0\0\x03\0\xff\xff\xff", id="released"),
        pytest.param(joined(draft.Partial(draft.PartialKind.BEGIN, b"\0\0\0\x64\0\xff\xff\xff")), id="in parts"),
    ],
)
def test_what_is_announced_costs_nothing(announcement: bytes) -> None:
    tracemalloc.start()
    try:
        server = SegmentServer()
        server.receive(announcement)
        for _ in range(1000):
            server.receive(b"\0")
            with contextlib.suppress(RemoteProtocolError):
                pull(server)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_large_messages_in_small_pieces() -> None:
    """Time in proportion to their size, and nothing is lost."""
    body = bytes(range(256)) * 2048
    server = SegmentServer()
    said = joined(released.Hello(16, 5), released.SetupAppend(1, WRITER, "s"), *append_messages(WRITER, [body], 1, 1))
    events: list[Any] = []
    for at in range(0, len(said), 3):
        server.receive(said[at : at + 3])
        events += pull(server)
    assert events[-1].data == join_events([body])


@examples(most=500)
@given(st.lists(st.binary(max_size=50) | st.sampled_from([b"", b"x" * 100]), max_size=30))
def test_events(bodies: list[bytes]) -> None:
    block = join_events(bodies)
    assert split_events(block) == bodies
    assert block == b"".join(bytes(4) + len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (join_events([b"hello"])[:-1], "ends inside the event of 5 bytes at byte 0"),
        (join_events([b"hello", b""])[:-1], "ends inside the header of an event at byte 13"),
        (join_events([b"hello"]) + b"\0\0\0\1" + bytes(4), "message type 1 where an Event .* at byte 13"),
        (b"\xff\xff\xff\xfe" + bytes(4), "message type -2 where"),
    ],
)
def test_what_is_no_events(block: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        split_events(block)


def test_dialects_are_named_in_order() -> None:
    assert PLUGIN.dialects == (Dialect.RELEASED.value, Dialect.DRAFT.value)


def test_a_message_that_was_taken_is_not_kept() -> None:
    """A client that sends a large one, and then nothing, would pin its bytes, which no limit counts."""
    _, server = ready_client()
    server.receive(joined(released.GetStreamSegmentInfo(1, "x", "t" * 1000)))
    (asked,) = pull(server)
    assert isinstance(asked, released.GetStreamSegmentInfo)
    assert len(server._frames.data) == 0


@pytest.mark.parametrize("dialect", Dialect)
def test_a_message_may_be_as_long_as_the_limit(dialect: Dialect) -> None:
    frames = Frames(Direction.REQUEST, dialect, 1000)
    frames.receive(HEADER.pack(released.KeepAlive.type_id, 1000) + HEADER.pack(released.KeepAlive.type_id, 1001))
    head = frames.head()
    assert head is not None and head[1] == 1000
    frames.take(HEADER_BYTES)
    with pytest.raises(FrameFault, match="KeepAlive of 1001 bytes, at most 1000 are allowed"):
        frames.head()


def test_nothing_is_held_before_the_first_byte_and_after_a_fault() -> None:
    server = SegmentServer()
    assert server.buffered == 0
    server.receive(b"\0")
    assert server.next_event() is NEED_DATA and server.buffered == 1
    server.receive(b"\xff\xff\xff" + bytes(4))
    with pytest.raises(RemoteProtocolError):
        server.next_event()
    assert server.buffered == 0
    server.receive(bytes(1000))
    assert server.buffered == len(server._frames.data) == 0
