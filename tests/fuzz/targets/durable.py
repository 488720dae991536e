"""Durable Streams: the readers of content, records and JSON messages, event streams, and the heads of requests and
answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import parse_qsl

from fuzz.laws import keeps_the_laws, pull

from penstock.model.failures import FailureCode, OperationFailed, RemoteProtocolError
from penstock.model.records import Header, Headers
from penstock_durable.codec import (
    AppendRequest,
    Control,
    DataEvent,
    DurableEventsClient,
    DurableEventsServer,
    EventMode,
    MessageContent,
    RecordContent,
    StreamContent,
    TakenRecords,
    append_headers,
    append_request,
    create_request,
    failure_of_answer,
    position_answer,
    read_request,
)

CONTENTS: Final[tuple[StreamContent, ...]] = (RecordContent(), MessageContent())
PIECES: Final = (1, 3, 7, 1 << 20)
"""Sizes of the pieces in which content arrives."""

MOST_EVENT: Final = 1000
REFUSALS: Final = {FailureCode.BAD_HEADER, FailureCode.BAD_QUERY, FailureCode.INVALID}

WORDS: Final = (
    b"event: control\ndata: {",
    b"event: data\ndata: [",
    b"\nproducer-epoch:",
    b"\nstream-seq:",
    b"\nstream-fork-offset:",
    b"&live=sse",
    b"\x0a\x05\x1a\x03abc",
    b"\x0a\x00",
    b"\x12\x02\x0a\x00",
    b'[{"a":1},',
    b'"\\"]"',
    b"[]",
    b"},{",
    b"\\u00",
    b" ",
)


def seeds() -> Iterator[bytes]:
    """Yield content of each kind, and the head of an answer."""
    headers: dict[int, Headers] = {1: (Header(b"k", b"v"),)}
    yield b"\x00" + CONTENTS[0].encode([b"first", b"", b"third"], headers)
    yield b"\x01" + CONTENTS[1].join([CONTENTS[1].encode([b'{"n": [1, "]"]}', b'"\\u00e9,"', b"3"], {})])
    for number, mode in enumerate(EventMode):
        server = DurableEventsServer(mode)
        events = [*server.send(DataEvent((b"[1]",))), *server.send(Control("0" * 16 + "_" + "0" * 16, 5, True))]
        yield bytes([3 + number]) + b"".join(events)
    yield b"\x06content-type:text/plain\nproducer-id:p\nproducer-epoch:1\nproducer-seq:2\nstream-closed:true"
    yield b"\x06content-type:text/plain\nstream-ttl:5\nstream-forked-from:/a\nstream-fork-offset:-1"
    yield b"\x07offset=-1&live=long-poll&cursor=7"
    yield b"\x02stream-next-offset:7_0\nstream-closed:true\ncontent-type:text/plain"


def check(data: bytes) -> None:
    """Check that content gives the same records however it is cut, or is refused however it is cut, and that records
    encoded again give themselves; that heads give an answer, or are refused."""
    kind, said = (data[0] if data else 0) % 8, data[1:]
    if kind == 2:
        header = _header(said)
        with suppress(RemoteProtocolError):
            position_answer(header)
        failure_of_answer(200 + len(said) % 400, header, said)
    elif kind < 2:
        _check_content(kind, said)
    elif kind < 6:
        _check_events(list(EventMode)[kind - 3], said)
    else:
        try:
            _check_request(kind, said)
        except OperationFailed as error:
            assert error.failure.code in REFUSALS, error


def _header(said: bytes) -> Callable[[str], str | None]:
    """Return a function that finds a header in lines of names and values."""
    lines = (line.partition(":") for line in said.decode("latin-1").split("\n"))
    return {name: value for name, _, value in lines}.get


def _check_events(mode: EventMode, said: bytes) -> None:
    make = partial(DurableEventsClient, mode, max_event_bytes=MOST_EVENT)
    keeps_the_laws(make, said, 4 * MOST_EVENT)
    events = pull(make(), said)
    server = DurableEventsServer(mode)
    again = b"".join(piece for event in events for piece in server.send(event))
    assert pull(make(), again) == events, f"{events} became {again!r}"


def _check_request(kind: int, said: bytes) -> None:
    """Parse a GET's query; or headers, as those of a PUT, and of a POST that a client could send."""
    if kind == 7:
        read_request(parse_qsl(said.decode("latin-1"), keep_blank_values=True))
        return
    header = _header(said)
    with suppress(OperationFailed):
        create_request(header)
    request = append_request(header)
    assert isinstance(request, AppendRequest)
    if request.content_type is not None:
        assert append_request(dict(append_headers(request)).get) == request


def _check_content(kind: int, said: bytes) -> None:
    content = CONTENTS[kind]
    found = [_read(content, said, size) for size in PIECES]
    assert all(one == found[0] for one in found), found
    records, whole = found[0]
    if records and whole:
        headers = {index: some for index, (_, some) in enumerate(records) if some}
        again = content.join([content.encode([body for body, _ in records], headers)])
        assert _read(content, again, 1 << 20) == (records, True)


def _read(content: StreamContent, said: bytes, size: int) -> tuple[list[tuple[bytes, Headers]], bool]:
    """Return the records, and whether there was no error; none are returned with one: how many come before it depends
    on the cuts."""
    reader = content.reader()
    found: list[tuple[bytes, Headers]] = []
    try:
        for start in range(0, len(said), size):
            reader.receive(said[start : start + size])
            found += _taken(reader.take(1, 1))
            assert reader.buffered <= len(said)
        while some := _taken(reader.take(1, 1)):
            found += some
        reader.end_response()
    except RemoteProtocolError:
        return [], False
    return found, True


def _taken(some: TakenRecords) -> list[tuple[bytes, Headers]]:
    return [(body, some.headers.get(index, ())) for index, body in enumerate(some.bodies)]
