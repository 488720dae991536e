"""Contents that are read unit by unit: whole bodies, S2S frames, events of an event stream, gRPC messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock_analysis.redaction.compressed import compressed_edits
from penstock_analysis.redaction.contents import Content, Gathered
from penstock_analysis.redaction.flow import Flow
from penstock_analysis.redaction.text import Buffer, Edit, Patterns, Search, stars
from penstock_codecs.compression import Compression
from penstock_codecs.limits import MIB, S2S_MAX_FRAME_LENGTH

__all__ = ["MOST", "Blind", "Events", "GrpcMessages", "Redact", "S2sFrames", "Sniffed", "Unheard", "Whole"]

MOST: Final = 4 * MIB
"""Longest unit that is waited for, and the most that a compressed one may hold. Longer ones are blanked."""

Redact = Callable[[bytes], list[Edit]]
"""Function that returns the edits of a unit. Raises ValueError for one it cannot parse, which is then blanked whole."""


def edits_or_stars(data: bytes, redact: Redact) -> list[Edit]:
    """Return the edits of a unit; all of it is blanked if it cannot be parsed."""
    try:
        return redact(data)
    except ValueError:
        return [Edit(0, stars(len(data)))]


class Blind(Gathered):
    """Content that cannot be inspected: all of it is blanked."""

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


class S2sFrames(Gathered):
    """S2S frames (S2 fact sheet, 2.1). `message` redacts their payloads, `json` the body of a terminal frame, `plain`
    the bytes of compressed payloads that decoders skip."""

    _LENGTH: Final = 3
    _TERMINAL: Final = 0x80

    def __init__(self, flow: Flow, message: Redact, json: Redact, plain: Redact) -> None:
        super().__init__(flow)
        self._message = message
        self._plain = plain
        self._json = json

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
            self.done(self._LENGTH + length, [Edit(head + start, data) for start, data in edits])

    def _frame(self, flags: int, payload: bytes) -> list[Edit]:
        if flags & self._TERMINAL:
            return edits_or_stars(payload, lambda data: [Edit(2 + at, blank) for at, blank in self._json(data[2:])])
        try:
            compression = Compression(flags >> 5 & 3)
        except ValueError:
            return [Edit(0, stars(len(payload)))]
        if compression is Compression.NONE:
            return edits_or_stars(payload, self._message)
        return compressed_edits(compression, payload, MOST, self._message, self._plain)


class Events(Gathered):
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
            self.done(self._PREFIX + size, [Edit(self._PREFIX + start, data) for start, data in edits])

    def _message(self, compressed: int, message: bytes) -> list[Edit]:
        if not compressed:
            return edits_or_stars(message, self._redact)
        if self._compression in (None, Compression.NONE):
            return [Edit(0, stars(len(message)))]
        return compressed_edits(self._compression, message, MOST, self._redact, self._plain)


class Unheard(Content):
    """A body whose head was not recorded, or refers to bytes that were not. Once bytes that its sender wrote at once
    begin like an S2S frame, or like an event of an event stream, it is read as these; until then all of it is blanked.
    """

    _EVENT: Final = re.compile(rb"(?:data|event|id|retry)?:")
    _HEAD: Final = 4
    _RECONNECT: Final = 0x10

    def __init__(
        self,
        flow: Flow,
        frames: Callable[[], Gathered],
        events: Callable[[], Gathered],
        json: Callable[[], Gathered] | None,
    ) -> None:
        """Take the formats that the body may turn out to have; `json` only at its very beginning."""
        super().__init__(flow)
        self._frames = frames
        self._events = events
        self._json = json
        self._inner: Gathered | None = None
        self._begins = True

    def boundary(self) -> None:
        self._begins = True

    def take(self, data: Buffer, offset: int) -> None:
        if self._inner is None and self._begins and not self.blind:
            start = bytes(data[: self._HEAD + 8])
            if self._EVENT.match(start):
                self._inner = self._events()
            elif self._is_frame(start):
                self._inner = self._frames()
            elif self._json is not None and start[:1] in (b"{", b"["):
                self._inner = self._json()
            self._json = None
        self._begins = False
        if self._inner is None:
            self._flow.blank(offset, offset + len(data))
        else:
            self._inner.take(data, offset)

    def _is_frame(self, start: bytes) -> bool:
        """Return whether these bytes begin with an S2S frame: a compressed payload, or one that begins with a field of
        a message."""
        if len(start) <= self._HEAD or not 1 < int.from_bytes(start[:3], "big") <= S2S_MAX_FRAME_LENGTH:
            return False
        begins = _STARTS.get(start[3] & ~self._RECONNECT)
        return begins is not None and start[self._HEAD :].startswith(begins)

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


_STARTS: Final = {0x00: b"\x0a", 0x20: b"\x28\xb5\x2f\xfd", 0x40: b"\x1f\x8b"}
"""How payloads begin, by a frame's flags: with field 1, records or a position, or with the mark of the compression."""
