"""Read bodies that are one message: held, decompressed, decoded."""

from __future__ import annotations

from typing import Any

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import BodyReader, SeenExchange
from penstock.capture.dialogue.http.json_places import place_of
from penstock.capture.pcapng import Sender
from penstock.model.failures import OperationFailed, RemoteProtocolError
from penstock.wire.compression import Compression, DecompressionError, decompress, most_compressed
from penstock.wire.http.observer.faults import BytesAt, HttpFault, TimedRange

__all__ = ["WholeBody"]


class WholeBody(BodyReader):
    """A body that is held until it is complete. `limit`: its largest size, decompressed, in bytes; `clause`: where the
    limit and the encodings are specified."""

    def __init__(
        self,
        collector: MessageCollector,
        exchange: SeenExchange,
        sender: Sender,
        coding: Compression,
        limit: int,
        clause: str,
    ) -> None:
        super().__init__(collector, exchange, sender)
        self._coding = coding
        self._limit = limit
        self._clause = clause
        self._held = bytearray()

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Hold a piece."""
        most = most_compressed(self._coding, self._limit)
        if len(self._held) + len(data) > most:
            self._held.clear()
            raise HttpFault(offset, f"a body that is one message has at most {most} bytes here", self._clause)
        self._places.add(offset, len(data), time_ns)
        self._held += data

    def finish(self, end: TimedRange) -> None:
        """Decode and report the body."""
        del end
        if not self._held:
            return
        span = self._places.whole
        try:
            content = decompress(self._coding, self._held, self._limit)
        except DecompressionError as error:
            raise HttpFault(span.start, str(error), self._clause) from None
        try:
            self._understand(content, span)
        except (OperationFailed, RemoteProtocolError) as error:
            raise self._undecodable(content, span, error.failure.message) from None

    @property
    def half(self) -> str:
        """Name of the body, once it has begun."""
        return "a body" if self._held else ""

    def _understand(self, content: bytes, span: TimedRange) -> None:
        """Report the decoded body. Raises OperationFailed, RemoteProtocolError."""
        raise NotImplementedError

    def _size(self) -> dict[str, Any]:
        return {"bytes": len(self._held)}

    def _undecodable(self, content: bytes, span: TimedRange, reason: str) -> HttpFault:
        """Return the fault of content that is not the JSON that it must be."""
        return self._fault_in(content, span, place_of(content, reason), reason, self._clause)

    def _fault_in(self, content: bytes, span: TimedRange, at: int, reason: str, clause: str) -> HttpFault:
        """Return the fault at a byte of the content; for compressed content at its start."""
        if self._coding is not Compression.NONE:
            return HttpFault(span.start, reason, clause)
        whole = span.end - span.start == len(self._held)
        return HttpFault(self._places.offset(at), reason, clause, BytesAt(span.start, content) if whole else None)
