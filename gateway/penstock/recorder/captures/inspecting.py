"""All that is known of one message: its fields, its records, its first bytes, and the request that it answers.

Memory is bounded: the last bytes of each side are kept for some thousand conversations, and the latest requests of all
conversations together, with shortened records.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

from penstock.recorder.captures.lines import message_line, problem_line, record_line
from penstock.recorder.captures.recent import RecentBytes
from penstock.recorder.captures.text import dump
from penstock_analysis.capture import CaptureEvent, Chunk, Conversation, Sender
from penstock_analysis.dialogue import Message, Problem, SeenRecord
from penstock_codecs.limits import KIB

__all__ = ["Inspector"]

_MOST_CONVERSATIONS: Final = 2000
_MOST_REQUESTS: Final = 500
_KEPT_BYTES: Final = 4 * KIB
"""Bytes kept of each side of a conversation."""
_SHOWN_BYTES: Final = 512
_MOST_RECORDS: Final = 20
_MOST_BODY: Final = 1 * KIB

_Place = tuple[Conversation, int | None, int]
"""A request by its conversation, its exchange and the time of its last byte."""


class Inspector:
    """Describes messages and problems. Give it each event, then the items that the event completes: first `inspect` or
    `dump`, then `add`."""

    def __init__(self) -> None:
        self._recent: OrderedDict[Conversation, dict[Sender, RecentBytes]] = OrderedDict()
        self._requests: OrderedDict[_Place, dict[str, Any]] = OrderedDict()

    def receive(self, event: CaptureEvent) -> None:
        """Keep the bytes of an event."""
        if not isinstance(event, Chunk):
            return
        sides = self._recent.get(event.conversation)
        if sides is None:
            sides = self._recent[event.conversation] = {sender: RecentBytes(_KEPT_BYTES) for sender in Sender}
            if len(self._recent) > _MOST_CONVERSATIONS:
                self._recent.popitem(last=False)
        self._recent.move_to_end(event.conversation)
        sides[event.sender].add(event.offset, event.data)

    def add(self, item: Message | Problem) -> None:
        """Keep a request, for the messages that answer it."""
        if isinstance(item, Message) and item.sender is Sender.CLIENT and item.exchange is not None:
            self._requests[item.conversation, item.exchange, item.end_ns] = self._described(item)
            if len(self._requests) > _MOST_REQUESTS:
                self._requests.popitem(last=False)

    def inspect(self, item: Message | Problem) -> dict[str, Any]:
        """Return an item as JSON values: the keys of its line (`penstock.recorder.captures.lines`), `bodies` with its
        first records, `dump` with its first bytes, and `asked`, the same of the request that it answers first."""
        line = self._described(item)
        if isinstance(item, Message) and item.answers is not None:
            asked = self._requests.get((item.conversation, item.exchange, item.end_ns - item.answers))
            line |= {} if asked is None else {"asked": asked}
        return line

    def dump(self, item: Message | Problem) -> list[str]:
        """Return a dump of the first bytes of an item, as far as they are kept."""
        if isinstance(item, Problem):
            return dump(item.context, item.context_offset, item.offset)
        sides = self._recent.get(item.conversation)
        if sides is None:
            return []
        return dump(*sides[item.sender].between(item.offset, item.offset + min(item.length, _SHOWN_BYTES)))

    def _described(self, item: Message | Problem) -> dict[str, Any]:
        if isinstance(item, Problem):
            return problem_line(item) | {"dump": self.dump(item)}
        records = [record_line(_shortened(record)) for record in item.records[:_MOST_RECORDS]]
        return message_line(item) | {"bodies": records, "dump": self.dump(item)}


def _shortened(record: SeenRecord) -> SeenRecord:
    return record if len(record.body) <= _MOST_BODY else replace(record, body=record.body[:_MOST_BODY])
