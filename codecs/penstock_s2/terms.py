"""The terms of S2's clients: the request that reads on from a position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.model.operations import Located
from penstock.model.records import StreamRef
from penstock.protocols.terms import Terms
from penstock_s2.codec.names import encode_path_segment
from penstock_s2.codec.sse import DIALECTS, EventId

__all__ = ["S2Terms"]


class S2Terms(Terms):
    """The terms of an S2 listener's clients. `sse_dialect`: as configured."""

    def __init__(self, sse_dialect: str) -> None:
        self._dialect = DIALECTS[sse_dialect]

    def hints(self, stream: StreamRef, located: Located) -> Mapping[str, dict[str, Any]]:
        """Return the request for both ways of reading; for SSE with a last event ID, which the first record has not,
        since no event precedes it."""
        path = f"/v1/streams/{encode_path_segment(stream.stream)}/records"
        request = {"basin": stream.basin, "path": path, "query": f"seq_num={located.seq_num}"}
        last = EventId(located.seq_num - 1, 0, 0) if located.seq_num else None
        spelled = None if last is None else self._dialect.spell_id(last)
        return {"s2": request, "sse": {**request, "last_event_id": spelled}}
