"""Sessions whose frames pass through: bytes stay what they are, and each side hears of the other's end."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio

from penstock.core.passthrough import HeaderList
from penstock.model.failures import FailureCode, fail
from penstock.net.draining import Draining
from penstock.net.http.exchange import Request
from penstock.wire.http import Buffer, ResponseHead
from penstock_s2.codec.s2s.frames import encode_frame, encode_terminal
from penstock_s2.front.call import S2Call
from penstock_s2.front.passthrough import pass_append, pass_read
from penstock_s2.front.settings import S2Settings

FRAMES = [b"".join(encode_frame([b"x" * size])) for size in (5, 70_000, 1)]
OK = ResponseHead(1, 200, (("content-type", "s2s/proto"),))


class Client:
    """An exchange; what the client was sent, and what it still sends."""

    arrived = ended = False

    def __init__(self, method: str, *headers: tuple[str, str]) -> None:
        self.request = Request(method, "/v1/streams/s/records", "seq_num=3", headers, "localhost", "1.1", "http")
        self.body, self._from_client = trio.open_memory_channel[bytes](math.inf)
        self.status: int | None = None
        self.sent = b""
        self.finished = False

    async def receive(self) -> bytes:
        try:
            return await self._from_client.receive()
        except trio.EndOfChannel:
            return b""

    def refuse_body(self) -> None:
        """It is of no consequence here."""

    async def room(self, keep: bool = True) -> None:
        await trio.lowlevel.checkpoint()

    async def respond(
        self, status: int, headers: HeaderList, body: bytes = b"", trailers: object = None, refetch: object = None
    ) -> None:
        self.status, self.sent, self.finished = status, body, True

    async def start(self, status: int, headers: HeaderList) -> None:
        self.status = status

    async def send(self, pieces: Sequence[Buffer]) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += b"".join(pieces)

    async def finish(self, trailers: object = ()) -> None:
        self.finished = True


@dataclass
class Server:
    """A passage, and its one session: what it says, and what it was told."""

    says: list[bytes | Exception]
    head: ResponseHead = field(default_factory=lambda: OK)
    holds: trio.Event = field(default_factory=trio.Event)
    """Set once the client's body has ended: acknowledgements of the last inputs come after that."""
    asked: tuple[str, str, HeaderList] | None = None
    told: bytes = b""
    after_end: list[bytes] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, method: str, query: str, headers: HeaderList) -> AsyncIterator[Server]:
        self.asked = (method, query, headers)
        yield self

    async def send(self, pieces: Sequence[Buffer]) -> None:
        self.told += b"".join(pieces)

    async def finish(self) -> None:
        self.holds.set()

    async def receive_head(self) -> ResponseHead:
        return self.head

    async def receive_pieces(self, least: int) -> Sequence[Buffer]:
        piece = await self._next()
        return [piece] if piece else []

    async def _next(self) -> Buffer:
        await trio.lowlevel.checkpoint()
        if self.says:
            said = self.says.pop(0)
            if isinstance(said, Exception):
                raise said
            return said
        await self.holds.wait()
        return self.after_end.pop(0) if self.after_end else b""


async def read(client: Client, server: Server, draining: Draining | None = None) -> None:
    with trio.fail_after(100):
        await pass_read(S2Call(client, {"stream": "s"}, S2Settings()), server, draining or Draining())


async def append(client: Client, server: Server, draining: Draining | None = None) -> None:
    with trio.fail_after(100):
        await pass_append(S2Call(client, {"stream": "s"}, S2Settings()), server, draining or Draining())


def finished(*says: bytes | Exception, head: ResponseHead = OK) -> Server:
    server = Server(list(says), head)
    server.holds.set()
    return server


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 3, 4096, 200_000])
async def test_a_reader_gets_the_very_bytes_however_they_come(size: int) -> None:
    data = b"".join(FRAMES)
    client = Client("GET", ("accept-encoding", "zstd"), ("cookie", "secret"), ("s2-encryption-key", "k"))
    server = finished(*(data[at : at + size] for at in range(0, len(data), size)))
    await read(client, server)
    assert (client.status, client.sent, client.finished) == (200, data, True)
    headers = [("content-type", "s2s/proto"), ("accept-encoding", "zstd"), ("s2-encryption-key", "k")]
    assert server.asked == ("GET", "seq_num=3", headers)


async def test_a_reader_of_a_lost_server_gets_whole_frames_and_the_reason() -> None:
    client = Client("GET")
    lost = fail(FailureCode.UNAVAILABLE, "back lite: connection lost")
    await read(client, finished(FRAMES[0] + FRAMES[1][:1000], lost))
    reason = encode_terminal(503, b'{"code":"unavailable","message":"back lite: connection lost"}')
    assert client.sent == FRAMES[0] + b"".join(reason)
    assert client.finished


async def test_a_reader_of_a_server_that_breaks_off_amid_a_frame_is_told() -> None:
    client = Client("GET")
    await read(client, finished(FRAMES[0] + FRAMES[1][:1000]))
    assert client.sent.startswith(FRAMES[0] + b"\0")
    assert client.sent.endswith(b'disconnected: bytes remaining on stream"}')


async def test_the_servers_last_word_needs_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("GET")

    async def room(keep: bool = True) -> None:
        if keep:
            raise fail(FailureCode.RATE_LIMITED, "too much is in flight")

    monkeypatch.setattr(client, "room", room)
    last = b"".join(encode_terminal(412, b"{}"))
    await read(client, finished(last))
    assert client.sent == last
    assert client.finished


async def test_nothing_follows_the_servers_own_last_word() -> None:
    client = Client("GET")
    last = b"".join(encode_terminal(412, b"{}"))
    await read(client, finished(last, fail(FailureCode.UNAVAILABLE, "lost")))
    assert client.sent == last
    assert client.finished


@pytest.mark.parametrize("lost", [b"", fail(FailureCode.UNAVAILABLE, "lost")])
async def test_a_reader_is_told_when_the_servers_last_word_is_cut_short(lost: bytes | Exception) -> None:
    client = Client("GET")
    last = b"".join(encode_terminal(412, b"{}"))
    await read(client, finished(FRAMES[0] + last[:-1], lost))
    assert client.sent.startswith(FRAMES[0] + b"\0")
    assert b'{"code":"unavailable"' in client.sent
    assert client.finished


async def test_a_refusal_is_passed_on_as_it_is() -> None:
    client = Client("GET")
    head = ResponseHead(1, 416, (("content-type", "application/json"),))
    await read(client, finished(b'{"tail":', b'{"seq_num":0,"timestamp":0}}', head=head))
    assert (client.status, client.sent) == (416, b'{"tail":{"seq_num":0,"timestamp":0}}')


async def test_appends_and_acknowledgements_pass_as_they_are() -> None:
    client, server = Client("POST"), Server([FRAMES[2]], after_end=[FRAMES[0]])
    data = FRAMES[1] + FRAMES[0]
    for at in range(0, len(data), 1000):
        client.body.send_nowait(data[at : at + 1000])
    client.body.close()
    await append(client, server)
    assert server.told == data
    assert client.sent == FRAMES[2] + FRAMES[0]
    assert client.finished


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_clients_terminal_frame_of_success_ends_its_input(at_once: bool) -> None:
    """The server, which may know none of clients, does not see it, nor what follows it."""
    client, server = Client("POST"), Server([], after_end=[FRAMES[2]])
    pieces = [*FRAMES[:2], b"".join(encode_terminal(200, b"{}")), FRAMES[2]]
    for piece in (b"".join(pieces),) if at_once else pieces:
        client.body.send_nowait(piece)
    await append(client, server)
    assert server.told == FRAMES[0] + FRAMES[1]
    assert client.sent == FRAMES[2]
    assert client.finished


async def test_any_other_terminal_frame_of_a_client_is_the_servers_to_judge() -> None:
    refusal = b"".join(encode_terminal(400, b"{}"))
    client, server = Client("POST"), Server([], after_end=[refusal])
    client.body.send_nowait(FRAMES[0] + refusal)
    client.body.close()
    await append(client, server)
    assert server.told == FRAMES[0] + refusal
    assert client.sent == refusal


@pytest.mark.parametrize(
    ("bad", "text"), [(FRAMES[1][:100], b"bytes remaining on stream"), (b"\0\0\0\0", b"empty frame payload")]
)
@pytest.mark.parametrize("at_once", [False, True])
async def test_what_is_no_frame_ends_the_session_behind_the_acknowledgements(
    bad: bytes, text: bytes, at_once: bool
) -> None:
    client, server = Client("POST"), Server([], after_end=[FRAMES[2]])
    for piece in (FRAMES[0] + bad,) if at_once else (FRAMES[0], bad):
        client.body.send_nowait(piece)
    client.body.close()
    await append(client, server)
    assert server.told == FRAMES[0]
    assert client.sent.startswith(FRAMES[2])
    assert b'"bad_frame"' in client.sent
    assert text in client.sent


async def test_a_lost_server_ends_an_append_session_with_the_reason() -> None:
    client, server = Client("POST"), Server([FRAMES[2], fail(FailureCode.UNAVAILABLE, "back lite: gone")])
    client.body.send_nowait(FRAMES[0])
    await append(client, server)
    assert client.sent.startswith(FRAMES[2])
    assert b"back lite: gone" in client.sent
    assert client.finished


@pytest.mark.parametrize("bad", [FRAMES[1][:100], b"\0\0\0\0"])
async def test_nothing_follows_the_servers_last_word_in_an_append_session(bad: bytes) -> None:
    last = b"".join(encode_terminal(412, b"{}"))
    client, server = Client("POST"), Server([], after_end=[FRAMES[2], last])
    client.body.send_nowait(FRAMES[0] + bad)
    client.body.close()
    await append(client, server)
    assert client.sent == FRAMES[2] + last
    assert client.finished


async def test_a_frame_that_comes_too_slowly_ends_the_session(autojump_clock: trio.testing.MockClock) -> None:
    client, server = Client("POST"), Server([], after_end=[FRAMES[2]])
    client.body.send_nowait(FRAMES[0] + FRAMES[1][:10])
    await append(client, server)
    assert server.told == FRAMES[0]
    assert client.sent.startswith(FRAMES[2])
    assert b'"request_timeout"' in client.sent
    assert client.finished


async def test_an_append_that_is_not_sent_ends_the_session_behind_the_acknowledgements(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    client, server = Client("POST"), Server([], after_end=[FRAMES[2]])

    async def send(pieces: Sequence[Buffer]) -> None:
        raise fail(FailureCode.HOT_SERVER, "back lite is held")

    monkeypatch.setattr(server, "send", send)
    client.body.send_nowait(FRAMES[0])
    await append(client, server)
    assert client.sent.startswith(FRAMES[2])
    assert b"back lite is held" in client.sent
    assert client.finished


async def test_a_drain_says_nothing_after_the_servers_last_word(autojump_clock: trio.testing.MockClock) -> None:
    draining = Draining(3.0)
    last = b"".join(encode_terminal(412, b"{}"))
    reader, reading = Client("GET"), Server([last])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, reader, reading, draining)
        draining.begin()
        await trio.sleep(4)
    assert reader.sent == last
    assert reader.finished


async def test_a_drain_ends_sessions_after_its_grace_time(autojump_clock: trio.testing.MockClock) -> None:
    draining = Draining(3.0)
    reader, writer = Client("GET"), Client("POST")
    reading, writing = Server([FRAMES[0]]), Server([], after_end=[FRAMES[2]])
    writer.body.send_nowait(FRAMES[0] + FRAMES[1][:10])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, reader, reading, draining)
        nursery.start_soon(append, writer, writing, draining)
        await trio.sleep(10)
        assert not reader.finished
        draining.begin()
        await trio.sleep(2.9)
        assert not (reader.finished or writer.finished)
    assert reader.sent.startswith(FRAMES[0])
    assert writer.sent.startswith(FRAMES[2])
    assert writing.told == FRAMES[0]
    for client in (reader, writer):
        assert b"server_draining" in client.sent
        assert client.finished


@pytest.mark.parametrize("way", [read, append])
async def test_a_refusal_that_never_ends_is_passed_on_as_far_as_it_came(
    way: Callable[[Client, Server], Awaitable[None]], autojump_clock: object
) -> None:
    client = Client("POST")
    server = Server([b'{"code":'], head=ResponseHead(1, 403, (("content-type", "application/json"),)))
    await way(client, server)
    assert (client.status, client.sent, client.finished) == (403, b'{"code":', True)
