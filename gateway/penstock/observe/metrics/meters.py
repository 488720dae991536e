"""The metrics of one listener's clients on their way to one back, by protocol and route.

A session looks its meter up once and keeps it; a single operation looks it up as it begins.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from penstock.model.failures import FailureCode
from penstock.model.records import RecordBatch
from penstock.observe.metrics.families import (
    APPEND_SECONDS,
    APPEND_WAIT_SECONDS,
    BATCHES,
    ERRORS,
    OPERATION_SECONDS,
    READ_FIRST_SECONDS,
    RECORD_BYTES,
    RECORDS,
    RESTAMPED_RECORDS,
    SESSIONS,
)
from penstock.observe.metrics.series import Count, Histogram
from penstock.observe.taps.tap import CONNECTION

__all__ = ["PROTOCOL", "FlowMeters", "Meter", "current_client", "meter", "snake_case"]

PROTOCOL: ContextVar[str] = ContextVar("penstock.protocol", default="")
"""The protocol of the current request if it is more specific than its listener's kind: `s2s` or `sse`; otherwise ""."""
_meters: Final[dict[tuple[str, str, str, str], Meter]] = {}


class FlowMeters:
    """The metrics of one direction."""

    __slots__ = ("batches", "bytes", "records", "sessions")

    def __init__(self, *labels: str) -> None:
        self.records = RECORDS.child(*labels)
        self.bytes = RECORD_BYTES.child(*labels)
        self.batches = BATCHES.child(*labels)
        self.sessions = SESSIONS.child(*labels)

    def batch(self, batch: RecordBatch) -> None:
        """Count a batch."""
        self.records.value += batch.count
        self.bytes.value += batch.metered
        self.batches.value += 1


class Meter:
    """The metrics of one listener, route, back and protocol. `appends` goes in, `reads` goes out."""

    __slots__ = (
        "_errors",
        "_operations",
        "append_seconds",
        "append_wait",
        "appends",
        "first_read",
        "labels",
        "reads",
        "restamped",
    )

    def __init__(self, *labels: str) -> None:
        self.labels = labels
        """Listener, route, back and protocol."""
        self._errors: dict[FailureCode, Count] = {}
        self._operations: dict[type, Histogram] = {}
        self.appends = FlowMeters(*labels, "in")
        self.reads = FlowMeters(*labels, "out")
        self.restamped = RESTAMPED_RECORDS.child(*labels)
        self.append_seconds = APPEND_SECONDS.child(*labels)
        self.append_wait = APPEND_WAIT_SECONDS.child(*labels)
        self.first_read = READ_FIRST_SECONDS.child(*labels)

    def failed(self, code: FailureCode) -> None:
        """Count a failed operation or session."""
        counter = self._errors.get(code)
        if counter is None:
            counter = self._errors[code] = ERRORS.child(*self.labels, code.value)
        counter.value += 1

    def seconds_of(self, operation: type) -> Histogram:
        """Return the histogram of durations of operations of this type, in seconds."""
        histogram = self._operations.get(operation)
        if histogram is None:
            histogram = self._operations[operation] = OPERATION_SECONDS.child(
                *self.labels, snake_case(operation.__name__)
            )
        return histogram


def snake_case(name: str) -> str:
    """Return `CreateStream` as `create_stream`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def meter(route: str, back: str) -> Meter:
    """Return the meter of the current task's client for this route and back."""
    listener, protocol = current_client()
    key = (listener, route, back, protocol)
    existing = _meters.get(key)
    if existing is None:
        existing = _meters[key] = Meter(*key)
    return existing


def current_client() -> tuple[str, str]:
    """Return the listener and the protocol of the current task's client."""
    tap = CONNECTION.get()
    if tap is None:
        return "", PROTOCOL.get()
    return tap.conversation.name, PROTOCOL.get() or tap.conversation.protocol
