"""The route and the trace of the current task's work, for its log lines."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

import msgspec

__all__ = ["ROUTE", "TRACE", "TraceContext"]

ROUTE: ContextVar[str] = ContextVar("penstock.route", default="")
"""The route of the task's latest operation; "" if it took none."""

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MOST_STATE: Final = 512
"""Most characters of a tracestate that is passed on, the least that W3C Trace Context (3.3.1.5) asks for; a longer one
is dropped."""
TRACE: ContextVar[TraceContext | None] = ContextVar("penstock.trace", default=None)
"""The trace of the current task; None: it is part of no trace."""


class TraceContext(msgspec.Struct, frozen=True):
    """A position in a trace (W3C Trace Context). Identifiers are in hexadecimal. `state`: the `tracestate` header, with
    data of tracing systems."""

    trace_id: str
    span_id: str
    flags: int = 0
    state: str = ""

    @classmethod
    def parse(cls, parent: str, state: str = "") -> TraceContext | None:
        """Parse the headers `traceparent` and `tracestate`. Returns None for an invalid one: the request is then served
        without a trace (W3C Trace Context, 4.3)."""
        match = _TRACEPARENT.fullmatch(parent.strip())
        if match is None:
            return None
        version, trace_id, span_id, flags, more = match.groups()
        if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
            return None
        return cls(trace_id, span_id, int(flags, 16) & 1, state if len(state) <= _MOST_STATE else "")

    @property
    def sampled(self) -> bool:
        """Return whether the caller may have recorded the trace."""
        return bool(self.flags & 1)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers that pass the trace on to the next server."""
        parent = ("traceparent", f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}")
        return [parent, ("tracestate", self.state)] if self.state else [parent]
