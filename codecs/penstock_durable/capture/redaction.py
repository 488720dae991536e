"""Secrets in bodies of Durable Streams: records that bridges keep in streams of bytes, and events in base64."""

from __future__ import annotations

from typing import Final, cast

from google.protobuf.descriptor import Descriptor

from penstock.capture.redaction.contents import Content
from penstock.capture.redaction.event_text import event_edits
from penstock.capture.redaction.flow import Flow
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.protobuf import NotProtobuf, message_edits
from penstock.capture.redaction.requests import Fields, HttpBodies, RequestParts, value_of
from penstock.capture.redaction.text import Edit
from penstock.capture.redaction.units import PLAIN, Blind, EventBody, coded
from penstock_durable.codec import RECORDS_TYPE
from penstock_proto import s2_pb2

__all__ = ["DurableBodies"]

_RECORDS: Final = cast(Descriptor, s2_pb2.AppendInput.DESCRIPTOR)
_HEADER: Final = cast(Descriptor, s2_pb2.Header.DESCRIPTOR)


class DurableBodies(HttpBodies):
    """Bodies of Durable Streams."""

    def content(
        self, flow: Flow, leaves: Leaves, _request: RequestParts, kind: bytes, fields: Fields
    ) -> Content | None:
        coding = value_of(fields, b"content-encoding")
        if kind == RECORDS_TYPE.encode():
            return coded(flow, coding, lambda data: message_edits(data, _RECORDS, leaves, _HEADER), leaves.leaf)
        if kind == b"text/event-stream" and value_of(fields, b"stream-sse-data-encoding") == b"base64":
            if coding not in PLAIN:
                return Blind(flow)
            return EventBody(flow, lambda event: event_edits(event, leaves, lambda data: _in_bytes(data, leaves)))
        return None


def _in_bytes(data: bytes, leaves: Leaves) -> list[Edit]:
    """Return the edits of bytes that may be records of a bridge: events do not tell the stream's content type."""
    edits = leaves.leaf(data)
    try:
        return edits + message_edits(data, _RECORDS, leaves, _HEADER)
    except NotProtobuf:
        return edits
