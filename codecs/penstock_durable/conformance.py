"""Conformance cases of Durable Streams, from its protocol 1.0 and, for closing, which that document leaves out, from
the server suite of the reference implementation.

Requests are spelled as HTTP here, and not by the codec: many cases send what a client must not, and offsets are taken
as the opaque text that they are to clients.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

import trio

from penstock.model.failures import OperationFailed
from penstock.model.limits import MIB
from penstock.net.http.client import HttpClient, HttpStream, Response
from penstock.protocols.conformance import (
    Cases,
    Deviation,
    NotApplicable,
    Suite,
    TestedServer,
    require,
    require_equal,
    until,
)
from penstock.wire.http.event_stream import EventParser

__all__ = ["SUITE"]

Header = tuple[str, str]

_PREFIX: Final = "/v1/stream/"
_TEXT: Final = ("content-type", "text/plain")
_JSON: Final = ("content-type", "application/json")
_CLOSE: Final = ("stream-closed", "true")
_EXPIRY_SECONDS: Final = 6.0
"""Seconds after which a stream whose time to live is one second must have gone."""
_WAITING_SECONDS: Final = 0.3
"""Seconds for which a read must wait to count as one that waits."""
_RESERVED: Final = frozenset(",&=?/")
"""Characters that no offset has (6)."""


class DurableTestSession:
    """A case's client and its stream."""

    def __init__(self, server: TestedServer, http: HttpClient) -> None:
        space = "" if server.space is None else f"{quote(server.space)}/"
        self.path = f"{_PREFIX}{space}{server.new_name()}"
        self._patience = server.patience
        self._http = http

    async def ask(self, method: str, *headers: Header, body: bytes = b"", **query: str) -> Response:
        """Make a request about the stream."""
        return await self._http.request(
            method, self._target(query), headers, body, seconds=self._patience, idempotent=False
        )

    async def answer(
        self, status: int | tuple[int, ...], method: str, *headers: Header, body: bytes = b"", **query: str
    ) -> Response:
        """Make a request that must be answered with this status, or one of these."""
        response = await self.ask(method, *headers, body=body, **query)
        wanted = status if isinstance(status, tuple) else (status,)
        expected = f"status {' or '.join(map(str, wanted))}"
        require(response.status in wanted, expected, (response.status, response.body[:200]))
        return response

    async def created(self, kind: Header = _TEXT, *bodies: bytes) -> str:
        """Create the stream, and append to it. Return its tail."""
        tail = _offset(await self.answer(201, "PUT", kind))
        for body in bodies:
            tail = await self.append(body, kind)
        return tail

    async def append(self, body: bytes, kind: Header = _TEXT) -> str:
        """Append, and return the offset behind it."""
        return _offset(await self.answer((200, 204), "POST", kind, body=body))

    async def read(self, offset: str = "-1", **more: Any) -> Response:
        """Read once."""
        return await self.answer(200, "GET", offset=offset, **more)

    async def content(self, offset: str = "-1") -> bytes:
        """Read bytes up to the tail."""
        return b"".join([response.body for response in await self._to_the_tail(offset)])

    async def messages(self, offset: str = "-1") -> list[Any]:
        """Read JSON up to the tail."""
        return [message for response in await self._to_the_tail(offset) for message in _array(response)]

    async def _to_the_tail(self, offset: str) -> list[Response]:
        """Read in as many answers as the server likes."""
        responses = [await self.read(offset)]
        while responses[-1].header("stream-up-to-date") != "true":
            require(_offset(responses[-1]) != offset, "content, or Stream-Up-To-Date", responses[-1].body)
            offset = _offset(responses[-1])
            responses.append(await self.read(offset))
        return responses

    async def closed(self, *headers: Header, body: bytes = b"") -> Response:
        """Close the stream, with these last bytes. Raises NotApplicable if the server cannot."""
        response = await self.ask("POST", _CLOSE, *headers, body=body)
        if response.status not in (200, 204) or (await self.answer(200, "HEAD")).header("stream-closed") != "true":
            raise NotApplicable(f"streams cannot be closed (status {response.status})")
        return response

    @asynccontextmanager
    async def polling(self, offset: str) -> AsyncIterator[list[Response]]:
        """Begin a long poll, which must wait; after the block, its answer is in the list."""
        responses: list[Response] = []

        async def poll() -> None:
            responses.append(await self.ask("GET", offset=offset, live="long-poll"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await trio.sleep(_WAITING_SECONDS)
            require(not responses, "a read that waits for data", responses)
            yield responses

    @asynccontextmanager
    async def following(self, offset: str) -> AsyncIterator[LiveEvents]:
        """Read the stream as events."""
        async with self._http.open("GET", self._target({"offset": offset, "live": "sse"}), body=False) as opened:
            head = await opened.receive_head(self._patience)
            require_equal(head.status, 200)
            kind = next((value for name, value in head.headers if name == "content-type"), "")
            require(kind.startswith("text/event-stream"), "content-type text/event-stream", kind)
            yield LiveEvents(opened, self._patience)

    async def append_pieces(self, *pieces: bytes) -> int:
        """Append in one request of unknown length; return the status."""
        async with self._http.open("POST", self.path, [_TEXT], body=True) as exchange:
            for piece in pieces:
                await exchange.send([piece])
            await exchange.finish()
            return (await exchange.receive_head(self._patience)).status

    def _target(self, query: dict[str, str]) -> str:
        return self.path + "?" * bool(query) + "&".join(f"{name}={quote(query[name], safe='')}" for name in query)


class LiveEvents:
    """The events of one answer."""

    def __init__(self, opened: HttpStream, patience: float) -> None:
        self._opened = opened
        self._parser = EventParser(MIB)
        self._patience = patience

    async def next(self) -> tuple[str, bytes] | None:
        """Return name and data of the next event, or None at the end. Raises Deviation if neither comes."""
        with trio.move_on_after(self._patience):
            while (event := self._parser.next_event()) is None:
                if not (data := await self._opened.receive()):
                    return None
                self._parser.receive(data)
            return event.name, bytes(event.data)
        raise Deviation(f"expected an event within {self._patience:g} s, got none")

    async def control(self) -> dict[str, Any]:
        """Return the next event, which must be `control`, with an offset and a cursor."""
        event = await self.next()
        require(event is not None and event[0] == "control", "an event control", event)
        assert event is not None
        fields = _json(event[1])
        require(isinstance(fields, dict) and isinstance(fields.get("streamNextOffset"), str), "streamNextOffset", event)
        assert isinstance(fields, dict)
        goes_on = isinstance(fields.get("streamCursor"), str) or fields.get("streamClosed") is True
        require(goes_on, "streamCursor", fields)
        return fields

    async def data(self, length: int) -> tuple[bytes, dict[str, Any]]:
        """Return so many bytes of the next events `data`, and the last event `control`. Positions that a server repeats
        before the data are skipped."""
        received = b""
        while True:
            event = await self.next()
            require(event is not None, f"{length} bytes in events", received)
            assert event is not None
            if event[0] == "data":
                received += event[1]
                control = await self.control()
                if len(received) >= length:
                    return received, control


def _offset(response: Response) -> str:
    """Return Stream-Next-Offset, which must be an offset."""
    offset = response.header("stream-next-offset")
    if not offset or offset in ("-1", "now") or _RESERVED & set(offset):
        raise Deviation(f"expected Stream-Next-Offset, got {offset!r:.300}")
    return offset


def _type(response: Response) -> str:
    return (response.header("content-type") or "").partition(";")[0].strip().lower()


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise Deviation(f"expected JSON, got {data!r:.200}") from None


def _array(response: Response) -> list[Any]:
    require_equal(_type(response), "application/json")
    value = _json(response.body)
    require(isinstance(value, list), "an array of JSON", value)
    assert isinstance(value, list)
    return value


@asynccontextmanager
async def _session(server: TestedServer) -> AsyncIterator[DurableTestSession]:
    async with server.http("durable") as http:
        session = DurableTestSession(server, http)
        try:
            yield session
        finally:
            # A server that does not answer is what the case has found.
            with trio.CancelScope(shield=True), suppress(OperationFailed):
                await session.ask("DELETE")


_CASES: Final = Cases[DurableTestSession]()

# ---- 5.1 create ------------------------------------------------------------------------------------------------------


@_CASES.case("5.1")
async def create(session: DurableTestSession) -> None:
    """PUT of a new stream is status 201, with its content type and the offset of its tail."""
    response = await session.answer(201, "PUT", _TEXT)
    require_equal(_type(response), "text/plain")
    _offset(response)


@_CASES.case("5.1")
async def create_again(session: DurableTestSession) -> None:
    """PUT of a stream that exists is status 200 if its configuration is the same, and 409 if it differs."""
    await session.created()
    await session.answer(200, "PUT", _TEXT)
    await session.answer(409, "PUT", _JSON)
    await session.answer(409, "PUT", _TEXT, ("stream-ttl", "3600"))


@_CASES.case("5.1")
async def create_with_content(session: DurableTestSession) -> None:
    """The body of PUT is the stream's first content."""
    tail = _offset(await session.answer(201, "PUT", _TEXT, body=b"begun"))
    require_equal(await session.content(), b"begun")
    require_equal(_offset(await session.answer(200, "HEAD")), tail)


@_CASES.case("5.1")
async def invalid_time_to_live(session: DurableTestSession) -> None:
    """Stream-TTL is an integer without sign, leading zeros, point or exponent; anything else is status 400."""
    for value in ("+3600", "03600", "3600.0", "3.6e3", "-1", "soon"):
        await session.answer(400, "PUT", _TEXT, ("stream-ttl", value))
    await session.answer(201, "PUT", _TEXT, ("stream-ttl", "3600"))


@_CASES.case("5.1")
async def invalid_expiry(session: DurableTestSession) -> None:
    """Stream-Expires-At that is no time of RFC 3339 is status 400."""
    await session.answer(400, "PUT", _TEXT, ("stream-expires-at", "tomorrow"))
    await session.answer(201, "PUT", _TEXT, ("stream-expires-at", "2999-01-01T00:00:00Z"))


@_CASES.case("5.1")
async def expiry(session: DurableTestSession) -> None:
    """A stream is gone after its time to live."""
    await session.answer(201, "PUT", _TEXT, ("stream-ttl", "1"))

    async def gone() -> bool:
        return (await session.ask("HEAD")).status == 404

    await until(gone, _EXPIRY_SECONDS, "status 404")


# ---- 5.2 append ------------------------------------------------------------------------------------------------------


@_CASES.case("5.2")
async def append(session: DurableTestSession) -> None:
    """POST adds bytes at the end, and is status 204 with the offset of the new tail."""
    await session.created(_TEXT, b"one")
    response = await session.answer(204, "POST", _TEXT, body=b"two")
    require_equal(_offset(response), _offset(await session.answer(200, "HEAD")))
    require_equal(await session.content(), b"onetwo")


@_CASES.case("5.2")
async def append_to_an_unknown_stream(session: DurableTestSession) -> None:
    """POST to a stream that does not exist is status 404."""
    await session.answer(404, "POST", _TEXT, body=b"x")


@_CASES.case("5.2")
async def append_of_another_type(session: DurableTestSession) -> None:
    """POST of another content type than the stream's is status 409, and stores nothing."""
    await session.created(_TEXT, b"x")
    await session.answer(409, "POST", _JSON, body=b"{}")
    require_equal(await session.content(), b"x")


@_CASES.case("5.2")
async def append_without_a_type(session: DurableTestSession) -> None:
    """POST without a content type is status 400."""
    await session.created()
    await session.answer(400, "POST", body=b"x")


@_CASES.case("5.2")
async def append_of_nothing(session: DurableTestSession) -> None:
    """POST without a body is status 400."""
    await session.created()
    await session.answer(400, "POST", _TEXT)


@_CASES.case("5.2")
async def append_in_pieces(session: DurableTestSession) -> None:
    """A body may come in pieces, without its length."""
    await session.created()
    require_equal(await session.append_pieces(b"one", b"two"), 204)
    require_equal(await session.content(), b"onetwo")


@_CASES.case("5.2")
async def writer_sequence(session: DurableTestSession) -> None:
    """Stream-Seq must rise, byte by byte: one that is equal to the last or below is status 409, and stores nothing."""
    await session.created()
    for sequence, status in (("10", 204), ("10", 409), ("09", 409), ("2", 204), ("10", 409), ("a", 204), ("Z", 409)):
        await session.answer(status, "POST", _TEXT, ("stream-seq", sequence), body=f"{sequence} ".encode())
    require_equal(await session.content(), b"10 2 a ")


# ---- 5.2.1 idempotent producers --------------------------------------------------------------------------------------


def _producer(epoch: object, seq: object, name: str = "p") -> Sequence[Header]:
    return (_TEXT, ("producer-id", name), ("producer-epoch", str(epoch)), ("producer-seq", str(seq)))


@_CASES.case("5.2.1")
async def producer_that_repeats(session: DurableTestSession) -> None:
    """A producer's new append is status 200 with its epoch and number; one that it repeats is 204, and stored once."""
    await session.created()
    for seq, status in ((0, 200), (0, 204), (1, 200), (0, 204), (1, 204)):
        response = await session.answer(status, "POST", *_producer(0, seq), body=b"%d" % seq)
        if status == 200:
            echoed = (response.header("producer-epoch"), response.header("producer-seq"))
            require_equal(echoed, ("0", str(seq)))
    require_equal(await session.content(), b"01")


@_CASES.case("5.2.1")
async def producer_with_a_gap(session: DurableTestSession) -> None:
    """A number beyond the next one is status 409 with the one that is expected and the one received, and stores
    nothing."""
    await session.created()
    await session.answer(200, "POST", *_producer(0, 0), body=b"x")
    response = await session.answer(409, "POST", *_producer(0, 2), body=b"y")
    numbers = (response.header("producer-expected-seq"), response.header("producer-received-seq"))
    require_equal(numbers, ("1", "2"))
    require_equal(await session.content(), b"x")


@_CASES.case("5.2.1")
async def producer_that_was_replaced(session: DurableTestSession) -> None:
    """An epoch below the producer's newest is status 403 with that one, and stores nothing."""
    await session.created()
    for epoch in (0, 4):
        await session.answer(200, "POST", *_producer(epoch, 0), body=b"x")
    response = await session.answer(403, "POST", *_producer(0, 1), body=b"y")
    require_equal(response.header("producer-epoch"), "4")
    require_equal(await session.content(), b"xx")


@_CASES.case("5.2.1")
async def epoch_that_begins_late(session: DurableTestSession) -> None:
    """A new epoch begins with number 0; another one is status 400, and does not begin it."""
    await session.created()
    await session.answer(200, "POST", *_producer(0, 0), body=b"x")
    await session.answer(400, "POST", *_producer(1, 1), body=b"y")
    await session.answer(200, "POST", *_producer(0, 1), body=b"z")
    require_equal(await session.content(), b"xz")


@_CASES.case("5.2.1")
async def producers_apart(session: DurableTestSession) -> None:
    """Each producer has its own numbers."""
    await session.created()
    for name in ("a", "b"):
        await session.answer(200, "POST", *_producer(0, 0, name), body=name.encode())
    require_equal(await session.content(), b"ab")


@_CASES.case("5.2.1")
async def invalid_producer(session: DurableTestSession) -> None:
    """The three headers come together, the id is not empty, and the numbers are integers from 0 to 2^53-1; else status
    400."""
    await session.created()
    for headers in (
        _producer(0, 0)[:3],
        _producer(0, 0)[:2],
        _producer(0, 0, ""),
        _producer("x", 0),
        _producer(0, "1.5"),
        _producer(-1, 0),
        _producer(2**53, 0),
    ):
        await session.answer(400, "POST", *headers, body=b"x")


# ---- 5.3 delete, 5.4 metadata ----------------------------------------------------------------------------------------


@_CASES.case("5.3")
async def delete(session: DurableTestSession) -> None:
    """DELETE is status 204, and after it the stream does not exist."""
    await session.created(_TEXT, b"x")
    await session.answer(204, "DELETE")
    for method in ("HEAD", "GET", "DELETE"):
        await session.answer(404, method)
    await session.answer(404, "POST", _TEXT, body=b"y")


@_CASES.case("5.4")
async def metadata(session: DurableTestSession) -> None:
    """HEAD is status 200 with content type and tail, and without a body."""
    tail = await session.created(_TEXT, b"x")
    response = await session.answer(200, "HEAD")
    require_equal((_type(response), _offset(response), response.body), ("text/plain", tail, b""))


@_CASES.case("5.4")
async def metadata_of_an_unknown_stream(session: DurableTestSession) -> None:
    """HEAD of a stream that does not exist is status 404."""
    await session.answer(404, "HEAD")


# ---- 5.5 reading -----------------------------------------------------------------------------------------------------


@_CASES.case("5.5")
async def read_from_the_beginning(session: DurableTestSession) -> None:
    """Without an offset, and with -1, a read begins with the stream."""
    await session.created(_TEXT, b"one", b"two")
    require_equal((await session.answer(200, "GET")).body, (await session.read()).body)
    require_equal(await session.content(), b"onetwo")


@_CASES.case("5.5")
async def read_from_an_offset(session: DurableTestSession) -> None:
    """A read begins at an offset that an append was answered with."""
    await session.created()
    middle = await session.append(b"one")
    tail = await session.append(b"two")
    require_equal(await session.content(middle), b"two")
    require_equal(_offset(await session.read(middle)), tail)


@_CASES.case("5.5")
async def read_at_the_tail(session: DurableTestSession) -> None:
    """A read at the tail is status 200 without a body, with the same offset and Stream-Up-To-Date."""
    tail = await session.created(_TEXT, b"x")
    response = await session.read(tail)
    require_equal((response.body, _offset(response)), (b"", tail))
    require_equal(response.header("stream-up-to-date"), "true")


@_CASES.case("5.5")
async def read_of_another_type(session: DurableTestSession) -> None:
    """A read has the content type of the stream, and any bytes."""
    kind, body = ("content-type", "application/x-any"), bytes(range(256))
    await session.created(kind, body)
    require_equal(_type(await session.read()), "application/x-any")
    require_equal(await session.content(), body)


@_CASES.case("5.5")
async def malformed_offset(session: DurableTestSession) -> None:
    """An offset with a character that none has is status 400."""
    await session.created(_TEXT, b"x")
    for offset in ("0,1", "a&b", "a=b", "a?b", "../x"):
        await session.answer(400, "GET", offset=offset)


@_CASES.case("5.5")
async def read_of_an_unknown_stream(session: DurableTestSession) -> None:
    """A read of a stream that does not exist is status 404, live or not."""
    await session.answer(404, "GET")
    for live in ("long-poll", "sse"):
        await session.answer(404, "GET", offset="-1", live=live)


# ---- 5.6 long poll ---------------------------------------------------------------------------------------------------


@_CASES.case("5.6")
async def poll_for_what_is_there(session: DurableTestSession) -> None:
    """A long poll from an offset with data behind it is answered at once, with a cursor."""
    tail = await session.created(_TEXT, b"x")
    response = await session.read("-1", live="long-poll")
    require_equal((response.body, _offset(response)), (b"x", tail))
    require(bool(response.header("stream-cursor")), "Stream-Cursor", response.headers)


@_CASES.case("5.6")
async def poll_for_what_comes(session: DurableTestSession) -> None:
    """A long poll at the tail waits, and has what is appended."""
    tail = await session.created(_TEXT, b"x")
    async with session.polling(tail) as responses:
        end = await session.append(b"y")
    require_equal((responses[0].status, responses[0].body, _offset(responses[0])), (200, b"y", end))
    require(bool(responses[0].header("stream-cursor")), "Stream-Cursor", responses[0].headers)


@_CASES.case("5.6")
async def live_without_an_offset(session: DurableTestSession) -> None:
    """A live read without an offset is status 400."""
    await session.created()
    for live in ("long-poll", "sse"):
        await session.answer(400, "GET", live=live)


# ---- 5.7 events ------------------------------------------------------------------------------------------------------


@_CASES.case("5.7")
async def events_of_what_is_there(session: DurableTestSession) -> None:
    """Events have the content from an offset on, then the offset behind it and a cursor."""
    tail = await session.created(_TEXT, b"one", b"two")
    async with session.following("-1") as events:
        data, control = await events.data(6)
    require_equal((data, control["streamNextOffset"]), (b"onetwo", tail))


@_CASES.case("5.7")
async def events_of_what_comes(session: DurableTestSession) -> None:
    """Bytes that are appended meanwhile come as further events."""
    tail = await session.created(_TEXT, b"one")
    async with session.following(tail) as events:
        for body in (b"two", b"three"):
            end = await session.append(body)
            data, control = await events.data(len(body))
            require_equal((data, control["streamNextOffset"]), (body, end))


@_CASES.case("5.7")
async def events_of_lines(session: DurableTestSession) -> None:
    """Each line of the content is a line of the event."""
    await session.created(_TEXT, b"one\ntwo\n\nevent: three")
    async with session.following("-1") as events:
        require_equal((await events.data(1))[0], b"one\ntwo\n\nevent: three")


@_CASES.case("5.7")
async def events_of_json(session: DurableTestSession) -> None:
    """Events of a stream of JSON have arrays of messages."""
    await session.created(_JSON, b'[{"a":1},2]')
    async with session.following("-1") as events:
        require_equal(_json((await events.data(1))[0]), [{"a": 1}, 2])


# ---- 6 offsets -------------------------------------------------------------------------------------------------------


@_CASES.case("6")
async def offsets_rise(session: DurableTestSession) -> None:
    """Each append moves the tail to an offset that sorts behind all before, as text."""
    tails = [await session.created()]
    tails += [await session.append(b"x" * (1 + number % 3)) for number in range(12)]
    require(tails == sorted(set(tails)), "offsets in order, each once", tails)


@_CASES.case("6")
async def offsets_stay(session: DurableTestSession) -> None:
    """An offset stays the same place when more is appended."""
    await session.created()
    middle = await session.append(b"one")
    await session.append(b"two")
    require_equal(await session.content(middle), b"two")
    await session.append(b"three")
    require_equal(await session.content(middle), b"twothree")


@_CASES.case("6")
async def read_from_now(session: DurableTestSession) -> None:
    """A read from `now` has nothing, the offset of the tail, and Stream-Up-To-Date; of JSON, an empty array."""
    for kind, body, nothing in ((_TEXT, b"x", b""), (_JSON, b"1", b"[]")):
        tail = await session.created(kind, body)
        response = await session.read("now")
        require_equal((response.body, _offset(response)), (nothing, tail))
        require_equal(response.header("stream-up-to-date"), "true")
        await session.answer(204, "DELETE")
        session.path += "-json"


@_CASES.case("6")
async def poll_from_now(session: DurableTestSession) -> None:
    """A long poll from `now` waits at once, and has only what is appended later."""
    await session.created(_TEXT, b"x")
    async with session.polling("now") as responses:
        await session.append(b"y")
    require_equal((responses[0].status, responses[0].body), (200, b"y"))


@_CASES.case("6")
async def events_from_now(session: DurableTestSession) -> None:
    """Events from `now` begin with the offset of the tail, up to date, and have only what is appended later."""
    tail = await session.created(_TEXT, b"x")
    async with session.following("now") as events:
        control = await events.control()
        require_equal((control["streamNextOffset"], control.get("upToDate")), (tail, True))
        await session.append(b"y")
        require_equal((await events.data(1))[0], b"y")


# ---- 7.1 JSON --------------------------------------------------------------------------------------------------------


@_CASES.case("7.1")
async def messages_of_arrays(session: DurableTestSession) -> None:
    """An array in a request is taken apart by one level, each element a message; anything else is one message."""
    await session.created(_JSON, b'{"a":1}', b'[{"b":2},"c"]', b"[[1,2],[3]]", b"[[[4]]]", b"null")
    require_equal(await session.messages(), [{"a": 1}, {"b": 2}, "c", [1, 2], [3], [[4]], None])


@_CASES.case("7.1")
async def read_within_messages(session: DurableTestSession) -> None:
    """A read has the messages behind its offset; an array without any at the tail."""
    await session.created(_JSON)
    middle = await session.append(b"[1,2]", _JSON)
    tail = await session.append(b"3", _JSON)
    require_equal(await session.messages(middle), [3])
    require_equal(_array(await session.read(tail)), [])


@_CASES.case("7.1")
async def append_of_no_messages(session: DurableTestSession) -> None:
    """An empty array is status 400 as an append, and an empty stream as a creation."""
    require_equal((await session.answer(201, "PUT", _JSON, body=b"[]")).status, 201)
    await session.answer(400, "POST", _JSON, body=b"[]")
    require_equal(await session.messages(), [])


@_CASES.case("7.1")
async def append_that_is_not_json(session: DurableTestSession) -> None:
    """An append to a stream of JSON that is not JSON is status 400, and stores nothing."""
    await session.created(_JSON, b"1")
    for body in (b"{", b"[1,]", b"x", b'{"a":1}{"b":2}'):
        await session.answer(400, "POST", _JSON, body=body)
    require_equal(await session.messages(), [1])


# ---- 8.1 caching -----------------------------------------------------------------------------------------------------


@_CASES.case("8.1")
async def entity_tag(session: DurableTestSession) -> None:
    """A read has an ETag; repeated with it, it is status 304 without a body, until more is appended."""
    await session.created(_TEXT, b"x")
    tag = (await session.read()).header("etag")
    require(bool(tag), "ETag", tag)
    assert tag is not None
    response = await session.answer(304, "GET", ("if-none-match", tag), offset="-1")
    require_equal(response.body, b"")
    await session.append(b"y")
    await session.answer(200, "GET", ("if-none-match", tag), offset="-1")


@_CASES.case("8.1")
async def cursors_rise(session: DurableTestSession) -> None:
    """The cursor of an answer is above the one that the client sends, if that is not in the past."""
    await session.created(_TEXT, b"x")
    cursor = ""
    for _ in range(3):
        response = await session.read("-1", live="long-poll", **({"cursor": cursor} if cursor else {}))
        last, cursor = cursor, response.header("stream-cursor") or ""
        require(cursor.isdecimal() and int(cursor) > int(last or 0), f"a cursor above {last or 0}", cursor)


# ---- closing ---------------------------------------------------------------------------------------------------------


@_CASES.case("closing")
async def append_after_the_close(session: DurableTestSession) -> None:
    """An append to a closed stream is status 409 with Stream-Closed, and stores nothing."""
    await session.created(_TEXT, b"x")
    await session.closed()
    response = await session.answer(409, "POST", _TEXT, body=b"y")
    require_equal(response.header("stream-closed"), "true")
    require_equal(await session.content(), b"x")


@_CASES.case("closing")
async def close_again(session: DurableTestSession) -> None:
    """A stream that is closed may be closed again."""
    await session.created()
    await session.closed()
    await session.answer((200, 204), "POST", _CLOSE)


@_CASES.case("closing")
async def close_with_the_last_bytes(session: DurableTestSession) -> None:
    """An append may close the stream behind it."""
    await session.created(_TEXT, b"x")
    await session.closed(_TEXT, body=b"y")
    require_equal(await session.content(), b"xy")


@_CASES.case("closing")
async def end_of_a_closed_stream(session: DurableTestSession) -> None:
    """A read that reaches the end of a closed stream says so, and a long poll there does not wait."""
    tail = await session.created(_TEXT, b"x")
    await session.closed()
    require_equal((await session.read()).header("stream-closed"), "true")
    response = await session.answer((200, 204), "GET", offset=tail, live="long-poll")
    require_equal((response.header("stream-closed"), _offset(response)), ("true", tail))


@_CASES.case("closing")
async def close_ends_reads(session: DurableTestSession) -> None:
    """A long poll that waits, and a response of events, end when the stream is closed."""
    tail = await session.created(_TEXT, b"x")
    async with session.following("-1") as events:
        await events.data(1)
        async with session.polling(tail) as responses:
            await session.closed()
        require_equal(responses[0].header("stream-closed"), "true")
        while (event := await events.next()) is not None:
            require_equal(event[0], "control")
            last = _json(event[1])
        require_equal(last.get("streamClosed"), True)


SUITE: Final = Suite(
    title="Durable Streams",
    source="the sections of its protocol 1.0",
    clauses={
        "5.1": "Create",
        "5.2": "Append",
        "5.2.1": "Idempotent producers",
        "5.3": "Delete",
        "5.4": "Metadata",
        "5.5": "Read",
        "5.6": "Read by long polls",
        "5.7": "Read as events",
        "6": "Offsets",
        "7.1": "JSON",
        "8.1": "Caching",
        "closing": "Closed streams",
    },
    cases=tuple(_CASES.found),
    session=_session,
)
