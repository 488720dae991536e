"""Secrets in bodies of S2: records in protobuf and in S2S frames, and the response that issues an access token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from google.protobuf.descriptor import Descriptor

from penstock.capture.pcapng import Sender
from penstock.capture.redaction.compressed import compressed_edits
from penstock.capture.redaction.contents import Content, Gathered
from penstock.capture.redaction.flow import Flow
from penstock.capture.redaction.json_text import json_edits
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.protobuf import length_delimited, message_edits
from penstock.capture.redaction.requests import Fields, HttpBodies, RequestParts, value_of
from penstock.capture.redaction.text import Edit, WithheldEdit, stars
from penstock.capture.redaction.units import MOST, PLAIN, Blind, BodyFormat, Redact, coded, edits_or_stars
from penstock.wire.compression import Compression
from penstock_proto import s2_pb2
from penstock_s2.codec.s2s.limits import S2S_MAX_FRAME_LENGTH

__all__ = ["S2Bodies"]

_RECORDS: Final = {
    Sender.CLIENT: cast(Descriptor, s2_pb2.AppendInput.DESCRIPTOR),
    Sender.SERVER: cast(Descriptor, s2_pb2.ReadBatch.DESCRIPTOR),
}
"""A server's are also for acknowledgements: their fields are of the same kinds, without text."""
_HEADER: Final = cast(Descriptor, s2_pb2.Header.DESCRIPTOR)
_S2S: Final = b"s2s/proto"
_PROTOBUF: Final = frozenset({b"application/protobuf", b"application/x-protobuf", b"application/proto"})
_ISSUING: Final = re.compile(rb"/(?:v[0-9]+/)?access-tokens/?(?:\?.*)?", re.DOTALL)
"""Path at which S2 issues access tokens: the response to a POST holds one."""
_STARTS: Final = {0x00: b"\x0a", 0x20: b"\x28\xb5\x2f\xfd", 0x40: b"\x1f\x8b"}
"""Beginnings of the payloads of S2S frames, by the flags: with field 1, records or a position, or with the mark of the
compression."""
_HEAD: Final = 4
_RECONNECT: Final = 0x10


class S2Bodies(HttpBodies):
    """Bodies of S2."""

    def issues(self, request: RequestParts) -> bool:
        return request.method == b"POST" and _ISSUING.search(request.path) is not None

    def in_base64(self, fields: Fields) -> bool:
        return value_of(fields, b"s2-format") in (b"base64", b"json-binsafe")

    def content(self, flow: Flow, leaves: Leaves, request: RequestParts, kind: bytes, fields: Fields) -> Content | None:
        coding = value_of(fields, b"content-encoding")
        if kind in _PROTOBUF:
            issues = leaves.tokens and flow.sender is Sender.SERVER and request.known and self.issues(request)
            redact = _token_edits if issues else _records(flow, leaves)
            return coded(flow, coding, redact, leaves.leaf)
        if kind != _S2S or not leaves.any:
            return None
        if coding not in PLAIN:
            return Blind(flow)
        return _Frames(flow, leaves, base64=self.in_base64(request.fields))

    def formats(self, flow: Flow, leaves: Leaves) -> Sequence[BodyFormat]:
        return [BodyFormat(_is_frame, partial(_Frames, flow, leaves))]


def _records(flow: Flow, leaves: Leaves) -> Redact:
    return lambda data: message_edits(data, _RECORDS[flow.sender], leaves, _HEADER)


def _token_edits(data: bytes) -> list[Edit]:
    """Return the edits of S2's response to a request for an access token: field 1 is the token. Raises NotProtobuf."""
    edits: list[Edit] = []
    for number, start, end in length_delimited(data, 0, len(data)):
        if number == 1:
            edits.append(Edit(start, stars(end - start)))
    return edits


def _is_frame(start: bytes) -> bool:
    """Return whether these bytes begin with an S2S frame: a compressed payload, or one that begins with a field of a
    message."""
    if len(start) <= _HEAD or not 1 < int.from_bytes(start[:3], "big") <= S2S_MAX_FRAME_LENGTH:
        return False
    begins = _STARTS.get(start[3] & ~_RECONNECT)
    return begins is not None and start[_HEAD:].startswith(begins)


class _Frames(Gathered):
    """S2S frames (S2 fact sheet, 2.1)."""

    _LENGTH: Final = 3
    _TERMINAL: Final = 0x80

    def __init__(self, flow: Flow, leaves: Leaves, *, base64: bool = False) -> None:
        super().__init__(flow)
        self._message = _records(flow, leaves)
        self._plain = leaves.leaf
        self._json = partial(json_edits, leaves=leaves, base64=base64)

    def read(self) -> None:
        while len(self.unit) > self._LENGTH:
            length = int.from_bytes(self.unit[: self._LENGTH], "big")
            if not 0 < length <= S2S_MAX_FRAME_LENGTH:
                self.abandon()
                return
            if len(self.unit) < self._LENGTH + length:
                return
            head = self._LENGTH + 1
            edits = self._frame(self.unit[self._LENGTH], bytes(self.unit[head : head + length - 1]))
            self.done(self._LENGTH + length, [edit.shifted(head) for edit in edits])

    def _frame(self, flags: int, payload: bytes) -> list[Edit]:
        if flags & self._TERMINAL:
            return edits_or_stars(payload, lambda data: [edit.shifted(2) for edit in self._json(data[2:])])
        try:
            compression = Compression(flags >> 5 & 3)
        except ValueError:
            return [WithheldEdit.of(len(payload))]
        if compression is Compression.NONE:
            return edits_or_stars(payload, self._message)
        return compressed_edits(compression, payload, MOST, self._message, self._plain)
