"""Ids of Kafka that a server gives and its clients say again: members and generations of groups, producers and their
epochs, topics, and fetch sessions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from msgspec.structs import replace

from penstock.capture.assigned_ids import AssignedIds
from penstock.capture.dialogue.messages import Message
from penstock.model.failures import LocalProtocolError, OperationFailed
from penstock_kafka.codec import KafkaMessage
from penstock_kafka.codec.batches import header_of, resealed, whole_batches
from penstock_kafka.codec.conversation import encode_request, read_request
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.codec.wire import KafkaFault

__all__ = ["given_ids", "reassigned"]

_LENGTH: Final = 4
_EPOCHS: Final = {
    "generation_id": "member_id",
    "member_epoch": "member_id",
    "producer_epoch": "producer_id",
}
"""Fields that count from an id, with the field of that id in the same message."""
_IDS: Final = ("member_id", "producer_id", "session_id")


def given_ids(message: Message) -> dict[str, Hashable]:
    """Return the ids in a server's message, by a name; values are as `_live` looks them up."""
    event = message.event
    if not isinstance(event, KafkaMessage):
        return {}
    ids: dict[str, Hashable] = {name: (name, value) for name in _IDS if (value := getattr(event, name, None))}
    for name, of in _EPOCHS.items():
        if of in ids and (epoch := getattr(event, name, None)) is not None:
            ids[name] = (of, getattr(event, of), epoch)
    for topic in getattr(event, "topics", None) or ():
        topic_name, topic_id = getattr(topic, "name", None), getattr(topic, "topic_id", NO_UUID)
        if topic_name and topic_id != NO_UUID:
            ids[f"topic {topic_name}"] = ("topic_id", topic_id)
    return ids


def reassigned(ids: AssignedIds) -> Callable[[bytes], bytes]:
    """Return the function that puts a live server's ids into a request, whose length is in front of it."""

    def change(data: bytes) -> bytes:
        try:
            request = read_request(data[_LENGTH:])
            message = _live(request.message, ids)
            if message is request.message:
                return data
            return b"".join(encode_request(replace(request, message=message)))
        except (KafkaFault, LocalProtocolError):
            return data

    return change


def _live(value: Any, ids: AssignedIds) -> Any:
    """Return a decoded value with the ids of the live server, the same object if they are equal."""
    if isinstance(value, tuple):
        parts = tuple([_live(part, ids) for part in value])
        return value if all(one is other for one, other in zip(parts, value, strict=True)) else parts
    if not isinstance(value, KafkaMessage):
        return value
    changed: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if name in _IDS or name == "topic_id":
            live = ids.live((name, field))[1]
        elif name in _EPOCHS:
            of = _EPOCHS[name]
            live = ids.live((of, getattr(value, of), field))[2]
        elif name == "records" and isinstance(field, bytes):
            live = _batches(field, ids)
        else:
            live = _live(field, ids)
        if live is not field and live != field:
            changed[name] = live
    return replace(value, **changed) if changed else value


def _batches(data: bytes, ids: AssignedIds) -> bytes:
    """Return a record set whose batches have the live server's producers; one that cannot be read as it is."""
    out: list[bytes] = []
    end = 0
    try:
        for start, end in whole_batches(data):
            batch, header = data[start:end], header_of(data, start)
            _, producer_id = ids.live(("producer_id", header.producer_id))
            _, _, epoch = ids.live(("producer_id", header.producer_id, header.producer_epoch))
            if (producer_id, epoch) != (header.producer_id, header.producer_epoch):
                batch = resealed(batch, header._replace(producer_id=producer_id, producer_epoch=epoch))
            out.append(batch)
    except OperationFailed:
        return data
    return b"".join([*out, data[end:]])
