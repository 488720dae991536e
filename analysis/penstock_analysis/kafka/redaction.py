"""Kafka of one side: messages pass, but for what SASL says.

With rules for contents nothing is parsed, so that Kafka's bytes are searched as they stand, or withheld: records are
compressed, and a checksum covers them, so no secret can be blanked in place.
"""

from __future__ import annotations

from typing import Final

from penstock_analysis.capture import Sender
from penstock_analysis.kafka.reading import request_begins, response_begins
from penstock_analysis.redaction.flow import FOR_EVER, Flow, NotUnderstood, Parser, Redaction
from penstock_analysis.redaction.leaves import Leaves
from penstock_codecs.kafka import MAX_FRAME
from penstock_codecs.kafka.apis import APIS
from penstock_codecs.kafka.wire import KafkaFault, KafkaReader

__all__ = ["REDACTION"]

_HEAD: Final = 8
"""Bytes of the length, API and version of a request."""
_AUTHENTICATE: Final = 36


def _begins(_sender: Sender, first: bytes, configured: bool) -> bool:
    """A length below 64 MiB begins so; other protocols' messages may, too."""
    return configured and first <= b"\3"


def _joins(flow: Flow, leaves: Leaves, start: bytes) -> Parser | None:
    begins = request_begins if flow.sender is Sender.CLIENT else response_begins
    return _messages(flow, leaves) if flow.conversation.protocol == "kafka" and begins(start) else None


def _messages(flow: Flow, leaves: Leaves) -> Parser:
    if leaves.any:
        raise NotUnderstood
    if flow.sender is Sender.SERVER or not leaves.tokens:
        yield from flow.skip(FOR_EVER)
    while True:
        yield from flow.need(_HEAD)
        head = flow.peek(_HEAD)
        size, key = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:6], "big")
        if not _HEAD <= size <= MAX_FRAME or key not in APIS:
            raise NotUnderstood
        if key == _AUTHENTICATE:
            yield from flow.need(4 + size)
            start, end = _secret_in(flow.peek(4 + size)[4:])
            flow.blank(flow.at + 4 + start, flow.at + 4 + end)
        yield from flow.skip(4 + size)


def _secret_in(frame: bytes) -> tuple[int, int]:
    """Return where the bytes of SASL in a SaslAuthenticate request begin and end."""
    reader, api = KafkaReader(frame, 8), APIS[_AUTHENTICATE]
    flexible = api.is_flexible(int.from_bytes(frame[2:4], "big"))
    try:
        reader.block(compact=False, small=True, what="client id")
        if flexible:
            reader.skip_tags()
        secret = reader.block(compact=flexible, small=False, what="SASL")
    except KafkaFault:
        raise NotUnderstood from None
    return reader.at - len(secret or b""), reader.at


REDACTION: Final = Redaction(_messages, _begins, _joins)
