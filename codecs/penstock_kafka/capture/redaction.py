"""Kafka of one side: messages are decoded, their secrets blanked, and encoded again with the same length.

Problem: a record set is compressed and covered by a checksum, so nothing in it can be blanked in place, and a response
does not tell what it answers. So both sides share the requests that wait for a response, and each batch that holds a
secret is packed again into as many bytes, with a new checksum; gzip and zstd can be padded, so batches of the other
compressions become zstd. What cannot be decoded or packed is withheld by itself: the records of one batch (its header
stays, with their number), or one message behind its correlation id. The connection goes on behind it.

With the default rules only SASL's messages are read, and nothing is held back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from penstock.capture.pcapng import Sender
from penstock.capture.redaction.compressed import packed_into
from penstock.capture.redaction.contents import Gathered, feed
from penstock.capture.redaction.flow import FOR_EVER, Flow, NotUnderstood, Parser, Redaction
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.text import Edit, WithheldEdit, changed, stars
from penstock.model.failures import LocalProtocolError, OperationFailed
from penstock.model.limits import MIB
from penstock.wire.compression import Compression, DecompressionError
from penstock_kafka.capture.reading import request_begins, response_begins
from penstock_kafka.codec import MAX_FRAME, KafkaMessage, KafkaRequest
from penstock_kafka.codec.apis import APIS
from penstock_kafka.codec.batches import BATCH_HEADER, compression_of, header_of, resealed, whole_batches
from penstock_kafka.codec.cluster_messages import SaslAuthenticateRequest
from penstock_kafka.codec.compression import KafkaCompression, decompress
from penstock_kafka.codec.conversation import (
    MAX_IN_FLIGHT,
    encode_request,
    encode_response,
    read_request,
    read_response,
)
from penstock_kafka.codec.record_messages import ProduceRequest
from penstock_kafka.codec.wire import KafkaFault, KafkaReader

__all__ = ["REDACTION"]

_LENGTH: Final = 4
_REQUEST_HEAD: Final = 12
"""Bytes of the length, API, version and correlation id of a request: they stay, whatever is withheld."""
_RESPONSE_HEAD: Final = 8
"""Bytes of the length and correlation id of a response."""
_AUTHENTICATE: Final = 36
_MOST: Final = 15 * MIB
"""The longest message that is waited for, and the most that the records of a batch may hold; others are withheld."""
_CODEC: Final = 0x07
"""Bits of a batch's attributes that tell its compression."""
_RECORDS: Final = "records"
"""Name of the fields that are record sets, in every message."""
_TOKENS: Final = {(SaslAuthenticateRequest, "auth_bytes")}


def _begins(_sender: Sender, first: bytes, configured: bool) -> bool:
    """A length below 64 MiB begins so; other protocols' messages may, too."""
    return configured and first <= b"\3"


def _joins(flow: Flow, leaves: Leaves, start: bytes) -> Parser | None:
    begins = request_begins if flow.sender is Sender.CLIENT else response_begins
    return _messages(flow, leaves) if flow.conversation.protocol == "kafka" and begins(start) else None


def _messages(flow: Flow, leaves: Leaves) -> Parser:
    if not leaves.any and (flow.sender is Sender.SERVER or not leaves.tokens):
        yield from flow.skip(FOR_EVER)
    requests: OrderedDict[int, KafkaRequest] = flow.memory.setdefault("kafka", OrderedDict())
    head = _REQUEST_HEAD if flow.sender is Sender.CLIENT else _RESPONSE_HEAD
    while True:
        yield from flow.need(head)
        start = flow.peek(head)
        size = int.from_bytes(start[:_LENGTH], "big") + _LENGTH
        if not head <= size <= MAX_FRAME + _LENGTH:
            raise NotUnderstood
        if flow.sender is Sender.CLIENT and int.from_bytes(start[4:6], "big") not in APIS:
            flow.at += _LENGTH  # it may be a token, as they follow the oldest SaslHandshake
            yield from flow.withhold_next(size - _LENGTH)
        elif not leaves.any and int.from_bytes(start[4:6], "big") != _AUTHENTICATE:
            yield from flow.skip(size)
        else:
            content = _Message(flow, leaves, start[_LENGTH:], requests)
            flow.at += head
            yield from feed(flow, size - head, content)
            content.end()


class _Message(Gathered):
    """One message behind its head. `head`: from behind the length on to behind the correlation id. `requests`: those
    that wait for a response, by correlation id, without their content."""

    def __init__(self, flow: Flow, leaves: Leaves, head: bytes, requests: OrderedDict[int, KafkaRequest]) -> None:
        super().__init__(flow)
        self._leaves = leaves
        self._head = head
        self._requests = requests

    def read(self) -> None:
        """Wait for the end; withhold a message that grows too long."""
        if len(self.unit) > _MOST:
            self.abandon()

    def finish(self) -> None:
        """Redact the message."""
        frame = self._head + bytes(self.unit)
        decode = self._request if self._flow.sender is Sender.CLIENT else self._response
        try:
            message, encode = decode(frame)
        except (KafkaFault, LookupError):
            self.abandon()
            return
        edits: list[Edit] = []
        blanked = _blanked(message, self._leaves, frame, len(self._head), edits)
        if blanked is not message or self._leaves.may_be_in(frame):
            # What the codec does not spell again, as unknown tagged fields, was not looked at.
            try:
                again = encode(message), encode(blanked)
            except LocalProtocolError:
                self.abandon()
                return
            if again[0] != frame or len(again[1]) != len(frame):
                self.abandon()
                return
            if blanked is not message:
                edits.insert(0, Edit(len(self._head), again[1][len(self._head) :]))
        self.done(len(self.unit), [edit.shifted(-len(self._head)) for edit in edits])

    def _request(self, frame: bytes) -> tuple[Any, Callable[[Any], bytes]]:
        request = read_request(frame)
        if not (isinstance(request.message, ProduceRequest) and request.message.acks == 0):
            self._requests[request.correlation_id] = replace(request, message=KafkaMessage())
            if len(self._requests) > MAX_IN_FLIGHT:
                self._requests.popitem(last=False)
        return request, lambda request: b"".join(encode_request(request))[_LENGTH:]

    def _response(self, frame: bytes) -> tuple[Any, Callable[[Any], bytes]]:
        """Decode a response. Raises KafkaFault, and LookupError if its request is not recorded."""
        request = self._requests.pop(int.from_bytes(frame[:4], "big", signed=True))
        encode = encode_response
        api, version, number = request.api, request.version, request.correlation_id
        return read_response(request, frame), lambda message: b"".join(encode(api, version, number, message))[_LENGTH:]


def _blanked(value: Any, leaves: Leaves, frame: bytes, at: int, edits: list[Edit]) -> Any:
    """Return a decoded value with its secrets blanked, the same object if it has none. Add to `edits` those that
    withhold records of the frame; `at`: where to look for these."""
    if isinstance(value, str):
        text = value.encode()
        return changed(text, found).decode() if (found := leaves.leaf(text, text=True)) else value
    if isinstance(value, bytes):
        return changed(value, found) if (found := leaves.leaf(value)) else value
    if isinstance(value, tuple):
        parts = tuple([_blanked(part, leaves, frame, at, edits) for part in value])
        return value if all(map(_is, parts, value)) else parts
    if not isinstance(value, KafkaMessage | KafkaRequest):
        return value
    blanked: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if name == _RECORDS and isinstance(field, bytes):
            place = frame.find(field, max([at, *(edit.start for edit in edits)]))
            found = list(_record_edits(field, leaves))
            edits += [edit.shifted(place) for edit in found if isinstance(edit, WithheldEdit)]
            part: Any = changed(field, found) if found else field
        elif (type(value), name) in _TOKENS:
            part = stars(len(field)) if leaves.tokens else field
        elif name == "api":
            continue
        else:
            part = _blanked(field, leaves, frame, at, edits)
        if part is not field:
            blanked[name] = part
    return replace(value, **blanked) if blanked else value


def _is(one: object, other: object) -> bool:
    return one is other


# ---- record sets -----------------------------------------------------------------------------------------------------


def _record_edits(data: bytes, leaves: Leaves) -> Iterator[Edit]:
    """Yield the edits of a record set. Batches that cannot be read, as a last one that is cut, are withheld."""
    end = 0
    try:
        for start, end in whole_batches(data):
            batch = data[start:end]
            blanked = _blanked_batch(batch, leaves)
            if blanked is None:
                size = len(batch) - BATCH_HEADER
                yield WithheldEdit(start + BATCH_HEADER, stars(size))
            elif blanked is not batch:
                yield Edit(start, blanked)
    except OperationFailed:
        pass
    if end < len(data):
        yield WithheldEdit(end, stars(len(data) - end))


def _blanked_batch(batch: bytes, leaves: Leaves) -> bytes | None:
    """Return a batch of the same length with its secrets blanked, itself if it has none, None if it must be withheld:
    it cannot be decompressed or read, its checksum is wrong, or it does not fit."""
    header, payload = header_of(batch), batch[BATCH_HEADER:]
    try:
        compression = KafkaCompression(compression_of(batch))
        content = decompress(compression, payload, _MOST)
        if not leaves.may_be_in(content):
            return batch
        edits = list(_payload_edits(content, header.records, leaves))
    except (ValueError, DecompressionError, KafkaFault):
        return None
    if not edits:
        return batch
    if resealed(batch, header) != batch:
        return None  # with a checksum that is right the fault would be gone
    content = changed(content, edits)
    if compression is KafkaCompression.NONE:
        return resealed(batch[:BATCH_HEADER] + content, header)
    for spelled in (KafkaCompression.ZSTD, KafkaCompression.GZIP):
        packed = packed_into(Compression[spelled.name], content, len(payload))
        if packed is not None:
            attributes = header.attributes & ~_CODEC | spelled
            return resealed(batch[:BATCH_HEADER] + packed, header._replace(attributes=attributes))
    return None


def _payload_edits(payload: bytes, count: int, leaves: Leaves) -> Iterator[Edit]:
    """Yield the edits of the records of a batch, decompressed. Raises KafkaFault."""
    reader = KafkaReader(payload)
    for _ in range(count):
        size = reader.varint()
        end = reader.at + size
        reader.take(1, "attributes")
        reader.varint(64)
        reader.varint()
        for what in ("key", "value"):
            data = _field(reader, what)
            yield from leaves.leaf(data, reader.at - len(data))
        for _ in range(reader.varint()):
            name = _field(reader, "name of a header")
            yield from leaves.leaf(name, reader.at - len(name))
            data = _field(reader, "header")
            if leaves.is_secret(name):
                yield Edit(reader.at - len(data), stars(len(data)))
            else:
                yield from leaves.leaf(data, reader.at - len(data))
        if reader.at != end:
            raise KafkaFault(f"a record of {size} bytes ends elsewhere", reader.at)
    if reader.at != len(payload):
        raise KafkaFault("bytes follow the last record", reader.at)


def _field(reader: KafkaReader, what: str) -> bytes:
    """Return a field of a record, b"" for null. Raises KafkaFault."""
    size = reader.varint()
    return reader.take(size, what) if size >= 0 else b""


REDACTION: Final = Redaction(_messages, _begins, _joins)
