"""Records as bytes: the formats in which commands read and write them.

| format | input | output |
|---|---|---|
| `lines` | each line is a body | each body on a line; on a terminal unprintable characters are escaped |
| `json` | each line is an object with `body` or `body_base64`, `headers` and `timestamp` | the same, with positions |
| `length` | each body after its length in four bytes, big-endian | the same |
| `whole` | the whole input is one body | |
| `hex` | | each body in hexadecimal, after its sequence number |

What one command writes as `lines`, `json` or `length`, another reads.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from penstock.model.limits import MIB
from penstock.model.records import U64_MAX, Header, Headers, Record, RecordId
from penstock.recorder.captures.lines import as_json, headers_in_text, in_text
from penstock.recorder.captures.text import printable

__all__ = ["PARSERS", "WRITERS", "BadInput", "NewRecord", "RecordParser", "Writer", "for_terminal", "json_record"]

MOST_BYTES: Final = 16 * MIB
"""Most bytes of one record in the input, which bounds memory. Every server's limit is lower."""
_LENGTH_BYTES: Final = 4
Writer = Callable[[Record, RecordId | None], bytes]
"""Writes a record; its S3P identifier is given if it is known."""


class BadInput(ValueError):
    """Raised for input that holds no record; the message says which record is wrong, and why."""


class NewRecord(NamedTuple):
    """A record to append. `timestamp`: in ms, None to leave it to the server."""

    body: bytes
    headers: Headers = ()
    timestamp: int | None = None


# ---- input -----------------------------------------------------------------------------------------------------------


class RecordParser(ABC):
    """Takes input piece by piece."""

    _unit = "record"

    def __init__(self) -> None:
        self._held = bytearray()
        self._count = 0

    def receive(self, data: bytes) -> Iterator[NewRecord]:
        """Yield the records that these bytes complete. Raises BadInput after the records before the wrong one."""
        self._held += data
        for text in self._complete(data):
            self._count += 1
            yield from self._parse(text)
        if len(self._held) > MOST_BYTES:
            self._count += 1
            raise self._bad(f"has more than {MOST_BYTES} bytes")

    def end(self) -> Iterator[NewRecord]:
        """Yield the record that the end of the input completes, if there is one. Raises BadInput if it is cut."""
        if self._held:
            self._count += 1
            yield from self._parse(bytes(self._held))

    @abstractmethod
    def _complete(self, data: bytes) -> Iterator[bytes]:
        """Yield the texts of the records that `data`, the last bytes of what is held, completes, and drop them."""

    def _parse(self, text: bytes) -> Iterator[NewRecord]:
        yield NewRecord(text)

    def _bad(self, reason: str) -> BadInput:
        return BadInput(f"{self._unit} {self._count} {reason}")


class _Lines(RecordParser):
    _unit = "line"

    def _complete(self, data: bytes) -> Iterator[bytes]:
        if b"\n" in data:
            *lines, rest = bytes(self._held).split(b"\n")
            self._held[:] = rest
            yield from lines


class _JsonHeader(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    name_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None


class _JsonRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A line of `json`: the keys of a line of `penstock records`, of which these four are appended."""

    body: str | None = None
    body_base64: str | None = None
    headers: list[_JsonHeader] | dict[str, str] = []
    timestamp: int | None = None
    action: Any = None
    stream: Any = None
    seq_num: Any = None
    record_id: Any = None
    offset: Any = None
    acknowledged: Any = None
    failure: Any = None
    time: Any = None
    connection: Any = None
    run: Any = None
    name: Any = None


_decode_line: Final = msgspec.json.Decoder(_JsonRecord).decode


class _JsonLines(_Lines):
    def _parse(self, text: bytes) -> Iterator[NewRecord]:
        if not text.strip():
            return
        try:
            line = _decode_line(text)
            if line.timestamp is not None and not 0 <= line.timestamp <= U64_MAX:
                raise ValueError(f"timestamp {line.timestamp} is not one of 64 bits without a sign")
            record = NewRecord(_bytes("body", line.body, line.body_base64), _headers(line.headers), line.timestamp)
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._bad(f"is no record: {error}") from None
        yield record


def _headers(shape: list[_JsonHeader] | dict[str, str]) -> Headers:
    if isinstance(shape, dict):
        return tuple(Header(name.encode(), value.encode()) for name, value in shape.items())
    return tuple(
        Header(_bytes("name", header.name, header.name_base64), _bytes("value", header.value, header.value_base64))
        for header in shape
    )


def _bytes(key: str, text: str | None, encoded: str | None) -> bytes:
    if (text is None) == (encoded is None):
        raise ValueError(f"expected {key} or {key}_base64" + ("" if text is None else ", not both"))
    try:
        return text.encode() if text is not None else base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{key}: {error}") from None


class _LengthPrefixed(RecordParser):
    def _complete(self, data: bytes) -> Iterator[bytes]:  # noqa: ARG002
        at, held = 0, bytes(self._held)
        try:
            while len(held) - at >= _LENGTH_BYTES:
                length = int.from_bytes(held[at : at + _LENGTH_BYTES], "big")
                if length > MOST_BYTES:
                    self._count += 1
                    raise self._bad(f"has a length of {length} bytes; the most is {MOST_BYTES}")
                end = at + _LENGTH_BYTES + length
                if end > len(held):
                    break
                yield held[at + _LENGTH_BYTES : end]
                at = end
        finally:
            del self._held[:at]

    def end(self) -> Iterator[NewRecord]:
        if self._held:
            self._count += 1
            raise self._bad(f"is cut: only {len(self._held)} bytes of it and its length are there")
        return iter(())


class _Whole(RecordParser):
    def _complete(self, data: bytes) -> Iterator[bytes]:  # noqa: ARG002
        return iter(())

    def end(self) -> Iterator[NewRecord]:
        yield NewRecord(bytes(self._held))


PARSERS: Final[Mapping[str, type[RecordParser]]] = {
    "lines": _Lines,
    "json": _JsonLines,
    "length": _LengthPrefixed,
    "whole": _Whole,
}
"""The formats of input."""


# ---- output ----------------------------------------------------------------------------------------------------------


def _line(record: Record, _id: RecordId | None) -> bytes:
    return record.body + b"\n"


def for_terminal(record: Record, _id: RecordId | None) -> bytes:
    """Write a body on a line, with what a terminal would not print as text escaped."""
    return printable(record.body.decode("utf-8", "backslashreplace")).encode("utf-8", "backslashreplace") + b"\n"


def json_record(record: Record, record_id: RecordId | None) -> dict[str, Any]:
    """Return a record with its position as JSON values, as `json` writes it."""
    line: dict[str, Any] = {"seq_num": record.seq_num, "timestamp": record.timestamp}
    if record_id is not None:
        line["record_id"] = str(record_id)
    line |= in_text("body", record.body)
    if record.headers:
        line["headers"] = headers_in_text(record.headers)
    return line


def _json_line(record: Record, record_id: RecordId | None) -> bytes:
    return as_json(json_record(record, record_id)).encode() + b"\n"


def _length_prefixed(record: Record, _id: RecordId | None) -> bytes:
    return len(record.body).to_bytes(_LENGTH_BYTES, "big") + record.body


def _hex(record: Record, _id: RecordId | None) -> bytes:
    return f"{record.seq_num} {record.body.hex(' ')}\n".encode()


WRITERS: Final[Mapping[str, Writer]] = {
    "lines": _line,
    "json": _json_line,
    "length": _length_prefixed,
    "hex": _hex,
}
"""The formats of output. All but `json` leave out headers and command records, whose bodies are no data."""
