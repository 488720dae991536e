"""Delegation tokens of one connection's requests, where the listener wants them (segment fact sheet, 1.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from penstock.access.delegation import Delegated, Delegation, TokenRejected
from penstock.identity import CLIENT
from penstock.recorder.tap import note_identity
from penstock_codecs.segment import BlockAppended, Message, draft, released

__all__ = ["APPENDS", "Checkpoint"]

_FREE: Final = frozenset({released.Hello, released.KeepAlive, draft.KeepAlive})
"""They ask for nothing."""
APPENDS: Final = frozenset({BlockAppended, released.ConditionalAppend, released.ConditionalBlockEnd})
"""They are by writers, who have shown a token when they were set up."""
_READS: Final = frozenset(
    {
        *(released.ReadSegment, released.GetStreamSegmentInfo, released.GetSegmentAttribute, released.LocateOffset),
        *(released.GetTableSegmentInfo, released.ReadTable, released.ReadTableKeys, released.ReadTableEntries),
        released.ReadTableEntriesDelta,
    }
)
"""They change nothing."""
_NAMED: Final[Mapping[type, tuple[str, ...]]] = {
    released.CreateTransientSegment: ("parent_segment",),
    released.MergeSegments: ("target", "source"),
    released.MergeSegmentsBatch: ("target", "sources"),
    released.FlushToStorage: (),
}
"""The fields that name segments, where that is not `segment`."""


class Checkpoint:
    """Looks at each request before it is carried out."""

    def __init__(self) -> None:
        self._writers: dict[UUID, int] = {}  # until when the token of each was good

    def check(self, delegation: Delegation, request: Any) -> None:
        """Raises TokenRejected. Who the token is for is who the client is from then on."""
        kind = type(request)
        if kind in _FREE:
            return
        if kind in APPENDS:
            if delegation.is_over(self._writers.get(request.writer_id, 0)):
                raise TokenRejected("the delegation token of this writer has expired", expired=True)
            return
        token = getattr(request, "delegation_token", None)
        if not token:
            raise TokenRejected("a delegation token is required; the controller gives one")
        found = delegation.check(token)
        for segment in _segments(request):
            if not found.allows(segment, changes=kind not in _READS):
                raise TokenRejected(f"the delegation token is not good for this with {segment!r:.200}")
        if kind is released.SetupAppend:
            self._writers[request.writer_id] = found.expires_ms
        _become(found)


def _segments(request: Message) -> Iterator[str]:
    for name in _NAMED.get(type(request), ("segment",)):
        value = getattr(request, name)
        yield from (value,) if isinstance(value, str) else value


def _become(found: Delegated) -> None:
    client = CLIENT.get()
    if client.identity != found.subject:
        CLIENT.set(replace(client, identity=found.subject))
        note_identity(found.subject)
