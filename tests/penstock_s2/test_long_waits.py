"""Waits of a minute or more, on a virtual clock: the HTTP server and the S2 front over memory streams."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from support.backs import PartialBack
from support.http.client import serving
from support.s2.frames import FrameReader, append_input, encode_frame
from trio.testing import MockClock, memory_stream_pair

from penstock.core.back import AppendSession, Following, ReadSession
from penstock.model.operations import Append, Appended, Read
from penstock.model.records import RecordBatch, StreamPosition, StreamRef
from penstock.model.streams import StreamConfig
from penstock.net.http.serving import HttpSettings, serve_http
from penstock_proto import s2_pb2 as pb
from penstock_s2.front import S2Front, S2Settings

EMPTY = StreamPosition(0, 0)


class WaitingRead(ReadSession):
    """A read of a stream to which nothing is ever appended."""

    def __init__(self, read: Read) -> None:
        self._deadline = trio.current_time() + (float("inf") if read.wait is None else read.wait)
        self._said = False

    async def next(self) -> RecordBatch | Following | None:
        if not self._said:
            self._said = True
            return Following(EMPTY)
        await trio.sleep_until(self._deadline)
        return None

    def behind(self) -> bool:
        return False

    def tail(self) -> StreamPosition:
        return EMPTY


class CountingAppends(AppendSession):
    """Acknowledges at once whatever it is given."""

    def __init__(self) -> None:
        self._give, self._take = trio.open_memory_channel[Appended](10)
        self._next = 0

    async def send(self, append: Append) -> None:
        start = StreamPosition(self._next, 0)
        self._next += len(append.bodies)
        end = StreamPosition(self._next, 0)
        await self._give.send(Appended(start, end, end))

    def close(self) -> None:
        self._give.close()

    async def receive(self) -> list[Appended]:
        try:
            return [await self._take.receive()]
        except trio.EndOfChannel:
            return []


class QuietBack(PartialBack):
    """A back with nothing in it."""

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[WaitingRead]:
        yield WaitingRead(read)

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[CountingAppends]:
        yield CountingAppends()


class Client:
    """A raw HTTP/1.1 client on a memory stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.received = b""

    async def until(self, wanted: bytes) -> bytes:
        """Everything up to and with `wanted`, which is taken out."""
        while wanted not in self.received:
            data = await self.stream.receive_some()
            assert data, f"the server closed the connection after {self.received!r}"
            self.received += data
        before, _, self.received = self.received.partition(wanted)
        return before + wanted


def quiet_front() -> S2Front:
    return S2Front(QuietBack(), S2Settings())


@asynccontextmanager
async def connected(front: S2Front | None = None) -> AsyncIterator[Client]:
    """A client of a front over the quiet back."""
    front = front or quiet_front()
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_http, theirs, front.handle, HttpSettings())
        yield Client(ours)
        nursery.cancel_scope.cancel()


def head(method: str, query: str, *lines: str) -> bytes:
    target = f"{method} /v1/streams/s/records{query} HTTP/1.1"
    return "\r\n".join([target, "host: x", "s2-basin: conf-basin-01", *lines, "", ""]).encode()


@pytest.mark.parametrize(("wait", "seconds"), [(1, 1), (59, 59), (60, 60), (61, 60), (600, 60), (2**32 - 1, 60)])
async def test_a_unary_wait_is_at_most_60_seconds(autojump_clock: MockClock, wait: int, seconds: int) -> None:
    async with connected() as client:
        await client.stream.send_all(head("GET", f"?seq_num=0&wait={wait}"))
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await client.until(b'{"records":[]}')
        assert trio.current_time() == pytest.approx(seconds, abs=0.01)


async def test_an_idle_append_session_stays_open(autojump_clock: MockClock) -> None:
    """For a day, in silence: append sessions have no heartbeats."""
    frames = FrameReader()
    async with connected() as client:
        await client.stream.send_all(head("POST", "", "content-type: s2s/proto", "transfer-encoding: chunked"))
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for number in range(3):
            with trio.move_on_after(86_400):
                silence = await client.stream.receive_some()
                pytest.fail(f"an idle session said {silence!r}")
            frame = encode_frame(append_input(b"x"))
            await client.stream.send_all(b"%x\r\n%b\r\n" % (len(frame), frame))
            size = int(await client.until(b"\r\n"), 16)
            chunk = (await client.until(b"\r\n"))[:-2]
            assert len(chunk) == size
            (ack,) = frames.feed(chunk)
            assert pb.AppendAck.FromString(ack.message).end.seq_num == number + 1
        assert trio.current_time() >= 3 * 86_400


async def test_a_session_is_never_silent_for_long(autojump_clock: MockClock) -> None:
    """An hour of pings, each 5 to 15 s after the one before; clients give up after 20 s (2.6)."""
    async with connected() as client:
        await client.stream.send_all(head("GET", "?seq_num=0", "accept: text/event-stream"))
        times = []
        while trio.current_time() < 3600:
            await client.until(b"event: ping")
            times.append(trio.current_time())
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert times[0] < 0.01
    assert 4.99 < min(gaps) < 7
    assert 13 < max(gaps) < 15.01


ENDS = {
    "older pages'": (S2Settings(sse_dialect="seed"), 45, ""),
    "older pages', by configuration": (S2Settings(sse_dialect="seed", event_stream_seconds=7), 7, ""),
    "S2's, by configuration": (
        *(S2Settings(event_stream_seconds=100), 100),
        'event: error\ndata: {"code":"server_draining","message":"the time of an event stream is over: reconnect to '
        'read on"}\n\n',
    ),
}
"""Settings, the age at which an event stream ends, and the last event: S2's clients take an end without one for the end
of their read."""


@pytest.mark.parametrize(("settings", "seconds", "last"), ENDS.values(), ids=ENDS)
async def test_an_event_stream_of_the_longest_age_ends_and_nothing_says_that_it_is_done(
    autojump_clock: MockClock, settings: S2Settings, seconds: float, last: str
) -> None:
    async with connected(S2Front(QuietBack(), settings)) as client:
        await client.stream.send_all(head("GET", "?seq_num=0", "accept: text/event-stream"))
        events = (await client.until(b"0\r\n\r\n")).decode()
        assert trio.current_time() == pytest.approx(seconds, abs=0.01)
    assert last in events and "done" not in events.lower()
    assert ("event: error" in events) is bool(last)
    assert events.count("event: ping") >= 1


@pytest.mark.parametrize("kind", ["accept: text/event-stream", "content-type: s2s/proto"])
async def test_head_of_a_session_is_answered_at_once(autojump_clock: MockClock, kind: str) -> None:
    async with connected() as client:
        for _ in range(2):
            await client.stream.send_all(head("HEAD", "?seq_num=0", kind))
            answer = await client.until(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200")
            assert kind.split()[1].encode() in answer
        assert client.received == b""
        assert trio.current_time() < 0.1


SLOW_BODIES = {
    "a byte now and then": (
        *(b"{", 500, (30, 31.99)),
        '"message":"a request or frame must arrive within 30 s, or at 1024 bytes a second"}',
    ),
    "faster than the least rate, and still not for ever": (
        *(b"{" * 2048, 500_000, (59.99, 60.01)),
        '{"code":"request_timeout","message":"the request body took more than 60 seconds"}',
    ),
}
"""Request bodies: bytes sent each second, bytes in all, seconds between which they are refused, and the error."""


@pytest.mark.parametrize(("piece", "size", "between", "words"), SLOW_BODIES.values(), ids=SLOW_BODIES)
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_body_that_does_not_come_is_not_waited_for(
    autojump_clock: MockClock, method: str, piece: bytes, size: int, between: tuple[float, float], words: str
) -> None:
    line = f"{method} /v1/streams/s{'/records' if method == 'POST' else ''} HTTP/1.1"
    lines = [line, "host: x", "s2-basin: conf-basin-01", "content-type: application/json", f"content-length: {size}"]
    async with connected() as client, trio.open_nursery() as nursery:
        await client.stream.send_all("\r\n".join([*lines, "", ""]).encode())

        async def trickle() -> None:
            while True:
                await trio.sleep(1)
                await client.stream.send_all(piece)

        nursery.start_soon(trickle)
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 408")
        await client.until(words.encode())
        assert between[0] <= trio.current_time() <= between[1]
        nursery.cancel_scope.cancel()


async def test_a_drain_ends_a_unary_wait(autojump_clock: MockClock) -> None:
    front = quiet_front()
    async with connected(front) as client:
        await client.stream.send_all(head("GET", "?seq_num=0&wait=60"))
        await trio.sleep(5)
        front.drain()
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 503")
        await client.until(b'{"code":"server_draining"')
        assert trio.current_time() == pytest.approx(5, abs=0.01)


@pytest.mark.parametrize(("alpn", "status"), [("http/1.1", 200), ("h2", 503)])
async def test_a_drain_refuses_new_requests_on_http2_only(autojump_clock: MockClock, alpn: str, status: int) -> None:
    """A connection of HTTP/1.1 ends after the request, which its client may have sent before the drain."""
    front = quiet_front()
    front.drain()
    async with serving(front.handle, alpn) as client:
        target = "/v1/streams/s/records?seq_num=0&clamp=true&count=0"
        assert (await client.ask("GET", target, [("s2-basin", "conf-basin-01")])).status == status
