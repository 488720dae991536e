"""All that is known of one message: its fields, its records, its first bytes, and the request that it answers.

Memory is bounded: the last bytes of each side are kept for some thousand conversations, and the latest requests of all
conversations together, with shortened records.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from penstock.capture.dialogue import Message, Problem, SeenRecord
from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation, Sender
from penstock.model.limits import KIB
from penstock.recorder.captures.lines import message_line, problem_line, record_line
from penstock.recorder.captures.recent import RecentBytes
from penstock.recorder.captures.text import dump

__all__ = ["Inspector"]

_MOST_CONVERSATIONS: Final = 2000
_MOST_EXCHANGES: Final = 500
_MOST_REQUESTS: Final = 8
"""Requests kept of one exchange, the latest."""
_KEPT_BYTES: Final = 4 * KIB
"""Bytes kept of each side of a conversation."""
_SHOWN_BYTES: Final = 256
_MOST_RECORDS: Final = 20
_MOST_BODY: Final = 1 * KIB


class _Request(NamedTuple):
    """A request with its first bytes, and their offset."""

    message: Message
    data: bytes
    offset: int


class Inspector:
    """Describes messages and problems. Give it each event, then the items that the event completes: first `inspect` or
    `dump`, then `add`."""

    def __init__(self) -> None:
        self._recent: OrderedDict[Conversation, dict[Sender, RecentBytes]] = OrderedDict()
        self._requests: OrderedDict[tuple[Conversation, int], deque[_Request]] = OrderedDict()

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
        if not isinstance(item, Message) or item.sender is not Sender.CLIENT or item.exchange is None:
            return
        kept = self._requests.setdefault((item.conversation, item.exchange), deque(maxlen=_MOST_REQUESTS))
        carried = [_shortened(record) for record in item.carried[:_MOST_RECORDS]]
        kept.append(_Request(replace(item, records=(), carried=carried, event=None), *self._bytes(item)))
        self._requests.move_to_end((item.conversation, item.exchange))
        if len(self._requests) > _MOST_EXCHANGES:
            self._requests.popitem(last=False)

    def inspect(self, item: Message | Problem) -> dict[str, Any]:
        """Return an item as JSON values: the keys of its line (`penstock.recorder.captures.lines`), `bodies` with its
        first records, `dump` with its first bytes, and `asked`, the same of the request that it answers."""
        if isinstance(item, Problem):
            return problem_line(item) | {"dump": self.dump(item)}
        line = _described(item, self.dump(item))
        request = self._request_of(item)
        return (
            line
            if request is None
            else line | {"asked": _described(request.message, dump(request.data, request.offset))}
        )

    def dump(self, item: Message | Problem) -> list[str]:
        """Return a dump of the first bytes of an item, as far as they are kept."""
        if isinstance(item, Problem):
            return dump(item.context, item.context_offset, item.offset)
        return dump(*self._bytes(item))

    def _bytes(self, message: Message) -> tuple[bytes, int]:
        sides = self._recent.get(message.conversation)
        if sides is None:
            return b"", message.offset
        return sides[message.sender].between(message.offset, message.offset + min(message.length, _SHOWN_BYTES))

    def _request_of(self, message: Message) -> _Request | None:
        """Return the request that a message answers: of its exchange the one that ended when the answer's time began,
        if that is known, or else the latest one; if there are several, of the same layer."""
        if message.sender is Sender.CLIENT or message.exchange is None:
            return None
        kept = list(self._requests.get((message.conversation, message.exchange), ()))
        if message.answers is not None:
            kept = [candidate for candidate in kept if candidate.message.end_ns == message.end_ns - message.answers]
        same = [candidate for candidate in kept if candidate.message.layer == message.layer]
        return (same or kept)[-1] if kept else None


def _described(message: Message, lines: list[str]) -> dict[str, Any]:
    records = [record_line(_shortened(record)) for record in message.own_records[:_MOST_RECORDS]]
    return message_line(message) | {"bodies": records, "dump": lines}


def _shortened(record: SeenRecord) -> SeenRecord:
    return record if len(record.body) <= _MOST_BODY else replace(record, body=record.body[:_MOST_BODY])
