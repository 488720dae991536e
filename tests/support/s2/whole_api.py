"""A client of the S2 front that uses all of its API over one connection, and remembers what it sent and got."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import trio
import trio.testing
from support.captures.dialogues import RecordedStream, Said
from support.http.client import HttpClient
from support.s2.model import ModelBack

from penstock.capture.pcapng import Sender
from penstock.model.failures import Failure
from penstock.model.operations import Append, Appended
from penstock.model.records import Header, Headers, RecordBatch, StreamRef, metered_size
from penstock.net.http.exchange import Exchange, Request
from penstock.net.http.serving import serve_http
from penstock.wire.codec import Pull
from penstock.wire.compression import Compression
from penstock.wire.http import Body, Data, End, Reset
from penstock_s2.codec import json_records, protobuf
from penstock_s2.codec.formats import BytesFormat
from penstock_s2.codec.s2s.sessions import AppendClient, ReadClient
from penstock_s2.codec.sse import DIALECTS, BatchEvent, EventStreamClient, Ping
from penstock_s2.front import S2Front, S2Settings

__all__ = ["STREAM", "Talk", "by_side", "talk", "whole_talk"]

STREAM = StreamRef("penstock", "a/b c")
_RECORDS = "/v1/streams/a%2Fb%20c/records"
_BASIN = [("s2-basin", "penstock")]
_PROTOBUF = [*_BASIN, ("content-type", "application/protobuf"), ("accept", "application/protobuf")]
_JSON = [*_BASIN, ("content-type", "application/json")]
_S2S = [*_BASIN, ("content-type", "s2s/proto")]

Seen = tuple[Any, ...]


def append(bodies: Sequence[bytes], headers: dict[int, Headers] | None = None, **more: Any) -> Append:
    """An input."""
    return Append(STREAM, list(bodies), metered_size(bodies, headers or {}), headers=headers or {}, **more)


_BATCHES = [
    append([b"one", b"", b"x" * 3000], {1: (Header(b"name", b"value"), Header(b"n", b"\xff\x00"))}),
    append([b"stamped", b"stamped too"], timestamps=[1000, 2000]),
    append([b"token"], {0: (Header(b"", b"fence"),)}),
    append([(7).to_bytes(8, "big")], {0: (Header(b"", b"trim"),)}, fencing_token="token"),
    append([b"y" * 20_000, b"z"]),
]


@dataclass
class Talk:
    """A conversation's bytes, and the records that the client knows of.

    Appended records are (body, headers, seq_num or None, whether acknowledged), delivered ones (body, headers, seq_num,
    timestamp).
    """

    said: list[tuple[Sender, bytes]] = field(default_factory=list)
    appended: list[Seen] = field(default_factory=list)
    delivered: list[Seen] = field(default_factory=list)

    def gave(self, given: Append, ack: Appended | None) -> None:
        """Note that an input was acknowledged, or refused (None)."""
        first = None if ack is None else ack.start.seq_num
        self.appended += [
            (body, given.headers.get(index, ()), None if first is None else first + index, ack is not None)
            for index, body in enumerate(given.bodies)
        ]

    def got(self, batch: RecordBatch) -> None:
        """Note that a batch was delivered."""
        self.delivered += [(each.body, each.headers, each.seq_num, each.timestamp) for each in batch.records()]


class _Client:
    def __init__(self, http: HttpClient, talk: Talk) -> None:
        self.http = http
        self.talk = talk

    async def unary(self) -> None:
        ask, given = self.http.ask, append([b"json", b"text"], {0: (Header(b"k", b"v"),)})
        body = json_records.encode_append_input(given, BytesFormat.RAW)
        self.talk.gave(given, json_records.decode_append_ack((await ask("POST", _RECORDS, _JSON, body)).body))
        given = append([b"\xff\x00", b"base64"], match_seq_num=2)
        body = gzip.compress(json_records.encode_append_input(given, BytesFormat.BASE64))
        headers = [*_JSON, ("s2-format", "base64"), ("content-encoding", "gzip")]
        self.talk.gave(given, json_records.decode_append_ack((await ask("POST", _RECORDS, headers, body)).body))
        given = append([b"protobuf"] * 2)
        body = protobuf.encode_append_input(given)
        self.talk.gave(given, protobuf.decode_append_ack((await ask("POST", _RECORDS, _PROTOBUF, body)).body))
        given = append([b"refused", b"too"], match_seq_num=99)
        answer = await ask("POST", _RECORDS, _PROTOBUF, protobuf.encode_append_input(given))
        assert answer.status == 412
        self.talk.gave(given, None)
        await self.read_unary()

    async def read_unary(self) -> None:
        ask = self.http.ask
        target = f"{_RECORDS}?seq_num=0"
        read = (await ask("GET", target, [*_BASIN, ("s2-format", "base64"), ("accept-encoding", "zstd")])).body
        self.read_json(read)
        batch = protobuf.decode_read_batch((await ask("GET", target, _PROTOBUF)).body)
        assert isinstance(batch, RecordBatch)
        self.talk.got(batch)
        assert (await ask("GET", f"{_RECORDS}/tail", _BASIN)).status == 200
        assert (await ask("GET", f"{_RECORDS}?seq_num=999", _BASIN)).status == 416
        assert (await ask("GET", "/v1/streams/nope/records?seq_num=0", _BASIN)).status == 404
        assert (await ask("GET", "/v1/streams/a%2Fb%20c", _BASIN)).status == 200
        assert (await ask("GET", "/elsewhere", _BASIN)).status == 404

    def read_json(self, body: bytes) -> None:
        batch, _ = json_records.decode_read_batch(body, BytesFormat.BASE64)
        assert batch is not None
        self.talk.got(batch)

    async def append_session(self, batches: Sequence[Append], compression: Compression, *, fails: bool = False) -> None:
        http = self.http
        stream_id = await http.open("POST", _RECORDS, [*_S2S, *_chunked(http), ("accept-encoding", "zstd")])
        codec = AppendClient(compression)
        await http.head(stream_id)
        frames = b"".join(piece for each in batches for piece in codec.send(each))
        cut = len(frames) // 3
        await http.say(Body(stream_id, [frames[:cut]]))
        await http.say(Body(stream_id, [frames[cut:]]))
        waiting = iter(batches)
        if not fails:
            await http.say(End(stream_id))
        async for event in self.events(stream_id, codec):
            if isinstance(event, Failure):
                for given in waiting:
                    self.talk.gave(given, None)
            else:
                assert isinstance(event, Appended)
                self.talk.gave(next(waiting), event)
        if fails:
            await http.say(End(stream_id))
        assert next(waiting, None) is None

    async def read_session(self, query: str, headers: list[tuple[str, str]]) -> None:
        stream_id = await self.http.open("GET", f"{_RECORDS}?{query}", [*_S2S, *headers])
        await self.http.say(End(stream_id))
        await self.http.head(stream_id)
        async for event in self.events(stream_id, ReadClient()):
            if isinstance(event, RecordBatch):
                self.talk.got(event)

    async def event_stream(self, query: str, dialect: str, data_format: str | None) -> None:
        headers = [*_BASIN, ("accept", "text/event-stream")]
        headers += [] if data_format is None else [("s2-format", data_format)]
        stream_id = await self.http.open("GET", f"{_RECORDS}?{query}", headers)
        await self.http.say(End(stream_id))
        await self.http.head(stream_id)
        spoken = DIALECTS[dialect]
        async for event in self.events(stream_id, EventStreamClient(spoken, spoken.parse_format(data_format))):
            if isinstance(event, BatchEvent):
                self.talk.got(event.batch)

    async def events(self, stream_id: int, codec: Any) -> Any:
        while True:
            event = codec.next_event()
            if event is Pull.NEED_DATA:
                came = await self.http.next(stream_id)
                codec.receive(came.data if isinstance(came, Data) else b"")
                if isinstance(came, End):
                    ended = codec.next_event() if not isinstance(codec, EventStreamClient) else Pull.PAUSED
                    assert isinstance(ended, Pull), ended
                    return
            elif event is Pull.PAUSED:
                while not isinstance(await self.http.next(stream_id), End):
                    pass
                return
            else:
                yield event

    async def follow_and_cancel(self) -> None:
        """Follow, and cancel the read after its first heartbeat (only HTTP/2 can)."""
        stream_id = await self.http.open("GET", f"{_RECORDS}?tail_offset=0", [*_BASIN, ("accept", "text/event-stream")])
        await self.http.say(End(stream_id))
        await self.http.head(stream_id)
        codec = EventStreamClient()
        while not isinstance(event := codec.next_event(), Ping):
            assert event is Pull.NEED_DATA
            came = await self.http.next(stream_id)
            assert isinstance(came, Data)
            codec.receive(came.data)
        await self.http.say(Reset(stream_id))


def _chunked(http: HttpClient) -> list[tuple[str, str]]:
    return [("transfer-encoding", "chunked")] if http.codec.version == "1.1" else []


async def whole_talk(
    alpn: str,
    dialect: str = "s2",
    served: Callable[[trio.abc.HalfCloseableStream], trio.abc.Stream] = lambda far: far,
    on_request: Callable[[Request], object] = lambda _request: None,
) -> Talk:
    """As `talk`, within a loop. `served`: gives the stream that is served instead of the server's own end;
    `on_request` is told of each request before it is handled."""
    talk = Talk()
    async with trio.open_nursery() as nursery:
        back = ModelBack(nursery)
        back.make(STREAM)
        front = S2Front(back, S2Settings(sse_dialect=dialect))  # type: ignore[arg-type]
        near, far = trio.testing.memory_stream_pair()

        async def handle(exchange: Exchange) -> None:
            on_request(exchange.request)
            await front.handle(exchange)

        nursery.start_soon(serve_http, served(far), handle)
        stream = RecordedStream(near)
        async with stream:
            http = HttpClient(stream, alpn)
            client = _Client(http, talk)
            await client.unary()
            await client.append_session(_BATCHES[:3], Compression.NONE)
            await client.append_session(_BATCHES[3:], Compression.ZSTD)
            await client.append_session(
                [_BATCHES[0], append([b"no"], match_seq_num=1), _BATCHES[1]], Compression.GZIP, fails=True
            )
            await client.read_session("seq_num=0&wait=0", [])
            await client.read_session("seq_num=1&wait=2", [("accept-encoding", "zstd")])
            await client.event_stream("seq_num=0&count=9", dialect, "base64")
            await client.event_stream("seq_num=0&wait=2", dialect, None)
            if alpn == "h2":
                await client.follow_and_cancel()
        talk.said = stream.said
        nursery.cancel_scope.cancel()
    return talk


@cache
def talk(alpn: str, dialect: str = "s2") -> Talk:
    """The whole conversation, over HTTP/1.1 or HTTP/2."""
    return trio.run(whole_talk, alpn, dialect, clock=trio.testing.MockClock(autojump_threshold=0))


def by_side(said: Said) -> dict[Sender, bytes]:
    """Return all bytes of each side."""
    return {sender: b"".join(data for who, data in said if who is sender) for sender in Sender}
