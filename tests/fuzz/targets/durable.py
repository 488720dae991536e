"""Durable Streams: the readers of content, records and JSON messages, and the heads of answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from penstock_codecs.durable import (
    MessageContent,
    RecordContent,
    StreamContent,
    TakenRecords,
    failure_of_answer,
    position_answer,
)
from penstock_codecs.failures import RemoteProtocolError
from penstock_codecs.model import Header, Headers

CONTENTS: Final[tuple[StreamContent, ...]] = (RecordContent(), MessageContent())
PIECES: Final = (1, 3, 7, 1 << 20)
"""Sizes of the pieces in which content arrives."""

WORDS: Final = (
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
    yield b"\x02stream-next-offset:7_0\nstream-closed:true\ncontent-type:text/plain"


def check(data: bytes) -> None:
    """Check that content gives the same records however it is cut, or is refused however it is cut, and that records
    encoded again give themselves; that heads give an answer, or are refused."""
    kind, said = (data[0] if data else 0) % 3, data[1:]
    if kind == 2:
        lines = (line.partition(":") for line in said.decode("latin-1").split("\n"))
        header = {name: value for name, _, value in lines}.get
        with suppress(RemoteProtocolError):
            position_answer(header)
        failure_of_answer(200 + len(said) % 400, header, said)
        return
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
