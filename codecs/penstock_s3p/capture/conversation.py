"""One S3P conversation: commands, and the replies to them in their order (S3P 0.2.0, section 13).

The exchange of a message is the number of its command, from 1. After commands or replies were lost, the rest is paired
by kind as far as possible: a reply that fits no pending command belongs to no exchange. If a client waits for each
reply, a new command implies that those before it were answered. If it does not, appends get no identifiers after
replies were lost, until all pending commands are answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.capture.dialogue.messages import DELIVERED, Message, Problem, SeenRecord
from penstock.capture.dialogue.places import TimedSpan
from penstock.capture.dialogue.sides import DialogueSide
from penstock.capture.dialogue.two_sided import TwoSided
from penstock.capture.dialogue.waiting import MOST_WAITING, PendingBatches
from penstock.capture.pcapng import Conversation, Sender
from penstock.model.records import RecordId
from penstock_s3p.capture.clauses import S3P_ERRORS, s3p_clause
from penstock_s3p.capture.describing import (
    REPLY_NAMES,
    appended_records,
    command_fields,
    kind_of,
    reply_fields,
    reply_kind,
    stream_of,
)
from penstock_s3p.capture.reading import (
    NO_COUNT,
    command_begins,
    command_reader,
    pinpoint,
    reply_begins,
    reply_reader,
)
from penstock_s3p.codec.events import AppendedId, Command, ErrorReply, ReadRecords, Records, Reply, reply_type

__all__ = ["S3PDialogue"]

HEAD_BYTES = 64
"""First bytes of a command that are kept until its reply, to be shown if it is refused."""


class _Asked(msgspec.Struct):
    """A command that waits for its reply. `ticket`: of the records that it appends; 0 for none."""

    number: int
    reply: type
    stream: str
    offset: int
    end_ns: int
    head: bytes
    ticket: int = 0


class S3PDialogue(TwoSided):
    """Dialogue of one S3P conversation."""

    layer = "s3p"

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(
            conversation,
            DialogueSide(conversation, Sender.CLIENT, command_reader, command_begins),
            DialogueSide(conversation, Sender.SERVER, reply_reader, reply_begins),
        )
        self._asked: deque[_Asked] = deque()
        self._commands = 0
        self._forgotten = 0  # commands without an answer that are not in `_asked` any more
        self._gaps: set[Sender] = set()
        self._doubtful = 0  # number of the oldest in `_asked` whose replies may be lost
        self._pipelines = False  # the client asks before it is answered
        self._unsure = False  # an unknown number of replies was lost
        self._waiting = PendingBatches()
        self._failed = False

    @property
    def _state(self) -> str:
        return "failed" if self._failed else "open"

    def _missed(self, sender: Sender) -> None:
        self._gaps.add(sender)
        if sender is Sender.SERVER:
            self._doubtful = len(self._asked)
            self._unsure |= self._pipelines and self._doubtful > 0

    def _flawed(self, problem: Problem) -> None:
        """Add the number of the current command or reply to a problem, if it can be counted."""
        if not problem.fatal or self._gaps:
            return
        problem.exchange = self._commands + 1
        if problem.sender is Sender.SERVER:
            problem.exchange -= len(self._asked) + self._forgotten

    def _unanswered(self) -> list[SeenRecord]:
        return self._waiting.rest()

    def _understood(self, sender: Sender, event: Any, span: TimedSpan) -> Iterator[Message | Problem]:
        if sender is Sender.CLIENT:
            yield self._command(event, span)
        else:
            yield from self._reply(event, span)

    # ---- commands ------------------------------------------------------------------------------------------------

    def _command(self, command: Command, span: TimedSpan) -> Message:
        self._commands += 1
        if isinstance(command, ReadRecords) and command.count == NO_COUNT:
            command.count = None
        stream = stream_of(command)
        head = self._sides[Sender.CLIENT].places.head()[:HEAD_BYTES]
        request = _Asked(self._commands, reply_type(command), stream, span.offset, span.end_ns, head)
        records = appended_records(command, stream, span.end_ns, self._conversation)
        given_up: list[SeenRecord] = []
        if records:
            request.ticket, given_up = self._waiting.add(records)
        self._ask(request)
        return self._message(
            Sender.CLIENT,
            span,
            kind_of(command),
            exchange=request.number,
            stream=stream,
            fields=command_fields(command),
            records=given_up,
            event=command,
            carried=records,
        )

    def _ask(self, request: _Asked) -> None:
        if len(self._asked) > self._doubtful:
            self._pipelines = True
        elif not self._pipelines:
            self._asked.clear()
        self._doubtful = min(self._doubtful, len(self._asked))
        self._asked.append(request)
        if len(self._asked) > MOST_WAITING:
            self._take(1)
            self._forgotten += 1

    def _take(self, count: int) -> _Asked:
        """Remove that many of the oldest pending commands, and return the last of them."""
        for _ in range(count - 1):
            self._asked.popleft()
        self._doubtful = max(self._doubtful - count, 0)
        request = self._asked.popleft()
        self._unsure &= bool(self._asked)
        return request

    # ---- replies -------------------------------------------------------------------------------------------------

    def _reply(self, reply: Reply, span: TimedSpan) -> Iterator[Message | Problem]:
        server = self._sides[Sender.SERVER]
        if self._failed:
            rule = f"{reply_kind(reply)} after an error that ends the connection"
            yield server.problem(span.offset, rule, s3p_clause(rule), fatal=True)
            server.stop()
            return
        request, exchange = self._answered(reply)
        yield from self._judged(reply, span, request, exchange)
        if isinstance(reply, ErrorReply):
            self._failed = reply.fatal
        yield self._message(
            Sender.SERVER,
            span,
            reply_kind(reply),
            exchange=exchange,
            stream="" if request is None else request.stream,
            fields=reply_fields(reply),
            records=self._records(reply, span, request),
            failure=f"{reply.code}: {reply.message}" if isinstance(reply, ErrorReply) else "",
            event=reply,
            answers=None if request is None else span.end_ns - request.end_ns,
        )

    def _answered(self, reply: Reply) -> tuple[_Asked | None, int | None]:
        """Return the command that a reply answers, if it is known, and the exchange."""
        if self._gaps:
            request = self._guessed(reply)
            return request, None if request is None else request.number
        if self._forgotten:
            self._forgotten -= 1
            return None, self._commands - len(self._asked) - self._forgotten
        if self._asked:
            request = self._take(1)
            return request, request.number
        early = isinstance(reply, ErrorReply) and self._amid_message
        return None, self._commands + 1 if early else None

    def _guessed(self, reply: Reply) -> _Asked | None:
        """Return, after a gap, the oldest command that such a reply can answer; only lost replies leave older ones
        pending."""
        look = len(self._asked) if Sender.SERVER in self._gaps else min(len(self._asked), 1)
        for index in range(look):
            if isinstance(reply, (ErrorReply, self._asked[index].reply)):
                return self._take(index + 1)
        return None

    @property
    def _amid_message(self) -> bool:
        """True if a command is incomplete, or could not be read to its end."""
        client = self._sides[Sender.CLIENT]
        return client.waiting or client.over

    def _judged(self, reply: Reply, span: TimedSpan, request: _Asked | None, exchange: int | None) -> Iterator[Problem]:
        """Yield problems of a reply, and of a command that the server refuses as malformed but the parser did not."""
        if isinstance(reply, ErrorReply):
            if reply.fatal and exchange is not None and not self._sides[Sender.CLIENT].over:
                yield self._refused(reply, request, exchange)
            if exchange is not None or self._gaps:
                return
        if request is None:
            if exchange is not None or self._gaps:
                return
            wanted = "nothing"
        elif isinstance(reply, request.reply):
            return
        else:
            wanted = REPLY_NAMES[request.reply]
        rule = f"{reply_kind(reply)} came where {wanted} was expected"
        yield self._sides[Sender.SERVER].problem(span.offset, rule, s3p_clause(rule), fatal=False, exchange=exchange)

    def _refused(self, reply: ErrorReply, request: _Asked | None, exchange: int) -> Problem:
        client = self._sides[Sender.CLIENT]
        offset, head = client.places.begun, client.places.head()
        if request is None:
            client.excuse()
        else:
            offset, head = request.offset, request.head
        fault = pinpoint(head)
        rule = reply.message if fault is None else fault.rule
        clause = S3P_ERRORS[reply.code].clause if fault is None else fault.clause
        at = offset if fault is None else offset + fault.at
        problem = client.problem(at, f"refused with {reply.code}: {rule}", clause, fatal=False, exchange=exchange)
        if not problem.context:
            problem.context, problem.context_offset = head, offset
        return problem

    def _records(self, reply: Reply, span: TimedSpan, request: _Asked | None) -> list[SeenRecord]:
        """Return the records that a reply reveals."""
        if isinstance(reply, Records):
            stream = "" if request is None else request.stream
            return [
                SeenRecord(
                    DELIVERED,
                    stream,
                    body,
                    timestamp=record_id.ms,
                    record_id=str(record_id),
                    time_ns=span.end_ns,
                    conversation=self._conversation,
                )
                for record_id, body in reply.pairs()
            ]
        if request is None or not request.ticket:
            return []
        if isinstance(reply, AppendedId):
            records = list(self._waiting.take(request.ticket))
            return records if self._unsure else _identified(records, reply.record_id)
        reason = (
            f"{reply.code}: {reply.message}" if isinstance(reply, ErrorReply) else f"answered by {reply_kind(reply)}"
        )
        return self._waiting.refuse(request.ticket, reason)


def _identified(records: list[SeenRecord], last: RecordId) -> list[SeenRecord]:
    """Number one append's records, which share the timestamp and are consecutive (S3P fact sheet 3, item 20)."""
    for back, record in enumerate(reversed(records)):
        if back <= last.seq:
            record.timestamp = last.ms
            record.record_id = str(RecordId(last.ms, last.seq - back))
    return records
