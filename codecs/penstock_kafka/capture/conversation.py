"""One Kafka conversation: requests, the responses to them in their order, and the records of both.

The exchange of a message is the number of its request, from 1. A response is paired by its correlation id, so pairing
goes on behind a gap. A stream is named by its topic, with the partition behind a slash if that is not 0. Requests that
name a topic by its id are understood once an answer of any conversation has told its name; else the id stands for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec

from penstock.capture.dialogue.messages import APPENDED, DELIVERED, Message, Problem, SeenRecord
from penstock.capture.dialogue.places import TimedSpan
from penstock.capture.dialogue.sides import DialogueSide
from penstock.capture.dialogue.two_sided import TwoSided
from penstock.capture.dialogue.waiting import MOST_WAITING, PendingBatches
from penstock.capture.pcapng import Conversation, Sender
from penstock.model.failures import OperationFailed
from penstock_kafka.capture.reading import (
    GUIDE,
    request_begins,
    request_reader,
    response_begins,
    response_reader,
)
from penstock_kafka.codec import KafkaError, KafkaMessage, KafkaRequest
from penstock_kafka.codec.batches import read_batch, whole_batches
from penstock_kafka.codec.carrying import to_headers
from penstock_kafka.codec.cluster_messages import MetadataResponse
from penstock_kafka.codec.conversation import read_response
from penstock_kafka.codec.record_messages import (
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
    ProduceRequest,
    ProduceResponse,
)
from penstock_kafka.codec.topic_messages import CreateTopicsResponse
from penstock_kafka.codec.wire import KafkaFault

__all__ = ["KafkaDialogue"]

_NO_ACKS = 0


class _Asked(msgspec.Struct):
    """A request that waits for its response. `tickets`: of the records that it appends, by stream."""

    request: KafkaRequest
    number: int
    end_ns: int
    stream: str
    tickets: dict[str, int] = msgspec.field(default_factory=dict)


class KafkaDialogue(TwoSided):
    """Dialogue of one Kafka conversation. `names`: of topics by id, which all conversations of a capture share."""

    layer = "kafka"

    def __init__(self, conversation: Conversation, names: dict[bytes, str]) -> None:
        super().__init__(
            conversation,
            DialogueSide(conversation, Sender.CLIENT, request_reader, request_begins),
            DialogueSide(conversation, Sender.SERVER, response_reader, response_begins),
        )
        self._asked: deque[_Asked] = deque(maxlen=MOST_WAITING)
        self._requests = 0
        self._names = names
        self._waiting = PendingBatches()

    def _unanswered(self) -> list[SeenRecord]:
        return self._waiting.rest()

    def _understood(self, sender: Sender, event: Any, span: TimedSpan) -> Iterator[Message | Problem]:
        if sender is Sender.CLIENT:
            yield self._request(event, span)
        else:
            yield from self._response(event, span)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _request(self, request: KafkaRequest, span: TimedSpan) -> Message:
        self._requests += 1
        message = request.message
        pending = _Asked(request, self._requests, span.end_ns, self._stream_of(message))
        records: list[SeenRecord] = []
        carried: list[SeenRecord] = []
        answered = not (isinstance(message, ProduceRequest) and message.acks == _NO_ACKS)
        if isinstance(message, ProduceRequest):
            for stream, data in self._produced(message):
                appended = self._records(APPENDED, stream, data, span)
                carried += appended
                if answered:
                    pending.tickets[stream], given_up = self._waiting.add(appended)
                    records += given_up
                else:
                    records += [_unacknowledged(record) for record in appended]
        if answered:
            self._asked.append(pending)
        fields = {"version": request.version, "correlation_id": request.correlation_id, "client_id": request.client_id}
        return self._message(
            Sender.CLIENT,
            span,
            request.api.name,
            exchange=self._requests,
            stream=pending.stream,
            fields={**fields, **_plain(message)},
            records=records,
            event=request,
            carried=carried,
        )

    # ---- responses ---------------------------------------------------------------------------------------------------

    def _response(self, frame: bytes, span: TimedSpan) -> Iterator[Message | Problem]:
        number = int.from_bytes(frame[:4], "big", signed=True)
        pending = self._take(number)
        if pending is None:
            fields = {"correlation_id": number, "size": len(frame)}
            yield self._message(Sender.SERVER, span, "response", fields=fields, event=frame)
            return
        request = pending.request
        try:
            message = read_response(request, frame)
        except KafkaFault as fault:
            rule = f"a response {request.api.name} version {request.version}: {fault}"
            side, at = self._sides[Sender.SERVER], span.offset + 4 + fault.at
            yield side.problem(at, rule, GUIDE, fatal=False, exchange=pending.number)
            return
        records: list[SeenRecord] = []
        if isinstance(message, ProduceResponse):
            records = list(self._acknowledged(pending, message))
        elif isinstance(message, FetchResponse):
            for topic in message.topics:
                for partition in topic.partitions:
                    stream = self._stream(topic.topic, topic.topic_id, partition.partition_index)
                    wanted = _wanted(request.message, topic, partition.partition_index)
                    delivered = self._records(DELIVERED, stream, partition.records or b"", span)
                    records += [record for record in delivered if (record.seq_num or 0) >= wanted]
        elif isinstance(message, MetadataResponse | CreateTopicsResponse):
            self._names.update({one.topic_id: one.name for one in message.topics if one.name is not None})
        yield self._message(
            Sender.SERVER,
            span,
            request.api.name,
            exchange=pending.number,
            stream=pending.stream,
            fields={"correlation_id": number, **_plain(message)},
            records=records,
            failure=_failure(message),
            event=message,
            answers=span.end_ns - pending.end_ns,
        )

    def _take(self, correlation_id: int) -> _Asked | None:
        """Remove the request with this id, and older ones, whose responses are lost."""
        if all(pending_request.request.correlation_id != correlation_id for pending_request in self._asked):
            return None
        while (pending := self._asked.popleft()).request.correlation_id != correlation_id:
            pass
        return pending

    def _acknowledged(self, pending: _Asked, response: ProduceResponse) -> Iterator[SeenRecord]:
        for topic in response.topics:
            for partition in topic.partitions:
                ticket = pending.tickets.get(self._stream(topic.name, topic.topic_id, partition.index), 0)
                if partition.error_code:
                    reason = f"{_error_name(partition.error_code)}: {partition.error_message or ''}"
                    yield from self._waiting.refuse(ticket, reason)
                    continue
                for index, record in enumerate(self._waiting.take(ticket)):
                    record.seq_num = partition.base_offset + index if partition.base_offset >= 0 else None
                    yield record

    # ---- topics ------------------------------------------------------------------------------------------------------

    def _stream(self, topic: str, topic_id: bytes, partition: int) -> str:
        topic = topic or self._names.get(topic_id) or str(UUID(bytes=topic_id))
        return topic if not partition else f"{topic}/{partition}"

    def _produced(self, message: ProduceRequest) -> Iterator[tuple[str, bytes]]:
        for topic in message.topics:
            for partition in topic.partitions:
                yield self._stream(topic.name, topic.topic_id, partition.index), partition.records or b""

    def _stream_of(self, message: KafkaMessage) -> str:
        """Return the stream that a request is about, if it is about one only."""
        if isinstance(message, ProduceRequest):
            names = [name for name, _ in self._produced(message)]
        elif isinstance(message, FetchRequest):
            names = [
                self._stream(topic.topic, topic.topic_id, each.partition)
                for topic in message.topics
                for each in topic.partitions
            ]
        else:
            return ""
        return names[0] if len(names) == 1 else ""

    # ---- records -----------------------------------------------------------------------------------------------------

    def _records(self, action: str, stream: str, data: bytes, span: TimedSpan) -> list[SeenRecord]:
        """Return the records of batches, without control records; none of batches that cannot be read, nor behind them
        what has its offsets by its place."""
        records: list[SeenRecord] = []
        try:
            for start, end in whole_batches(data):
                try:
                    batch = read_batch(data[start:end], start)
                except OperationFailed:
                    if action == APPENDED:
                        break  # the server's answer tells why
                    continue
                if batch.control:
                    continue
                for index, value in enumerate(batch.values):
                    records.append(
                        SeenRecord(
                            action,
                            stream,
                            value or b"",
                            to_headers(index, batch.keys[index], value, batch.headers.get(index, ())),
                            seq_num=batch.offsets[index] if action == DELIVERED else None,
                            timestamp=batch.timestamps[index],
                            time_ns=span.end_ns,
                            conversation=self._conversation,
                        )
                    )
        except OperationFailed:
            return records
        return records


def _unacknowledged(record: SeenRecord) -> SeenRecord:
    record.acknowledged = False
    return record


def _wanted(message: KafkaMessage, topic: FetchTopicResult, partition: int) -> int:
    """Return the offset from which a Fetch request wanted a partition: a batch may begin before it."""
    assert isinstance(message, FetchRequest)
    for fetch_topic in message.topics:
        for wanted in fetch_topic.partitions:
            if (fetch_topic.topic, fetch_topic.topic_id, wanted.partition) == (topic.topic, topic.topic_id, partition):
                return wanted.fetch_offset
    return 0


def _plain(value: Any) -> Any:
    """Return a message as JSON values; bytes only as their number."""
    if isinstance(value, KafkaMessage):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(element) for element in value]
    return value


def _failure(message: Any) -> str:
    """Return the first error of a response, `CODE: message`; "" for none."""
    if isinstance(message, KafkaMessage):
        if code := getattr(message, "error_code", 0):
            return f"{_error_name(code)}: {getattr(message, 'error_message', None) or ''}"
        parts = tuple([getattr(message, name) for name in message.__struct_fields__])
    elif isinstance(message, tuple):
        parts = message
    else:
        return ""
    return next((failure for part in parts if (failure := _failure(part))), "")


def _error_name(code: int) -> str:
    try:
        return KafkaError(code).name
    except ValueError:
        return f"error {code}"
