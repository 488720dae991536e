"""Records on a stream of bytes: the content of streams that keep boundaries and headers.

A stream with the content type `RECORDS_TYPE` holds records one after the other. Each is the field `records` of S2's
protobuf message AppendInput: a tag byte 0a, the length as a varint, and an AppendRecord with headers and body (S2 fact
sheet, section 4). So the body of an append is an AppendInput, and so is the whole stream, since protobuf joins repeated
fields by concatenation: any protobuf library reads it. The field `timestamp` is left out, and skipped on reading.

Positions are counted in bytes, from the beginning of the stream's content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.model.failures import OperationFailed
from penstock.model.limits import KIB, MAX_BATCH_RECORDS, MIB
from penstock.model.record_bytes import append_records
from penstock.model.record_encoding import appended_columns, parse
from penstock.model.records import Headers
from penstock_durable.codec.content import TakenRecords, broken
from penstock_proto import records_pb2

__all__ = ["MAX_ENCODED_RECORD_BYTES", "OVERHEAD_BYTES", "RECORDS_TYPE", "RecordContent", "RecordReader"]

RECORDS_TYPE: Final = "application/vnd.penstock.records"
"""The content type of streams of records."""
MAX_ENCODED_RECORD_BYTES: Final = 1 * MIB + 64 * KIB
"""Largest encoded record that is read, in bytes: more than S2's largest record takes with its headers' lengths."""
OVERHEAD_BYTES: Final = 8
"""Most bytes that a record without headers takes beside its body, if that is below 2 MiB."""
_TAG: Final = 0x0A
_LONGEST_LENGTH: Final = 3
"""Bytes of the varint of MAX_ENCODED_RECORD_BYTES."""


class RecordContent:
    """The content of such streams; see `penstock_durable.codec.content.StreamContent`."""

    step = 1 * MIB

    def encode(self, bodies: Sequence[bytes], headers: Mapping[int, Headers]) -> bytes:
        """Return records as they are in the stream."""
        return append_records(bodies, headers, None)

    def join(self, parts: Sequence[bytes]) -> bytes:
        """Return the parts one after the other."""
        return b"".join(parts)

    def reader(self) -> RecordReader:
        """Return a reader."""
        return RecordReader()

    def comparable(self, body: bytes) -> bytes:
        """Return the body: servers keep every byte."""
        return body


class RecordReader:
    """Reads records; see `penstock_durable.codec.content.ContentReader`. A record may be cut between two responses."""

    def __init__(self) -> None:
        self._held = bytearray()

    def receive(self, data: bytes) -> None:
        """Take bytes of a response's body."""
        self._held += data

    def end_response(self) -> None:
        """Do nothing: the rest of a record is in the next response."""

    @property
    def buffered(self) -> int:
        """Bytes held."""
        return len(self._held)

    def take(self, max_records: int, max_bytes: int) -> TakenRecords:
        """Return whole records; see `ContentReader.take`. Raises RemoteProtocolError for bytes that are no records."""
        at = 0
        lengths: list[int] = []
        most = min(max_records, MAX_BATCH_RECORDS)
        while len(lengths) < most and (length := self._next(at)):
            if lengths and at + length > max_bytes:
                break
            lengths.append(length)
            at += length
        try:
            payload = bytes(memoryview(self._held)[:at])
            bodies, headers, _ = appended_columns(parse(records_pb2.AppendInput, payload), payload, at)
        except OperationFailed as error:
            raise broken(f"bytes that are not records: {error.failure.message}") from None
        if len(bodies) != len(lengths):
            raise broken("bytes that are not records")
        del self._held[:at]
        return TakenRecords(bodies, headers, lengths)

    def skip(self, most: int) -> int:
        """Drop records without decoding them; see `ContentReader.skip`."""
        at = 0
        while at < most and (length := self._next(at)):
            at += length
        if at > most:
            raise broken("no record begins where one did before")
        del self._held[:at]
        return at

    def _next(self, at: int) -> int:
        """Return the encoded size of the record at an index; 0 if it is not complete."""
        held = self._held
        if at == len(held):
            return 0
        if held[at] != _TAG:
            raise broken(f"byte {held[at]:#04x} where a record's tag 0x0a must be")
        length = shift = 0
        for index in range(at + 1, min(at + 1 + _LONGEST_LENGTH, len(held))):
            length |= (held[index] & 127) << shift
            shift += 7
            if held[index] < 128:
                if length > MAX_ENCODED_RECORD_BYTES:
                    break
                size = index + 1 - at + length
                return size if at + size <= len(held) else 0
        else:
            if len(held) <= at + _LONGEST_LENGTH:
                return 0
        raise broken(f"a record of more than {MAX_ENCODED_RECORD_BYTES} bytes")
