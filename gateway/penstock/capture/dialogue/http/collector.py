"""Gather the messages and problems of a dialogue over HTTP until they are taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.capture.dialogue.messages import Message, Problem, SeenRecord
from penstock.capture.pcapng import Conversation, Sender
from penstock.wire.http.observer.faults import BytesAt, HttpFault, TimedRange

__all__ = ["MessageCollector"]

_BEFORE: Final = 128
"""Bytes of context before the first wrong byte; as many follow."""


class _Recent:
    """The last bytes of one side, for contexts."""

    __slots__ = ("_data", "_offset", "_tail")

    def __init__(self) -> None:
        self._tail = b""
        self._data: memoryview = memoryview(b"")
        self._offset = 0

    def receive(self, data: memoryview, offset: int) -> None:
        if offset != self._offset:
            self._tail = b""
        self._data, self._offset = data, offset

    def settle(self) -> None:
        """Keep a copy of the last bytes only: no others will be asked for."""
        data = self._data
        rest = bytes(data[-_BEFORE:])
        self._tail = rest if len(rest) == _BEFORE else (self._tail + rest)[-_BEFORE:]
        self._offset += len(data)
        self._data = memoryview(b"")

    def around(self, offset: int) -> BytesAt:
        if offset < self._offset:
            return BytesAt(self._offset - len(self._tail), self._tail + bytes(self._data[:_BEFORE]))
        start = max(0, offset - self._offset - _BEFORE)
        near = bytes(self._data[start : offset - self._offset + _BEFORE])
        return (
            BytesAt(self._offset + start, near) if start else BytesAt(self._offset - len(self._tail), self._tail + near)
        )


class MessageCollector:
    """Maker of messages and problems of one conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self._items: list[Message | Problem] = []
        self.count = 0
        """Messages so far."""
        self.muted = False
        """True while items are dropped: they are of preludes, which were never sent."""
        self.body_bytes: int | None = None
        """Size of the body that has just ended, for its message."""
        self._recent = {Sender.CLIENT: _Recent(), Sender.SERVER: _Recent()}

    def take(self) -> list[Message | Problem]:
        """Return the items since the last call."""
        items, self._items = self._items, []
        return items

    def receive(self, sender: Sender, data: memoryview, offset: int) -> None:
        """Note the bytes that are being read."""
        self._recent[sender].receive(data, offset)

    def settle(self, sender: Sender) -> None:
        """Note that they have been read."""
        self._recent[sender].settle()

    def add(
        self,
        sender: Sender,
        span: TimedRange,
        layer: str,
        kind: str,
        *,
        exchange: int | None = None,
        stream: str = "",
        fields: Mapping[str, Any] | None = None,
        records: Sequence[SeenRecord] = (),
        state: str = "",
        failure: str = "",
        event: Any = None,
        answers: int | None = None,
        carried: Sequence[SeenRecord] = (),
    ) -> None:
        """Add a message; see `Message`."""
        if self.muted:
            return
        self.count += 1
        self._items.append(
            Message(
                self.conversation,
                sender,
                span.start_ns,
                span.end_ns,
                span.start,
                span.end - span.start,
                layer,
                kind,
                exchange,
                stream,
                fields or {},
                records,
                state,
                failure,
                event,
                answers,
                self.body_bytes,
                carried=carried,
            )
        )

    def fault(
        self, sender: Sender, time_ns: int, fault: HttpFault, *, exchange: int | None = None, fatal: bool = True
    ) -> None:
        """Add a problem, with the bytes around it as far as they are available."""
        if self.muted:
            return
        held = fault.held or self._recent[sender].around(fault.offset)
        start = max(0, fault.offset - held.offset - _BEFORE)
        context = bytes(held.data[start : start + 2 * _BEFORE])
        if not held.offset + start <= fault.offset <= held.offset + start + len(context):
            context = b""
        self._items.append(
            Problem(
                self.conversation,
                sender,
                time_ns,
                fault.offset,
                fault.rule,
                fault.clause,
                context,
                held.offset + start if context else fault.offset,
                exchange,
                fatal,
            )
        )
