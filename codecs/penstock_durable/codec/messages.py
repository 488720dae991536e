"""The JSON messages of responses, which are arrays (protocol, section 7.1), read in pieces of any size."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.records import NO_HEADERS, Headers
from penstock_durable.codec.content import TakenRecords, broken
from penstock_durable.codec.media import check_json, join_messages

__all__ = ["MAX_MESSAGE_BYTES", "JsonMessageReader", "MessageContent"]

MAX_MESSAGE_BYTES: Final = 8 * MIB
"""Largest message that is read, in bytes."""
_BLANK: Final = b" \t\r\n"
_IN_STRING: Final = re.compile(rb'["\\]')
_STRUCTURE: Final = re.compile(rb'["\[\]{},]')


class MessageContent:
    """The content of streams of JSON; see `penstock_durable.codec.content.StreamContent`. Positions count messages."""

    step = 1000

    def encode(self, bodies: Sequence[bytes], headers: Mapping[int, Headers]) -> bytes:
        """Return messages, spelled as they are, between commas. Raises NOT_REPRESENTABLE for headers, and for a body
        that is not one JSON value."""
        for index, body in enumerate(bodies):
            if headers.get(index):
                raise _refused(index, "has headers")
            try:
                check_json(body)
            except ValueError as error:
                raise _refused(index, f"is not JSON ({error})") from None
        return b",".join(bodies)

    def join(self, parts: Sequence[bytes]) -> bytes:
        """Return the parts as one array."""
        return join_messages(parts)

    def reader(self) -> JsonMessageReader:
        """Return a reader."""
        return JsonMessageReader()

    def comparable(self, body: bytes) -> bytes:
        """Return the message in one spelling. Servers may change blanks, escapes, the order of members, and numbers
        to those of JavaScript, as the reference server does."""
        return json.dumps(json.loads(body, parse_int=float), sort_keys=True).encode()


def _refused(index: int, reason: str) -> OperationFailed:
    return fail(FailureCode.NOT_REPRESENTABLE, f"record {index + 1} of the batch {reason}; the stream consists of JSON")


class JsonMessageReader:
    """Reads messages; see `penstock_durable.codec.content.ContentReader`. Each response is one array."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._size = 0  # of the messages
        self._held = bytearray()
        self._begin = 0  # where the next message begins in `_held`
        self._seen = 0  # bytes of `_held` that were looked at
        self._depth = 0  # 0 outside the array, 1 between its messages
        self._in_string = False
        self._any = False  # the array has had a message, or a comma
        self._over = False  # the array is complete

    def receive(self, data: bytes) -> None:
        """Take bytes of a response's body. Raises RemoteProtocolError if they are not an array of JSON."""
        self._held += data
        while not self._over and self._step():
            pass
        del self._held[: self._begin]
        self._seen -= self._begin
        self._begin = 0
        if self._over and self._held.strip(_BLANK):
            raise broken("an answer goes on behind its array")
        if len(self._held) > MAX_MESSAGE_BYTES:
            raise broken(f"a message of more than {MAX_MESSAGE_BYTES} bytes")

    def end_response(self) -> None:
        """Begin the next array. Raises RemoteProtocolError if this one is incomplete; an empty body is an empty one."""
        if not self._over and (self._depth or self._held.strip(_BLANK)):
            raise broken("an answer ends within its array")
        self._held.clear()
        self._seen = 0
        self._any = self._over = False

    @property
    def buffered(self) -> int:
        """Bytes of messages that were not taken, and of an incomplete one."""
        return self._size + len(self._held)

    def take(self, max_records: int, max_bytes: int) -> TakenRecords:
        """Return messages as they are spelled; see `ContentReader.take`."""
        bodies: list[bytes] = []
        size = 0
        while self._messages and len(bodies) < max_records:
            size += len(self._messages[0])
            if bodies and size > max_bytes:
                break
            bodies.append(self._messages.popleft())
            self._size -= len(bodies[-1])
        return TakenRecords(bodies, NO_HEADERS, [1] * len(bodies))

    def skip(self, most: int) -> int:
        """Drop messages; see `ContentReader.skip`."""
        count = min(most, len(self._messages))
        for _ in range(count):
            self._size -= len(self._messages.popleft())
        return count

    def _step(self) -> bool:
        """Look at the next byte with a meaning. Returns False if it has not come."""
        held = self._held
        match = (_IN_STRING if self._in_string else _STRUCTURE).search(held, self._seen)
        if match is None:
            self._seen = len(held)
            return False
        at, what = match.start(), match[0]
        if what == b"\\":
            whole = at + 1 < len(held)
            self._seen = at + 2 if whole else at
            return whole
        self._seen = at + 1
        if not self._depth and (what != b"[" or held[self._begin : at].strip(_BLANK)):
            raise broken("an answer that is not an array")
        if what == b'"':
            self._in_string = not self._in_string
        elif what in b"[{":
            self._depth += 1
            if self._depth == 1:
                self._begin = self._seen
        elif what in b"]}":
            self._depth -= 1
            if not self._depth:
                self._end_array(at, what)
        elif self._depth == 1:
            self._cut(at)
            self._any = True
        return True

    def _end_array(self, at: int, what: bytes) -> None:
        if what != b"]":
            raise broken("an array that ends with }")
        if self._any or self._held[self._begin : at].strip(_BLANK):
            self._cut(at)
        self._begin = at + 1
        self._over = True

    def _cut(self, at: int) -> None:
        """Take what is before an index as a message, and drop the byte there."""
        message = bytes(self._held[self._begin : at].strip(_BLANK))
        try:
            check_json(message)
        except ValueError as error:
            raise broken(f"a message that is not JSON: {error}") from None
        self._messages.append(message)
        self._size += len(message)
        self._begin = at + 1
