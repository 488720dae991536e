"""Choose how to redact a body, by the head in front of it."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from google.protobuf.descriptor import Descriptor

from penstock_analysis.capture import Sender
from penstock_analysis.redaction.compressed import compressed_edits
from penstock_analysis.redaction.contents import Content
from penstock_analysis.redaction.exchanges import Exchange
from penstock_analysis.redaction.flow import Flow
from penstock_analysis.redaction.heads import Fields, value_of
from penstock_analysis.redaction.json_text import json_edits
from penstock_analysis.redaction.leaves import Leaves
from penstock_analysis.redaction.protobuf import (
    APPEND_INPUT,
    READ_BATCH,
    call,
    has_tokens,
    message_edits,
    token_edits,
)
from penstock_analysis.redaction.secrets import Secrets
from penstock_analysis.redaction.text import Edit
from penstock_analysis.redaction.units import (
    MOST,
    Blind,
    Events,
    GrpcMessages,
    Redact,
    S2sFrames,
    Sniffed,
    Unheard,
    Whole,
)
from penstock_codecs.compression import Compression

__all__ = ["Choice"]

_S2S: Final = b"s2s/proto"
_EVENTS: Final = b"text/event-stream"
_PROTOBUF: Final = frozenset({b"application/protobuf", b"application/x-protobuf", b"application/proto"})
_GRPC: Final = b"application/grpc"
_ISSUING: Final = re.compile(rb"/(?:v[0-9]+/)?access-tokens/?(?:\?.*)?", re.DOTALL)
"""Path at which S2 issues access tokens: the response to a POST holds one."""
_CODINGS: Final = {b"zstd": Compression.ZSTD, b"gzip": Compression.GZIP, b"x-gzip": Compression.GZIP}
_PLAIN: Final = frozenset({b"", b"identity"})


class Choice:
    """Chooser of contents for one Redactor. Its methods return None for a body that cannot hold a secret."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._leaves = Leaves(secrets)

    def of_request(self, flow: Flow, exchange: Exchange, fields: Fields) -> Content | None:
        """Return the content of a request's body, or None."""
        return self._chosen(flow, exchange, fields, request=True)

    def of_response(self, flow: Flow, exchange: Exchange, fields: Fields) -> Content | None:
        """Return the content of a response's body, or None."""
        return self._chosen(flow, exchange, fields, request=False)

    def of_unknown(self, flow: Flow, *, begun: bool = False) -> Content | None:
        """Return the content of a body whose head was not recorded, or refers to bytes that were not. `begun`: the body
        is recorded from its first byte."""
        request = flow.sender is Sender.CLIENT
        if self._secrets.tokens and not request and flow.conversation.protocol == "controller":
            return Blind(flow)
        json = self._json(False)
        if self._leaves.any:
            message = self._message(APPEND_INPUT if request else READ_BATCH)
            frames, events = partial(S2sFrames, flow, message, json, self._leaves.leaf), partial(Events, flow, json)
            return Unheard(flow, frames, events, partial(Whole, flow, json) if begun else None)
        if self._secrets.tokens and not request:
            return Sniffed(flow, json, self._secrets.patterns)
        return None

    def _chosen(self, flow: Flow, exchange: Exchange, fields: Fields, *, request: bool) -> Content | None:
        kind = value_of(fields, b"content-type").partition(b";")[0].strip()
        if kind.startswith(_GRPC):
            return self._grpc(flow, exchange, fields, request)
        issues = self._secrets.tokens and not request and _may_issue(exchange)
        if not self._leaves.any and not issues:
            return None
        if b"," in kind:  # the header is repeated
            return Blind(flow)
        if kind in _PROTOBUF:
            if issues and exchange.known:
                return self._whole(flow, fields, lambda data: token_edits(data, self._leaves))
            return self._whole(flow, fields, self._message(APPEND_INPUT if request else READ_BATCH))
        json = self._json(exchange.base64)
        coded = value_of(fields, b"content-encoding") not in _PLAIN
        if kind in (_S2S, _EVENTS):
            if not self._leaves.any:
                return None
            if coded:
                return Blind(flow)
            if kind == _EVENTS:
                return Events(flow, json)
            message = self._message(APPEND_INPUT if request else READ_BATCH)
            return S2sFrames(flow, message, json, self._leaves.leaf)
        if b"json" in kind or coded:
            return self._whole(flow, fields, json)
        return Sniffed(flow, json, self._secrets.patterns)

    def _whole(self, flow: Flow, fields: Fields, redact: Redact) -> Content:
        coding = value_of(fields, b"content-encoding")
        if coding in _PLAIN:
            return Whole(flow, redact)
        compression = _CODINGS.get(coding)
        if compression is None:
            return Blind(flow)
        return Whole(
            flow, lambda data: compressed_edits(compression, data, MOST, redact, self._leaves.leaf) if data else []
        )

    def _json(self, base64: bool) -> Redact:
        return lambda data: json_edits(data, self._leaves, base64=base64)

    def _message(self, descriptor: Descriptor) -> Redact:
        return lambda data: message_edits(data, descriptor, self._leaves)

    def _grpc(self, flow: Flow, exchange: Exchange, fields: Fields, request: bool) -> Content | None:
        descriptor = call(exchange.path, request=request) if exchange.known else None
        tokens = self._secrets.tokens and (descriptor is None or has_tokens(descriptor))
        if not self._leaves.any and not tokens:
            return None
        coding = value_of(fields, b"grpc-encoding")
        compression = Compression.NONE if coding in _PLAIN else _CODINGS.get(coding)
        if descriptor is not None:
            return GrpcMessages(flow, self._message(descriptor), self._leaves.leaf, compression)
        if exchange.known:  # not a call of the controller's
            return GrpcMessages(flow, self._leaves.leaf, self._leaves.leaf, compression) if self._leaves.any else None
        return GrpcMessages(flow, _unknown, _unknown, compression)


def _may_issue(exchange: Exchange) -> bool:
    """Return whether the response may hold an access token."""
    return not exchange.known or (exchange.method == b"POST" and _ISSUING.search(exchange.path) is not None)


def _unknown(_data: bytes) -> list[Edit]:
    raise ValueError
