"""Conformance cases of S2's interface for data: records as JSON, as protobuf, as events and in S2S sessions (S2 fact
sheet, 1 to 5).

The clauses are the operations of the specification. Each case makes a stream in the basin of the URL, or in a basin of
its own if the URL has none.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

import trio
from google.protobuf.message import DecodeError, Message

from penstock.net.http.client import HttpClient, HttpStream, Response
from penstock.protocols.conformance import Cases, Deviation, NotApplicable, Suite, TestedServer, require, require_equal
from penstock_codecs.failures import OperationFailed
from penstock_codecs.limits import MIB
from penstock_codecs.s2s.frames import Frame, FrameError, FrameReader, Terminal, encode_frame
from penstock_proto import s2_pb2 as pb

__all__ = ["SUITE"]

_NOTHING: Final = Frame(b"", reconnect_advised=False)
_JSON: Final = "application/json"
_PROTOBUF: Final = "application/protobuf"
_SESSION: Final = "s2s/proto"
_EVENTS: Final = "text/event-stream"
_TRIM_SECONDS: Final = 30.0
"""Seconds until a trim has removed the records, at most."""
_TRIM_TRIES: Final = 100
_PIECE_SECONDS: Final = 0.002
"""Pause behind a piece of a frame, so that it is sent alone."""
_AT_ONCE: Final = 3.0
"""Seconds within which what need not wait is there."""
M = TypeVar("M", bound=Message)


class S2TestSession:
    """A case's client, and its basin."""

    def __init__(self, client: HttpClient, basin: str, stream: str, patience: float) -> None:
        """`stream`: a name that is not used yet. `patience`: seconds to wait for an answer."""
        self.basin = basin
        self.stream = stream
        self._client = client
        self._patience = patience

    async def ask(
        self, method: str, path: str, body: object = None, headers: Sequence[tuple[str, str]] = (), **query: Any
    ) -> Response:
        """Make a request. `body`: bytes, or a value for JSON. `query`: its parameters."""
        named = {name for name, _ in headers}
        more = [("s2-basin", self.basin)] if "s2-basin" not in named else []
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            more += [("content-type", _JSON)] if "content-type" not in named else []
        target = path + "?" * bool(query) + "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
        sent = [header for header in (*headers, *more) if header[1]]
        return await self._client.request(method, target, sent, body or b"", seconds=self._patience)

    async def answer(self, status: int, method: str, path: str, *arguments: Any, **query: Any) -> Any:
        """Make a request that must have this status, and return the JSON of its answer."""
        response = await self.ask(method, path, *arguments, **query)
        require(response.status == status, f"status {status}", (response.status, response.body[:200]))
        return _value(response.body) if response.body else None

    def path(self, rest: str = "") -> str:
        """Return the path of the case's stream."""
        return f"/v1/streams/{quote(self.stream, safe='')}{rest}"

    @property
    def records(self) -> str:
        """The path of the stream's records."""
        return self.path("/records")

    async def append(self, *records: object, status: int = 200, **more: object) -> Any:
        """Append records: bodies, or records as in JSON; return the JSON of the answer."""
        listed = [record if isinstance(record, dict) else {"body": record} for record in records]
        return await self.answer(status, "POST", self.records, {"records": listed, **more})

    async def created(self, *records: object) -> None:
        """Create the stream, and append records to it."""
        await self.answer(201, "PUT", self.path(), {})
        if records:
            await self.append(*records)

    async def read(self, status: int = 200, **query: Any) -> Any:
        """Read; return the JSON of the answer."""
        return await self.answer(status, "GET", self.records, None, [("accept", _JSON)], **query)

    async def bodies(self, **query: Any) -> list[str]:
        """Read; return the records' bodies."""
        return [record.get("body", "") for record in (await self.read(**query))["records"]]

    async def needs_create(self, when: str) -> None:
        """Raise NotApplicable if the basin creates streams unasked. `when`: the key of its configuration."""
        response = await self.ask("GET", f"/v1/basins/{self.basin}", None, [("s2-basin", "")])
        if response.status == 200 and _value(response.body).get(when):
            raise NotApplicable(f"the basin has {when}")

    @asynccontextmanager
    async def exchange(
        self, method: str, accept: str, *, body: bool = False, **query: Any
    ) -> AsyncIterator[HttpStream]:
        """Open an exchange about the stream's records whose answer is read as it comes; its head must be good."""
        target = self.records + "?" * bool(query) + "&".join(f"{name}={value}" for name, value in query.items())
        kind = ("content-type", _SESSION) if accept == _SESSION else ("accept", accept)
        async with self._client.open(method, target, [kind, ("s2-basin", self.basin)], body=body) as stream:
            head = await stream.receive_head(self._patience)
            require_equal(head.status, 200)
            found = next((value for name, value in head.headers if name == "content-type"), "")
            require(found.startswith(accept), f"content-type {accept}", found)
            yield stream

    async def frames(self, stream: HttpStream, count: int | None = None) -> list[Frame | Terminal]:
        """Receive so many frames, or (None) all until the end."""
        reader, found = FrameReader(), list[Frame | Terminal]()
        with trio.move_on_after(self._patience):
            while count is None or len(found) < count:
                data = await stream.receive()
                reader.feed(data)
                try:
                    while (frame := reader.next()) is not None:
                        found.append(frame)
                except FrameError as error:
                    raise Deviation(f"expected frames, got bytes that are none: {error}") from None
                if not data:
                    break
            return found
        raise Deviation(f"expected {count or 'the last'} frames, got {len(found)} within {self._patience:g} s")

    async def events(self, stream: HttpStream, count: int | None = None) -> list[dict[str, str]]:
        """Receive so many events, or (None) all until the end, each as its fields."""
        text = b""
        with trio.move_on_after(self._patience):
            while count is None or text.count(b"\n\n") < count:
                data = await stream.receive()
                text += data
                if not data:
                    break
            blocks = text.decode().split("\n\n")[:-1]
            return [dict(line.partition(": ")[::2] for line in block.split("\n")) for block in blocks][:count]
        raise Deviation(f"expected events, got {text!r:.200} within {self._patience:g} s")


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise Deviation(f"expected {kind.__name__}, got {data!r:.200}") from None


def _value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise Deviation(f"expected JSON, got {body!r:.200}") from None


def _code(answer: Any, *codes: str) -> None:
    """Check the code of an error's JSON."""
    found = answer.get("code") if isinstance(answer, dict) else None
    require(found in codes, f"code {' or '.join(codes)}", answer)


@asynccontextmanager
async def _session(server: TestedServer) -> AsyncIterator[S2TestSession]:
    async with server.http("s2") as client:
        basin = server.space or server.new_name()
        session = S2TestSession(client, basin, server.new_name(), server.patience)
        if server.space is None:
            made = await session.ask("PUT", f"/v1/basins/{basin}", {}, [("s2-basin", "")])
            if made.status not in (200, 201):
                raise NotApplicable(f"no basin can be created (status {made.status}): name one in the URL")
        try:
            yield session
        finally:
            with trio.CancelScope(shield=True):
                await _clean(session, own_basin=server.space is None)


async def _clean(session: S2TestSession, *, own_basin: bool) -> None:
    try:
        await session.ask("DELETE", session.path())
        if own_basin:
            await session.ask("DELETE", f"/v1/basins/{session.basin}", None, [("s2-basin", "")])
    except OperationFailed:
        pass  # the server does not answer, which the case has found


_CASES: Final = Cases[S2TestSession]()

# ---- requests and the tail -------------------------------------------------------------------------------------------


@_CASES.case("tail")
async def tail_of_an_empty_stream(session: S2TestSession) -> None:
    """The tail of an empty stream is 0."""
    await session.created()
    require_equal(await session.answer(200, "GET", session.path("/records/tail")), {"tail": _position(0)})


def _position(number: int, timestamp: int = 0) -> dict[str, int]:
    return {"seq_num": number, "timestamp": timestamp}


@_CASES.case("tail")
async def tail_of_an_unknown_stream(session: S2TestSession) -> None:
    """An unknown stream is status 404, stream_not_found."""
    await session.needs_create("create_stream_on_read")
    _code(await session.answer(404, "GET", session.path("/records/tail")), "stream_not_found")


@_CASES.case("tail")
async def tail_in_an_unknown_basin(session: S2TestSession) -> None:
    """An unknown basin is status 404, basin_not_found."""
    headers = [("s2-basin", "conform-no-such-basin")]
    _code(await session.answer(404, "GET", session.path("/records/tail"), None, headers), "basin_not_found")


@_CASES.case("tail")
async def invalid_basin_name(session: S2TestSession) -> None:
    """A basin's name of fewer than 8 bytes is status 400, bad_header."""
    answer = await session.answer(400, "GET", session.path("/records/tail"), None, [("s2-basin", "AB")])
    _code(answer, "bad_header")


@_CASES.case("tail")
async def names_with_a_slash(session: S2TestSession) -> None:
    """A name with a slash, a blank, a percent sign and letters beyond ASCII is percent-encoded in the path."""
    session.stream = f"{session.stream}/a b%ü"
    await session.created("x")
    require_equal((await session.answer(200, "GET", session.path("/records/tail")))["tail"]["seq_num"], 1)


@_CASES.case("tail")
async def unknown_method(session: S2TestSession) -> None:
    """A method that the records lack is status 405."""
    await session.created()
    require_equal((await session.ask("DELETE", session.records)).status, 405)


# ---- append ----------------------------------------------------------------------------------------------------------


@_CASES.case("append")
async def append_as_json(session: S2TestSession) -> None:
    """The answer has the first and the next sequence number, and the tail."""
    await session.created()
    answer = await session.append("x", "y")
    numbers = [answer[name]["seq_num"] for name in ("start", "end", "tail")]
    require_equal(numbers, [0, 2, 2])
    require_equal(answer["end"]["timestamp"], answer["tail"]["timestamp"])


@_CASES.case("append")
async def append_as_protobuf(session: S2TestSession) -> None:
    """A batch may be protobuf, and so is the answer if that is accepted; all its fields are present."""
    await session.created()
    batch = pb.AppendInput(records=[pb.AppendRecord(body=b"\x00\xff")])
    kinds = [("content-type", _PROTOBUF), ("accept", _PROTOBUF)]
    response = await session.ask("POST", session.records, batch.SerializeToString(), kinds)
    require_equal((response.status, response.header("content-type")), (200, _PROTOBUF))
    ack = _parsed(pb.AppendAck, response.body)
    require(all(map(ack.HasField, ("start", "end", "tail"))), "start, end and tail", ack)
    require_equal((ack.start.seq_num, ack.end.seq_num, ack.tail.seq_num), (0, 1, 1))


@_CASES.case("append")
async def append_without_json(session: S2TestSession) -> None:
    """Malformed JSON, JSON without records, and a key twice are status 400, bad_json."""
    await session.created()
    for body in (b"{", b'{"record":[]}', b'{"records":[{"body":7}]}', b'{"records":[{"body":"a","body":"b"}]}'):
        answer = await session.answer(400, "POST", session.records, body, [("content-type", _JSON)])
        _code(answer, "bad_json")


@_CASES.case("append")
async def append_of_nothing(session: S2TestSession) -> None:
    """A batch without records is status 422."""
    await session.created()
    _code(await session.append(status=422), "invalid")


@_CASES.case("append")
async def most_records(session: S2TestSession) -> None:
    """A batch has 1000 records at most."""
    await session.created()
    _code(await session.append(*[""] * 1001, status=422), "invalid")
    require_equal((await session.append(*[""] * 1000))["end"]["seq_num"], 1000)


@_CASES.case("append")
async def largest_record(session: S2TestSession) -> None:
    """A batch has 1 MiB at most, of which each record takes 8 bytes beside its body."""
    await session.created()
    _code(await session.append("x" * (MIB - 7), status=422), "invalid")
    require_equal((await session.append("x" * (MIB - 8)))["end"]["seq_num"], 1)


@_CASES.case("append")
async def append_at_a_position(session: S2TestSession) -> None:
    """match_seq_num must be the tail, 0 too; else status 412 tells it, and nothing is appended."""
    await session.created()
    await session.append("x", match_seq_num=0)
    for wrong in (0, 2):
        require_equal(await session.append("y", match_seq_num=wrong, status=412), {"seq_num_mismatch": 1})
    await session.append("z", match_seq_num=1)
    require_equal(await session.bodies(seq_num=0), ["x", "z"])


@_CASES.case("append")
async def append_with_a_fencing_token(session: S2TestSession) -> None:
    """A fence record sets the token that later appends may name; another one is status 412."""
    await session.created()
    require_equal(await session.append("x", fencing_token="t", status=412), {"fencing_token_mismatch": ""})
    await session.append("x", fencing_token="")
    await session.append({"headers": [["", "fence"]], "body": "t"})
    require_equal(await session.append("y", fencing_token="u", status=412), {"fencing_token_mismatch": "t"})
    await session.append("y", fencing_token="t")
    await session.append("z")
    require_equal(await session.bodies(seq_num=2), ["y", "z"])


@_CASES.case("append")
async def both_conditions(session: S2TestSession) -> None:
    """If both conditions fail, the answer is about the fencing token."""
    await session.created()
    answer = await session.append("x", fencing_token="t", match_seq_num=7, status=412)
    require_equal(answer, {"fencing_token_mismatch": ""})


@_CASES.case("append")
async def unknown_command(session: S2TestSession) -> None:
    """A record whose only header has an empty name is a command; an unknown one is status 422."""
    await session.created()
    for headers in ([["", "bogus"]], [["", "fence"], ["a", "b"]]):
        _code(await session.append({"headers": headers, "body": "x"}, status=422), "invalid")


@_CASES.case("append")
async def append_as_base64(session: S2TestSession) -> None:
    """With s2-format: base64, bodies and headers are base64, and what is not is status 422."""
    await session.created()
    form, body = [("s2-format", "base64")], base64.b64encode(b"\x00\xff").decode()
    await session.answer(200, "POST", session.records, {"records": [{"body": body}]}, form)
    answer = await session.answer(200, "GET", session.records, None, form, seq_num=0)
    require_equal(answer["records"][0]["body"], body)
    _code(await session.answer(422, "POST", session.records, {"records": [{"body": "!"}]}, form), "invalid")


@_CASES.case("append")
async def timestamps_never_fall(session: S2TestSession) -> None:
    """A timestamp before that of the record before is raised to it."""
    await session.created()
    await session.append({"body": "x", "timestamp": 50}, {"body": "y", "timestamp": 40})
    found = [record["timestamp"] for record in (await session.read(seq_num=0))["records"]]
    require_equal(found, [50, 50])


@_CASES.case("append")
async def headers_of_records(session: S2TestSession) -> None:
    """Headers keep their order, and a name may be repeated."""
    await session.created()
    headers = [["b", "1"], ["a", "2"], ["b", ""]]
    await session.append({"headers": headers, "body": "x"})
    require_equal((await session.read(seq_num=0))["records"][0]["headers"], headers)


@_CASES.case("append")
async def trim(session: S2TestSession) -> None:
    """A trim record removes the records before a position, in time; the tail counts it as a record."""
    await session.created("a", "b", "c")
    point = base64.b64encode((2).to_bytes(8, "big")).decode()
    record = {"headers": [["", base64.b64encode(b"trim").decode()]], "body": point}
    answer = await session.answer(200, "POST", session.records, {"records": [record]}, [("s2-format", "base64")])
    require_equal(answer["end"]["seq_num"], 4)
    first = 0
    for _ in range(_TRIM_TRIES):
        first = (await session.read(seq_num=0))["records"][0]["seq_num"]
        if first >= 2:
            break
        await trio.sleep(_TRIM_SECONDS / _TRIM_TRIES)
    require_equal(first, 2)


# ---- read ------------------------------------------------------------------------------------------------------------


@_CASES.case("read")
async def read_from_a_number(session: S2TestSession) -> None:
    """Records come in order from seq_num on; what is empty is left out of them."""
    await session.created("a", "b", "")
    records = (await session.read(seq_num=1))["records"]
    require_equal([record["seq_num"] for record in records], [1, 2])
    require_equal([set(record) - {"seq_num", "timestamp"} for record in records], [{"body"}, set()])


@_CASES.case("read")
async def read_at_the_tail(session: S2TestSession) -> None:
    """A read at or beyond the tail is status 416 with the tail; so is one without a start."""
    await session.created("a")
    for query in ({"seq_num": 1}, {"seq_num": 6}, {}, {"seq_num": 6, "clamp": "true"}):
        require_equal((await session.read(416, **query))["tail"]["seq_num"], 1)


@_CASES.case("read")
async def read_from_the_end(session: S2TestSession) -> None:
    """tail_offset counts from the tail; one beyond the first record starts there."""
    await session.created("a", "b", "c")
    require_equal(await session.bodies(tail_offset=1), ["c"])
    require_equal(await session.bodies(tail_offset=999), ["a", "b", "c"])


@_CASES.case("read")
async def read_from_a_time(session: S2TestSession) -> None:
    """timestamp starts at the first record at or after it, and until ends before it; the tail's own is status 416."""
    await session.created()
    require_equal(await session.read(416, timestamp=0), {"tail": _position(0)})
    await session.append(*({"body": name, "timestamp": time} for name, time in (("a", 10), ("b", 20), ("c", 30))))
    require_equal(await session.bodies(timestamp=11), ["b", "c"])
    require_equal(await session.bodies(timestamp=10, until=30), ["a", "b"])
    await session.read(416, timestamp=31)


@_CASES.case("read")
async def read_with_bounds(session: S2TestSession) -> None:
    """count and bytes bound the answer, which is empty if the first record is too large."""
    await session.created("aaaa", "b", "c")
    require_equal(await session.bodies(seq_num=0, count=2), ["aaaa", "b"])
    require_equal(await session.bodies(seq_num=0, count=0), [])
    require_equal(await session.bodies(seq_num=0, bytes=1), [])
    require_equal(await session.bodies(seq_num=0, bytes=21), ["aaaa", "b"])


@_CASES.case("read")
async def two_starts(session: S2TestSession) -> None:
    """Two starts are status 422, and a number that is none is status 400, bad_query."""
    await session.created("a")
    _code(await session.read(422, seq_num=0, tail_offset=1), "invalid")
    _code(await session.read(400, seq_num="abc"), "bad_query")


@_CASES.case("read")
async def read_as_protobuf(session: S2TestSession) -> None:
    """An answer may be protobuf; errors are always JSON."""
    await session.created("a")
    response = await session.ask("GET", session.records, None, [("accept", _PROTOBUF)], seq_num=0)
    require_equal((response.status, response.header("content-type")), (200, _PROTOBUF))
    require_equal([record.body for record in _parsed(pb.ReadBatch, response.body).records], [b"a"])
    await session.answer(416, "GET", session.records, None, [("accept", _PROTOBUF)], seq_num=1)


@_CASES.case("read")
async def read_that_waits(session: S2TestSession) -> None:
    """A read at the tail with wait ends with the first record that is appended, or empty when the time is over."""
    await session.created("a")
    require_equal(await session.bodies(seq_num=1, wait=1), [])
    found: list[str] = []

    async def read() -> None:
        found.extend(await session.bodies(seq_num=1, wait=8))

    with trio.move_on_after(8) as waiting:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.sleep(0.3)
            await session.append("b")
    require(not waiting.cancelled_caught, "an answer when the record is there", "none")
    require_equal(found, ["b"])


@_CASES.case("read")
async def read_of_much(session: S2TestSession) -> None:
    """An answer has 1000 records at most, and the next read goes on without a gap."""
    await session.created()
    for _ in range(2):
        await session.append(*["x"] * 800)
    first = (await session.read(seq_num=0))["records"]
    require(0 < len(first) <= 1000, "1 to 1000 records", len(first))
    rest = (await session.read(seq_num=len(first)))["records"]
    require_equal(rest[0]["seq_num"], len(first))


# ---- events ----------------------------------------------------------------------------------------------------------


@_CASES.case("events")
async def events_of_records(session: S2TestSession) -> None:
    """A bounded read as events has batches, whose last id has the last number, the count and the bytes, and an end."""
    await session.created("a", "b", "c")
    async with session.exchange("GET", _EVENTS, seq_num=0, count=2) as stream:
        found = await session.events(stream)
    require_equal(found[-1].get("data"), "[DONE]")
    batches = [event for event in found if event.get("event") == "batch"]
    require_equal(batches[-1].get("id"), "1,2,18")
    bodies = [record["body"] for event in batches for record in json.loads(event["data"])["records"]]
    require_equal(bodies, ["a", "b"])


@_CASES.case("events")
async def events_at_the_tail(session: S2TestSession) -> None:
    """A reader that follows is sent a ping at the tail, without an id, then what is appended."""
    await session.created("a")
    async with session.exchange("GET", _EVENTS, seq_num=1, clamp="true") as stream:
        (ping,) = await session.events(stream, 1)
        require_equal((ping.get("event"), "id" in ping), ("ping", False))
        await session.append("b")
        (batch,) = await session.events(stream, 1)
        require_equal((batch.get("event"), batch.get("id")), ("batch", "1,1,9"))


@_CASES.case("events")
async def last_event_id(session: S2TestSession) -> None:
    """last-event-id goes on behind its record, and what was delivered counts towards the bounds."""
    await session.created("a", "b", "c", "d", "e", "f")
    headers = [("accept", _EVENTS), ("last-event-id", "1,2,18")]
    response = await session.ask("GET", session.records, None, headers, seq_num=0, count=5)
    batches = [line[6:] for line in response.body.decode().split("\n") if line.startswith('data: {"records"')]
    bodies = [record["body"] for batch in batches for record in json.loads(batch)["records"]]
    require_equal(bodies, ["c", "d", "e"])


@_CASES.case("events")
async def bad_last_event_id(session: S2TestSession) -> None:
    """A malformed last-event-id is status 400, bad_header, as JSON."""
    await session.created("a")
    headers = [("accept", _EVENTS), ("last-event-id", "x")]
    _code(await session.answer(400, "GET", session.records, None, headers, seq_num=0), "bad_header")


@_CASES.case("events")
async def events_beyond_the_tail(session: S2TestSession) -> None:
    """Events from beyond the tail are status 416, as JSON."""
    await session.created("a")
    answer = await session.answer(416, "GET", session.records, None, [("accept", _EVENTS)], seq_num=9)
    require_equal(answer["tail"]["seq_num"], 1)


# ---- sessions --------------------------------------------------------------------------------------------------------


def _input(*bodies: bytes, **conditions: Any) -> bytes:
    batch = pb.AppendInput(records=[pb.AppendRecord(body=body) for body in bodies], **conditions)
    return b"".join(encode_frame([batch.SerializeToString()]))


def _message(frame: Frame | Terminal) -> bytes:
    if isinstance(frame, Terminal):
        raise Deviation(f"expected a message, got the terminal frame {frame.status} {frame.body!r:.200}")
    return bytes(frame.payload)


def _batch(frame: Frame | Terminal) -> pb.ReadBatch:
    return _parsed(pb.ReadBatch, _message(frame))


def _acks(frames: Sequence[Frame | Terminal]) -> list[tuple[int, int]]:
    acks = [_parsed(pb.AppendAck, _message(frame)) for frame in frames]
    return [(ack.start.seq_num, ack.end.seq_num) for ack in acks]


@_CASES.case("append-session")
async def appends_in_a_session(session: S2TestSession) -> None:
    """The head of the answer comes first; each input has an acknowledgement, in order, and the end ends the session."""
    await session.created()
    async with session.exchange("POST", _SESSION, body=True) as stream:
        for number in range(20):
            await stream.send([_input(b"%d" % number, b"x")])
        await stream.finish()
        frames = await session.frames(stream)
    require_equal(_acks(frames), [(number, number + 2) for number in range(0, 40, 2)])


@_CASES.case("append-session")
async def frames_in_pieces(session: S2TestSession) -> None:
    """A frame may come byte by byte, and several at once."""
    await session.created()
    async with session.exchange("POST", _SESSION, body=True) as stream:
        data = _input(b"a")
        for at in range(len(data)):
            await stream.send([data[at : at + 1]])
            await trio.sleep(_PIECE_SECONDS)
        await stream.send([_input(b"b") + _input(b"c")])
        require_equal(_acks(await session.frames(stream, 3)), [(0, 1), (1, 2), (2, 3)])


async def _ends_with(session: S2TestSession, status: int, sent: bytes, stored: int) -> Any:
    """Send bytes in a session: the inputs before the fault are acknowledged, then a terminal frame ends the session."""
    await session.created()
    async with session.exchange("POST", _SESSION, body=True) as stream:
        await stream.send([sent])
        await stream.finish()
        *before, last = await session.frames(stream) or [_NOTHING]
    if not isinstance(last, Terminal):
        raise Deviation(f"expected a terminal frame, got {last!r:.200}")
    require_equal((last.status, len(before)), (status, stored))
    require_equal((await session.answer(200, "GET", session.path("/records/tail")))["tail"]["seq_num"], stored)
    return _value(bytes(last.body))


@_CASES.case("append-session")
async def condition_in_a_session(session: S2TestSession) -> None:
    """An input whose condition fails ends the session with status 412; later inputs are not applied."""
    sent = _input(b"a") + _input(b"b", match_seq_num=7) + _input(b"c")
    require_equal(await _ends_with(session, 412, sent, 1), {"seq_num_mismatch": 1})


@_CASES.case("append-session")
async def empty_input(session: S2TestSession) -> None:
    """An input without records ends the session with status 422."""
    _code(await _ends_with(session, 422, _input(b"a") + _input(), 1), "invalid")


@_CASES.case("append-session")
async def frame_that_is_too_long(session: S2TestSession) -> None:
    """A frame of more than 2 MiB ends the session with status 400, bad_frame, before its bytes come."""
    _code(await _ends_with(session, 400, _input(b"a") + (2 * MIB + 1).to_bytes(3, "big"), 1), "bad_frame")


@_CASES.case("append-session")
async def frame_that_is_cut_off(session: S2TestSession) -> None:
    """A body that ends within a frame ends the session with status 400, bad_frame."""
    _code(await _ends_with(session, 400, _input(b"a") + _input(b"b")[:-1], 1), "bad_frame")


@_CASES.case("append-session")
async def frame_of_garbage(session: S2TestSession) -> None:
    """A frame that is no protobuf ends the session with status 400, bad_frame."""
    _code(await _ends_with(session, 400, b"".join(encode_frame([b"\xff\xff\xff"])), 0), "bad_frame")


@_CASES.case("append-session")
async def session_on_an_unknown_stream(session: S2TestSession) -> None:
    """A session on an unknown stream is status 404, and no session."""
    await session.needs_create("create_stream_on_append")
    answer = await session.answer(404, "POST", session.records, _input(b"a"), [("content-type", _SESSION)])
    _code(answer, "stream_not_found")


@_CASES.case("read-session")
async def reads_in_a_session(session: S2TestSession) -> None:
    """A session with count delivers so many records in order, and ends without a terminal frame."""
    await session.created(*map(str, range(30)))
    async with session.exchange("GET", _SESSION, seq_num=5, count=20) as stream:
        frames = await session.frames(stream)
    found = [(record.seq_num, record.body) for frame in frames for record in _batch(frame).records]
    require_equal(found, [(number, b"%d" % number) for number in range(5, 25)])


@_CASES.case("read-session")
async def session_that_follows(session: S2TestSession) -> None:
    """At the tail a session has a heartbeat with the tail, then what is appended."""
    await session.created("a")
    async with session.exchange("GET", _SESSION, seq_num=1, clamp="true") as stream:
        (frame,) = await session.frames(stream, 1)
        beat = _batch(frame)
        require_equal((len(beat.records), beat.tail.seq_num), (0, 1))
        with trio.move_on_after(_AT_ONCE) as waiting:
            await session.append("b")
            (frame,) = await session.frames(stream, 1)
        require(not waiting.cancelled_caught, "the record at once", "nothing")
        require_equal([record.body for record in _batch(frame).records], [b"b"])


@_CASES.case("read-session")
async def session_beyond_the_tail(session: S2TestSession) -> None:
    """A session from beyond the tail is status 416, as JSON."""
    await session.created("a")
    headers = [("content-type", _SESSION)]
    answer = await session.answer(416, "GET", session.records, None, headers, seq_num=9)
    require_equal(answer["tail"]["seq_num"], 1)


# ---- streams ---------------------------------------------------------------------------------------------------------


@_CASES.case("streams")
async def create_a_stream(session: S2TestSession) -> None:
    """PUT of a new stream is status 201, and of the same again 200; POST of one that exists is status 409."""
    await session.answer(201, "PUT", session.path(), {})
    await session.answer(200, "PUT", session.path(), {})
    answer = await session.answer(409, "POST", "/v1/streams", {"stream": session.stream})
    _code(answer, "resource_already_exists")


@_CASES.case("streams")
async def list_streams(session: S2TestSession) -> None:
    """A list is sorted, and bounded by prefix, start_after and limit."""
    await session.created()
    answer = await session.answer(200, "GET", "/v1/streams", None, prefix=session.stream)
    require_equal([one["name"] for one in answer["streams"]], [session.stream])
    require_equal(answer["has_more"], False)
    after = await session.answer(200, "GET", "/v1/streams", None, prefix=session.stream, start_after=session.stream)
    require_equal(after["streams"], [])


@_CASES.case("streams")
async def delete_a_stream(session: S2TestSession) -> None:
    """DELETE is status 202, and the records cannot be read any more."""
    await session.needs_create("create_stream_on_read")
    await session.created("a")
    await session.answer(202, "DELETE", session.path())
    response = await session.ask("GET", session.records, seq_num=0)
    require(response.status in (404, 409), "status 404 or 409", response.status)


@_CASES.case("streams")
async def configure_a_stream(session: S2TestSession) -> None:
    """A stream's configuration is read as it was set; PATCH changes what it names."""
    await session.answer(201, "PUT", session.path(), {"retention_policy": {"age": 3600}})
    config = await session.answer(200, "GET", session.path())
    require_equal(config["retention_policy"], {"age": 3600})
    await session.answer(200, "PATCH", session.path(), {"retention_policy": {"age": 7200}})
    require_equal((await session.answer(200, "GET", session.path()))["retention_policy"], {"age": 7200})


SUITE: Final = Suite(
    title="S2",
    source="the operations of its API v1",
    clauses={
        "tail": "Requests, and the tail",
        "append": "Append",
        "read": "Read",
        "events": "Read as server-sent events",
        "append-session": "Append in a session (S2S)",
        "read-session": "Read in a session (S2S)",
        "streams": "Streams",
    },
    cases=tuple(_CASES.found),
    session=_session,
)
