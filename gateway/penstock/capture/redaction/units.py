"""Contents that are read unit by unit: whole bodies, events of an event stream, gRPC messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from penstock.capture.redaction.compressed import compressed_edits
from penstock.capture.redaction.contents import Content, Gathered
from penstock.capture.redaction.flow import Flow
from penstock.capture.redaction.text import Buffer, Edit, Patterns, Search, WithheldEdit
from penstock.model.limits import MIB
from penstock.wire.compression import Compression

__all__ = [
    "CODINGS",
    "MOST",
    "PLAIN",
    "Blind",
    "BodyFormat",
    "EventBody",
    "GrpcMessages",
    "Redact",
    "Sniffed",
    "UnknownBody",
    "Whole",
    "coded",
    "edits_or_stars",
]

MOST: Final = 4 * MIB
"""Longest unit that is waited for, and the most that a compressed one may hold. Longer ones are blanked."""

CODINGS: Final = {b"zstd": Compression.ZSTD, b"gzip": Compression.GZIP, b"x-gzip": Compression.GZIP}
PLAIN: Final = frozenset({b"", b"identity"})

Redact = Callable[[bytes], list[Edit]]
"""Function that returns the edits of a unit. Raises ValueError for one it cannot parse, which is then withheld."""


def edits_or_stars(data: bytes, redact: Redact) -> list[Edit]:
    """Return the edits of a unit; all of it is withheld if it cannot be parsed."""
    try:
        return redact(data)
    except ValueError:
        return [WithheldEdit.of(len(data))]


class Blind(Gathered):
    """Content that cannot be inspected: all of it is withheld."""

    def read(self) -> None:
        self.abandon()


class Whole(Gathered):
    """A body that is one unit."""

    def __init__(self, flow: Flow, redact: Redact) -> None:
        super().__init__(flow)
        self._redact = redact

    def read(self) -> None:
        """Wait for the end; blank a body that grows too long."""
        if len(self.unit) > MOST:
            self.abandon()

    def finish(self) -> None:
        """Redact the body."""
        self.done(len(self.unit), edits_or_stars(bytes(self.unit), self._redact))


class Sniffed(Whole):
    """A body whose head does not state its type: JSON, by its first byte, or text that is searched as it arrives."""

    _BEGINS: Final = re.compile(rb"[\xef\xbb\xbf \t\r\n]{0,256}+([{\[\x22]|\Z)")

    def __init__(self, flow: Flow, json: Redact, patterns: Patterns) -> None:
        super().__init__(flow, json)
        self._patterns = patterns
        self._search: Search | None = None
        self._json = False  # whether it begins like JSON

    def read(self) -> None:
        if self._search is None:
            if not self._json:
                begun = self._BEGINS.match(self.unit)
                self._json = begun is not None and bool(begun[1])
                if begun is not None and not self._json:
                    return
            if self._json:
                super().read()
                return
            self._search = Search(self._patterns)
        data = bytes(self.unit)
        self.unit.clear()
        self._found(self._search.take(data))

    def finish(self) -> None:
        if self._search is None:
            super().finish()
        else:
            self._found(self._search.end())

    def _found(self, spans: list[tuple[int, int]]) -> None:
        assert self._search is not None
        for start, end in spans:
            self.blank(start, end)
        self.certain = self._search.certain


class EventBody(Gathered):
    """Events of an event stream, each with the empty line behind it."""

    _END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
    _OVERLAP: Final = 3

    def __init__(self, flow: Flow, redact: Redact) -> None:
        super().__init__(flow)
        self._redact = redact
        self._scanned = 0

    def read(self) -> None:
        while (end := self._END.search(self.unit, self._scanned)) is not None:
            self._scanned = 0
            self.done(end.end(), edits_or_stars(bytes(self.unit[: end.end()]), self._redact))
        self._scanned = max(0, len(self.unit) - self._OVERLAP)
        if len(self.unit) > MOST:
            self.abandon()

    def finish(self) -> None:
        """Redact the last event, which need not have an empty line behind it."""
        self.done(len(self.unit), edits_or_stars(bytes(self.unit), self._redact))


class GrpcMessages(Gathered):
    """gRPC's length-prefixed messages. `plain` redacts the bytes of compressed messages that decoders skip.
    `compression`: that of grpc-encoding, for messages flagged as compressed; None: unknown."""

    _PREFIX: Final = 5

    def __init__(self, flow: Flow, redact: Redact, plain: Redact, compression: Compression | None) -> None:
        super().__init__(flow)
        self._redact = redact
        self._plain = plain
        self._compression = compression

    def read(self) -> None:
        while len(self.unit) >= self._PREFIX:
            size = int.from_bytes(self.unit[1 : self._PREFIX], "big")
            if self.unit[0] > 1 or size > MOST:
                self.abandon()
                return
            if len(self.unit) < self._PREFIX + size:
                return
            edits = self._message(self.unit[0], bytes(self.unit[self._PREFIX : self._PREFIX + size]))
            self.done(self._PREFIX + size, [edit.shifted(self._PREFIX) for edit in edits])

    def _message(self, compressed: int, message: bytes) -> list[Edit]:
        if not compressed:
            return edits_or_stars(message, self._redact)
        if self._compression in (None, Compression.NONE):
            return [WithheldEdit.of(len(message))]
        return compressed_edits(self._compression, message, MOST, self._redact, self._plain)


class BodyFormat(NamedTuple):
    """A format that a body of an unknown head may turn out to have: whether its first bytes (up to 12) begin so, and
    its content."""

    begins: Callable[[bytes], object]
    content: Callable[[], Gathered]


class UnknownBody(Content):
    """A body whose head was not recorded, or refers to bytes that were not. Once bytes that its sender wrote at once
    begin like one of the formats, it is read in that format; until then all of it is blanked.
    """

    _LOOKED_AT: Final = 12
    _EVENT: Final = re.compile(rb"(?:data|event|id|retry)?:")

    def __init__(self, flow: Flow, json: Redact, event: Redact, formats: Iterable[BodyFormat], *, begun: bool) -> None:
        """Take the formats that the body may have, beside an event stream. `begun`: the body is recorded from its first
        byte, so that it may also be JSON."""
        super().__init__(flow)
        self._formats = [BodyFormat(self._EVENT.match, partial(EventBody, flow, event)), *formats]
        self._json = BodyFormat(lambda start: start[:1] in (b"{", b"["), partial(Whole, flow, json)) if begun else None
        self._inner: Gathered | None = None
        self._begins = True

    def boundary(self) -> None:
        self._begins = True

    def take(self, data: Buffer, offset: int) -> None:
        if self._inner is None and self._begins and not self.blind:
            start = bytes(data[: self._LOOKED_AT])
            formats = self._formats if self._json is None else [*self._formats, self._json]
            self._inner = next((body_format.content() for body_format in formats if body_format.begins(start)), None)
            self._json = None
        self._begins = False
        if self._inner is None:
            self._flow.withhold(offset, offset + len(data))
        else:
            self._inner.take(data, offset)

    def end(self) -> None:
        if self._inner is not None:
            self._inner.end()

    def cut(self) -> None:
        if self._inner is not None:
            self._inner.cut()

    def abandon(self) -> None:
        self.blind = True
        if self._inner is not None:
            self._inner.abandon()


def coded(flow: Flow, coding: bytes, redact: Redact, plain: Redact) -> Content:
    """Return the content of a body that is one unit, in this content-encoding. `plain` redacts bytes that decoders of a
    compressed one skip."""
    if coding in PLAIN:
        return Whole(flow, redact)
    compression = CODINGS.get(coding)
    if compression is None:
        return Blind(flow)
    return Whole(flow, lambda data: compressed_edits(compression, data, MOST, redact, plain) if data else [])
