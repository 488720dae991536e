"""One connection of Kafka, sans-IO: `KafkaServer` receives requests and sends responses, `KafkaClient` the reverse.

Each message is a length of 4 bytes, a header, and a body. Requests may be pipelined; responses come in the order of the
requests, and carry their correlation ids.

Legal messages in each state:

| state | may receive | may send |
|---|---|---|
| open | request / response | the response to the oldest unanswered request / any request |
| broken by the peer | nothing | server: responses still owed |
| peer finished between messages | nothing (PAUSED) | server: responses still owed |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Final, TypeVar

import msgspec

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.model.limits import KIB, MIB
from penstock.wire.codec import NEED_DATA, PAUSED, UNFINISHED, Pull
from penstock.wire.waiting import WaitingBytes
from penstock_kafka.codec.apis import API_VERSIONS, APIS, KafkaApi
from penstock_kafka.codec.schema import KafkaMessage
from penstock_kafka.codec.wire import KafkaFault, KafkaReader, uvarint

__all__ = ["MAX_FRAME", "KafkaClient", "KafkaRequest", "KafkaResponse", "KafkaServer", "RawResponse"]

MAX_FRAME: Final = 64 * MIB
"""Default of the largest message, in bytes behind its length."""
MAX_MESSAGE_ITEMS: Final = 100_000
"""Most elements of all arrays of one message: each costs more memory than bytes."""
_LENGTH: Final = 4
_LEAST_REQUEST: Final = 8
_LEAST_RESPONSE: Final = 4
_COMPACT_FROM: Final = 64 * KIB
"""Consumed bytes at the beginning of the buffer from which they are removed."""
NO_TAGS: Final = uvarint(0)
MAX_IN_FLIGHT: Final = 10_000
"""Requests of a client that may wait for responses."""
_STEPS: Final = 32
"""Elements that are decoded in one call of `next_event`."""

T = TypeVar("T")


class KafkaRequest(msgspec.Struct, frozen=True):
    """A request, or one to send. `version`: of the request and of its response.

    `supported` False: the client asked for the APIs in an unknown version. It is answered in version 0, with the error
    UNSUPPORTED_VERSION, and asks again.
    """

    api: KafkaApi
    version: int
    correlation_id: int
    client_id: str | None
    message: KafkaMessage
    supported: bool = True


class KafkaResponse(msgspec.Struct, frozen=True):
    """A response to `request`. `message` None: the request wants none (Produce with acks 0), and nothing is sent."""

    request: KafkaRequest
    message: KafkaMessage | None


class RawResponse(msgspec.Struct, frozen=True):
    """A response whose request is not known, as in the middle of a capture: what follows the correlation id."""

    correlation_id: int
    body: bytes


class _Frames:
    """Cuts the bytes of one side into messages, and remembers how it ended."""

    __slots__ = (
        "_at",
        "_awaited",
        "_data",
        "_ended",
        "_gone",
        "_least",
        "_most",
        "_number",
        "_waiting",
        "_what",
        "failure",
    )

    def __init__(self, what: str, gone: FailureCode, least: int, most: int) -> None:
        self._what = what
        self._gone = gone
        self._least = least
        self._most = most
        self._data = bytearray()
        self._at = 0
        self._waiting = WaitingBytes()  # what came after `_data`
        self._awaited = 0  # bytes that make the next message complete
        self._number = 1
        self._ended = False
        self.failure: Failure | None = None

    @property
    def held(self) -> int:
        """Bytes that were received and not cut out."""
        return len(self._data) - self._at + self._waiting.size

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes; b"" is the end."""
        if not data:
            self._ended = True
        elif self.failure is None and self.held + len(data) < self._awaited:
            self._waiting.add(data)
        elif self.failure is None:
            if self._waiting.size:
                with memoryview(self._data) as view:
                    self._data = bytearray().join([view[self._at :], *self._waiting.take(), data])
                self._at = 0
            else:
                self._data += data
            self._awaited = 0

    def next(self) -> bytes | Pull:
        """Return the next message without its length. Raises RemoteProtocolError."""
        if self.failure is not None:
            raise RemoteProtocolError(self.failure)
        if self.held >= _LENGTH:
            start = self._at + _LENGTH
            length = int.from_bytes(self._data[self._at : start], "big", signed=True)
            if length < self._least:
                reason = f"length {length} of {self._name()} is less than {self._least}, that of its header"
                raise self.broken(FailureCode.BAD_FRAME, reason)
            if length > self._most:
                reason = f"length {length} of {self._name()} exceeds the limit of {self._most} bytes"
                raise self.broken(FailureCode.LIMIT_EXCEEDED, reason)
            if len(self._data) - start >= length:
                frame = bytes(memoryview(self._data)[start : start + length])
                self._at = start + length
                if self._at == len(self._data) or self._at >= _COMPACT_FROM:
                    del self._data[: self._at]
                    self._at = 0
                self._number += 1
                return frame
            self._awaited = _LENGTH + length
        if not self._ended:
            return NEED_DATA
        if self.held:
            raise self.broken(self._gone, f"the connection ended after {self.held} bytes of {self._name()}")
        return PAUSED

    def broken(self, code: FailureCode, message: str) -> RemoteProtocolError:
        """Stop reading; return the error that `next` raises from now on."""
        self.failure = Failure(code, message)
        self._data.clear()
        self._waiting.take()
        self._at = 0
        return RemoteProtocolError(self.failure)

    def bad(self, message: str) -> RemoteProtocolError:
        """Stop reading because the last message is malformed."""
        self._number -= 1
        return self.broken(FailureCode.BAD_FRAME, f"{self._name()}: {message}")

    def _name(self) -> str:
        return f"{self._what} {self._number}"


class KafkaServer:
    """The server's end of a connection. `max_frame` in bytes; see `MAX_FRAME`, `MAX_MESSAGE_ITEMS`.

    `steps_from`: bytes of a request from which on `next_event` decodes a part of it in each call, and returns
    UNFINISHED until it has the whole; None: it decodes all at once.
    """

    __slots__ = ("_decoding", "_frames", "_max_items", "_steps_from", "_unanswered")

    def __init__(
        self, *, max_frame: int = MAX_FRAME, max_items: int = MAX_MESSAGE_ITEMS, steps_from: int | None = None
    ) -> None:
        self._frames = _Frames("request", FailureCode.CLIENT_HANGUP, _LEAST_REQUEST, max_frame)
        self._max_items = max_items
        self._steps_from = steps_from
        self._decoding: Generator[None, None, KafkaRequest] | None = None
        self._unanswered: list[KafkaRequest] = []  # an empty deque takes 600 bytes

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the client; b"" means that it has finished sending."""
        self._frames.receive(data)

    def next_event(self) -> KafkaRequest | Pull:
        """Return the next request, NEED_DATA, UNFINISHED, or PAUSED once the client has finished. Raises
        RemoteProtocolError, also for an unknown API or version."""
        decoding = self._decoding
        if decoding is None:
            frame = self._frames.next()
            if isinstance(frame, Pull):
                return frame
            in_steps = self._steps_from is not None and len(frame) >= self._steps_from
            decoding = _read_request(frame, self._max_items, in_steps=in_steps)
        self._decoding = None
        try:
            for _ in range(_STEPS):
                next(decoding)
        except StopIteration as end:
            request: KafkaRequest = end.value
        except KafkaFault as fault:
            raise self._frames.bad(str(fault)) from None
        else:
            self._decoding = decoding
            return UNFINISHED
        self._unanswered.append(request)
        return request

    def refuse(self, message: str) -> RemoteProtocolError:
        """Stop reading because the client exceeds a limit; return the error that `next_event` raises from now on."""
        return self._frames.broken(FailureCode.LIMIT_EXCEEDED, message)

    def send(self, event: KafkaResponse) -> list[bytes]:
        """Return the bytes of the response to the oldest unanswered request.

        Raises LocalProtocolError for another one's, or if its version cannot spell the response.
        """
        return _result(self._send(event, in_steps=False))

    def send_in_steps(self, event: KafkaResponse) -> Generator[None, None, list[bytes]]:
        """Return the bytes as `send` does, with a step for each element of the response."""
        return self._send(event, in_steps=True)

    def _send(self, event: KafkaResponse, *, in_steps: bool) -> Generator[None, None, list[bytes]]:
        if not self._unanswered or self._unanswered[0] is not event.request:
            raise LocalProtocolError("a response must answer the oldest request that has none")
        request = event.request
        pieces: list[bytes] = []
        if event.message is not None:
            header = _response_header(request.api, request.version, request.correlation_id, event.message)
            pieces = yield from _framed(
                header, event.message, request.version, request.api.is_flexible(request.version), in_steps=in_steps
            )
        del self._unanswered[0]
        return pieces

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered as requests."""
        return self._frames.held


class KafkaClient:
    """The client's end of a connection. `observer`: responses are accepted without requests, and yielded raw."""

    def __init__(
        self, *, max_frame: int = MAX_FRAME, max_items: int = MAX_MESSAGE_ITEMS, observer: bool = False
    ) -> None:
        self._frames = _Frames("response", FailureCode.UNAVAILABLE, _LEAST_RESPONSE, max_frame)
        self._max_items = max_items
        self._observer = observer
        self._expected: deque[KafkaRequest] = deque()

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the server; b"" means that it has finished sending."""
        self._frames.receive(data)

    def next_event(self) -> KafkaResponse | RawResponse | Pull:
        """Return the next response, NEED_DATA, or PAUSED once the server has finished. Raises RemoteProtocolError."""
        frame = self._frames.next()
        if isinstance(frame, Pull):
            if frame is PAUSED and self._expected:
                reason = f"the connection ended with {len(self._expected)} responses outstanding"
                raise self._frames.broken(FailureCode.UNAVAILABLE, reason)
            return frame
        if self._observer:
            return RawResponse(int.from_bytes(frame[:4], "big", signed=True), frame[4:])
        if not self._expected:
            raise self._frames.bad("it answers no request")
        request = self._expected.popleft()
        try:
            return KafkaResponse(request, read_response(request, frame, self._max_items))
        except KafkaFault as fault:
            raise self._frames.bad(f"{request.api.name} version {request.version}, {fault}") from None

    def send(self, event: KafkaRequest, *, answered: bool = True) -> list[bytes]:
        """Return the bytes of a request. `answered` False: the server sends no response.

        Raises LocalProtocolError if its version cannot spell the request, or the connection is over.
        """
        if self._frames.failure is not None or len(self._expected) >= MAX_IN_FLIGHT:
            raise LocalProtocolError("the connection is over, or has too many requests in flight")
        pieces = encode_request(event)
        if answered and not self._observer:
            self._expected.append(event)
        return pieces

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered as responses."""
        return self._frames.held


# ---- messages with their headers -------------------------------------------------------------------------------------


def read_request(frame: bytes, max_items: int = MAX_MESSAGE_ITEMS) -> KafkaRequest:
    """Decode a request with its header. Raises KafkaFault.

    Bytes behind it are ignored, as Kafka does: librdkafka spells "all topics" in Metadata 9 with 3 bytes too many.
    """
    return _result(_read_request(frame, max_items, in_steps=False))


def _read_request(frame: bytes, max_items: int, *, in_steps: bool) -> Generator[None, None, KafkaRequest]:
    reader = KafkaReader(frame, items=max_items)
    key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    api = APIS.get(key)
    if api is None:
        raise KafkaFault(f"API {key} is not known", 0)
    if not api.oldest <= version <= api.newest:
        if api is not API_VERSIONS:
            known = f"{api.oldest} to {api.newest}"
            raise KafkaFault(f"{api.name} has the versions {known}, not {version}", 2)
        return KafkaRequest(api, 0, correlation_id, None, api.request(), supported=False)
    at, client = reader.at, reader.block(compact=False, small=True, what="client id")
    try:
        client_id = None if client is None else client.decode()
    except UnicodeDecodeError:
        raise KafkaFault("the client id is not UTF-8", at) from None
    flexible = api.is_flexible(version)
    if flexible:
        reader.skip_tags()
    if in_steps:
        message = yield from api.request.read_in_steps(reader, version, flexible=flexible)
    else:
        message = api.request.read(reader, version, flexible=flexible)
    return KafkaRequest(api, version, correlation_id, client_id, message)


def encode_request(request: KafkaRequest) -> list[bytes]:
    """Return a request as bytes, in pieces. Raises LocalProtocolError if its version cannot spell it."""
    api, version = request.api, request.version
    flexible = api.is_flexible(version)
    client = None if request.client_id is None else request.client_id.encode()
    header = b"%b%b%b%b%b" % (
        api.key.to_bytes(2, "big"),
        version.to_bytes(2, "big"),
        request.correlation_id.to_bytes(4, "big", signed=True),
        (-1 if client is None else len(client)).to_bytes(2, "big", signed=True),
        client or b"",
    )
    return _result(_framed(header + (NO_TAGS if flexible else b""), request.message, version, flexible))


def read_response(request: KafkaRequest, frame: bytes, max_items: int = MAX_MESSAGE_ITEMS) -> KafkaMessage:
    """Decode the response to a request, with its header. Raises KafkaFault."""
    reader = KafkaReader(frame, items=max_items)
    api, version = request.api, request.version
    correlation_id = reader.int32()
    if correlation_id != request.correlation_id:
        raise KafkaFault(f"correlation id {correlation_id}, expected {request.correlation_id}", 0)
    flexible = api.is_flexible(version)
    if flexible and api is not API_VERSIONS:
        reader.skip_tags()
    message = api.response.read(reader, version, flexible=flexible)
    if reader.at != reader.end:
        raise KafkaFault(f"{reader.end - reader.at} bytes follow it", reader.at)
    return message


def encode_response(api: KafkaApi, version: int, correlation_id: int, message: KafkaMessage) -> list[bytes]:
    """Return a response as bytes, in pieces. Raises LocalProtocolError if the version cannot spell it.

    ApiVersions has the old header in all versions, since its clients do not know the server's versions yet (KIP-511).
    """
    header = _response_header(api, version, correlation_id, message)
    return _result(_framed(header, message, version, api.is_flexible(version)))


def _response_header(api: KafkaApi, version: int, correlation_id: int, message: KafkaMessage) -> bytes:
    if not isinstance(message, api.response):
        raise LocalProtocolError(f"{type(message).__name__} does not answer {api.name}")
    header = correlation_id.to_bytes(4, "big", signed=True)
    return header + NO_TAGS if api.is_flexible(version) and api is not API_VERSIONS else header


def _framed(
    header: bytes, message: KafkaMessage, version: int, flexible: bool, *, in_steps: bool = False
) -> Generator[None, None, list[bytes]]:
    try:
        if in_steps:
            pieces = yield from message.encode_in_steps(version, flexible=flexible)
        else:
            pieces = message.encode(version, flexible=flexible)
    except ValueError as error:
        raise LocalProtocolError(str(error)) from None
    length = len(header) + sum(map(len, pieces))
    return [length.to_bytes(_LENGTH, "big") + header, *pieces]


def _result(steps: Generator[None, None, T]) -> T:
    """Return the result of a generator that has no steps."""
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it has a step")
