"""Reassemble messages from Partials of one direction of a draft connection (segment fact sheet, section 2, readings 4
and 5)."""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.wire.waiting import WaitingBytes
from penstock_pravega.codec.appends import Violation
from penstock_pravega.codec.draft import Partial, PartialKind
from penstock_pravega.codec.layout import HEADER_BYTES

__all__ = ["Reassembly"]

_HEADER: Final = Struct(">iI")
"""The draft's length is unsigned (reading 12)."""


class Reassembly:
    """The pieces of the current message, never more bytes than the longest message has."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._data = WaitingBytes()
        self._open = False

    @property
    def held(self) -> int:
        """Bytes of the current message."""
        return self._data.size

    @property
    def open(self) -> bool:
        """True while a message is incomplete."""
        return self._open

    def take(self, partial: Partial) -> bytes | None:
        """Add a piece; return the whole message with its header if the piece completes it. Raises Violation."""
        if (partial.part is PartialKind.BEGIN) is self._open:
            under_way = "while another message is incomplete" if self._open else "without a Begin"
            raise Violation(f"Partial ({partial.part.name.title()}) {under_way}")
        self._open = True
        self._data.add(partial.data)
        self._check()
        if partial.part is not PartialKind.END:
            return None
        whole = b"".join(self._data.take())
        if len(whole) < HEADER_BYTES or len(whole) - HEADER_BYTES != _HEADER.unpack_from(whole)[1]:
            raise Violation(f"the Partials end after {len(whole)} bytes, in the middle of the message")
        self._open = False
        return whole

    def _check(self) -> None:
        if self.held < HEADER_BYTES:
            return
        type_id, length = _HEADER.unpack(self._data.beginning(HEADER_BYTES))
        if type_id == Partial.type_id:
            raise Violation("a Partial inside Partials")
        if length > self._longest:
            raise Violation(
                f"Partials of a message of {length & 0xFFFFFFFF} bytes, at most {self._longest} are allowed"
            )
        if self.held > HEADER_BYTES + length:
            raise Violation(f"the Partials have {self.held} bytes of a message of {HEADER_BYTES + length}")
