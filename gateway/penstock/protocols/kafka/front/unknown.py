"""Fields that no client of Kafka knows: tagged fields of flexible versions (KIP-482)."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final

import msgspec

from penstock.routing.faults.unknown import AddField
from penstock_codecs.kafka import KafkaMessage, KafkaRequest
from penstock_codecs.kafka.conversation import encode_response
from penstock_codecs.kafka.schema import tagged
from penstock_codecs.kafka.wire import uvarint

__all__ = ["unknown_tags"]

_TAG: Final = 3000
_DATA: Final = b"new"
_IN_HEADER: Final = b"".join([uvarint(1), uvarint(_TAG), uvarint(len(_DATA)), _DATA])


def unknown_tags(request: KafkaRequest, message: KafkaMessage) -> AddField | None:
    """Return how the response to a request gets unknown fields: in its header, where that has a place for them, and in
    its message. None for a version that has none."""
    api, version = request.api, request.version
    if not api.is_flexible(version):
        return None

    def add(_: bytes) -> bytes:
        told = {name: getattr(message, name) for name in message.__struct_fields__}
        more = _extended(type(message))(**told, penstock_unknown=_DATA)
        return b"".join(encode_response(api, version, request.correlation_id, more, tags=_IN_HEADER))

    return add


@cache
def _extended(kind: type[KafkaMessage]) -> Any:
    """Return the class of such messages with one more field."""
    field = ("penstock_unknown", Annotated[bytes, tagged(_TAG, 0)], b"")
    return msgspec.defstruct(kind.__name__, [field], bases=(kind,), kw_only=True)
