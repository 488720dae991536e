"""The headers and the query of each request of Durable Streams (protocol, section 5), checked.

Every function raises OperationFailed with BAD_HEADER or BAD_QUERY, and names the header or parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from msgspec import Struct

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock_durable.codec.cursors import parse_cursor
from penstock_durable.codec.media import essence
from penstock_durable.codec.offsets import Sentinel, parse_offset

__all__ = [
    "CLOSED",
    "MOST_INTEGER",
    "AppendRequest",
    "CreateRequest",
    "Fork",
    "Header",
    "LiveMode",
    "Producer",
    "ReadRequest",
    "append_request",
    "check_conditions",
    "create_request",
    "is_true",
    "read_request",
]

CLOSED: Final = "stream-closed"
MOST_INTEGER: Final = 2**53 - 1
"""Largest epoch and sequence number of a producer: the largest integer of JavaScript (5.2.1)."""
_MOST_TTL: Final = 10**10
"""Largest time to live, in seconds: 300 years."""
_INTEGER: Final = re.compile("0|[1-9][0-9]{0,15}")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d([.]\d+)?([Zz]|[+-]\d\d:\d\d)")
_VISIBLE: Final = re.compile("[!-~]([ -~]*[!-~])?")
_CREATES: Final = frozenset({"stream-ttl", "stream-expires-at", CLOSED})
_FORKS: Final = frozenset({"stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset"})
_APPENDS: Final = frozenset({CLOSED, "stream-seq", "producer-id", "producer-epoch", "producer-seq"})
_HEADERS: Final = {"PUT": _CREATES | _FORKS, "POST": _CREATES | _APPENDS, "DELETE": _CREATES}
"""The protocol's headers by the method that changes a stream. Some have no meaning there, but none is a condition that
would be ignored."""
_CONDITION: Final = re.compile(
    "(x-)?((stream|producer)-.*|((if|match|expected?|next|tail|upload)-?)*(offset|seq|seq-?num|tail|length|position))"
)
"""Names of headers and parameters that look like conditions on the state of a stream."""
_MOST_TEXT: Final = 256
"""Longest producer id and longest writer sequence, in bytes. The protocol sets none."""

Header = Callable[[str], str | None]
"""Returns the value of a header by its name in lower case."""


class Producer(Struct, frozen=True):
    """The place of an append among those of an idempotent producer (5.2.1): the producer's epoch, and the number of the
    append in it, both from 0."""

    id: str
    epoch: int
    seq: int


class Fork(Struct, frozen=True):
    """The origin of a stream that begins as a copy: the source's path, the offset up to which it is copied (None: its
    tail), and how much of what follows: bytes of one append, or JSON messages."""

    source: str
    offset: int | None
    sub_offset: int


class CreateRequest(Struct, frozen=True):
    """A PUT. `ttl` in seconds; `expires_at` in Unix ms. `closed`: the stream is created closed. `exists`: whether the
    stream must exist, or must not; None: either (RFC 9110, 13.1.1 and 13.1.2)."""

    content_type: str | None
    ttl: int | None
    expires_at: int | None
    closed: bool
    fork: Fork | None
    exists: bool | None = None


class AppendRequest(Struct, frozen=True):
    """A POST. `closed`: the stream is closed after it. `seq`: the writer's own sequence, compared as text."""

    content_type: str | None
    closed: bool
    producer: Producer | None
    seq: str | None


class LiveMode(Enum):
    """Ways to wait for records."""

    LONG_POLL = "long-poll"
    SSE = "sse"


class ReadRequest(Struct, frozen=True):
    """A GET. `start` is a sequence number or a sentinel; None if the client gave no offset."""

    start: int | Sentinel | None
    live: LiveMode | None
    cursor: int | None


def check_conditions(method: str, headers: Iterable[str], query: Iterable[tuple[str, str]]) -> None:
    """Check that a request has no unknown condition on a stream that it changes, nor one of another method, which would
    be ignored. `headers`: names in lower case. Requests that change nothing pass."""
    if (defined := _HEADERS.get(method)) is None:
        return
    for name in headers:
        if name not in defined and _CONDITION.fullmatch(name) is not None:
            raise _bad(name[:80], f"{method} has no such header, so nothing was done")
    for parameter, _ in query:
        if _CONDITION.fullmatch(parameter.lower().replace("_", "-")) is not None:
            raise fail(FailureCode.BAD_QUERY, f"{parameter[:80]}: {method} has no such parameter, so nothing was done")


def create_request(header: Header) -> CreateRequest:
    """Parse the headers of a PUT (5.1)."""
    content_type, ttl, expires = header("content-type"), header("stream-ttl"), header("stream-expires-at")
    if content_type is not None:
        essence(content_type)
    if ttl is not None and expires is not None:
        raise _bad("stream-ttl", "excludes stream-expires-at: send one of them")
    return CreateRequest(
        content_type,
        None if ttl is None else _integer("stream-ttl", ttl, _MOST_TTL),
        None if expires is None else _milliseconds("stream-expires-at", expires),
        is_true(header(CLOSED)),
        _fork(header),
        _exists(header),
    )


def _exists(header: Header) -> bool | None:
    """Return whether `if-match: *` or `if-none-match: *` demands that the stream exists, or that it does not."""
    exists = None
    for name in ("if-match", "if-none-match"):
        if (value := header(name)) is None:
            continue
        if value.strip() != "*":
            raise _bad(name, f"a stream as a whole has no entity tag: expected *, got {value!r:.80}")
        if exists is not None:
            raise _bad(name, "excludes if-match: send one of them")
        exists = name == "if-match"
    return exists


def _fork(header: Header) -> Fork | None:
    source, offset, sub = (
        header(name) for name in ("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset")
    )
    if source is None:
        if offset is not None or sub is not None:
            raise _bad("stream-fork-offset" if sub is None else "stream-fork-sub-offset", "needs stream-forked-from")
        return None
    more = 0 if sub is None else _integer("stream-fork-sub-offset", sub, MOST_INTEGER)
    if offset is None and more:
        raise _bad("stream-fork-sub-offset", "needs stream-fork-offset")
    return Fork(source, None if offset is None else _fork_offset(offset), more)


def _fork_offset(text: str) -> int | None:
    try:
        place = parse_offset(text)
    except OperationFailed as error:
        raise _bad("stream-fork-offset", error.failure.message) from None
    return place if isinstance(place, int) else 0 if place is Sentinel.BEGINNING else None


def append_request(header: Header) -> AppendRequest:
    """Parse the headers of a POST (5.2)."""
    content_type = header("content-type")
    if content_type is not None:
        essence(content_type)
    seq = header("stream-seq")
    if seq is not None:
        _check_text("stream-seq", seq)
    return AppendRequest(content_type, is_true(header(CLOSED)), _producer(header), seq)


def _producer(header: Header) -> Producer | None:
    names = ("producer-id", "producer-epoch", "producer-seq")
    given = [header(name) for name in names]
    if given == [None, None, None]:
        return None
    values = [value for value in given if value is not None]
    if len(values) < len(names):
        raise _bad(names[given.index(None)], "is missing: a producer sends all of " + ", ".join(names))
    _check_text(names[0], values[0])
    epoch, seq = (_integer(name, text, MOST_INTEGER) for name, text in zip(names[1:], values[1:], strict=True))
    return Producer(values[0], epoch, seq)


def read_request(query: Sequence[tuple[str, str]]) -> ReadRequest:
    """Parse the decoded parameters of a GET (5.5 to 5.7). Unknown ones are ignored; of a repeated one that is not
    `offset`, the last counts."""
    values: Mapping[str, str] = dict(query)
    if sum(name == "offset" for name, _ in query) > 1:
        raise fail(FailureCode.BAD_QUERY, "offset: given more than once")
    start = parse_offset(values["offset"]) if "offset" in values else None
    live = None
    if "live" in values:
        try:
            live = LiveMode(values["live"])
        except ValueError:
            reason = f"live: {values['live']!r:.80} is neither long-poll nor sse"
            raise fail(FailureCode.BAD_QUERY, reason) from None
        if start is None:
            raise fail(FailureCode.BAD_QUERY, f"offset: live={live.value} needs one; -1 is the beginning")
    return ReadRequest(start, live, parse_cursor(values.get("cursor")))


def is_true(value: str | None) -> bool:
    """Return whether a header says yes; any other value counts as none."""
    return value is not None and value.strip().lower() == "true"


def _integer(name: str, text: str, most: int) -> int:
    if _INTEGER.fullmatch(text) is None or int(text) > most:
        raise _bad(name, f"expected an integer from 0 to {most}, without sign or leading zeros, got {text!r:.80}")
    return int(text)


def _milliseconds(name: str, text: str) -> int:
    if _TIMESTAMP.fullmatch(text) is not None:
        try:
            moment = datetime.fromisoformat(text.upper())
        except ValueError:
            pass
        else:
            since = moment - datetime(1970, 1, 1, tzinfo=UTC)
            return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    raise _bad(name, f"expected a time such as 2030-01-31T12:00:00Z (RFC 3339), got {text!r:.80}")


def _check_text(name: str, text: str) -> None:
    if len(text) > _MOST_TEXT or _VISIBLE.fullmatch(text) is None:
        raise _bad(name, f"expected 1 to {_MOST_TEXT} ASCII characters, got {text!r:.80}")


def _bad(name: str, reason: str) -> OperationFailed:
    return fail(FailureCode.BAD_HEADER, f"{name}: {reason}")
