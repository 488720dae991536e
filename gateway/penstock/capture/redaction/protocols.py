"""Choose the parser of a side, by the configured protocol and by its first bytes."""

from __future__ import annotations

from typing import Final

from penstock.capture.pcapng import Sender
from penstock.capture.plugin import plugins
from penstock.capture.redaction import http1
from penstock.capture.redaction.choice import ContentChooser
from penstock.capture.redaction.contents import Content
from penstock.capture.redaction.flow import Flow, NotUnderstood, Parser
from penstock.capture.redaction.http2 import Http2Side
from penstock.capture.redaction.requests import OpenRequests
from penstock.capture.redaction.secrets import Secrets
from penstock.capture.redaction.units import Blind
from penstock.capture.redaction.unknown import guarded, is_hidden, redaction_of
from penstock.wire.http.observer.frames import plausible
from penstock.wire.http.sniff import PREFACE

__all__ = ["parser_of"]

_ENOUGH: Final = 64 * 1024
"""Bytes that are inspected to recognize a protocol."""
_STATUS: Final = b"HTTP/1."
_FRAME_HEAD: Final = 9


class _Openings:
    """Ways in which a side may begin."""

    def __init__(self, flow: Flow, secrets: Secrets, chooser: ContentChooser, pending: OpenRequests) -> None:
        self._flow = flow
        self._secrets = secrets
        self._chooser = chooser
        self._pending = pending

    def begin(self) -> Parser:
        """Parse from the connection's first byte, which tells most protocols from HTTP: the protocol spoken need not be
        the configured one."""
        yield from self._flow.need(1)
        first, protocol = self._flow.peek(1), self._flow.conversation.protocol
        for name in sorted(plugins(), key=lambda name: name != protocol):
            redaction = redaction_of(name)
            if redaction is not None and redaction.begins(self._flow.sender, first, name == protocol):
                yield from redaction.parse(self._flow, self._secrets.leaves)
                return
        yield from self._http()

    def _http(self) -> Parser:
        flow = self._flow
        start = PREFACE if flow.sender is Sender.CLIENT else _STATUS
        first = b""
        while len(first) < len(start) and start.startswith(first):
            yield from flow.need(len(first) + 1)
            first = flow.peek(len(start))
        if flow.sender is Sender.CLIENT:
            flow.at += len(PREFACE) if first == PREFACE else 0
            yield from self._http2() if first == PREFACE else self._http1()
        elif first == _STATUS:
            yield from self._http1()
        else:
            yield from flow.need(_FRAME_HEAD)
            head = flow.peek(_FRAME_HEAD)
            if head[3:9] not in (b"\x04\0\0\0\0\0", b"\x04\x01\0\0\0\0"):
                raise NotUnderstood
            yield from self._http2()

    def _http1(self) -> Parser:
        read = http1.requests if self._flow.sender is Sender.CLIENT else http1.responses
        return read(self._flow, self._secrets, self._chooser, self._pending)

    def _http2(self) -> Parser:
        return Http2Side(self._flow, self._secrets, self._chooser, self._pending).parse()

    def join(self) -> Parser:
        """Parse from the middle of a connection: start at the first chunk that begins like a known protocol.

        Bytes before it are blanked if a secret in them could go unnoticed.
        """
        flow = self._flow
        self._pending.certain = False
        content: Content = Blind(flow)
        if not is_hidden(flow, self._secrets):
            content = guarded(flow, self._secrets, amid=True)
        while True:
            yield from flow.need(1)
            parser = self._joined(flow.peek(_ENOUGH))
            if parser is not None:
                content.end()
                yield from parser
            while flow.available:
                offset = flow.at
                content.take(flow.next_view(flow.available), offset)

    def _joined(self, start: bytes) -> Parser | None:
        redaction = redaction_of(self._flow.conversation.protocol)
        if redaction is not None:
            return redaction.joins(self._flow, self._secrets.leaves, start)
        line = start.partition(b"\n")[0].rstrip(b"\r")
        known = http1.REQUEST_LINE if self._flow.sender is Sender.CLIENT else http1.STATUS_LINE
        if b"HTTP/1." in line and known.fullmatch(line):
            return self._http1()
        return self._http2() if plausible(start, whole=True) else None


def parser_of(flow: Flow, secrets: Secrets, chooser: ContentChooser, pending: OpenRequests, *, mid: bool) -> Parser:
    """Return the parser of one side. `mid`: its first bytes were not recorded."""
    openings = _Openings(flow, secrets, chooser, pending)
    return openings.join() if mid else openings.begin()
