"""The session that each conformance case of S2 is given: requests in a basin, exchanges that are read as they come, and
checks of what they bring.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

import trio
from google.protobuf.message import DecodeError, Message

from penstock.model.failures import OperationFailed
from penstock.net.http.client import HttpClient, HttpStream, Response
from penstock.protocols.conformance import Deviation, NotApplicable, TestedServer, require, require_equal
from penstock.wire.http import ResponseHead
from penstock_proto import s2_pb2 as pb
from penstock_s2.codec.s2s.frames import Frame, FrameError, FrameReader, Terminal, encode_frame

__all__ = [
    "ACCOUNT",
    "BASE64",
    "EVENTS",
    "JSON",
    "PROTOBUF",
    "SESSION",
    "S2Exchange",
    "S2TestSession",
    "append_frame",
    "append_input",
    "b64",
    "is_now",
    "open_session",
    "parse_message",
    "position",
    "record",
    "value_of",
]

JSON: Final = "application/json"
PROTOBUF: Final = "application/protobuf"
SESSION: Final = "s2s/proto"
EVENTS: Final = "text/event-stream"
ACCOUNT: Final = (("s2-basin", ""),)
"""Headers of a request to the account: it names no basin."""
BASE64: Final = (("s2-format", "base64"),)
_CLOCKS_APART: Final = 86_400_000
"""Milliseconds between the clocks of client and server, at most."""
_ENDS: Final = (400, 404, 409, 503)
"""Statuses that end a read: its key is another, the stream was deleted, or the server ends."""
M = TypeVar("M", bound=Message)
Headers = Sequence[tuple[str, str]]


class S2Exchange:
    """An exchange about the records of a stream, whose response is read as it comes."""

    def __init__(self, stream: HttpStream, head: ResponseHead, patience: float) -> None:
        self.head = head
        self._stream = stream
        self._patience = patience
        self._frames = FrameReader()
        self._text = b""

    def header(self, name: str) -> str | None:
        """Return the value of a header of the response, or None."""
        return next((value for key, value in self.head.headers if key == name), None)

    async def send(self, data: bytes) -> None:
        """Send bytes of the request's body."""
        await self._stream.send([data])

    async def finish(self) -> None:
        """End the request's body."""
        await self._stream.finish()

    async def frames(self, count: int | None = None) -> list[Frame | Terminal]:
        """Receive so many frames, or (None) all until the end."""
        frames: list[Frame | Terminal] = []
        with trio.move_on_after(self._patience):
            while count is None or len(frames) < count:
                try:
                    frame = self._frames.next()
                except FrameError as error:
                    raise Deviation(f"expected frames, got bytes that are none: {error}") from None
                if frame is not None:
                    frames.append(frame)
                elif data := await self._stream.receive():
                    self._frames.feed(data)
                else:
                    break
            return frames
        raise Deviation(f"expected {count or 'the last'} frames, got {len(frames)} within {self._patience:g} s")

    async def messages(self, count: int | None = None) -> list[Frame]:
        """Receive frames of which none is terminal."""
        frames: list[Frame] = []
        for frame in await self.frames(count):
            if isinstance(frame, Terminal):
                raise Deviation(f"expected a message, got {frame!r:.200}")
            frames.append(frame)
        return frames

    async def acks(self, count: int | None = None) -> list[tuple[int, int]]:
        """Receive acknowledgements; return the first and the next sequence number of each."""
        acks = [parse_message(pb.AppendAck, bytes(frame.payload)) for frame in await self.messages(count)]
        return [(ack.start.seq_num, ack.end.seq_num) for ack in acks]

    async def events(self, count: int | None = None) -> list[dict[str, str]]:
        """Receive so many events, or (None) all until the end, each as its fields."""
        with trio.move_on_after(self._patience):
            while count is None or self._text.count(b"\n\n") < count:
                data = await self._stream.receive()
                self._text += data
                if not data:
                    break
            blocks = self._text.split(b"\n\n")
            count = len(blocks) - 1 if count is None else min(count, len(blocks) - 1)
            self._text = b"\n\n".join(blocks[count:])
            return [dict(line.partition(": ")[::2] for line in block.decode().split("\n")) for block in blocks[:count]]
        raise Deviation(f"expected events, got {self._text!r:.200} within {self._patience:g} s")

    async def next(self) -> tuple[str, Any]:
        """Receive the next item of a read: "records" with their bodies, the "tail" of a ping or heartbeat, the JSON of
        the "error" that ends it, or its good "end"."""
        is_session = (self.header("content-type") or "") == SESSION
        kind, value = await (self._next_frame() if is_session else self._next_event())
        if kind in ("error", "end"):
            require_equal(await (self.frames() if is_session else self.events()), [])
        return kind, value

    async def _next_frame(self) -> tuple[str, Any]:
        frames = await self.frames(1)
        if not frames:
            return "end", None
        if isinstance(frames[0], Terminal):
            require(frames[0].status in _ENDS, f"one of the statuses {_ENDS}", frames[0])
            return "error", value_of(frames[0].body)
        batch = parse_message(pb.ReadBatch, bytes(frames[0].payload))
        require(bool(batch.records) or batch.HasField("tail"), "records or the tail", batch)
        if batch.records:
            return "records", [each.body.decode(errors="replace") for each in batch.records]
        return "tail", position(batch.tail.seq_num, batch.tail.timestamp)

    async def _next_event(self) -> tuple[str, Any]:
        event = (await self.events(1) or [{}])[0]
        match event:
            case {"event": "batch", "id": _, "data": data}:
                return "records", [each.get("body", "") for each in value_of(data)["records"]]
            case {"event": "ping", "data": data} if "id" not in event and is_now(value_of(data)["timestamp"]):
                return "tail", value_of(data)["tail"]
            case {"event": "error", "data": data} if "id" not in event:
                return "error", value_of(data)
            case {"data": "[DONE]", **others} if not others:
                return "end", None
        raise Deviation(f"expected an event, got {event!r:.200}")

    async def bodies(self, count: int) -> list[str]:
        """Receive batches until they have so many records, at most 1000 each; return the bodies."""
        bodies: list[str] = []
        while len(bodies) < count:
            kind, value = await self.next()
            if kind != "tail":
                require(kind == "records" and len(value) <= 1000, "1 to 1000 records", (kind, len(value or ())))
                bodies += value
        return bodies


class S2TestSession:
    """A case's client, its stream and its basin."""

    def __init__(self, client: HttpClient, server: TestedServer) -> None:
        self.server = server
        self.basin = server.space or server.new_name()
        self.stream = server.new_name()
        """A name that is not used yet."""
        self._client = client
        self._patience = server.patience
        self._basins: list[str] = []

    async def request(
        self, method: str, path: str, body: object = None, headers: Headers = (), **query: Any
    ) -> Response:
        """Make a request. `body`: bytes, or a value for JSON. `query`: its parameters."""
        named = {name for name, _ in headers}
        more = [("s2-basin", self.basin)] if "s2-basin" not in named else []
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            more += [("content-type", JSON)] if "content-type" not in named else []
        sent = [header for header in (*headers, *more) if header[1]]
        return await self._client.request(method, _target(path, query), sent, body or b"", seconds=self._patience)

    async def expect(self, status: int, method: str, path: str, *arguments: Any, **query: Any) -> Any:
        """Make a request whose response must have this status; return its JSON."""
        response = await self.request(method, path, *arguments, **query)
        require(response.status == status, f"status {status}", (response.status, response.body[:200]))
        return value_of(response.body) if response.body else None

    async def expect_refusal(self, expected: str, method: str, path: str, *arguments: Any, **query: Any) -> None:
        """Make a request that must be refused as in "404 stream_not_found": the status, and the code of its JSON."""
        response = await self.request(method, path, *arguments, **query)
        status, _, code = expected.partition(" ")
        error = value_of(response.body) if str(response.status) == status else None
        got = error.get("code") if isinstance(error, dict) else None
        require(got == code, f"{expected} for {method} {path:.80}", (response.status, response.body[:200]))

    def path(self, suffix: str = "") -> str:
        """Return the path of the case's stream, and a suffix."""
        return f"/v1/streams/{quote(self.stream, safe='')}{suffix}"

    @property
    def records(self) -> str:
        """The path of the stream's records."""
        return self.path("/records")

    async def create(self, *records: object, **config: object) -> None:
        """Create the stream with a configuration, and append records to it."""
        await self.expect(201, "PUT", self.path(), config)
        if records:
            await self.append(*records)

    async def append(self, *records: object, status: int = 200, **more: object) -> Any:
        """Append records: bodies, or records as in JSON; return the JSON of the response."""
        values = [value if isinstance(value, dict) else {"body": value} for value in records]
        return await self.expect(status, "POST", self.records, {"records": values, **more})

    async def append_protobuf(self, batch: bytes, headers: Headers = ()) -> Response:
        """Append a serialized batch; the response may be protobuf."""
        types = [("content-type", PROTOBUF), ("accept", PROTOBUF)]
        return await self.request("POST", self.records, batch, [*types, *headers])

    async def trim(self, seq_num: int) -> Any:
        """Append a command that removes the records before a number; return the JSON of the response."""
        command = {"headers": [["", b64(b"trim")]], "body": b64(seq_num.to_bytes(8, "big"))}
        return await self.expect(200, "POST", self.records, {"records": [command]}, BASE64)

    async def read(self, status: int = 200, headers: Headers = (("accept", JSON),), /, **query: Any) -> Any:
        """Read; return the JSON of the response."""
        return await self.expect(status, "GET", self.records, None, headers, **query)

    async def bodies(self, **query: Any) -> list[str]:
        """Read; return the records' bodies."""
        return [each.get("body", "") for each in (await self.read(**query))["records"]]

    async def read_protobuf(self, headers: Headers = (), /, **query: Any) -> pb.ReadBatch:
        """Read as protobuf."""
        response = await self.request("GET", self.records, None, [("accept", PROTOBUF), *headers], **query)
        require_equal((response.status, response.header("content-type")), (200, PROTOBUF))
        return parse_message(pb.ReadBatch, response.body)

    async def read_all_bodies(self, media: str, *headers: tuple[str, str], **query: Any) -> list[str]:
        """Read as events or in a session until the response ends; return the records' bodies."""
        bodies: list[str] = []
        async with self.exchange("GET", media, headers, **query) as exchange:
            while (item := await exchange.next())[0] == "records":
                bodies += item[1]
        require_equal(item, ("end", None))
        return bodies

    async def tail(self) -> dict[str, int]:
        """Return the position behind the stream's last record."""
        tail: dict[str, int] = (await self.expect(200, "GET", self.path("/records/tail")))["tail"]
        return tail

    async def require_tail(self, seq_num: int) -> None:
        """Check the number behind the stream's last record."""
        require_equal((await self.tail())["seq_num"], seq_num)

    async def needs_create(self, when: str) -> None:
        """Raise NotApplicable if the basin creates streams unasked. `when`: the key of its configuration."""
        response = await self.request("GET", f"/v1/basins/{self.basin}", None, ACCOUNT)
        if response.status == 200 and value_of(response.body).get(when):
            raise NotApplicable(f"the basin has {when}")

    async def make_basin(self, config: dict[str, object] | None = None) -> None:
        """Make a basin, and turn to it. Raises NotApplicable if the server makes none."""
        name = self.server.new_name()
        response = await self.request("PUT", f"/v1/basins/{name}", {"config": config or {}}, ACCOUNT)
        if response.status not in (200, 201):
            raise NotApplicable(f"no basin can be created (status {response.status})")
        self.will_delete(name)
        self.basin = name

    def will_delete(self, basin: str) -> None:
        """Delete a basin at the end of the case."""
        self._basins.append(basin)

    @asynccontextmanager
    async def exchange(
        self, method: str, media: str, headers: Headers = (), /, **query: Any
    ) -> AsyncIterator[S2Exchange]:
        """Open an exchange about the stream's records whose response is read as it comes; its head must be good.

        `media`: SESSION or EVENTS. A POST has a body, which is to be sent.
        """
        kind = ("content-type", media) if media == SESSION else ("accept", media)
        sent = [kind, ("s2-basin", self.basin), *headers]
        target = _target(self.records, query)
        async with self._client.open(method, target, sent, body=method == "POST") as stream:
            head = await stream.receive_head(self._patience)
            require_equal(head.status, 200)
            exchange = S2Exchange(stream, head, self._patience)
            content_type = exchange.header("content-type") or ""
            require(content_type.startswith(media), f"content-type {media}", content_type)
            yield exchange

    async def clean(self) -> None:
        """Delete the stream, and the basins that were made."""
        try:
            await self.request("DELETE", self.path())
            for basin in self._basins:
                await self.request("DELETE", f"/v1/basins/{basin}", None, ACCOUNT)
        except OperationFailed:
            pass  # the server does not answer, which the case has found


@asynccontextmanager
async def open_session(server: TestedServer) -> AsyncIterator[S2TestSession]:
    """Open a session in the basin of the URL, or in a new one; remove at the end what was made."""
    async with server.http("s2") as client:
        session = S2TestSession(client, server)
        try:
            if server.space is None:
                await session.make_basin()
            yield session
        finally:
            with trio.CancelScope(shield=True):
                await session.clean()


def _target(path: str, query: dict[str, Any]) -> str:
    return path + "?" * bool(query) + "&".join(f"{name}={quote(str(value))}" for name, value in query.items())


def parse_message(kind: type[M], data: bytes) -> M:
    """Return a message. Raises Deviation."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise Deviation(f"expected {kind.__name__}, got {data!r:.200}") from None


def value_of(body: bytes | str) -> Any:
    """Return the value of JSON. Raises Deviation."""
    try:
        return json.loads(body)
    except ValueError:
        raise Deviation(f"expected JSON, got {body!r:.200}") from None


def position(seq_num: int, timestamp: int = 0) -> dict[str, int]:
    """Return a position as in JSON."""
    return {"seq_num": seq_num, "timestamp": timestamp}


def is_now(timestamp: int) -> bool:
    """Return whether a time in milliseconds since 1970 is about now."""
    return abs(timestamp - time.time_ns() // 1_000_000) < _CLOCKS_APART


def b64(data: bytes) -> str:
    """Return bytes as in `s2-format: base64`."""
    return base64.b64encode(data).decode()


def record(body: bytes, *headers: tuple[bytes, bytes], timestamp: int | None = None) -> pb.AppendRecord:
    """Return a record to append, as protobuf."""
    pairs = [pb.Header(name=name, value=value) for name, value in headers]
    return pb.AppendRecord(body=body, headers=pairs, timestamp=timestamp)


def append_input(*records: bytes | pb.AppendRecord, **conditions: Any) -> bytes:
    """Return a serialized batch of bodies or records."""
    messages = [record(each) if isinstance(each, bytes) else each for each in records]
    return pb.AppendInput(records=messages, **conditions).SerializeToString()


def append_frame(*records: bytes | pb.AppendRecord, **conditions: Any) -> bytes:
    """Return the frame of a batch."""
    return b"".join(encode_frame([append_input(*records, **conditions)]))
