"""What the current task works on: by which route, and as part of which trace. Its log lines say so."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

__all__ = ["ROUTE", "TRACE", "TraceContext"]

ROUTE: ContextVar[str] = ContextVar("penstock.route", default="")
"""The route that the task's latest operation took; "" where it took none."""

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MOST_STATE: Final = 512
"""Characters of a tracestate that are handed on at least (W3C Trace Context, 3.3.1.5); a longer one is dropped."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where in which trace something happens (W3C Trace Context). Identifiers are in hexadecimal. `state`: what
    tracing systems tell each other by the header `tracestate`."""

    trace_id: str
    span_id: str
    flags: int = 0
    state: str = ""

    @classmethod
    def parse(cls, parent: str, state: str = "") -> TraceContext | None:
        """From the headers `traceparent` and `tracestate`; None for what is none: then there is no trace to be part
        of, and the request is served all the same (W3C Trace Context, 4.3)."""
        found = _TRACEPARENT.fullmatch(parent.strip())
        if found is None:
            return None
        version, trace_id, span_id, flags, more = found.groups()
        if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
            return None
        return cls(trace_id, span_id, int(flags, 16) & 1, state if len(state) <= _MOST_STATE else "")

    @property
    def sampled(self) -> bool:
        """Whether it is recorded, as far as whoever is before us knows."""
        return bool(self.flags & 1)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """What tells the next one of it."""
        parent = ("traceparent", f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}")
        return [parent, ("tracestate", self.state)] if self.state else [parent]


TRACE: ContextVar[TraceContext | None] = ContextVar("penstock.trace", default=None)
"""Of the current task; None: it is part of no trace."""
