"""The client's side: requests as headers and query, and the answers of servers (protocol, section 5).

A client does not interpret the offsets of a server: it keeps them, compares them as text, and sends them back.

Answers that break the protocol raise RemoteProtocolError.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from penstock.model.failures import Failure, FailureCode, OperationFailed, printable
from penstock_durable.codec.content import broken
from penstock_durable.codec.media import essence
from penstock_durable.codec.offsets import is_offset
from penstock_durable.codec.requests import CLOSED, AppendRequest, Header, LiveMode, is_true

__all__ = [
    "BEGINNING",
    "AppendAnswer",
    "PositionAnswer",
    "append_answer",
    "append_headers",
    "failure_of_answer",
    "position_answer",
    "read_query",
]

BEGINNING: Final = "-1"
"""The offset of the first byte or message that a server still has."""
_CODES: Final = {
    401: FailureCode.AUTHN,
    403: FailureCode.PERMISSION_DENIED,
    404: FailureCode.STREAM_NOT_FOUND,
    408: FailureCode.UNAVAILABLE,
    410: FailureCode.OFFSET_TRUNCATED,
    413: FailureCode.LIMIT_EXCEEDED,
    429: FailureCode.RATE_LIMITED,
    501: FailureCode.NOT_IMPLEMENTED,
    503: FailureCode.UNAVAILABLE,
    504: FailureCode.UPSTREAM_TIMEOUT,
}
"""Codes by status; UPSTREAM_FAULT for the others, which no server has a reason to send."""


class PositionAnswer(Struct, frozen=True):
    """The head of an answer to GET, HEAD or PUT. `next_offset`: behind what it holds (HEAD, PUT: the tail).
    `up_to_date`: there was no more. `closed`: and there never will be. `cursor`: to be sent with the next long poll."""

    next_offset: str
    content_type: str | None
    up_to_date: bool
    closed: bool
    cursor: str | None


class AppendAnswer(Struct, frozen=True):
    """The answer to a POST that was stored. `next_offset`: the tail behind it; None if the server does not say, as for
    an append that it has from an earlier attempt."""

    next_offset: str | None


def append_headers(request: AppendRequest) -> list[tuple[str, str]]:
    """Return the headers of a POST (5.2)."""
    headers = [] if request.content_type is None else [("content-type", request.content_type)]
    if request.closed:
        headers.append((CLOSED, "true"))
    if (producer := request.producer) is not None:
        numbers = [("producer-epoch", str(producer.epoch)), ("producer-seq", str(producer.seq))]
        headers += [("producer-id", producer.id), *numbers]
    if request.seq is not None:
        headers.append(("stream-seq", request.seq))
    return headers


def read_query(offset: str, live: LiveMode | None = None, cursor: str | None = None) -> str:
    """Return the query of a GET (5.5 to 5.7). `cursor`: that of the answer before."""
    query = f"offset={quote(offset, safe='')}"
    if live is not None:
        query += f"&live={live.value}"
    return query if cursor is None else f"{query}&cursor={quote(cursor, safe='')}"


def position_answer(header: Header) -> PositionAnswer:
    """Parse the head of a successful answer to GET, HEAD or PUT."""
    offset = _offset(header)
    if offset is None:
        raise broken("an answer without stream-next-offset")
    kind = header("content-type")
    try:
        content_type = None if kind is None else essence(kind)
    except OperationFailed as error:
        raise broken(error.failure.message) from None
    closed = is_true(header(CLOSED))
    up_to_date = closed or is_true(header("stream-up-to-date"))
    return PositionAnswer(offset, content_type, up_to_date, closed, header("stream-cursor"))


def append_answer(header: Header) -> AppendAnswer:
    """Parse the head of a successful answer to POST."""
    return AppendAnswer(_offset(header))


def failure_of_answer(status: int, header: Header, body: bytes) -> Failure:
    """Return the failure that an answer with another status means. `body`: its beginning, for the message.

    Codes: STREAM_SEALED for a stream that is closed; STALE_WRITER_POSITION for a producer whose epoch is over, or whose
    number does not follow the last one, with that as detail `position`; RESOURCE_ALREADY_EXISTS for another conflict;
    else by the status.
    """
    text = printable(body)
    reason = f"status {status}: {text}" if text else f"status {status}"
    if status == 403 and header("producer-epoch") is not None:
        return Failure(FailureCode.STALE_WRITER_POSITION, reason)
    if status == 409:
        if is_true(header(CLOSED)):
            return Failure(FailureCode.STREAM_SEALED, "the stream is closed")
        expected = header("producer-expected-seq")
        if expected is not None:
            known = {"position": int(expected) - 1} if re.fullmatch("[0-9]{1,16}", expected) else {}
            return Failure(FailureCode.STALE_WRITER_POSITION, reason, known)
        return Failure(FailureCode.RESOURCE_ALREADY_EXISTS, reason)
    seconds = header("retry-after") or ""
    later = {"retry_after": float(min(int(seconds), 60))} if re.fullmatch("[0-9]{1,9}", seconds) else {}
    return Failure(_CODES.get(status, FailureCode.UPSTREAM_FAULT), reason, later)


def _offset(header: Header) -> str | None:
    offset = header("stream-next-offset")
    if offset is not None and not is_offset(offset):
        raise broken(f"stream-next-offset {offset!r:.80} is no offset")
    return offset
