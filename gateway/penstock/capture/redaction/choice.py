"""Choose how to redact a body, by the head in front of it."""

from __future__ import annotations

from functools import cache
from typing import Final

from google.protobuf.descriptor import Descriptor

from penstock.capture.pcapng import Sender
from penstock.capture.plugin import plugins
from penstock.capture.redaction.contents import Content
from penstock.capture.redaction.event_text import event_edits
from penstock.capture.redaction.flow import Flow
from penstock.capture.redaction.json_text import json_edits
from penstock.capture.redaction.protobuf import has_tokens, message_edits
from penstock.capture.redaction.requests import Fields, HttpBodies, RequestParts, value_of
from penstock.capture.redaction.secrets import Secrets
from penstock.capture.redaction.text import Edit
from penstock.capture.redaction.units import (
    CODINGS,
    PLAIN,
    Blind,
    EventBody,
    GrpcMessages,
    Redact,
    Sniffed,
    UnknownBody,
    coded,
)
from penstock.wire.compression import Compression

__all__ = ["ContentChooser"]

_EVENTS: Final = b"text/event-stream"
_GRPC: Final = b"application/grpc"


class ContentChooser:
    """Chooser of contents for one Redactor. Its methods return None for a body that cannot hold a secret."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._leaves = secrets.leaves

    def of_unknown(self, flow: Flow, *, begun: bool = False) -> Content | None:
        """Return the content of a body whose head was not recorded, or refers to bytes that were not. `begun`: the body
        is recorded from its first byte."""
        plugin = plugins().get(flow.conversation.protocol)
        if self._secrets.tokens and plugin is not None and flow.sender in plugin.hides:
            return Blind(flow)
        json = self._json(False)
        if self._leaves.any:
            formats = [body_format for bodies in http_bodies() for body_format in bodies.formats(flow, self._leaves)]
            return UnknownBody(flow, json, self._event, formats, begun=begun)
        if self._secrets.tokens and flow.sender is Sender.SERVER:
            return Sniffed(flow, json, self._secrets.patterns)
        return None

    def of_body(self, flow: Flow, request: RequestParts, fields: Fields) -> Content | None:
        """Return the content of the body behind a head with these headers, that of a request or a response, or
        None."""
        kind = value_of(fields, b"content-type").partition(b";")[0].strip()
        if kind.startswith(_GRPC):
            return self._grpc(flow, request, fields)
        issues = self._secrets.tokens and flow.sender is Sender.SERVER and _may_issue(request)
        if not self._leaves.any and not issues:
            return None
        if b"," in kind:  # the header is repeated
            return Blind(flow)
        for bodies in http_bodies():
            content = bodies.content(flow, self._leaves, request, kind, fields)
            if content is not None:
                return content
        json = self._json(any(bodies.in_base64(request.fields) for bodies in http_bodies()))
        coding = value_of(fields, b"content-encoding")
        if kind == _EVENTS:
            if not self._leaves.any:
                return None
            return EventBody(flow, json) if coding in PLAIN else Blind(flow)
        if b"json" in kind or coding not in PLAIN:
            return coded(flow, coding, json, self._leaves.leaf)
        return Sniffed(flow, json, self._secrets.patterns)

    def _json(self, base64: bool) -> Redact:
        return lambda data: json_edits(data, self._leaves, base64=base64)

    def _event(self, data: bytes) -> list[Edit]:
        return event_edits(data, self._leaves, self._leaves.leaf)

    def _grpc(self, flow: Flow, request: RequestParts, fields: Fields) -> Content | None:
        descriptor = _call(request.path, request=flow.sender is Sender.CLIENT) if request.known else None
        tokens = self._secrets.tokens and (descriptor is None or has_tokens(descriptor))
        if not self._leaves.any and not tokens:
            return None
        coding = value_of(fields, b"grpc-encoding")
        compression = Compression.NONE if coding in PLAIN else CODINGS.get(coding)
        if descriptor is not None:
            return GrpcMessages(
                flow, lambda data: message_edits(data, descriptor, self._leaves), self._leaves.leaf, compression
            )
        if request.known:  # a call of no known protocol
            return GrpcMessages(flow, self._leaves.leaf, self._leaves.leaf, compression) if self._leaves.any else None
        return GrpcMessages(flow, _unknown, _unknown, compression)


@cache
def http_bodies() -> tuple[HttpBodies, ...]:
    """Return what the protocols over HTTP know of their bodies."""
    return tuple(plugin.bodies() for plugin in plugins().values() if plugin.bodies is not None)


def _call(path: bytes, *, request: bool) -> Descriptor | None:
    descriptors = (bodies.call(path, request=request) for bodies in http_bodies())
    return next((descriptor for descriptor in descriptors if descriptor is not None), None)


def _may_issue(request: RequestParts) -> bool:
    """Return whether the response may hold a token."""
    return not request.known or any(bodies.issues(request) for bodies in http_bodies())


def _unknown(_data: bytes) -> list[Edit]:
    raise ValueError
