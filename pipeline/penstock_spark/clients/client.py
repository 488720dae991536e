"""The client of an S2S server, for the source, the sink and the jobs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, TypeVar

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.names import validate_basin_name
from penstock.model.operations import Append, Page
from penstock.model.records import Header, RecordBatch, StreamRef, metered_size
from penstock.model.streams import INFINITE, BasinInfo, StreamConfig, StreamInfo
from penstock_s2.codec.json_config_client import (
    decode_remote_basin_config,
    decode_remote_basin_page,
    decode_remote_stream_page,
    encode_create_stream,
)
from penstock_s2.codec.json_records import decode_tail
from penstock_s2.codec.names import encode_path_segment
from penstock_s2.codec.protobuf import decode_append_ack, decode_read_batch, encode_append_input
from penstock_spark.clients.appending import Appender
from penstock_spark.clients.calls import JSON, PROTOBUF, Query, ServerRequests, records_path, reference, stream_path
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.reading import beyond, read_range, trimmed

__all__ = ["StreamClient"]

Info = TypeVar("Info", BasinInfo, StreamInfo)

_BASINS: Final = "/v1/basins"
_STREAMS: Final = "/v1/streams"
_NOT_TOLD: Final = (FailureCode.PERMISSION_DENIED, FailureCode.NOT_IMPLEMENTED)
"""Error codes of a server that does not reveal whether a stream exists."""


class StreamClient:
    """A client of one server, which connects on first use. Streams are named `basin/stream`; a position in a stream is
    the sequence number of the next record.

    Every request is retried while that may help, for `recover_seconds` at most; `create` sends a request token, by
    which the server recognises a retry. Every method raises OperationFailed with the server's message, or UNAVAILABLE
    if the server cannot be reached or goes away; the client can be used again after either.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._calls = ServerRequests(endpoint)
        self._makes: dict[str, bool] = {}
        """True if reads create streams, by basin."""

    # ---- streams and positions -----------------------------------------------------------------------------------

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the streams that begin with `prefix`, sorted by basin and name. Lists every basin unless
        `prefix` names one up to its slash."""
        basin, slash, name = prefix.partition("/")
        if slash:
            try:
                validate_basin_name(basin, FailureCode.INVALID)
            except OperationFailed as error:
                message = f"no stream's name begins with {prefix!r}: {error.failure.message}"
                raise fail(FailureCode.INVALID, message) from None
        for basin_name in [basin] if slash else list(self._basins(basin)):
            for stream in self._pages(_STREAMS, basin_name, name, decode_remote_stream_page):
                if stream.deleted_at is None:
                    yield f"{basin_name}/{stream.name}"

    def _basins(self, prefix: str) -> Iterator[str]:
        for basin in self._pages(_BASINS, None, prefix, decode_remote_basin_page):
            if basin.deleted_at is None:
                yield basin.name

    def _pages(
        self, path: str, basin: str | None, prefix: str, decode: Callable[[bytes], Page[Info]]
    ) -> Iterator[Info]:
        after = ""
        while True:
            wanted = {name: value for name, value in (("prefix", prefix), ("start_after", after)) if value}
            page = self._calls.ask("GET", path, basin, query=wanted).read(decode)
            yield from page.items
            if not page.has_more:
                return
            if not page.items or page.items[-1].name <= after:
                message = f"{self._calls.endpoint}: the listing of {path} does not get on after {after!r}"
                raise fail(FailureCode.OTHER, message)
            after = page.items[-1].name

    def tail(self, stream: str) -> int:
        """Return the position after the last record."""
        return self._tail(reference(stream))

    def first(self, stream: str) -> int:
        """Return the position of the oldest record that is kept, or the tail if there is none."""
        return self._position(reference(stream), {"seq_num": 0})

    def at_timestamp(self, stream: str, timestamp: int) -> int:
        """Return the position of the first record stamped at or after `timestamp` (ms), or the tail."""
        return self._position(reference(stream), {"timestamp": max(0, timestamp)})

    def identity(self, stream: str, position: int) -> str:
        """Return a value that tells the stream at `position` from another one of the same name: a digest of the last
        record before it, with its timestamp. Return "" if no record precedes `position` (any more)."""
        if not position:
            return ""
        try:
            batch = self._page(reference(stream), {"seq_num": position - 1})
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                raise
            return ""
        if batch is None or batch.first_seq_num != position - 1:
            return ""
        columns = batch.columns
        parts = [columns.bodies[0], *(part for header in columns.headers.get(0, ()) for part in header)]
        digest = blake2b(f"{columns.timestamps[0]} {[len(part) for part in parts]}".encode(), digest_size=12)
        for part in parts:
            digest.update(part)
        return digest.hexdigest()

    def require(self, stream: str) -> None:
        """Raise STREAM_NOT_FOUND, with the name, if looking at a missing stream would create it: there are basins in
        which reads create streams. Otherwise ask nothing; the next request finds out."""
        named = reference(stream)
        if named.basin not in self._makes:
            self._makes[named.basin] = self._made_by_reads(named.basin)
        if self._makes[named.basin]:
            try:
                self._calls.ask("GET", stream_path(named), named.basin)
            except OperationFailed as error:
                if error.failure.code is FailureCode.STREAM_NOT_FOUND:
                    message = f"{self._calls.endpoint}: there is no stream {stream}"
                    raise fail(FailureCode.STREAM_NOT_FOUND, message) from error
                if error.failure.code not in _NOT_TOLD:
                    raise

    def _made_by_reads(self, basin: str) -> bool:
        """Return whether reads create streams in a basin; True if the server does not tell."""
        try:
            path = f"{_BASINS}/{encode_path_segment(basin)}"
            return self._calls.ask("GET", path, None).read(decode_remote_basin_config).create_stream_on_read
        except OperationFailed as error:
            if error.failure.code is FailureCode.UNAVAILABLE:
                raise
            return True

    def _tail(self, stream: StreamRef) -> int:
        return self._calls.ask("GET", records_path(stream) + "/tail", stream.basin).read(decode_tail).seq_num

    def _position(self, stream: StreamRef, start: Query) -> int:
        """Return the position of the first record from `start` on, or the tail."""
        try:
            batch = self._page(stream, start)
            if batch is None:
                # No record is kept. One appended from here on is after the tail requested next, so it is not missed.
                tail = self._tail(stream)
                batch = self._page(stream, start)
        except OperationFailed as error:
            tail_there = error.failure.details.get("tail")
            if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE or not isinstance(tail_there, dict):
                raise
            position: int = tail_there["seq_num"]
            return position
        return tail if batch is None else batch.first_seq_num

    def _page(self, stream: StreamRef, start: Query) -> RecordBatch | None:
        query = {**start, "count": 1}
        response = self._calls.ask(
            "GET", records_path(stream), stream.basin, query=query, headers=[("accept", PROTOBUF)]
        )
        batch = response.read(decode_read_batch) if response.body else None
        return batch if isinstance(batch, RecordBatch) else None

    # ---- records -------------------------------------------------------------------------------------------------

    def read(self, stream: str, start: int, end: int) -> Iterator[RecordBatch]:
        """Yield the records from `start` up to but not including `end`, without gaps, in batches of at most 1,000
        records or 1 MiB. Command records (fences, trims) are yielded like other records. After a broken connection it
        reconnects and resumes.

        Raises RANGE_NOT_SATISFIABLE if `start` was trimmed away (details: `first`, the position of the first record
        now), at once or while reading, or if `end` is beyond the tail (details: `tail`; all records before the tail
        were yielded).
        """
        named = reference(stream)

        def why_short(position: int) -> OperationFailed | None:
            first = self._position(named, {"seq_num": 0})
            if first > position:
                return trimmed(named, position, first)
            tail = self._tail(named)
            return beyond(named, end, tail) if tail < end else None

        return read_range(self._calls, named, start, end, why_short)

    def appender(self, stream: str) -> Appender:
        """Return an appender to a stream."""
        return Appender(self._calls, reference(stream))

    # ---- creating, deleting and trimming -------------------------------------------------------------------------

    def create(self, stream: str, *, endless: bool = False) -> bool:
        """Create a stream and return True; return False if it exists, and leave it as it is. `endless`: keep its
        records until they are trimmed, whatever the server's default retention."""
        named = reference(stream)
        config = StreamConfig(retention=INFINITE) if endless else StreamConfig()
        headers = [("content-type", JSON), ("s2-request-token", uuid.uuid4().hex)]
        body = encode_create_stream(named.stream, config)
        try:
            self._calls.ask("POST", _STREAMS, named.basin, headers=headers, body=body)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            return False
        return True

    def delete(self, stream: str) -> None:
        """Delete a stream; do nothing if it does not exist. The name may not be free at once."""
        named = reference(stream)
        try:
            self._calls.ask("DELETE", stream_path(named), named.basin)
        except OperationFailed as error:
            if error.failure.code not in (FailureCode.STREAM_NOT_FOUND, FailureCode.STREAM_DELETION_PENDING):
                raise

    def trim(self, stream: str, first: int) -> None:
        """Release the records before `first`, some time later. The trim is a command record of the stream itself, which
        takes a sequence number (S2 fact sheet, 5.3)."""
        named = reference(stream)
        bodies = [first.to_bytes(8, "big")]
        headers = {0: (Header(b"", b"trim"),)}
        append = Append(named, bodies, metered_size(bodies, headers), headers=headers)
        typed = [("content-type", PROTOBUF), ("accept", PROTOBUF)]
        body = encode_append_input(append)
        self._calls.ask("POST", records_path(named), named.basin, headers=typed, body=body).read(decode_append_ack)

    def close(self) -> None:
        """Close the connections, and abort reads and appends in flight on them."""
        self._calls.close()
