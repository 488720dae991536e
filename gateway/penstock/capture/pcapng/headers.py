"""Encode the headers and trailers of packets around a segment's bytes.

A `PacketFramer` is one side's half of a conversation. All constant parts are packed once, so that a packet costs two
`Struct.pack` and an addition for the checksum of IPv4. TCP's checksum is 0, as in packets that a network card was to
complete: computing it would cost more than all the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final

from penstock.capture.pcapng.blocks import END_OF_OPTIONS, ENHANCED_PACKET, OPTION_COMMENT, OPTION_FLAGS, option
from penstock.capture.pcapng.events import SocketAddress

__all__ = ["ACK", "FIN", "MAX_PACKET", "PUSH", "RESET", "SYN", "Address", "PacketFramer", "Piece", "addresses"]

Piece = bytes | bytearray | memoryview
Address = IPv4Address | IPv6Address

FIN: Final = 0x01
SYN: Final = 0x02
RESET: Final = 0x04
PUSH: Final = 0x08
ACK: Final = 0x10

MAX_PACKET: Final = 65_535
"""Largest packet that is written, with its IP header, in bytes."""

_BLOCK: Final = Struct("<7I")
_IPV4: Final = Struct(">HH6sH12sIIQ")
_IPV6: Final = Struct(">IH2s36sIIQ")
_BLOCK_HEAD: Final = 28
_LENGTH: Final = Struct("<I")
_PORTS: Final = Struct(">HH")
_WORDS: Final = Struct(">8H")
_MASK: Final = 0xFFFF_FFFF

_IPV4_CONSTANT: Final = bytes.fromhex("0000 4000 4006")
"""Identification 0, not to be fragmented, 64 hops, TCP (RFC 791, 3.1; RFC 6864, 4.1)."""
_IPV6_CONSTANT: Final = bytes.fromhex("0640")
"""TCP, 64 hops (RFC 8200, 3)."""
_WINDOW: Final = 65_535 << 32
_TCP_WORDS: Final = 5 << 60
_SYN_WORDS: Final = 7 << 60
_ACKNOWLEDGES: Final = ACK << 48
_SCALE: Final = bytes.fromhex("01 03 03 0e")
"""Window scale 14, the largest (RFC 7323, 2.3): a window of 1 GiB, which nothing in flight ever fills."""
_TAILS: Final = tuple(
    tuple(bytes(padding) + option(OPTION_FLAGS, _LENGTH.pack(way)) + END_OF_OPTIONS for padding in range(4))
    for way in range(3)
)


def addresses(client: SocketAddress, server: SocketAddress) -> tuple[Address, Address]:
    """Return the two hosts as addresses of one family; a host without an address, as of a memory stream, becomes
    0.0.0.1 or 0.0.0.2."""
    ends = _address(client.host, 1), _address(server.host, 2)
    if ends[0].version == ends[1].version:
        return ends
    return _as_ipv6(ends[0]), _as_ipv6(ends[1])


def _address(host: str, otherwise: int) -> Address:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return IPv4Address(otherwise)


def _as_ipv6(address: Address) -> IPv6Address:
    return address if isinstance(address, IPv6Address) else IPv6Address((0xFFFF << 32) | int(address))


def _comments(comments: Sequence[bytes]) -> bytes:
    return b"".join([option(OPTION_COMMENT, comment) for comment in comments])


class PacketFramer:
    """Framer of the bytes that one side sends; tracks how many it has sent.

    `base`: the sequence number of each side's byte 0. `way`: 1 if the gateway receives these packets, 2 if it sends
    them, 0 if that is unknown. `ends`, `ports`: of this side and of its peer.
    """

    __slots__ = (
        "_base",
        "_block",
        "_constant",
        "_interface",
        "_sum",
        "_tails",
        "_v4",
        "end",
        "finished",
        "max_payload",
        "unacknowledged",
        "unacknowledged_packets",
        "written",
    )

    def __init__(
        self, interface: int, way: int, base: int, ends: tuple[Address, Address], ports: tuple[int, int]
    ) -> None:
        source, target = ends
        self._interface = interface
        self._base = base
        self._v4 = source.version == 4
        self._constant = source.packed + target.packed + _PORTS.pack(ports[0] & 0xFFFF, ports[1] & 0xFFFF)
        self._tails = _TAILS[way]
        self._sum = sum(_WORDS.unpack(b"\x45\x00" + _IPV4_CONSTANT + self._constant[:8])) if self._v4 else 0
        headers = 40 if self._v4 else 60
        self._block = _BLOCK_HEAD + headers + 4
        self.max_payload = MAX_PACKET - headers
        """Largest payload, in bytes."""
        self.end = 0
        """Bytes that it has sent, as far as is known: the offset of its FIN."""
        self.written = 0
        """End of the bytes written: its peer acknowledges up to here."""
        self.finished = False
        """True once it has sent FIN, which takes a sequence number too."""
        self.unacknowledged = 0
        """Bytes that were written since its peer's last packet."""
        self.unacknowledged_packets = 0

    @property
    def acknowledged(self) -> int:
        """Bytes, and the FIN, that the peer's packets acknowledge."""
        return self.end + 1 if self.finished else self.written

    def data(
        self, time_ns: int, offset: int, acknowledged: int, data: Piece, comments: Sequence[bytes] = ()
    ) -> tuple[Piece, Piece, bytes]:
        """Return a packet with bytes of this side, at most `max_payload`, in pieces."""
        length = len(data)
        tail = self._tails[-length & 3]
        if comments:
            tail = bytes(-length & 3) + _comments(comments) + self._tails[0]
        block = self._block + length + len(tail)
        return (
            self._head(time_ns, offset, acknowledged, _TCP_WORDS | (PUSH | ACK) << 48, length, block),
            data,
            tail + _LENGTH.pack(block),
        )

    def bare(self, time_ns: int, offset: int, acknowledged: int, control: int, comments: Sequence[bytes] = ()) -> bytes:
        """Return a packet without bytes, and with comments."""
        synchronizes = control & SYN
        options = b"\x02\x04" + self.max_payload.to_bytes(2, "big") + _SCALE if synchronizes else b""
        tail = _comments(comments) + self._tails[0]
        block = self._block + len(options) + len(tail)
        words = (_SYN_WORDS if synchronizes else _TCP_WORDS) | control << 48
        head = self._head(time_ns, offset, acknowledged, words, len(options), block)
        return head + options + tail + _LENGTH.pack(block)

    def _head(self, time_ns: int, offset: int, acknowledged: int, words: int, length: int, block: int) -> bytes:
        """Return the block's head and the headers of IP and TCP, for `length` bytes after these. `words`: of TCP from
        its length and flags."""
        sequence = (self._base + offset) & _MASK
        acknowledgement = (self._base + acknowledged) & _MASK if words & _ACKNOWLEDGES else 0
        if not self._v4:
            return self._block_head(time_ns, 60 + length, block) + _IPV6.pack(
                6 << 28,
                20 + length,
                _IPV6_CONSTANT,
                self._constant,
                sequence,
                acknowledgement,
                words | _WINDOW,
            )
        size = 40 + length
        total = self._sum + size
        total = (total & 0xFFFF) + (total >> 16)
        return self._block_head(time_ns, size, block) + _IPV4.pack(
            0x4500,
            size,
            _IPV4_CONSTANT,
            0xFFFF ^ ((total & 0xFFFF) + (total >> 16)),
            self._constant,
            sequence,
            acknowledgement,
            words | _WINDOW,
        )

    def _block_head(self, time_ns: int, size: int, block: int) -> bytes:
        return _BLOCK.pack(ENHANCED_PACKET, block, self._interface, time_ns >> 32, time_ns & _MASK, size, size)
