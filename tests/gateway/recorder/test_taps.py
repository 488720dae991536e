"""Events of a tap: every byte of both sides with its offset, and how the connection ended."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.http.client import memory_pair
from support.listening import Heard, taken, tapped_front
from support.tls.certificates import needs_openssl, self_signed

from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation, Sender, Side, SocketAddress
from penstock.model.limits import KIB, MIB
from penstock.net.transport import TooSlow, Transport
from penstock.net.upstream import UpstreamSettings
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tap import HttpStart, Tap
from penstock.observe.taps.tapped import encrypted
from penstock.wire.http import Preludes

BOTH_ENDED = [(Sender.SERVER, False), (Sender.CLIENT, False)]


def parts(size: int) -> Iterator[Any]:
    """Random bytes in parts of all sizes and kinds, as codecs make them."""
    dice = random.Random(size)
    whole = dice.randbytes(2 * MIB)
    while size > 0:
        length = min(size, dice.choice([1, 20, 300, 5 * KIB, 64 * KIB, 700 * KIB]))
        at = dice.randrange(len(whole) - length)
        kind = dice.choice([bytes, bytearray, memoryview])
        yield memoryview(whole)[at : at + length] if kind is memoryview else kind(whole[at : at + length])
        size -= length


async def test_a_wire_tells_every_byte(pair: tuple[trio.abc.Stream, trio.abc.Stream], nursery: trio.Nursery) -> None:
    client, server = pair
    heard = Heard()
    wire = Transport(tapped_front(server, heard), 64 * KIB)
    answer, question = list(parts(9 * MIB)), random.Random(1).randbytes(3 * MIB)
    got = bytearray()

    async def ask() -> None:
        await client.send_all(question)

    async def read() -> None:
        while len(got) < 9 * MIB:
            got.extend(await client.receive_some())

    nursery.start_soon(read)
    nursery.start_soon(ask)
    came = bytearray()
    while len(came) < len(question):
        came += await wire.receive()
    wire.put(answer)
    await wire.drain()
    await trio.testing.wait_all_tasks_blocked()
    assert came == question == heard.said(Sender.CLIENT)
    assert got == b"".join(answer) == heard.said(Sender.SERVER)
    assert all(event.time_ns for event in heard.events)


async def test_what_is_told_does_not_change_with_the_buffers(sockets: tuple[trio.abc.Stream, trio.abc.Stream]) -> None:
    """The buffer that is read into serves all connections, and what was written may be used again."""
    client, server = sockets
    heard = Heard()
    tapped = tapped_front(server, heard)
    wire = Transport(tapped, 4 * KIB)
    for question in (b"first", b"other"):
        await client.send_all(question)
        await wire.receive()
    mine = bytearray(b"x" * 8 * KIB)
    await tapped.send_all(mine)
    mine[:] = bytes(len(mine))
    assert heard.said(Sender.CLIENT) == b"firstother"
    assert heard.said(Sender.SERVER) == b"x" * 8 * KIB


def test_small_parts_of_one_write_are_told_together() -> None:
    heard = Heard()
    tap = tapped_front(memory_pair()[1], heard).tap
    tap.sent([b"head", b"er", bytes(40 * KIB), b"tail", b"not written"], 40 * KIB + 10)
    assert [len(event.data) for event in heard.events if isinstance(event, Chunk)] == [6, 40 * KIB, 4]


async def test_little_is_kept_of_large_buffers() -> None:
    """A part of a large buffer must not hold all of it while a recording waits for its disk."""
    heard = Heard()
    tap = tapped_front(memory_pair()[1], heard).tap
    large, part = bytes(1 * MIB), memoryview(bytes(1 * MIB))[: 48 * KIB]
    tap.sent([large, part], 1 * MIB + 48 * KIB)
    first, second = [event.data for event in heard.events if isinstance(event, Chunk)]
    assert first is large, "and no bytes are copied"
    assert isinstance(second, bytes) and len(second) == 48 * KIB


async def test_a_stream_without_a_wire_tells_every_byte(pair: tuple[trio.abc.Stream, trio.abc.Stream]) -> None:
    client, server = pair
    heard = Heard()
    tapped = tapped_front(server, heard)
    answer = random.Random(2).randbytes(5 * MIB)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, b"question")
        got = b""
        while len(got) < 8:
            got += await tapped.receive_some()
        received: list[bytes] = []

        async def read() -> None:
            received.append(await taken(client))

        nursery.start_soon(read)
        await tapped.send_all(answer)
        await tapped.aclose()
    assert received == [answer]
    assert (heard.said(Sender.CLIENT), heard.said(Sender.SERVER)) == (b"question", answer)
    assert heard.ends == BOTH_ENDED


async def test_a_write_that_is_cut_off_is_told_as_far_as_it_went(
    sockets: tuple[trio.abc.Stream, trio.abc.Stream],
) -> None:
    client, server = sockets
    heard = Heard()
    tapped = tapped_front(server, heard)
    with trio.move_on_after(0.05) as scope:
        await tapped.send_all(bytes(20 * MIB))
    assert scope.cancelled_caught
    await tapped.aclose()
    assert await taken(client) == heard.said(Sender.SERVER)


async def test_what_is_sent_at_once_is_told_as_far_as_it_went(
    pair: tuple[trio.abc.Stream, trio.abc.Stream],
) -> None:
    """Streams that others must write, as TLS, take nothing at once."""
    client, server = pair
    heard = Heard()
    transport = Transport(tapped_front(server, heard), 4 * KIB)
    small, large = b"small", bytes(20 * MIB)
    transport.put([small])
    assert transport.write_now() == isinstance(server, trio.SocketStream)
    transport.put([large])
    assert not transport.write_now()
    sent = transport.written
    await transport.close()
    said = heard.said(Sender.SERVER)
    assert await taken(client) == said == (small + large)[:sent]
    assert isinstance(server, trio.SocketStream) == (sent > len(small))


async def test_a_slow_reader_is_told_as_far_as_it_went(
    autojump_clock: trio.testing.MockClock, sockets: tuple[trio.abc.Stream, trio.abc.Stream]
) -> None:
    client, server = sockets
    heard = Heard()
    wire = Transport(tapped_front(server, heard), 4 * KIB, 1)
    wire.put([bytes(8 * MIB)])
    with pytest.raises(TooSlow):
        await wire.drain()
    await wire.close()
    assert await taken(client) == heard.said(Sender.SERVER)
    assert heard.ends == BOTH_ENDED


async def test_a_write_that_does_not_begin_is_not_told(pair: tuple[trio.abc.Stream, trio.abc.Stream]) -> None:
    client, server = pair
    heard = Heard()
    tapped = tapped_front(server, heard)
    with trio.CancelScope() as scope:
        scope.cancel()
        await tapped.send_all(b"in vain")
    await tapped.aclose()
    assert await taken(client) == heard.said(Sender.SERVER) == b""


@needs_openssl
async def test_over_tls_plaintext_is_told(tmp_path: Path, tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    below, server = tcp
    client = trio.SSLStream(below, ssl.create_default_context(cafile=certificate), server_hostname="127.0.0.1")
    heard = Heard()
    tapped = tapped_front(trio.SSLStream(server, context, server_side=True), heard)
    assert encrypted(tapped) is not None and tapped.tap.conversation.tls
    assert tapped.tap.conversation.client == SocketAddress(*below.socket.getsockname())
    wire = Transport(tapped, 16 * KIB)
    answer = list(parts(2 * MIB))
    got: list[bytes] = []

    async def ask() -> None:
        await client.send_all(b"question")
        got.append(await taken(client))
        await client.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        assert await wire.receive() == b"question"
        wire.put(answer)
        await wire.drain()
        await wire.close()
    assert got == [b"".join(answer)]
    assert (heard.said(Sender.CLIENT), heard.said(Sender.SERVER)) == (b"question", got[0])
    assert heard.ends == BOTH_ENDED


async def test_a_question_is_told_before_its_answer(pair: tuple[trio.abc.Stream, trio.abc.Stream]) -> None:
    """Another task may have read the answer before the write is back."""
    theirs, ours = pair
    heard = Heard()
    tapped = Connections().dialled(ours, UpstreamSettings(name="lite", host="x", port=1))
    tapped.tap.attach(heard)

    async def echo() -> None:
        while data := await theirs.receive_some():
            await theirs.send_all(data)

    async def read() -> None:
        for _ in range(200):
            await tapped.receive_some(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(echo)
        nursery.start_soon(read)
        for _ in range(200):
            await tapped.send_all(b"?")
        while len(heard.said(Sender.SERVER)) < 200:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    asked = answered = 0
    for event in heard.events:
        if isinstance(event, Chunk):
            asked += event.sender is Sender.CLIENT
            answered += event.sender is Sender.SERVER
            assert asked >= answered


async def test_from_the_middle_on() -> None:
    client, server = memory_pair()
    tapped = tapped_front(server)
    await client.send_all(b"unheard")
    await tapped.receive_some()
    tapped.tap.sent([b"nor", b"this"], 5)
    heard = Heard()
    tapped.tap.attach(heard)
    await client.send_all(b"heard")
    await tapped.receive_some()
    assert heard.opened == [(1, 7, 5, False)]
    assert heard.said(Sender.CLIENT) == b"heard"
    assert tapped.tap.offsets == (12, 5)


async def test_from_behind_an_end_on() -> None:
    client, server = memory_pair()
    tapped = tapped_front(server)
    assert isinstance(client, trio.abc.HalfCloseableStream)
    await client.send_eof()
    await tapped.receive_some()
    heard = Heard()
    tapped.tap.attach(heard)
    assert heard.ends == [(Sender.CLIENT, False)]


class Failing(Heard):
    """A sink with a defect."""

    def put(self, event: CaptureEvent) -> bool:
        if isinstance(event, Chunk):
            raise RuntimeError("a defect")
        return super().put(event)


@pytest.mark.filterwarnings("ignore")
async def test_what_a_sink_does_harms_neither_traffic_nor_others() -> None:
    client, server = memory_pair()
    tapped = tapped_front(server)
    sinks = Heard(), Failing(), Heard()
    for sink in sinks:
        tapped.tap.attach(sink)
    sinks[0].takes = False
    await client.send_all(b"all the same")
    assert await tapped.receive_some() == b"all the same"
    assert tapped.tap.sinks == (sinks[2],)
    assert sinks[2].said(Sender.CLIENT) == b"all the same"


class Mute:
    """A watcher that decides nothing."""

    def used(self, *_: object) -> None: ...

    def dropped(self, *_: object) -> None: ...

    def ended(self, *_: object) -> None: ...


def test_a_tap_without_listeners_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No events, no copies, no clock: only counting is left."""
    tap = Tap(Conversation(1, SocketAddress("1.1.1.1", 1), SocketAddress("1.1.1.1", 2), Side.FRONT), Mute())
    monkeypatch.setattr("penstock.observe.taps.tap.time", None)
    monkeypatch.setattr("penstock.observe.taps.tap.Chunk", None)
    monkeypatch.setattr("penstock.observe.taps.tap._chunks", None)
    tap.received(b"abc")
    tap.sent([b"de", b"fg"], 3)
    assert tap.offsets == (3, 3)


@pytest.mark.filterwarnings("ignore:.*format_exc_info:UserWarning")
async def test_a_place_that_cannot_be_said_harms_neither_traffic_nor_the_recording() -> None:
    client, server = memory_pair()
    tapped = tapped_front(server)
    await client.send_all(b"before")
    await tapped.receive_some()
    tapped.tap.place = lambda: 1 // 0  # type: ignore[return-value]  # a defect
    sink = Heard()
    tapped.tap.attach(sink)
    await client.send_all(b"after")
    assert await tapped.receive_some() == b"after"
    assert sink.opened == [(1, 6, 0, False)] and sink.said(Sender.CLIENT) == b"after"


async def test_bytes_on_their_way_when_a_sink_joins_are_not_told_to_it() -> None:
    """The headers in them refer to older tables than those that it is given."""
    _, server = memory_pair()
    tap = tapped_front(server).tap
    whole, later = Heard(), Heard()
    tap.attach(whole)
    tap.sent([b"0123"], 4)
    tap.place = lambda: HttpStart("2", Preludes(b"", b"", b"", 3), 7)
    tap.attach(later)
    for data in (b"45", b"67", b"89abc"):
        tap.sent([data], len(data))
    assert later.opened == [(1, 0, 10, False)]
    assert whole.said(Sender.SERVER) == b"0123456789abc" and later.said(Sender.SERVER) == b"abc"
