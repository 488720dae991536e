"""Base of dialogues of protocols on bare TCP: two sides, gaps in them, and the end of a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.capture.dialogue.messages import Message, Problem, SeenRecord
from penstock.capture.dialogue.places import TimedSpan
from penstock.capture.dialogue.sides import DialogueSide, TimedEvent
from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Lost, Opened, Sender

__all__ = ["TwoSided"]


class TwoSided:
    """Dialogue that reads each side by itself, and passes decoded messages to `_understood`."""

    layer: str

    def __init__(self, conversation: Conversation, client: DialogueSide, server: DialogueSide) -> None:
        self._conversation = conversation
        self._sides = {Sender.CLIENT: client, Sender.SERVER: server}
        self._closed: set[Sender] = set()
        self._now = 0

    # ---- what a protocol adds ------------------------------------------------------------------------------------

    def _understood(self, sender: Sender, event: Any, span: TimedSpan) -> Iterator[Message | Problem]:
        """Yield a decoded message as items."""
        raise NotImplementedError

    def _flawed(self, problem: Problem) -> None:
        """Add protocol-specific fields to a Problem of a side's bytes."""

    def _missed(self, sender: Sender) -> None:
        """Note that bytes of this side are missing, possibly its first ones."""

    def _unanswered(self) -> list[SeenRecord]:
        """Return the records that are unacknowledged at the end."""
        return []

    def _left_over(self) -> Iterator[Problem]:
        """Yield protocol-specific problems at the end, besides incomplete messages."""
        return iter(())

    @property
    def _state(self) -> str:
        """State of the conversation while both sides may send."""
        return "open"

    # ---- events --------------------------------------------------------------------------------------------------

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """Yield the items that an event completes."""
        self._now = event.time_ns
        match event:
            case Chunk():
                yield from self._chunk(event)
            case Opened():
                yield from self._opened(event)
            case Lost():
                yield from self._lost(event)
            case Closed():
                yield from self._finished(event)
            case _:
                pass

    def _opened(self, event: Opened) -> Iterator[Problem]:
        offsets = {Sender.CLIENT: event.client_offset, Sender.SERVER: event.server_offset}
        for sender, offset in offsets.items():
            side = self._sides[sender]
            if side.fresh and offset:
                self._begin_late(sender, offset)
            elif offset > side.places.end:
                missing = offset - side.places.end
                yield from self._lost(
                    Lost(event.conversation, event.time_ns, sender, side.places.end, missing, "recording paused")
                )

    def _begin_late(self, sender: Sender, offset: int) -> None:
        self._sides[sender].seek(offset)
        self._missed(sender)

    def _chunk(self, chunk: Chunk) -> Iterator[Message | Problem]:
        side = self._sides[chunk.sender]
        here = side.places.end
        if chunk.offset > here and not side.over:
            gap = Lost(chunk.conversation, chunk.time_ns, chunk.sender, here, chunk.offset - here, "they are not there")
            yield from self._lost(gap)
            here = chunk.offset
        data = chunk.data if chunk.offset == here else chunk.data[here - chunk.offset :]
        for piece in side.receive(chunk.time_ns, data):
            if isinstance(piece, TimedEvent):
                yield from self._understood(chunk.sender, piece.event, piece.span)
            else:
                self._flawed(piece)
                yield piece
                if side.seeking:
                    self._missed(chunk.sender)

    def _lost(self, event: Lost) -> Iterator[Problem]:
        side = self._sides[event.sender]
        if side.over:
            return
        lost = f"{event.length} bytes are" if event.length else "what follows is"
        problem = side.problem(event.offset, f"{lost} not in the capture: {event.reason}", fatal=not event.length)
        problem.time_ns = event.time_ns
        yield problem
        if event.length:
            self._begin_late(event.sender, event.offset + event.length)
        else:
            for each in self._sides.values():
                each.stop()

    def _finished(self, event: Closed) -> Iterator[Problem]:
        """End one side at a FIN, both at a reset."""
        whose = f"the {event.sender.value} {'reset the connection' if event.reset else 'finished'}"
        for sender in Sender if event.reset else (event.sender,):
            self._closed.add(sender)
            what = whose if sender is event.sender else f"the connection was reset by the {event.sender.value}"
            yield from self._unfinished(sender, what)

    def _unfinished(self, sender: Sender, what: str) -> Iterator[Problem]:
        """Yield the problem of a side's incomplete message, dated now, not at its last byte."""
        for problem in self._sides[sender].finish(what):
            problem.time_ns = self._now
            yield problem

    def end(self) -> Iterator[Message | Problem]:
        """Yield problems of incomplete messages, and the records that were not acknowledged."""
        for sender in Sender:
            yield from self._unfinished(sender, "the recording ends")
        yield from self._left_over()
        records = self._unanswered()
        if records:
            side = self._sides[Sender.CLIENT]
            span = TimedSpan(side.places.end, 0, self._now, self._now)
            yield self._message(Sender.CLIENT, span, "end", records=records)

    # ---- messages ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """State of the conversation: `closed`, `half-closed`, or that of the protocol."""
        if len(self._closed) == len(Sender):
            return "closed"
        return "half-closed" if self._closed else self._state

    def _message(
        self,
        sender: Sender,
        span: TimedSpan,
        kind: str,
        *,
        exchange: int | None = None,
        stream: str = "",
        fields: Mapping[str, Any] | None = None,
        records: Sequence[SeenRecord] = (),
        failure: str = "",
        event: Any = None,
        answers: int | None = None,
        carried: Sequence[SeenRecord] = (),
    ) -> Message:
        return Message(
            self._conversation,
            sender,
            span.start_ns,
            span.end_ns,
            span.offset,
            span.length,
            self.layer,
            kind,
            exchange,
            stream,
            fields or {},
            records,
            self.state,
            failure,
            event,
            answers,
            carried=carried,
        )
