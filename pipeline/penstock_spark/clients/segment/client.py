"""A client of segment stores and their controllers. Each segment is a stream, each event a record."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from uuid import UUID

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import Columns
from penstock_codecs.segment import SegmentMessage, released
from penstock_spark.clients.base import Appender, NumberedAppender, ReadPosition, ReadResult, StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.segment.appending import SegmentAppender
from penstock_spark.clients.segment.controller import BlockingControllerClient
from penstock_spark.clients.segment.names import first_of
from penstock_spark.clients.segment.stores import EndpointStores, SegmentLocation
from penstock_spark.clients.segment.walk import ALL, read_bytes, walk_events

__all__ = ["SegmentStreamClient"]

_IDENTITY_BYTES = 4096
"""Number of bytes before a place that tell its segment from another one of the same name."""
_INTERNAL = "_"
"""Prefix of the names that controllers and clients reserve for themselves."""


class SegmentStreamClient(StreamClient):
    """See `StreamClient`. Each segment is a stream; see `names` for their names. After a stream is scaled, the records
    that follow a sealed segment are in other segments, which are streams of their own.

    `ReadPosition.place` is a byte offset. Numbers are counted by reading, so `tail` costs reading what lies after
    `after`, `advance` what lies between; if `place` is "", it is found by counting `seq_num` events from the first one.
    Events have no timestamps, and no headers except in envelopes (`clients.envelopes`). The token is sent to stores as
    delegation token; to a controller as authorization, which then issues the delegation tokens.
    """

    indexed = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._stores = EndpointStores(endpoint)

    # ---- streams and positions -----------------------------------------------------------------------------------

    def streams(self, prefix: str = "") -> Iterator[str]:
        """See `StreamClient`. Lists all segments since the heads of the streams, including sealed ones; omits names
        that begin with `_`, which clients reserve for themselves."""
        controller = self._stores.controller
        if controller is None:
            message = f"{self._endpoint}: segment stores cannot list streams: name them, or ask a controller"
            raise fail(FailureCode.NOT_IMPLEMENTED, message)
        scope, slash, name = prefix.partition("/")
        stream = name.partition("/")[0]
        for scope_name in [scope] if slash else sorted(_public(controller.scopes(), scope)):
            for stream_name in sorted(_public(controller.streams(scope_name), stream)):
                yield from (each for each in _segments(controller, scope_name, stream_name) if each.startswith(prefix))

    def require(self, stream: str) -> None:
        """See `StreamClient`: reads make no streams here."""

    def first(self, stream: str) -> ReadPosition:
        return ReadPosition(0, str(self._stores.info(stream).start_offset))

    def tail(self, stream: str, after: ReadPosition | None = None) -> ReadPosition:
        return self._count(stream, self.first(stream) if after is None else after, ALL)

    def advance(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        return self._count(stream, start, count)

    def identity(self, stream: str, mark: ReadPosition, like: str = "") -> str:
        """See `StreamClient`: the number of bytes, and a digest of them and of the segment's own name, which a
        controller changes when a stream is created again."""
        try:
            info = self._stores.info(stream)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND or self._stores.controller is None:
                raise
            info = self._stores.info(stream)  # the known segment is gone: the controller knows the current one
        end = self._offset(self._placed(stream, mark).place)
        size = int(like.partition(":")[0]) if like else min(_IDENTITY_BYTES, end - info.start_offset)
        if size <= 0 or end - size < info.start_offset or end > info.write_offset:
            return ""
        digest = blake2b(self._stores.place(stream).segment.encode(), digest_size=12)
        digest.update(read_bytes(self._stores, stream, end - size, end))
        return f"{size}:{digest.hexdigest()}"

    def last_timestamp(self, stream: str) -> int | None:
        """See `StreamClient`: None."""
        self._stores.info(stream)
        return None

    def at_timestamp(self, stream: str, timestamp: int) -> ReadPosition:
        """See `StreamClient`: NOT_IMPLEMENTED."""
        message = f"{self._endpoint}: events of segments have no timestamps, so {timestamp} is nowhere in {stream}"
        raise fail(FailureCode.NOT_IMPLEMENTED, message)

    # ---- records -------------------------------------------------------------------------------------------------

    def read(self, stream: str, start: ReadPosition, end: ReadPosition) -> Iterator[ReadResult]:
        at = self._placed(stream, start)
        if at == end:
            return
        info = self._stores.info(stream)
        stop = self._offset(end.place) if end.place else info.write_offset
        offset = self._offset(at.place)
        if offset < info.start_offset:
            raise self._gone(stream, at, end, info.start_offset)
        try:
            for events in walk_events(
                self._stores, stream, offset, min(stop, info.write_offset), end.seq_num - at.seq_num
            ):
                numbers = range(at.seq_num, at.seq_num + len(events.bodies))
                at = ReadPosition(numbers.stop, str(events.offsets[-1]))
                yield ReadResult(Columns(numbers, (), events.bodies), at)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                raise
            raise self._gone(stream, at, end, int(str(error.failure.details["offset"]))) from None
        if at.seq_num < end.seq_num and info.write_offset <= stop:
            message = f"{self._endpoint}: stream {stream} ends {end.seq_num - at.seq_num} events before {end}"
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, message, tail=at)
        if at.seq_num != end.seq_num or (end.place and at.place != end.place):
            message = f"{self._endpoint}: stream {stream}: {start} and {end} do not fit: there is {at} between them"
            raise fail(FailureCode.INVALID, message)

    def _count(self, stream: str, start: ReadPosition, count: int) -> ReadPosition:
        at = self._placed(stream, start)
        info = self._stores.info(stream)
        offset = self._offset(at.place)
        if offset < info.start_offset:
            raise self._gone(stream, at, at, info.start_offset)
        if offset > info.write_offset:
            message = f"{self._endpoint}: stream {stream} ends at offset {info.write_offset}, before {at}"
            raise fail(FailureCode.RANGE_NOT_SATISFIABLE, message)
        try:
            for events in walk_events(self._stores, stream, offset, info.write_offset, count):
                at = ReadPosition(at.seq_num + len(events.bodies), str(events.offsets[-1]))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                raise
            raise self._gone(stream, at, at, int(str(error.failure.details["offset"]))) from None
        return at

    def _gone(self, stream: str, start: ReadPosition, end: ReadPosition, first: int) -> OperationFailed:
        """Return the failure for truncated events, with the first event now, counted back from `end` if that is
        known."""
        begins = ReadPosition(start.seq_num, str(first))
        if end.place:
            try:
                left = sum(
                    len(events.bodies) for events in walk_events(self._stores, stream, first, self._offset(end.place))
                )
            except OperationFailed as error:
                if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                    raise
                return self._gone(stream, start, end, int(str(error.failure.details["offset"])))
            begins = ReadPosition(max(end.seq_num - left, start.seq_num), str(first))
        message = f"{self._endpoint}: events of stream {stream} from offset {start.place} on are gone, {first} is first"
        return fail(FailureCode.RANGE_NOT_SATISFIABLE, message, first=begins)

    def _placed(self, stream: str, mark: ReadPosition) -> ReadPosition:
        return mark if mark.place else self._count(stream, self.first(stream), mark.seq_num)

    def _offset(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 19:
            raise fail(FailureCode.INVALID, f"{self._endpoint}: {text!r:.80} is no offset in bytes")
        return int(text)

    # ---- appending -----------------------------------------------------------------------------------------------

    def appender(self, stream: str) -> Appender:
        """See `StreamClient`: NOT_IMPLEMENTED."""
        message = (
            f"{self._endpoint}: segments have no sequence numbers to append at, as to {stream}: append as a writer"
        )
        raise fail(FailureCode.NOT_IMPLEMENTED, message)

    def numbered_appender(self, stream: str, writer: UUID) -> NumberedAppender:
        return self._stores.patience().over(lambda: SegmentAppender(self._stores, stream, writer))

    # ---- creating, deleting and trimming -------------------------------------------------------------------------

    def create(self, stream: str, *, endless: bool = False) -> bool:  # noqa: ARG002 - stores let nothing go themselves
        """See `StreamClient`. With a controller, create a stream of one segment, and its scope if that is missing. The
        request is retried if its answer is lost; it returns False then even if the first attempt created the stream."""
        controller = self._stores.controller
        if controller is not None:
            return controller.create(*self._whole(stream))

        def make(request_id: int, place: SegmentLocation) -> SegmentMessage:
            return released.CreateSegment(request_id, place.segment, 0, 0, place.token)

        try:
            self._stores.ask(released.SegmentCreated, stream, make)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            return False
        return True

    def delete(self, stream: str) -> None:
        """See `StreamClient`. With a controller, seal and delete the whole stream."""
        controller = self._stores.controller
        if controller is not None:
            controller.delete(*self._whole(stream))
            self._stores.forget(stream)
            return

        def make(request_id: int, place: SegmentLocation) -> SegmentMessage:
            return released.DeleteSegment(request_id, place.segment, place.token)

        try:
            self._stores.ask(released.SegmentDeleted, stream, make)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise

    def trim(self, stream: str, first: ReadPosition) -> None:
        offset = self._offset(self._placed(stream, first).place)

        def make(request_id: int, place: SegmentLocation) -> SegmentMessage:
            return released.TruncateSegment(request_id, place.segment, offset, place.token)

        self._stores.ask(released.SegmentTruncated, stream, make)

    def _whole(self, stream: str) -> tuple[str, str]:
        """Return scope and stream. Raises INVALID for a single segment, which a controller cannot create or delete by
        itself."""
        name = self._stores.named(stream)
        if name.owner != stream:
            raise fail(FailureCode.INVALID, f"{self._endpoint}: {stream} is a segment, its stream is {name.owner}")
        return name.scope, name.stream

    def close(self) -> None:
        self._stores.close()


def _public(names: list[str], prefix: str) -> list[str]:
    return [name for name in names if name.startswith(prefix) and not name.startswith(_INTERNAL)]


def _segments(controller: BlockingControllerClient, scope: str, stream: str) -> list[str]:
    """Return the names of a stream's segments; the one that has the stream's own name comes first."""
    head = controller.head(scope, stream)
    first = first_of(head)
    return [each.owner if each == first else str(each) for each in controller.since(head)]
