"""Rate limit for log lines that peers can cause at will: connections, requests and servers that misbehave.

Each kind of line has a token bucket for each client (its address), or for each back that the line is about. A line that
finds its bucket empty is dropped and counted; the next one that is written carries the count as `suppressed`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import structlog

__all__ = ["Throttle"]

BURST: Final = 20.0
"""Size of a bucket: lines of one kind and client at once."""
PER_SECOND: Final = 1.0
"""Lines per second after a burst."""
MOST_KEYS: Final = 4096
"""Most buckets kept; the least recently used one is evicted."""

_BY_CLIENT: Final = frozenset(
    {
        "append_refused",
        "call_refused",
        "connection_lost",
        "connection_refused",
        "fetch_refused",
        "group_too_large",
        "produce_refused",
        "protocol_error",
        "read_refused",
        "records_dropped",
        "request_denied",
        "request_failed",
        "request_refused",
        "stream_refused",
        "stream_reset",
        "token_rejected",
        "topics_not_listed",
    }
)
_BY_BACK: Final = frozenset({"back_append_interrupted", "back_read_interrupted", "writer_recovers"})
"""Kinds whose `reason` begins with the back and its address."""


class _Bucket:
    __slots__ = ("at", "suppressed", "tokens")

    def __init__(self, now: float) -> None:
        self.tokens = BURST
        self.at = now
        self.suppressed = 0


class Throttle:
    """A structlog processor. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()
        self._forgotten: dict[str, int] = {}  # suppressed lines by kind, of evicted buckets

    def __call__(self, _logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Return the event, or raise DropEvent if it exceeds the rate."""
        kind = event["event"]
        if kind in _BY_CLIENT:
            key = (kind, str(event.get("peer", "")).rpartition(":")[0])
        elif kind in _BY_BACK:
            key = (kind, str(event.get("reason", "")).partition(": ")[0])
        else:
            return event
        bucket = self._bucket(key)
        if bucket.tokens < 1:
            bucket.suppressed += 1
            raise structlog.DropEvent
        bucket.tokens -= 1
        suppressed = bucket.suppressed + self._forgotten.pop(kind, 0)
        bucket.suppressed = 0
        if suppressed:
            event["suppressed"] = suppressed
        return event

    def _bucket(self, key: tuple[str, str]) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(now)
            if len(self._buckets) > MOST_KEYS:
                (kind, _), oldest = self._buckets.popitem(last=False)
                if oldest.suppressed:
                    self._forgotten[kind] = self._forgotten.get(kind, 0) + oldest.suppressed
        else:
            self._buckets.move_to_end(key)
            bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) * PER_SECOND)
            bucket.at = now
        return bucket
