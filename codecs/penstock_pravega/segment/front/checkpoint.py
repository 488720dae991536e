"""Checks of the delegation tokens of one connection's requests (segment fact sheet, 1.3).

Tokens are checked only if the listener requires them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from penstock.core.identity import CLIENT
from penstock.observe.taps.tap import note_identity
from penstock_pravega.codec import BlockAppended, SegmentMessage, draft, released
from penstock_pravega.segment.delegation import Delegated, Delegation, TokenRejected

__all__ = ["APPENDS", "RequestCheck"]

_FREE: Final = frozenset({released.Hello, released.KeepAlive, draft.KeepAlive})
"""Messages that request nothing."""
APPENDS: Final = frozenset({BlockAppended, released.ConditionalAppend, released.ConditionalBlockEnd})
"""Appends, whose writers presented a token when they were set up."""
_READS: Final = frozenset(
    {
        *(released.ReadSegment, released.GetStreamSegmentInfo, released.GetSegmentAttribute, released.LocateOffset),
        *(released.GetTableSegmentInfo, released.ReadTable, released.ReadTableKeys, released.ReadTableEntries),
        released.ReadTableEntriesDelta,
    }
)
"""Requests that change nothing."""
_NAMED: Final[Mapping[type, tuple[str, ...]]] = {
    released.CreateTransientSegment: ("parent_segment",),
    released.MergeSegments: ("target", "source"),
    released.MergeSegmentsBatch: ("target", "sources"),
    released.FlushToStorage: (),
}
"""Fields that name a request's segments, if not `segment`."""


class RequestCheck:
    """Checks each request of a connection before it is performed."""

    def __init__(self) -> None:
        self._writers: dict[UUID, int] = {}  # expiry of each one's token

    def check(self, delegation: Delegation, request: Any) -> None:
        """Check a request, and take its token's subject for the client's identity from then on.

        Raises TokenRejected.
        """
        kind = type(request)
        if kind in _FREE:
            return
        if kind in APPENDS:
            if delegation.is_over(self._writers.get(request.writer_id, 0)):
                raise TokenRejected("the delegation token of this writer has expired", expired=True)
            return
        token = getattr(request, "delegation_token", None)
        if not token:
            raise TokenRejected("a delegation token is required; the controller issues one")
        delegated = delegation.check(token)
        for segment in _segments(request):
            if not delegated.allows(segment, changes=kind not in _READS):
                raise TokenRejected(f"the delegation token does not permit this on {segment!r:.200}")
        if kind is released.SetupAppend:
            self._writers[request.writer_id] = delegated.expires_ms
        _become(delegated)


def _segments(request: SegmentMessage) -> Iterator[str]:
    for name in _NAMED.get(type(request), ("segment",)):
        value = getattr(request, name)
        yield from (value,) if isinstance(value, str) else value


def _become(delegated: Delegated) -> None:
    client = CLIENT.get()
    if client.identity != delegated.subject:
        CLIENT.set(replace(client, identity=delegated.subject))
        note_identity(delegated.subject)
