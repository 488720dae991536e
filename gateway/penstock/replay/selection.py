"""Which parts of a capture are played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final

from penstock_codecs.capture import Conversation, Side
from penstock_codecs.dialogue import Message

__all__ = ["PlayedParts", "moment"]

_NANOSECONDS: Final = 1_000_000_000
_PLAYABLE: Final = frozenset({"s2", "s3p", "segment", "controller"})


@dataclass(frozen=True, slots=True)
class PlayedParts:
    """All that is given must hold.

    `side`: FRONT, or BACK; what no gateway recorded is of either. `connections`: numbers, none: all. `streams`: globs
    over names as `penstock show` spells them, with or without the basin. `since_ns`, `until_ns`: what began between
    these times.
    """

    side: Side = Side.FRONT
    connections: frozenset[int] = frozenset()
    streams: Sequence[str] = field(default=())
    since_ns: int | None = None
    until_ns: int | None = None

    def why_not(self, conversation: Conversation, protocol: str) -> str:
        """Why a conversation is not played; "" where it is. `protocol` "": not known, or not yet."""
        if conversation.side not in (self.side, Side.FOREIGN):
            return f"they are of the {conversation.side.value} side (--side)"
        if self.connections and conversation.number not in self.connections:
            return "they were not asked for (--connection)"
        if protocol and protocol not in _PLAYABLE:
            return f"nobody plays what they speak ({protocol})"
        return ""

    def wants(self, message: Message) -> bool:
        """Whether a message is played. What is about no stream always is."""
        if self.since_ns is not None and message.start_ns < self.since_ns:
            return False
        return not self.streams or not message.stream or any(map(self._matches, _spellings(message.stream)))

    def _matches(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.streams)


def _spellings(stream: str) -> list[str]:
    """A name, the name without its basin or scope, and both without a segment's number."""
    names = [stream]
    head, _, last = stream.rpartition("/")
    if ".#epoch." in last:
        names.append(head)
    return names + [name.partition("/")[2] for name in names if "/" in name]


def moment(text: str, start_ns: int) -> int:
    """A time in ns since 1970: RFC 3339, or seconds after `start_ns`. Raises ValueError."""
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
