"""Replies to results and failures in each dialect (segment fact sheet, 1.3, 1.4; section 2, readings 9, 10, 13).

`None` stands for a failure that a dialect has no reply for: it ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from penstock.model.byte_operations import NO_ATTRIBUTE, BytesRead
from penstock.model.failures import Failure, FailureCode
from penstock_pravega.codec import Dialect, SegmentMessage, draft, released

__all__ = ["LOST", "NO_OFFSET", "NO_REQUEST_ID", "REPLIES", "Acknowledged", "Replies", "RequestFields", "Unapplied"]

NO_REQUEST_ID: Final = -1
"""Request id in the draft, which has none."""
NO_OFFSET: Final = -1
"""Offset of an error reply whose request had none (1.3)."""
LOST: Final = frozenset({FailureCode.HOT_SERVER, FailureCode.UNAVAILABLE, FailureCode.UPSTREAM_TIMEOUT})
"""Failures of reaching the server behind the gateway. There is no reply for them, so the connection ends, as if it were
the server's own: real clients then reconnect and continue, which none does after an ErrorMessage."""
_DRAFT_REFUSALS: Final[Mapping[FailureCode, Callable[[Any], SegmentMessage]]] = {
    FailureCode.STREAM_NOT_FOUND: lambda asked: draft.NoSuchSegment(asked.segment),
    FailureCode.BASIN_NOT_FOUND: lambda asked: draft.NoSuchSegment(asked.segment),
    FailureCode.STREAM_DELETION_PENDING: lambda asked: draft.NoSuchSegment(asked.segment),
    FailureCode.BASIN_DELETION_PENDING: lambda asked: draft.NoSuchSegment(asked.segment),
    FailureCode.STREAM_SEALED: lambda asked: draft.SegmentIsSealed(asked.segment),
    FailureCode.RESOURCE_ALREADY_EXISTS: lambda asked: released.SegmentAlreadyExists(asked.request_id, asked.segment),
}


class RequestFields(NamedTuple):
    """Fields of a request that error replies need.

    `segment` is the name as the client spelled it; `offset` that of a read, truncation or table, or an append's event
    number.
    """

    request_id: int
    segment: str
    offset: int = NO_OFFSET


class Acknowledged(NamedTuple):
    """Acknowledgement of all appends of a writer after `previous`, the last acknowledged number, up to `number`.

    `request_id` is the last append's, `offset` the segment's length after it if known.
    """

    writer: UUID
    number: int
    previous: int
    request_id: int
    offset: int | None


class Unapplied(NamedTuple):
    """One or more appends of a writer that were not applied. `again`: the writer was already told why."""

    writer: UUID
    appends: Sequence[RequestFields]
    again: bool


class Replies(Protocol):
    """Replies in one dialect."""

    def append_setup(self, fields: RequestFields, writer: UUID, level: int) -> SegmentMessage:
        """Return the reply to a setup; `level` is the writer's last position, NO_ATTRIBUTE if unknown."""

    def data_appended(self, ack: Acknowledged) -> SegmentMessage:
        """Return the acknowledgement of appends."""

    def segment_read(self, fields: RequestFields, result: BytesRead) -> SegmentMessage:
        """Return the reply to a read."""

    def refused(self, failure: Failure, fields: RequestFields) -> SegmentMessage | None:
        """Return the reply to a failed request; None if there is none."""

    def appends_refused(self, failure: Failure, unapplied: Unapplied) -> list[SegmentMessage] | None:
        """Return the replies to failed appends; None if there are none."""


# ---- released ------------------------------------------------------------------------------------------------------


def _no_such_segment(_: Failure, fields: RequestFields) -> SegmentMessage:
    return released.NoSuchSegment(fields.request_id, fields.segment, "", fields.offset)


def _is_sealed(_: Failure, fields: RequestFields) -> SegmentMessage:
    return released.SegmentIsSealed(fields.request_id, fields.segment, "", fields.offset)


def _already_exists(_: Failure, fields: RequestFields) -> SegmentMessage:
    return released.SegmentAlreadyExists(fields.request_id, fields.segment)


def _is_truncated(failure: Failure, fields: RequestFields) -> SegmentMessage:
    """Return SegmentIsTruncated, also for a table of another length than expected, as the real server does."""
    start = failure.details["offset"]
    assert isinstance(start, int), "as the code's comment has it"
    return released.SegmentIsTruncated(fields.request_id, fields.segment, start, "", fields.offset)


def _not_empty(_: Failure, fields: RequestFields) -> SegmentMessage:
    return released.TableSegmentNotEmpty(fields.request_id, fields.segment)


def _no_such_key(_: Failure, fields: RequestFields) -> SegmentMessage:
    return released.TableKeyDoesNotExist(fields.request_id, fields.segment)


def _bad_version(_: Failure, fields: RequestFields) -> SegmentMessage:
    return released.TableKeyBadVersion(fields.request_id, fields.segment)


def _not_updated(_: Failure, fields: RequestFields) -> SegmentMessage:
    """Return the reply to a merge whose condition on an attribute does not hold."""
    return released.SegmentAttributeUpdated(fields.request_id, False)


def _unsupported(failure: Failure, fields: RequestFields) -> SegmentMessage:
    return released.OperationUnsupported(fields.request_id, failure.message)


def _illegal(failure: Failure, fields: RequestFields) -> SegmentMessage:
    return released.ErrorMessage(fields.request_id, fields.segment, failure.message, 0)


def _unspecified(failure: Failure, fields: RequestFields) -> SegmentMessage:
    return released.ErrorMessage(fields.request_id, fields.segment, failure.message, -1)


def _denied(_: Failure, fields: RequestFields) -> SegmentMessage:
    """Return AuthTokenCheckFailed, after which clients do not retry; after an unspecified error they would."""
    return released.AuthTokenCheckFailed(fields.request_id, "", 0)


_REFUSALS: Final[Mapping[FailureCode, Callable[[Failure, RequestFields], SegmentMessage]]] = {
    FailureCode.STREAM_NOT_FOUND: _no_such_segment,
    FailureCode.BASIN_NOT_FOUND: _no_such_segment,
    FailureCode.STREAM_DELETION_PENDING: _no_such_segment,
    FailureCode.BASIN_DELETION_PENDING: _no_such_segment,
    FailureCode.STREAM_SEALED: _is_sealed,
    FailureCode.RESOURCE_ALREADY_EXISTS: _already_exists,
    FailureCode.OFFSET_TRUNCATED: _is_truncated,
    FailureCode.OFFSET_MISMATCH: _is_truncated,
    FailureCode.TABLE_NOT_EMPTY: _not_empty,
    FailureCode.TABLE_KEY_NOT_FOUND: _no_such_key,
    FailureCode.TABLE_KEY_VERSION: _bad_version,
    FailureCode.TRANSACTION_CONFLICT: _not_updated,
    FailureCode.PERMISSION_DENIED: _denied,
    FailureCode.AUTHN: _denied,
    FailureCode.NOT_IMPLEMENTED: _unsupported,
    FailureCode.INVALID: _illegal,
    FailureCode.NOT_REPRESENTABLE: _illegal,
    FailureCode.ENCRYPTION_KEY: _illegal,
    FailureCode.LIMIT_EXCEEDED: _illegal,
}


class _Released:
    """See `Replies`."""

    def append_setup(self, fields: RequestFields, writer: UUID, level: int) -> SegmentMessage:
        return released.AppendSetup(fields.request_id, fields.segment, writer, level)

    def data_appended(self, ack: Acknowledged) -> SegmentMessage:
        offset = NO_OFFSET if ack.offset is None else ack.offset
        return released.DataAppended(ack.writer, ack.number, ack.previous, ack.request_id, offset)

    def segment_read(self, fields: RequestFields, result: BytesRead) -> SegmentMessage:
        return released.SegmentRead(
            fields.segment, fields.offset, result.at_tail, result.end_of_stream, result.data, fields.request_id
        )

    def refused(self, failure: Failure, fields: RequestFields) -> SegmentMessage | None:
        if failure.code in LOST:
            return None
        return _REFUSALS.get(failure.code, _unspecified)(failure, fields)

    def appends_refused(self, failure: Failure, unapplied: Unapplied) -> list[SegmentMessage] | None:
        """Return a reply for each append.

        After InvalidEventNumber the client's connection is closed, so that reply is the last.
        """
        if failure.code is FailureCode.STALE_WRITER_POSITION:
            fields = unapplied.appends[0]
            return [released.InvalidEventNumber(unapplied.writer, fields.request_id, "", fields.offset)]
        replies = [self.refused(failure, fields) for fields in unapplied.appends]
        return None if None in replies else [reply for reply in replies if reply is not None]


# ---- draft ---------------------------------------------------------------------------------------------------------


class _Draft:
    """See `Replies`."""

    def append_setup(self, fields: RequestFields, writer: UUID, level: int) -> SegmentMessage:
        return draft.AppendSetup(fields.segment, writer, 0 if level == NO_ATTRIBUTE else level)

    def data_appended(self, ack: Acknowledged) -> SegmentMessage:
        return draft.DataAppended(ack.writer, ack.number)

    def segment_read(self, fields: RequestFields, result: BytesRead) -> SegmentMessage:
        return draft.SegmentRead(
            fields.segment, fields.offset, draft.Flags(result.at_tail, result.end_of_stream), result.data
        )

    def refused(self, failure: Failure, fields: RequestFields) -> SegmentMessage | None:
        spell = _DRAFT_REFUSALS.get(failure.code)
        return None if spell is None else spell(fields)

    def appends_refused(self, failure: Failure, unapplied: Unapplied) -> list[SegmentMessage] | None:
        """Return one reply for all appends: it names only the segment."""
        reply = self.refused(failure, unapplied.appends[0])
        if reply is None:
            return None
        return [] if unapplied.again else [reply]


REPLIES: Final[Mapping[Dialect, Replies]] = {Dialect.RELEASED: _Released(), Dialect.DRAFT: _Draft()}
