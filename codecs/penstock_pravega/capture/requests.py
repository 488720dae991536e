"""Match replies of the segment protocol to pending requests.

Request ids join most of them (segment fact sheet, 1.2). The Java client reads with one id for a whole connection, and
distinguishes its reads by their offsets; the draft has no ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.capture.dialogue.waiting import MOST_WAITING
from penstock_pravega.capture import describing
from penstock_pravega.codec import draft, released

__all__ = ["PendingRequest", "PendingRequests"]

_ONCE: Final = (released.Hello, released.KeepAlive, draft.KeepAlive)
_SETUPS: Final = (draft.SetupAppend, draft.AppendSetup)
_READS: Final = (released.ReadSegment, released.SegmentRead, draft.ReadSegment, draft.SegmentRead)


class _Read(NamedTuple):
    """Key that a read and its reply share."""

    request_id: int | None
    segment: str
    offset: int


class PendingRequest(NamedTuple):
    """A pending request: its segment, the time of its last byte, and whether appends follow it."""

    segment: str
    end_ns: int
    sets_up: bool


class PendingRequests:
    """Pending requests of one conversation; beyond `MOST_WAITING` the oldest are forgotten."""

    def __init__(self) -> None:
        self._waiting: dict[object, PendingRequest] = {}

    def ask(self, message: Any, end_ns: int) -> None:
        """Add a request, if it has a reply of its own."""
        key = _key(message)
        if key is not None:
            sets_up = isinstance(message, (released.SetupAppend, draft.SetupAppend))
            self._waiting[key] = PendingRequest(describing.segment_of(message), end_ns, sets_up)
            if len(self._waiting) > MOST_WAITING:
                del self._waiting[next(iter(self._waiting))]

    def answered(self, message: Any) -> PendingRequest | None:
        """Remove and return the request that a reply answers, or None if it is unknown."""
        request = self._waiting.pop(_key(message), None)
        if request is not None or not describing.error_text_of(message):
            return request
        key = self._refused(message)
        return None if key is None else self._waiting.pop(key)

    def _refused(self, message: Any) -> object:
        """Return the key of the read that an error reply is for; in the draft, of any request about its segment."""
        request_id, offset = describing.request_id_of(message), getattr(message, "offset", None)
        if request_id is None:
            segment = describing.segment_of(message)
            return next((key for key, request in self._waiting.items() if request.segment == segment), None)
        exact = _Read(request_id, describing.segment_of(message), -1 if offset is None else offset)
        return exact if exact in self._waiting else self._read(lambda key: key.request_id == request_id)

    def misplaced(self, message: released.SegmentRead | draft.SegmentRead) -> int | None:
        """Return the requested offset, if a reply that answers no request has the request id of another read."""
        request_id = describing.request_id_of(message)
        if request_id is None:
            return None
        key = self._read(lambda key: (key.request_id, key.segment) == (request_id, message.segment))
        return None if key is None else key.offset

    def _read(self, which: Callable[[_Read], bool]) -> _Read | None:
        return next((key for key in self._waiting if isinstance(key, _Read) and which(key)), None)


def _key(message: Any) -> object:
    """Return the key that a request and its reply share, or None for messages that are not answered one by one."""
    if isinstance(message, _ONCE):
        return type(message)
    if isinstance(message, _SETUPS):
        return message.connection_id
    request_id = describing.request_id_of(message)
    if isinstance(message, _READS):
        return _Read(request_id, message.segment, message.offset)
    return request_id
