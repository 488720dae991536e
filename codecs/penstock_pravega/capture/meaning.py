"""Relate messages of the segment protocol to each other: match replies to requests, and find transferred events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.capture.dialogue.messages import DELIVERED, SeenRecord
from penstock.capture.dialogue.places import TimedSpan
from penstock.capture.pcapng import Conversation, Sender
from penstock_pravega.capture import describing
from penstock_pravega.capture.appending import Answered, StoredEvents, WriterAppends
from penstock_pravega.capture.delivering import Deliveries
from penstock_pravega.capture.reading import DecodedMessage
from penstock_pravega.capture.requests import PendingRequests
from penstock_pravega.codec import draft, released
from penstock_pravega.codec.blocks import BlockData

__all__ = ["Meanings", "MessageMeaning"]

UNKNOWN_OFFSET: Final = -1
MOST_CUTS: Final = 1000
"""Most places of one conversation at which reads have cut an event that are remembered."""
NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
_SETUPS = (released.SetupAppend, released.AppendSetup, draft.SetupAppend, draft.AppendSetup)
_CONDITIONAL = (released.ConditionalAppend, released.ConditionalBlockEnd)
_APPENDS = (released.AppendBlockEnd, *_CONDITIONAL, BlockData)


class MessageMeaning(NamedTuple):
    """Meaning of a message beyond its own fields: its segment, the records that it reveals, the time at which the
    request that it answers was complete, its fault, if any, and the records that it carries."""

    segment: str = ""
    records: Sequence[SeenRecord] = ()
    fields: Mapping[str, Any] = NO_FIELDS
    asked_ns: int | None = None
    wrong: str = ""
    carried: Sequence[SeenRecord] = ()


class _Cut(NamedTuple):
    """A place at which a read has cut an event: the segment, and the end of that read in the server's bytes."""

    segment: str
    at: int


class Meanings:
    """Requests, appends and reads of one conversation. Bounded in all of them."""

    def __init__(self, conversation: Conversation, deliveries: Deliveries) -> None:
        self._conversation = conversation
        self._server = f"{conversation.run} {conversation.name or conversation.server}"
        self._requests = PendingRequests()
        self.late = False
        """True if bytes were not recorded, so that a reply may answer an unknown request."""
        self._appends = WriterAppends(conversation)
        self._deliveries = deliveries
        self._cuts: dict[tuple[str, int], _Cut] = {}  # by segment and place

    def of(self, sender: Sender, decoded: DecodedMessage, span: TimedSpan) -> MessageMeaning:
        """Return the meaning of a message after those before it."""
        plain = Meanings._ask if sender is Sender.CLIENT else Meanings._answer
        return _TABLE.get((sender, type(decoded.message)), plain)(self, decoded, span)

    def unanswered(self) -> list[SeenRecord]:
        """Return the appended records that were not acknowledged."""
        return self._appends.rest()

    def cut_events(self) -> Iterator[tuple[int, str]]:
        """Return the events that reads delivered only in part: the place in the server's bytes, and a description."""
        cuts, self._cuts = self._cuts, {}
        for (key, place), (segment, at) in cuts.items():
            cut = self._deliveries.cut(key, place)
            if cut is not None:
                yield at, f"{cut[1]} bytes of the event at offset {cut[0]} of {segment} were read, and not the rest"

    # ---- requests ------------------------------------------------------------------------------------------------

    def _ask(self, decoded: DecodedMessage, span: TimedSpan) -> MessageMeaning:
        """Handle a request that will be answered."""
        self._requests.ask(decoded.message, span.end_ns)
        return MessageMeaning()

    def _set_up(self, decoded: DecodedMessage, span: TimedSpan) -> MessageMeaning:
        """Handle the set-up of a writer for a segment, which the server's reply repeats."""
        message = decoded.message
        assert isinstance(message, _SETUPS), "as the table says"
        self._appends.set_up(_writer(message), message.segment, describing.request_id_of(message))
        request = isinstance(message, (released.SetupAppend, draft.SetupAppend))
        return self._ask(decoded, span) if request else self._answer(decoded, span)

    def _append(self, decoded: DecodedMessage, span: TimedSpan) -> MessageMeaning:
        """Handle a whole append, or a piece of a draft block."""
        message = decoded.message
        assert isinstance(message, _APPENDS), "as the table says"
        stored = None if decoded.stored is None else StoredEvents.of(decoded.stored)
        carried, given_up = self._appends.add(
            _writer(message),
            _number(message),
            describing.request_id_of(message),
            span.end_ns,
            stored,
            message.expected_offset if isinstance(message, _CONDITIONAL) else None,
        )
        fields: Mapping[str, Any] = NO_FIELDS
        if stored is not None:
            fields = {"size": stored.size, "events": 0 if stored.raw else len(stored.bodies), "raw": stored.raw}
        return MessageMeaning(self._appends.segment(_writer(message)), given_up, fields, carried=carried)

    def _of_writer(self, decoded: DecodedMessage, _span: TimedSpan) -> MessageMeaning:
        """Handle a part of an append."""
        return MessageMeaning(self._appends.segment(_writer(decoded.message)))

    # ---- replies -------------------------------------------------------------------------------------------------

    def _answer(self, decoded: DecodedMessage, _span: TimedSpan) -> MessageMeaning:
        """Handle a reply to a request."""
        message, failure = decoded.message, describing.error_text_of(decoded.message)
        request = self._requests.answered(message)
        # Writers' own requests are answered before they append, so what answers another refuses no append.
        own = request is None or request.sets_up or describing.request_id_of(message) is None
        answered = self._refused(failure, message) if failure and own else Answered([])
        if request is None:
            return MessageMeaning(answered.segment, answered.records, asked_ns=answered.asked_ns)
        return MessageMeaning(request.segment or answered.segment, answered.records, asked_ns=request.end_ns)

    def _refused(self, failure: str, message: Any) -> Answered:
        request_id = describing.request_id_of(message)
        if isinstance(message, (released.InvalidEventNumber, released.ConditionalCheckFailed)):
            return self._appends.refuse(failure, message.writer_id, message.event_number)
        if request_id is not None:
            return self._appends.refuse_request(failure, request_id)
        return self._appends.refuse_segment(failure, describing.segment_of(message))

    def _measured(self, decoded: DecodedMessage, span: TimedSpan) -> MessageMeaning:
        """Handle a reply with the length of a segment."""
        message = decoded.message
        assert isinstance(message, released.StreamSegmentInfo), "as the table says"
        self._appends.reaches(message.segment, message.write_offset)
        return self._answer(decoded, span)

    def _appended(self, decoded: DecodedMessage, _span: TimedSpan) -> MessageMeaning:
        message = decoded.message
        wrong, offset = "", None
        if isinstance(message, released.DataAppended):
            number, before = message.event_number, message.previous_event_number
            if message.current_segment_write_offset != UNKNOWN_OFFSET:
                offset = message.current_segment_write_offset
            if before >= number and before != -1:
                wrong = f"DataAppended of event number {number} after {before}, which is not below it"
        else:
            assert isinstance(message, draft.DataAppended), "as the table says"
            number = message.connection_offset_ack_level
        answered = self._appends.acknowledge(_writer(message), number, offset)
        return MessageMeaning(answered.segment, answered.records, NO_FIELDS, answered.asked_ns, wrong)

    def _cut(self, message: released.SegmentRead | draft.SegmentRead, span: TimedSpan) -> str:
        """Remember that a read has cut an event; report one that cannot be completed at once."""
        key, place = f"{self._server} {message.segment}", message.offset + len(message.data)
        self._cuts.pop((key, message.offset), None)
        cut = self._deliveries.cut(key, place)
        ends = message.end_of_segment if isinstance(message, released.SegmentRead) else message.flags.at_end
        if cut is not None and ends:
            return f"the segment ends {cut[1]} bytes into the event at offset {cut[0]}"
        if cut is not None and len(self._cuts) < MOST_CUTS:
            self._cuts[key, place] = _Cut(message.segment, span.end)
        return ""

    def _read(self, decoded: DecodedMessage, span: TimedSpan) -> MessageMeaning:
        """Handle bytes of a segment, and the events that they complete."""
        message = decoded.message
        assert isinstance(message, (released.SegmentRead, draft.SegmentRead)), "as the table says"
        request = self._requests.answered(message)
        other = self._requests.misplaced(message) if request is None and not self.late else None
        wrong = "" if other is None else f"SegmentRead from offset {message.offset}, {other} was asked for"
        segment = f"{self._server} {message.segment}"
        events = self._deliveries.read(segment, message.offset, message.data, late=self.late)
        wrong = wrong or self._cut(message, span)
        records = [
            SeenRecord(
                DELIVERED,
                message.segment,
                body,
                offset=offset,
                time_ns=span.end_ns,
                conversation=self._conversation,
            )
            for body, offset in zip(events.bodies, events.offsets, strict=True)
        ]
        fields = {"events": len(records) - events.raw, "raw": events.raw}
        return MessageMeaning("", records, fields, None if request is None else request.end_ns, wrong)


def _writer(message: Any) -> UUID:
    """Return the id of a message's writer, which the draft calls a connection."""
    writer: UUID = getattr(message, "writer_id", None) or message.connection_id
    return writer


def _number(
    message: released.AppendBlockEnd | released.ConditionalAppend | released.ConditionalBlockEnd | BlockData,
) -> int:
    """Return the number by which an append is acknowledged: of its last event, or in the draft the offset behind it."""
    if isinstance(message, BlockData):
        return message.offset + len(message.data)
    return message.last_event_number if isinstance(message, released.AppendBlockEnd) else message.event_number


_Mean = Callable[[Meanings, DecodedMessage, TimedSpan], MessageMeaning]
_TABLE: Final[dict[tuple[Sender, type], _Mean]] = {
    (Sender.CLIENT, released.SetupAppend): Meanings._set_up,
    (Sender.CLIENT, released.AppendBlock): Meanings._of_writer,
    (Sender.CLIENT, released.AppendBlockEnd): Meanings._append,
    (Sender.CLIENT, released.ConditionalAppend): Meanings._append,
    (Sender.CLIENT, released.ConditionalBlockEnd): Meanings._append,
    (Sender.CLIENT, draft.SetupAppend): Meanings._set_up,
    (Sender.CLIENT, draft.BeginAppendBlock): Meanings._of_writer,
    (Sender.CLIENT, BlockData): Meanings._append,
    (Sender.CLIENT, draft.EndAppendBlock): Meanings._of_writer,
    (Sender.SERVER, released.AppendSetup): Meanings._set_up,
    (Sender.SERVER, released.DataAppended): Meanings._appended,
    (Sender.SERVER, released.SegmentRead): Meanings._read,
    (Sender.SERVER, released.StreamSegmentInfo): Meanings._measured,
    (Sender.SERVER, draft.AppendSetup): Meanings._set_up,
    (Sender.SERVER, draft.DataAppended): Meanings._appended,
    (Sender.SERVER, draft.SegmentRead): Meanings._read,
}
"""Handlers of messages that are more than a plain request or reply."""
