"""The HTTP server: the memory that one connection's responses may hold, and the order in which connections get it."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from support.http.client import HttpClient, memory_pair, serving

from penstock.net.http.exchange import Exchange
from penstock.net.http.server.room import SendRoom
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.wire.codec import Role
from penstock.wire.http import Credit, Data, End, HttpLimits, Reset
from penstock.wire.http.h2 import Http2Connection

Clock = trio.testing.MockClock
MIB = 1 << 20
LIMIT = HttpSettings().max_unsent
MANY = 200


class Pieces:
    """A handler that fetches pieces of 1 MiB, as many as the path says, when there is room for them."""

    def __init__(self) -> None:
        self.there = 0  # pieces in memory
        self.most = 0
        self.ended = 0

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await exchange.start(200, [])
            for _ in range(int(exchange.request.path[1:])):
                await exchange.room()
                await trio.lowlevel.checkpoint()
                await exchange.send([Piece(self)])
            await exchange.finish()
        finally:
            self.ended += 1


class Piece(bytes):
    """1 MiB that is counted as long as it is there."""

    def __new__(cls, *_: object) -> Piece:
        return super().__new__(cls, MIB)

    def __init__(self, owner: Pieces) -> None:
        self._owner = owner
        owner.there += 1
        owner.most = max(owner.most, owner.there)

    def __del__(self) -> None:
        self._owner.there -= 1


async def begin(client: HttpClient, pieces: int) -> int:
    """Ask for pieces; the client takes none of them until it is told to."""
    stream_id = await client.open("GET", f"/{pieces}")
    await client.say(End(stream_id))
    await client.head(stream_id)
    return stream_id


async def settled(client: HttpClient) -> None:
    """Wait until nothing moves any more."""
    while True:
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0):
            await client.pump()
            continue
        return


async def test_streams_that_take_little_hold_no_more_than_the_limit(autojump_clock: Clock) -> None:
    handler = Pieces()
    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        client = HttpClient(near, "h2", HttpLimits(stream_window=1))
        streams = [await begin(client, 2) for _ in range(MANY)]
        await settled(client)
        assert handler.there == LIMIT // MIB
        for stream_id in streams[:20]:
            await client.say(Reset(stream_id))
            await settled(client)
        assert handler.ended == 20
        assert handler.there == handler.most == LIMIT // MIB
    assert handler.there == 0


async def test_streams_without_window_hold_half_of_it_and_all_come_to_their_turn(autojump_clock: Clock) -> None:
    handler = Pieces()
    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        client = HttpClient(near, "h2", HttpLimits(stream_window=65_536, connection_window=65_536))
        streams = [await begin(client, 2) for _ in range(40)]
        await settled(client)
        assert handler.there == LIMIT // MIB // 2
        taken = dict.fromkeys(streams, 0)
        while sum(taken.values()) < len(streams) * 2 * MIB:
            events = client.taken()
            if not events:
                await client.pump()
            for event in events:
                if isinstance(event, Data):
                    taken[event.stream_id] += len(event.data)
                    await client.say(Credit(event.stream_id, event.credit))
        assert set(taken.values()) == {2 * MIB}
        assert handler.most <= LIMIT // MIB
        assert trio.current_time() == 0


async def test_a_stream_that_takes_waits_ten_seconds_for_those_that_do_not(autojump_clock: Clock) -> None:
    handler = Pieces()
    near, far = memory_pair()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery, near:
            nursery.start_soon(serve_http, far, handler)
            client = HttpClient(near, "h2", HttpLimits(stream_window=100_000))
            for _ in range(LIMIT // MIB):
                await begin(client, 1)
            await settled(client)
            assert handler.there == LIMIT // MIB
            reader = await begin(client, 20)
            assert await client.answer_body(reader) == bytes(20 * MIB)
            assert 5 <= trio.current_time() <= 10
    reasons = [log["reason"] for log in logs if log["event"] == "stream_reset"]
    assert set(reasons) == {"other requests wait for its memory"}
    assert len(reasons) < LIMIT // MIB, "no more of them than must be"


async def test_who_waits_for_room_without_window_is_given_up_in_the_end(autojump_clock: Clock) -> None:
    handler = Pieces()
    settings = HttpSettings(slow_reader=30)
    near, far = memory_pair()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery, near:
            nursery.start_soon(serve_http, far, handler, settings)
            client = HttpClient(near, "h2", HttpLimits(stream_window=65_536, connection_window=65_536))
            streams = [await begin(client, 2) for _ in range(40)]
            await settled(client)
            assert (handler.ended, handler.there) == (0, LIMIT // MIB // 2)
            await trio.sleep(29)
            assert handler.ended == 0
            await trio.sleep(35)  # those that got the room of the first ones have waited, too
            assert (handler.ended, handler.there) == (len(streams), 0)
            assert handler.most == LIMIT // MIB // 2
    assert {log["reason"] for log in logs if log["event"] == "stream_reset"} == {
        "the client gives no flow-control window"
    }


async def test_room_that_was_kept_is_free_again_when_its_exchange_is_over(autojump_clock: Clock) -> None:
    inside = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal inside
        await exchange.start(200, [])
        await exchange.room()
        inside += 1
        await trio.sleep_forever()

    async with serving(handler, "h2") as client:
        streams = [await begin(client, 0) for _ in range(12)]
        await settled(client)
        assert inside == LIMIT // MIB
        for n, stream_id in enumerate(streams[:4], 1):
            await client.say(Reset(stream_id))
            await settled(client)
            assert inside == LIMIT // MIB + n


async def test_those_who_wait_for_news_keep_no_room(autojump_clock: Clock) -> None:
    news = trio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.start(200, [])
        await exchange.room(keep=False)
        await news.wait()
        await exchange.send([bytes(1000)])
        await exchange.finish()

    async with serving(handler, "h2") as client:
        streams = [await begin(client, 0) for _ in range(100)]
        await settled(client)
        news.set()
        for stream_id in streams:
            assert await client.answer_body(stream_id) == bytes(1000)


async def test_an_answer_that_has_ended_keeps_no_room(autojump_clock: Clock) -> None:
    inside = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal inside
        await exchange.start(200, [])
        await exchange.send([bytes(2)])
        await exchange.room()
        inside += 1
        await exchange.finish()

    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        client = HttpClient(near, "h2", HttpLimits(stream_window=1))
        for _ in range(12):
            await begin(client, 0)
        await settled(client)
        assert inside == 12


async def test_an_answer_ends_though_others_fill_the_room(autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.start(200, [])
        await exchange.room()
        await exchange.send([bytes(MIB)])
        await exchange.room(keep=False)
        await exchange.finish()

    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        client = HttpClient(near, "h2", HttpLimits(stream_window=100_000))
        streams = [await begin(client, 0) for _ in range(20)]
        for stream_id in streams:
            assert await client.answer_body(stream_id) == bytes(MIB)
        assert trio.current_time() == 0


async def test_over_http_1_there_is_always_room(autojump_clock: Clock) -> None:
    async with serving(Pieces(), "http/1.1") as client:
        for pieces in (1, 20):
            stream_id = await begin(client, pieces)
            assert await client.answer_body(stream_id) == bytes(pieces * MIB)


def numbered(size: int) -> bytes:
    """Return a body of which no two parts are alike."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4))


class ExchangeSteps(trio.abc.Instrument):
    """Counts how often tasks that serve an exchange run."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name == "exchange"


async def test_streams_that_never_open_their_window_take_nothing_from_others(autojump_clock: Clock) -> None:
    body, fetched = numbered(MIB), 0

    async def fetch() -> list[bytes]:
        nonlocal fetched
        fetched += 1
        await trio.lowlevel.checkpoint()
        return [body[: MIB // 3], body[MIB // 3 :]]

    async def handler(exchange: Exchange) -> None:
        if exchange.request.path == "/whole":
            await exchange.room()
            await exchange.respond(200, [], b"".join(await fetch()), refetch=fetch)
            return
        await exchange.start(200, [])
        for _ in range(2):
            await exchange.room()
            await exchange.send(await fetch(), fetch)
        await exchange.finish()

    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        client = HttpClient(near, "h2", HttpLimits(stream_window=65_536, connection_window=2**31 - 1))
        stuck = []
        for number in range(100):
            stuck.append(await client.open("GET", "/whole" if number % 2 else "/parts"))
            await client.say(End(stuck[-1]))
        await settled(client)
        assert fetched == len(stuck), "all were begun, and none got more than its window"
        steps = ExchangeSteps()
        trio.lowlevel.add_instrument(steps)
        for _ in range(5):
            reader = await client.open("GET", "/parts")
            await client.say(End(reader))
            assert (await client.answer(reader)).body == 2 * body
        trio.lowlevel.remove_instrument(steps)
        assert steps.count < 3 * len(stuck), "they sleep while others read"
        for stream_id in stuck[:3]:
            assert (await client.answer(stream_id)).body == body * (1 if stream_id == stuck[1] else 2)
        assert trio.current_time() == 0


async def test_a_stream_is_reset_when_what_it_waits_for_is_gone(autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        async def fetch() -> list[bytes]:
            return [bytes(MIB - 1)]

        await exchange.room()
        await exchange.respond(200, [], numbered(MIB), refetch=fetch)

    near, far = memory_pair()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery, near:
            nursery.start_soon(serve_http, far, handler)
            client = HttpClient(near, "h2", HttpLimits(stream_window=65_536, connection_window=2**31 - 1))
            streams = []
            for _ in range(12):
                streams.append(await client.open("GET", "/"))
                await client.say(End(streams[-1]))
            await settled(client)
            await client.head(streams[0])
            with pytest.raises(AssertionError, match="Reset"):
                await client.answer_body(streams[0])
    assert [log["reason"] for log in logs if log["event"] == "stream_reset"] == ["what it waits for is gone"]


class Windows(Http2Connection):
    """A codec that says what a test wants."""

    def __init__(self) -> None:
        super().__init__(Role.SERVER)
        self.sizes: dict[int, int] = {}
        self.windows: dict[int, int] = {}

    @property
    def held(self) -> int:
        return sum(self.sizes.values())

    @held.setter
    def held(self, size: int) -> None:
        """It follows from the sizes."""

    def unsent(self, stream_id: int) -> int:
        return self.sizes.get(stream_id, 0)

    def window(self, stream_id: int) -> int:
        return self.windows.get(stream_id, 1)


def never(stream_id: int, reason: str) -> None:
    raise AssertionError(f"stream {stream_id} is given up: {reason}")


@pytest.mark.parametrize("limit", [1, MIB, 3 * MIB])
async def test_turns_come_in_order_and_a_lone_one_always_fits(limit: int, autojump_clock: Clock) -> None:
    codec = Windows()
    room = SendRoom(codec, codec.windows, limit, 60, never)
    came: list[int] = []

    async def reader(stream_id: int) -> None:
        await room.wait(stream_id)
        came.append(stream_id)

    async with trio.open_nursery() as nursery:
        for n in range(10):
            nursery.start_soon(reader, n)
            await trio.testing.wait_all_tasks_blocked()
        at_once = max(1, limit // MIB)
        assert came == list(range(at_once))
        for n in range(10):
            room.leave(n)
            await trio.testing.wait_all_tasks_blocked()
            assert came == list(range(min(10, at_once + n + 1)))


async def test_who_is_cancelled_while_it_waits_takes_nothing(autojump_clock: Clock) -> None:
    codec = Windows()
    room = SendRoom(codec, codec.windows, MIB, 60, never)
    await room.wait(1)
    with trio.move_on_after(1):
        await room.wait(2)
    room.leave(1)
    with trio.fail_after(0):
        await room.wait(3)
