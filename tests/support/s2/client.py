"""An S2 client on plain HTTP/1.1: `http.client` for unary requests, a bare socket for streams."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from support.http.h2_client import H2Connection
from support.s2.frames import ByteStream, Session

from penstock_proto import s2_pb2 as pb

Address = tuple[str, int]
BASE64 = {"s2-format": "base64"}
PROTOBUF = {"content-type": "application/protobuf", "accept": "application/protobuf"}


class Answer(NamedTuple):
    """A whole HTTP answer; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self, status: int = 200) -> Any:
        """Return the JSON body of an answer that must have this status."""
        assert self.status == status, self
        assert self.headers["content-type"] == "application/json", self
        return json.loads(self.body)

    def fails(self, status: int, code: str) -> str:
        """Must be an error of this status and code; its message."""
        error = self.json(status)
        assert error["code"] == code, error
        assert set(error) == {"code", "message"}, error
        return str(error["message"])


class Http1Stream:
    """One HTTP/1.1 exchange whose body or bodies are chunked and may flow both ways at once."""

    def __init__(
        self, address: Address, method: str, target: str, headers: Mapping[str, str], receive_buffer: int | None = None
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:  # must be set before the connection announces its window
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if not any(name.lower() == "host" for name in headers):
            lines.append(f"host: {address[0]}:{address[1]}")
        if method == "POST":
            lines.append("transfer-encoding: chunked")
        try:
            self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        except OSError:
            self.socket.close()
            raise
        self._buffer = b""
        self._head: tuple[int, dict[str, str]] | None = None
        self._left: int | None = None  # bytes of a content-length body that are still to come
        self._ended = False

    def send(self, data: bytes) -> None:
        """Send one chunk."""
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        """End the request body."""
        self.socket.sendall(b"0\r\n\r\n")

    def _more(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError(f"connection closed after {self._buffer[:100]!r}")
        self._buffer += data

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._more()
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer; waits for them."""
        if self._head is None:
            status = int(self._line().split()[1])
            headers = {}
            while line := self._line():
                name, value = line.decode("latin-1").split(":", 1)
                headers[name.strip().lower()] = value.strip()
            if headers.get("transfer-encoding") != "chunked":
                self._left = int(headers.get("content-length", 0))
            self._head = status, headers
        return self._head

    @property
    def status(self) -> int:
        return self.head()[0]

    @property
    def headers(self) -> dict[str, str]:
        return self.head()[1]

    def receive(self, timeout: float = 10) -> bytes:
        """Return the next piece of the body; b"" at its end. Raises TimeoutError, and EOFError if it is cut off."""
        self.socket.settimeout(timeout)
        self.head()
        if self._ended:
            return b""
        if self._left is not None:
            data, self._left, self._ended = self._exactly(self._left), 0, True
            return data
        # Wait for the whole chunk before taking any of it, so that a timeout loses nothing.
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._more()
        size = int(self._buffer[:end], 16)
        while len(self._buffer) < end + size + 4:
            self._more()
        data = self._buffer[end + 2 : end + 2 + size]
        self._buffer = self._buffer[end + size + 4 :]
        self._ended = not size
        return data

    def close(self) -> None:
        self.socket.close()


class Event(NamedTuple):
    """A server-sent event; fields that were not sent are None."""

    name: str | None
    id: str | None
    data: str | None

    def json(self) -> Any:
        assert self.data is not None
        return json.loads(self.data)


class Events:
    """Server-sent events read from a stream, by the rules of the HTML standard."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._buffer = b""

    def next(self, timeout: float = 10) -> Event | None:
        """Return the next event, None at the end of the body. Raises TimeoutError."""
        while b"\n\n" not in self._buffer:
            data = self.stream.receive(timeout)
            if not data:
                assert not self._buffer, f"the body ended inside an event: {self._buffer[-200:]!r}"
                return None
            self._buffer += data
        block, self._buffer = self._buffer.split(b"\n\n", 1)
        fields = dict(line.split(":", 1) for line in block.decode().split("\n"))
        assert set(fields) <= {"event", "id", "data"}, fields
        values = {name: value.removeprefix(" ") for name, value in fields.items()}
        return Event(values.get("event"), values.get("id"), values.get("data"))

    def rest(self, timeout: float = 10) -> list[Event]:
        """Return all events until the body ends."""
        events = []
        while (event := self.next(timeout)) is not None:
            events.append(event)
        return events

    def batch(self, timeout: float = 10) -> Event:
        """Return the next `batch` event; pings are skipped."""
        while True:
            event = self.next(timeout)
            assert event is not None, "the stream ended"
            if event.name != "ping":
                assert event.name == "batch", event
                return event

    def close(self) -> None:
        self.stream.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def b64(data: bytes) -> str:
    """Base64 as `s2-format: base64` wants it."""
    return base64.b64encode(data).decode()


def stream_path(stream: str) -> str:
    """Return the path of a stream: its name is one segment."""
    return "/v1/streams/" + quote(stream, safe="")


@dataclass(frozen=True)
class S2Client:
    """Requests to one gateway in the name of one basin (None: no `s2-basin` header is sent)."""

    address: Address
    basin: str | None = None

    def of(self, basin: str | None) -> S2Client:
        """Return the same client for another basin."""
        return replace(self, basin=basin)

    def head(self, headers: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the headers of a request: the basin's, and these."""
        return {**({} if self.basin is None else {"s2-basin": self.basin}), **(headers or {})}

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 20,
        **query: object,
    ) -> Answer:
        """Send one unary request."""
        target = _target(path, query)
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        try:
            connection.connect()  # not under the suppress: a reset while connecting leaves no answer to read
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an answer may come before the body's end
                connection.request(method, target, body, self.head(headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def send_json(self, method: str, path: str, value: object, headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request with a JSON body."""
        head = {"content-type": "application/json", **(headers or {})}
        return self.request(method, path, json.dumps(value).encode(), head)

    # ---- records -----------------------------------------------------------------------------------------------

    def append_json(self, stream: str, value: object, headers: Mapping[str, str] | None = None) -> Answer:
        """POST an AppendInput in JSON."""
        return self.send_json("POST", stream_path(stream) + "/records", value, headers)

    def append_proto(self, stream: str, message: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """POST an AppendInput in protobuf."""
        return self.request("POST", stream_path(stream) + "/records", message, {**PROTOBUF, **(headers or {})})

    def append(self, stream: str, *bodies: str, **more: object) -> dict[str, Any]:
        """Append text bodies; the acknowledgement."""
        ack = self.append_json(stream, {"records": [{"body": body} for body in bodies], **more}).json()
        assert isinstance(ack, dict)
        return ack

    def fence(self, stream: str, token: str, **more: object) -> Answer:
        """Append a fence command."""
        return self.append_json(stream, {"records": [{"headers": [["", "fence"]], "body": token}], **more})

    def trim(self, stream: str, seq_num: int) -> Answer:
        """Append a trim command."""
        command = {"headers": [["", b64(b"trim")]], "body": b64(seq_num.to_bytes(8, "big"))}
        return self.append_json(stream, {"records": [command]}, BASE64)

    def read(
        self, stream: str, headers: Mapping[str, str] | None = None, timeout: float = 20, **query: object
    ) -> Answer:
        """Perform a unary read."""
        return self.request("GET", stream_path(stream) + "/records", None, headers, timeout, **query)

    def read_proto(self, stream: str, **query: object) -> pb.ReadBatch:
        """Perform a unary read in protobuf."""
        answer = self.read(stream, {"accept": "application/protobuf"}, **query)
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == "application/protobuf"
        return pb.ReadBatch.FromString(answer.body)

    def bodies(self, stream: str, **query: object) -> list[str]:
        """Return the bodies of a unary read, as text."""
        return [record.get("body", "") for record in self.read(stream, **query).json()["records"]]

    def tail(self, stream: str) -> dict[str, int]:
        """Return the tail's seq_num and timestamp."""
        tail = self.request("GET", stream_path(stream) + "/records/tail").json()["tail"]
        assert isinstance(tail, dict)
        return tail

    # ---- sessions ----------------------------------------------------------------------------------------------

    def open(
        self,
        carrier: str | H2Connection,
        method: str,
        stream: str,
        headers: Mapping[str, str],
        **query: object,
    ) -> ByteStream:
        """A streamed exchange over "h1", "h2", or an HTTP/2 connection that is open already."""
        target = _target(stream_path(stream) + "/records", query)
        return open_stream(self.address, carrier, method, target, self.head(headers))

    def append_session(
        self, stream: str, carrier: str | H2Connection = "h1", headers: Mapping[str, str] | None = None
    ) -> Session:
        """Open an S2S append session."""
        return Session(self.open(carrier, "POST", stream, {"content-type": "s2s/proto", **(headers or {})}))

    def read_session(
        self,
        stream: str,
        carrier: str | H2Connection = "h1",
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Session:
        """Open an S2S read session."""
        return Session(self.open(carrier, "GET", stream, {"content-type": "s2s/proto", **(headers or {})}, **query))

    def events(
        self,
        stream: str,
        carrier: str | H2Connection = "h1",
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Events:
        """Open a read as server-sent events."""
        head = {"accept": "text/event-stream", **(headers or {})}
        return Events(self.open(carrier, "GET", stream, head, **query))

    # ---- basins and streams ------------------------------------------------------------------------------------

    def ensure_basin(self, basin: str, **config: object) -> S2Client:
        """Make sure of a basin; a client for it."""
        answer = self.of(None).send_json("PUT", f"/v1/basins/{basin}", {"config": config})
        assert answer.status in (200, 201), answer
        return self.of(basin)

    def ensure_stream(self, stream: str, **config: object) -> str:
        """Make sure of a stream; its name."""
        answer = self.send_json("PUT", stream_path(stream), config)
        assert answer.status in (200, 201), answer
        return stream


def open_stream(
    address: Address, carrier: str | H2Connection, method: str, target: str, headers: Mapping[str, str]
) -> ByteStream:
    """A streamed exchange over "h1", "h2", or an HTTP/2 connection that is open already."""
    if carrier == "h1":
        return Http1Stream(address, method, target, headers)
    connection = H2Connection(address) if isinstance(carrier, str) else carrier
    return connection.open(method, target, headers, own_connection=carrier == "h2")


def _target(path: str, query: Mapping[str, object]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def eventually(seconds: float, interval: float = 0.02) -> Iterator[None]:
    """Yield repeatedly for `seconds`: `for _ in eventually(5): if done: break` / `else: fail`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(interval)
