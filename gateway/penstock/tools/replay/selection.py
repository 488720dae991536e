"""The selection of the parts of a capture that are played."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from penstock_analysis.capture import Conversation, Side
from penstock_analysis.dialogue import Message

__all__ = ["PlayedParts", "moment"]

_NANOSECONDS: Final = 1_000_000_000


class PlayedParts(msgspec.Struct, frozen=True):
    """The criteria, all of which must hold.

    `side`: FRONT or BACK; conversations that no gateway recorded count for either. `connections`: numbers; empty: all.
    `streams`: globs over names as `penstock show` spells them, with or without the basin. `since_ns`, `until_ns`: the
    times between which messages begin.
    """

    side: Side = Side.FRONT
    connections: frozenset[int] = frozenset()
    streams: Sequence[str] = ()
    since_ns: int | None = None
    until_ns: int | None = None

    def unwanted(self, conversation: Conversation) -> str:
        """Return why a conversation is not played; "" if it is."""
        if conversation.side not in (self.side, Side.FOREIGN):
            return f"they are of the {conversation.side.value} side (--side)"
        if self.connections and conversation.number not in self.connections:
            return "they were not asked for (--connection)"
        return ""

    def wants(self, message: Message) -> bool:
        """Return whether a message is played. Messages that concern no stream always are."""
        if self.since_ns is not None and message.start_ns < self.since_ns:
            return False
        return not self.streams or not message.stream or any(map(self._matches, _spellings(message.stream)))

    def _matches(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.streams)


def _spellings(stream: str) -> list[str]:
    """Return a name, the name without its basin or scope, and both without a segment's number."""
    names = [stream]
    head, _, last = stream.rpartition("/")
    if ".#epoch." in last:
        names.append(head)
    return names + [name.partition("/")[2] for name in names if "/" in name]


def moment(text: str, start_ns: int) -> int:
    """Parse a time, RFC 3339 or seconds after `start_ns`, to ns since 1970. Raises ValueError."""
    try:
        return start_ns + int(float(text) * _NANOSECONDS)
    except (ValueError, OverflowError):
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number of seconds nor a time such as 2026-01-31T12:00:00Z") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1_000_000) * 1000
