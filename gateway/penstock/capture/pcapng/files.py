"""Read the packets of a capture file: pcapng of either byte order, and the older pcap (RFC drafts "PCAP Now Generic"
and "PCAP Capture File Format").

Lengths are trusted only up to `MAX_BLOCK`; options are read only if they hold a comment of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from penstock.capture.pcapng.blocks import BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE, OPTION_COMMENT, SECTION
from penstock.capture.pcapng.notes import NOTE_MARK
from penstock.model.limits import MIB

__all__ = ["MAX_BLOCK", "Packet", "PacketFile"]

MAX_BLOCK: Final = 16 * MIB
"""Largest block or packet that is read; the programs that capture write far smaller ones."""
MAX_INTERFACES: Final = 65_536
"""Most interfaces of one section."""
MAX_OPTIONS: Final = 256
"""Most options of one block that are looked at."""

_SIMPLE_PACKET: Final = 3
_PACKET: Final = 2
"""The obsolete one (appendix A)."""
_RESOLUTION: Final = 9
_TIME_OFFSET: Final = 14
_NS: Final = 1_000_000_000
_LAST_NS: Final = (1 << 64) - 1
_SECTION_BYTES: Final = SECTION.to_bytes(4, "big")
_PCAP_HEAD: Final = 24


class Packet(NamedTuple):
    """One packet: the bytes of `buffer` from `start` to `end`. `link`: its LINKTYPE, None if the file does not describe
    its interface. `cut`: how many of its bytes were not captured. `comments`: those of ours."""

    time_ns: int
    interface: int
    link: int | None
    buffer: bytes
    start: int
    end: int
    cut: int
    comments: tuple[bytes, ...]


class _Interface(NamedTuple):
    link: int
    snap_length: int
    per_second: int
    """Units of time stamps in a second."""
    factor: int
    """Nanoseconds in a unit; 0: no whole number."""
    offset_ns: int

    def time_ns(self, high: int, low: int) -> int:
        """Return the time of an event; times before 1970 or after 2554 are clamped."""
        units = high << 32 | low
        time_ns = self.offset_ns + (units * self.factor or units * _NS // self.per_second)
        return time_ns if 0 <= time_ns <= _LAST_NS else max(0, min(time_ns, _LAST_NS))


class _Order:
    """Structs of numbers in one byte order."""

    def __init__(self, sign: str) -> None:
        self.head = Struct(f"{sign}II")
        self.length = Struct(f"{sign}I")
        self.interface = Struct(f"{sign}HHI")
        self.enhanced = Struct(f"{sign}5I")
        self.obsolete = Struct(f"{sign}HH4I")
        self.option = Struct(f"{sign}HH")
        self.offset = Struct(f"{sign}q")
        self.record = Struct(f"{sign}4I")


_BIG: Final = _Order(">")
_LITTLE: Final = _Order("<")
_MAGICS: Final = {
    bytes.fromhex("a1b2c3d4"): (_BIG, 1000),
    bytes.fromhex("a1b23c4d"): (_BIG, 1),
    bytes.fromhex("d4c3b2a1"): (_LITTLE, 1000),
    bytes.fromhex("4d3cb2a1"): (_LITTLE, 1),
}
"""First bytes of pcap files, with the nanoseconds in a unit of their times."""
_BYTE_ORDERS: Final = {
    BYTE_ORDER_MAGIC.to_bytes(4, "big"): _BIG,
    BYTE_ORDER_MAGIC.to_bytes(4, "little"): _LITTLE,
}


class _Damage(Exception):
    """Fault at the current place of the file; it never leaves this module."""


class PacketFile:
    """Decoder from bytes of a file to packets. Holds at most one block, and the bytes received last."""

    def __init__(self) -> None:
        self.damage: str | None = None
        """Fault of the file and its byte, or None."""
        self._pieces: list[bytes] = []
        self._have = 0
        self._needed = 4
        """Until so many bytes are there, there is nothing to read."""
        self._consumed = 0
        """Offset in the file of the first piece."""
        self._ended = False
        self._next: Callable[[bytes, int], tuple[int, Packet | None]] = self._first
        self._order = _BIG
        self._interfaces: list[_Interface] = []
        self._unit = 1
        self._link = 0
        self._last_ns = 0

    @property
    def recognized(self) -> bool:
        """True if the first bytes are those of a capture."""
        return self._next != self._first

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes; b"" marks the end of the file."""
        if not len(data):
            self._ended = True
        elif self.damage is None:
            self._pieces.append(bytes(data))
            self._have += len(data)

    def packets(self) -> Iterator[Packet]:
        """Yield the packets that are complete; exhaust it before the next `receive`."""
        if self.damage is None and self._have >= self._needed:
            buffer = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            at = 0
            try:
                while len(buffer) - at >= self._needed:
                    length, packet = self._next(buffer, at)
                    if not length:  # it has set `_needed`, the bytes that it requires
                        continue
                    at += length
                    if packet is not None:
                        yield packet
            except _Damage as damage:
                self.damage = f"{damage} (byte {self._consumed + at})"
                at = len(buffer)
            self._consumed += at
            self._pieces = [buffer[at:]] if at < len(buffer) else []
            self._have = len(buffer) - at
        if self._ended and self.damage is None:
            self._judge_end()

    def _judge_end(self) -> None:
        if not self._consumed and self._next == self._first:
            self.damage = "this is not a capture: it is empty" if not self._have else "this is not a capture (byte 0)"
        elif self._have:
            self.damage = f"the file ends in the middle of a block (byte {self._consumed})"

    def _first(self, buffer: bytes, at: int) -> tuple[int, Packet | None]:
        """Recognize the type of the file."""
        magic = buffer[at : at + 4]
        if magic == _SECTION_BYTES:
            self._next, self._needed = self._block, 12
            return 0, None
        if magic not in _MAGICS:
            raise _Damage("this is not a capture: it begins neither like pcapng nor like pcap")
        if len(buffer) - at < _PCAP_HEAD:
            self._needed = _PCAP_HEAD
            return 0, None
        self._order, self._unit = _MAGICS[magic]
        self._link = self._order.length.unpack_from(buffer, at + 20)[0] & 0xFFFF
        self._next, self._needed = self._record, 16
        return _PCAP_HEAD, None

    def _record(self, buffer: bytes, at: int) -> tuple[int, Packet | None]:
        """Read a packet of pcap."""
        seconds, fraction, captured, original = self._order.record.unpack_from(buffer, at)
        if captured > MAX_BLOCK:
            raise _Damage(f"a packet of {captured} bytes, which no program captures")
        if len(buffer) - at < 16 + captured:
            self._needed = 16 + captured
            return 0, None
        self._needed = 16
        start = at + 16
        time_ns = seconds * _NS + fraction * self._unit
        cut = max(0, original - captured)
        return 16 + captured, Packet(time_ns, 0, self._link, buffer, start, start + captured, cut, ())

    def _block(self, buffer: bytes, at: int) -> tuple[int, Packet | None]:
        """Read a block of pcapng (3.1)."""
        if buffer.startswith(_SECTION_BYTES, at):
            self._begin_section(buffer[at + 8 : at + 12])
        kind, length = self._order.head.unpack_from(buffer, at)
        if length < 12 or length & 3 or length > MAX_BLOCK:
            raise _Damage(f"a block whose length is said to be {length} bytes")
        if len(buffer) - at < length:
            self._needed = length
            return 0, None
        self._needed = 12
        end = at + length - 4
        if self._order.length.unpack_from(buffer, end)[0] != length:
            raise _Damage(f"a block of {length} bytes that ends with another length")
        if kind == ENHANCED_PACKET:
            return length, self._enhanced(buffer, at + 8, end)
        if kind == INTERFACE:
            self._describe(buffer, at + 8, end)
        elif kind in (_SIMPLE_PACKET, _PACKET):
            return length, (self._simple if kind == _SIMPLE_PACKET else self._obsolete)(buffer, at + 8, end)
        return length, None

    def _begin_section(self, magic: bytes) -> None:
        if magic not in _BYTE_ORDERS:
            raise _Damage("a section whose byte order is none")
        self._order = _BYTE_ORDERS[magic]
        self._interfaces = []

    def _describe(self, buffer: bytes, start: int, end: int) -> None:
        """Read an interface (4.2): its link type, and the unit of its times."""
        if end - start < 8 or len(self._interfaces) >= MAX_INTERFACES:
            raise _Damage("an interface that cannot be")
        link, _reserved, snap_length = self._order.interface.unpack_from(buffer, start)
        per_second, offset = 1_000_000, 0
        for code, value in self._options(buffer, start + 8, end):
            if code == _RESOLUTION and len(value) == 1:
                per_second = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
            elif code == _TIME_OFFSET and len(value) == 8:
                offset = self._order.offset.unpack(value)[0]
        factor = 0 if _NS % per_second else _NS // per_second
        self._interfaces.append(_Interface(link, snap_length, per_second, factor, offset * _NS))

    def _options(self, buffer: bytes, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield options (3.5) until one is malformed."""
        for _ in range(MAX_OPTIONS):
            if end - at < 4:
                return
            code, length = self._order.option.unpack_from(buffer, at)
            at += 4
            if code == 0 or length > end - at:
                return
            yield code, buffer[at : at + length]
            at += length + (-length & 3)

    def _enhanced(self, buffer: bytes, start: int, end: int) -> Packet:
        """Read a packet (4.3)."""
        if end - start < 20:
            raise _Damage("a packet block that is too short")
        interface, high, low, captured, original = self._order.enhanced.unpack_from(buffer, start)
        return self._packet(buffer, start + 20, end, interface, (high, low), captured, original)

    def _obsolete(self, buffer: bytes, start: int, end: int) -> Packet:
        """Read a packet in the format used before 2010 (appendix A)."""
        if end - start < 20:
            raise _Damage("a packet block that is too short")
        interface, _drops, high, low, captured, original = self._order.obsolete.unpack_from(buffer, start)
        return self._packet(buffer, start + 20, end, interface, (high, low), captured, original)

    def _simple(self, buffer: bytes, start: int, end: int) -> Packet:
        """Read a packet without a time (4.4): it gets that of the packet before it."""
        if end - start < 4:
            raise _Damage("a packet block that is too short")
        original = self._order.length.unpack_from(buffer, start)[0]
        start += 4
        if not self._interfaces:
            return Packet(self._last_ns, 0, None, buffer, start, end, 0, ())
        described = self._interfaces[0]
        captured = min(original, end - start, described.snap_length or original)
        cut = original - captured
        return Packet(self._last_ns, 0, described.link, buffer, start, start + captured, cut, ())

    def _packet(
        self, buffer: bytes, start: int, end: int, interface: int, time: tuple[int, int], captured: int, original: int
    ) -> Packet:
        if interface >= len(self._interfaces):
            return Packet(self._last_ns, interface, None, buffer, start, end, 0, ())
        stop = start + captured
        if stop > end:
            raise _Damage(f"a packet of {captured} bytes in a block that is smaller")
        described = self._interfaces[interface]
        self._last_ns = time_ns = described.time_ns(*time)
        options = stop + (-captured & 3)
        comments: tuple[bytes, ...] = ()
        if end - options > 12 and buffer.find(NOTE_MARK, options, end) >= 0:
            options_found = self._options(buffer, options, end)
            comments = tuple(
                value for code, value in options_found if code == OPTION_COMMENT and value.startswith(NOTE_MARK)
            )
        cut = original - captured if original > captured else 0
        return Packet(time_ns, interface, described.link, buffer, start, stop, cut, comments)
