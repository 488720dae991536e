"""The segment front: how connections begin and end, and what does not end them (segment fact sheet, 1.1, 1.2)."""

from __future__ import annotations

import random
from uuid import uuid4

import pytest
import structlog
import trio
import trio.testing
from support.segment.front import SEGMENT, Client, Connect, WatchedBack, bytes_of, serving
from trio.testing import MockClock

from penstock.model.byte_operations import GetByteStreamInfo
from penstock.model.operations import CreateStream
from penstock_pravega.codec import PLUGIN, Dialect, append_messages, draft, join_events, released
from penstock_pravega.segment.front import SegmentFront, SegmentSettings

HELLO = released.Hello(16, 5)
MIB = 1 << 20


def header(type_id: int, length: int) -> bytes:
    return type_id.to_bytes(4, "big", signed=True) + length.to_bytes(4, "big", signed=True)


# ---- Hello and KeepAlive -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("high", "low"), [(16, 5), (15, 5), (5, 1), (99, 16)])
async def test_hello(connect: Connect, clock: MockClock, high: int, low: int) -> None:
    client = await connect(greet=False)
    await client.send(raw=bytes_of(released.Hello(high, low)))
    assert await client.reply() == HELLO
    await client.send(raw=bytes_of(released.KeepAlive()))
    assert await client.reply() == released.KeepAlive()


@pytest.mark.parametrize(("high", "low"), [(4, 1), (99, 17), (5, 16)])
async def test_versions_that_do_not_meet(connect: Connect, clock: MockClock, high: int, low: int) -> None:
    """Answered as the real server does, and then closed; nothing that follows is done."""
    client = await connect(greet=False)
    with structlog.testing.capture_logs() as logs:
        await client.send(raw=bytes_of(released.Hello(high, low), released.CreateSegment(1, SEGMENT, 0, 0)))
        assert await client.replies(2) == [HELLO, None]
    assert [line["event"] for line in logs] == ["protocol_error"]
    other = await connect()
    assert isinstance(await other.call(released.GetStreamSegmentInfo(1, SEGMENT)), released.NoSuchSegment)


async def test_keep_alives(connect: Connect, clock: MockClock) -> None:
    """Echoed at once, the draft's with its data; also thousands of them."""
    client, other = await connect(), await connect(Dialect.DRAFT)
    assert await other.call(draft.KeepAlive(b"any data")) == draft.KeepAlive(b"any data")
    await client.send(*[released.KeepAlive()] * 3000)
    assert await client.replies(3000) == [released.KeepAlive()] * 3000


async def test_a_client_need_not_wait(connect: Connect, clock: MockClock) -> None:
    """All of a conversation in one write, Hello first: it is done in that order."""
    client, writer = await connect(greet=False), uuid4()
    await client.send(
        HELLO,
        released.CreateSegment(1, SEGMENT, 0, 0),
        released.SetupAppend(2, writer, SEGMENT),
        *append_messages(writer, [b"hello"], 1, 3),
        released.SetupAppend(4, writer, SEGMENT),
        released.SealSegment(5, SEGMENT),
        released.ReadSegment(SEGMENT, 0, 100, "", 6),
        released.DeleteSegment(7, SEGMENT),
    )
    replies = await client.replies(8)
    assert [reply.request_id for reply in replies[1:6]] == [1, 2, 3, 4, 5]
    assert {reply.request_id for reply in replies[6:]} == {6, 7}


# ---- violations ----------------------------------------------------------------------------------------------------

NO_MESSAGES = {
    "unknown": header(6, 0),
    "retired": header(72, 0),
    "a reply": bytes_of(released.SegmentCreated(1, "s")),
    "negative length": header(11, -1),
    "too long": header(3, 1 << 24),
    "short body": header(11, 5) + bytes(5),
    "name too long": header(11, 1037) + bytes(8) + b"\x04\x01" + b"x" * 1025 + b"\0\0",
    "a second hello": bytes_of(HELLO),
    "a block without its end": b"",
}


@pytest.mark.parametrize("bad", NO_MESSAGES.values(), ids=NO_MESSAGES.keys())
async def test_what_is_no_message(connect: Connect, clock: MockClock, bad: bytes) -> None:
    """Messages before it are answered, appends too; then the connection ends without a reply; one line is logged."""
    client: Client = await connect()
    await client.create()
    writer = await client.writer()
    bad = bad or bytes_of(released.AppendBlock(writer, b"x"), released.KeepAlive())
    with structlog.testing.capture_logs() as logs:
        await client.send(
            *append_messages(writer, [b"hello"], 1, 3), raw=bad + bytes_of(released.DeleteSegment(9, SEGMENT))
        )
        assert isinstance(await client.reply(), released.DataAppended)
        assert await client.ended()
    assert [line["event"] for line in logs] == ["protocol_error"]
    other = await connect()
    assert await other.content() == join_events([b"hello"])


@pytest.mark.parametrize("dialect", list(Dialect))
async def test_near_misses(connect: Connect, clock: MockClock, dialect: Dialect) -> None:
    """Damaged conversations, and noise: the next connection works in any case."""
    rng = random.Random(5)
    from penstock.wire.codec import Role

    sample = PLUGIN.sample(Role.SERVER, dialect.value)
    with structlog.testing.capture_logs() as logs:
        for _ in range(200):
            said = bytearray(sample)
            for _ in range(rng.randrange(1, 4)):
                said[rng.randrange(len(said))] = rng.randrange(256)
            client = await connect(dialect, greet=False)
            await client.stream.send_all(bytes(said[: rng.randrange(1, len(said) + 1)]))
            await client.stream.send_eof()
            while await client.stream.receive_some(65536):
                pass
    assert {line["event"] for line in logs} <= {"protocol_error", "append_refused", "request_refused"}
    assert not any("exc_info" in line for line in logs)
    other = await connect()
    await other.create("scope/fine/0.#epoch.0")


async def test_nothing_at_all(connect: Connect, clock: MockClock) -> None:
    for dialect in Dialect:
        client = await connect(dialect, greet=False)
        await client.stream.send_all(b"\xff\xff")
        await client.stream.send_eof()
        assert await client.ended()


# ---- the end -------------------------------------------------------------------------------------------------------


async def test_a_client_that_has_finished_gets_its_answers(connect: Connect, clock: MockClock) -> None:
    client: Client = await connect()
    await client.create()
    writer = await client.writer()
    await client.send(*append_messages(writer, [b"hello"], 1, 3), released.SealSegment(4, SEGMENT))
    await client.stream.send_eof()
    assert [type(reply) for reply in await client.replies(3)] in (
        [released.DataAppended, released.SegmentSealed, type(None)],
        [released.SegmentSealed, released.DataAppended, type(None)],
    )


@pytest.mark.parametrize("sent", [b"", bytes_of(released.KeepAlive())[:5]])
async def test_a_client_that_says_nothing_is_let_go(back: WatchedBack, clock: MockClock, sent: bytes) -> None:
    async with serving(SegmentFront(back, SegmentSettings(idle_timeout_seconds=60))) as connect:
        client = await connect()
        began = trio.current_time()
        await client.stream.send_all(sent)
        assert await client.ended()
        assert 29 <= trio.current_time() - began <= 32


async def test_a_client_that_has_said_something_may_be_silent_for_longer(back: WatchedBack, clock: MockClock) -> None:
    async with serving(SegmentFront(back, SegmentSettings(idle_timeout_seconds=60))) as connect:
        client = await connect()
        await client.create()
        began = trio.current_time()
        assert await client.ended()
        assert 59 <= trio.current_time() - began <= 62


async def test_a_message_that_drips_is_cut_off(back: WatchedBack, clock: MockClock) -> None:
    async with serving(SegmentFront(back, SegmentSettings())) as connect:
        client = await connect()
        await client.create()
        began = trio.current_time()
        await client.stream.send_all(released.AppendBlock.type_id.to_bytes(4, "big") + (1 << 20).to_bytes(4, "big"))
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await client.stream.send_all(b"x")
                await trio.sleep(1)
        assert 29 <= trio.current_time() - began <= 33


async def test_a_client_that_waits_is_not_silent(back: WatchedBack, clock: MockClock) -> None:
    settings = SegmentSettings(idle_timeout_seconds=5, read_hold_seconds=30)
    async with serving(SegmentFront(back, settings)) as connect:
        client = await connect()
        await client.create()
        began = trio.current_time()
        assert (await client.read()).data == b""
        assert 29 <= trio.current_time() - began <= 32
        assert await client.ended()
        assert trio.current_time() - began <= 42


async def test_a_client_that_takes_nothing_is_let_go(back: WatchedBack, clock: MockClock) -> None:
    """It is asked for nothing more while much waits for it, and what waits is bounded."""
    front = SegmentFront(back, SegmentSettings(send_timeout_seconds=30))
    async with serving(front) as connect:
        writer = await connect()
        await writer.create()
        for number in range(4):
            await writer.append(await writer.writer(), 1 + number, bytes(MIB - 8))
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(front.serve, theirs)
        client = Client(ours, Dialect.RELEASED)
        await client.send(HELLO)
        assert await client.reply() == HELLO
        back.performed.clear()
        began = trio.current_time()
        with structlog.testing.capture_logs() as logs, pytest.raises(trio.BrokenResourceError):
            for number in range(1000):
                await client.send(released.ReadSegment(SEGMENT, 0, 2 * MIB, "", number))
        assert 29 <= trio.current_time() - began <= 33
        assert len(back.performed) < 10
    assert [(line["event"], line["reason"]) for line in logs] == [("connection_lost", "the client accepts no data")]


async def test_a_slow_line_is_no_dead_one(back: WatchedBack, clock: MockClock) -> None:
    front = SegmentFront(back, SegmentSettings(send_timeout_seconds=6))
    async with serving(front) as connect:
        writer = await connect()
        await writer.create()
        await writer.append(await writer.writer(), 1, bytes(MIB))
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(front.serve, theirs)
        await ours.send_all(bytes_of(HELLO, released.ReadSegment(SEGMENT, 0, 2 * MIB, "", 1)))
        received = 0
        while received < MIB:
            await trio.sleep(3)
            received += len(await ours.receive_some(MIB // 8))
        await ours.aclose()


# ---- drain ---------------------------------------------------------------------------------------------------------


async def test_a_drain_finishes_what_was_taken(
    connect: Connect, clock: MockClock, front: SegmentFront, back: WatchedBack
) -> None:
    idle, fresh, busy = await connect(), await connect(greet=False), await connect()
    await busy.create()
    writer = await busy.writer()
    back.gate = trio.Event()
    await busy.send(*append_messages(writer, [b"hello"], 1, 3))
    await trio.sleep(0.1)
    front.drain()
    assert await idle.ended() and await fresh.ended()
    await busy.send(released.DeleteSegment(9, SEGMENT))
    await trio.sleep(0.1)
    back.gate.set()
    assert isinstance(await busy.reply(), released.DataAppended)
    assert await busy.ended(), "nothing was taken after the drain"
    late = await connect(greet=False)
    assert await late.ended()


# ---- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [GetByteStreamInfo, CreateStream])
async def test_a_bug_ends_one_connection(
    connect: Connect, clock: MockClock, back: WatchedBack, operation: type
) -> None:
    client, other = await connect(), await connect()
    back.fails[operation] = ZeroDivisionError("a bug")
    if operation is CreateStream:
        await client.send(released.CreateSegment(1, SEGMENT, 0, 0))
    else:
        await client.send(released.GetStreamSegmentInfo(1, SEGMENT))
    with structlog.testing.capture_logs() as logs:
        assert await client.ended()
    assert [line["event"] for line in logs] == ["connection_failed"]
    back.fails.clear()
    await other.create()


async def test_a_back_without_bytes_is_refused(back: WatchedBack) -> None:
    back.capabilities = frozenset()
    with pytest.raises(ValueError, match="byte offsets"):
        SegmentFront(back)


async def test_on_a_real_socket(back: WatchedBack) -> None:
    """Large messages both ways, many at once, through the socket's own path."""
    front = SegmentFront(back)
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(trio.serve_tcp, front.serve, 0)
        stream = await trio.open_tcp_stream("127.0.0.1", listeners[0].socket.getsockname()[1])
        client = Client(stream, Dialect.RELEASED)
        with trio.fail_after(30):
            await client.greet()
            await client.create()
            writer = await client.writer()
            blocks = [message for n in range(1, 13) for message in append_messages(writer, [bytes([n]) * MIB], n, n)]
            async with trio.open_nursery() as sending:
                sending.start_soon(client.send, *blocks)
                level = 0
                while level < 12:
                    level = (await client.reply()).event_number
            assert await client.content() == join_events([bytes([number]) * MIB for number in range(1, 13)])
            await client.send(*[released.ReadSegment(SEGMENT, 0, 2 * MIB, "", n) for n in range(20)])
            assert {len((await client.reply()).data) for _ in range(20)} == {2 * MIB}
            await stream.aclose()
        nursery.cancel_scope.cancel()
