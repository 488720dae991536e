"""Find the TCP segment in a captured packet: links, IPv4 and IPv6 (RFC 791, 8200, 9293; LINKTYPE registry)."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

__all__ = ["Ignored", "TcpSegment", "parse_packet"]

_TCP: Final = Struct(">IIBB")
_IPV4: Final = Struct(">BxHxxHxB")
_IPV6: Final = Struct(">HBx")
_TYPE: Final = Struct(">H")
_IP_TYPES: Final = frozenset({0x0800, 0x86DD})
_VLAN_TYPES: Final = frozenset({0x8100, 0x88A8, 0x9100})
_MAX_VLANS: Final = 4
_PROTOCOL_TCP: Final = 6
_FRAGMENT: Final = 44
_AUTHENTICATION: Final = 51
_EXTENSIONS: Final = frozenset({0, 43, 60, 135, _FRAGMENT, _AUTHENTICATION})
"""Headers between IPv6 and TCP (RFC 8200, 4.1) that tell their own length."""
_MAX_EXTENSIONS: Final = 8


class TcpSegment(NamedTuple):
    """A TCP segment. `key`: both addresses and both ports, the sender's first, 12 or 36 bytes. Its payload is from
    `start` to `end`; `cut` bytes more were sent but not captured."""

    key: bytes
    sequence: int
    acknowledgement: int
    flags: int
    start: int
    end: int
    cut: int


class Ignored(Exception):
    """A packet that is not used; the text is one of a few fixed ones, for counters."""


def _ethernet(buffer: bytes, start: int, end: int) -> int:
    at = start + 12
    for _ in range(_MAX_VLANS + 1):
        if end - at < 2:
            break
        kind = _TYPE.unpack_from(buffer, at)[0]
        if kind in _IP_TYPES:
            return at + 2
        if kind not in _VLAN_TYPES:
            break
        at += 4
    raise Ignored("not IP")


def _typed(type_at: int, length: int) -> Callable[[bytes, int, int], int]:
    """Return a link whose header has `length` bytes, and the type of its payload at `type_at`."""

    def skip(buffer: bytes, start: int, end: int) -> int:
        if end - start >= length and _TYPE.unpack_from(buffer, start + type_at)[0] in _IP_TYPES:
            return start + length
        raise Ignored("not IP")

    return skip


def _fixed(length: int) -> Callable[[bytes, int, int], int]:
    return lambda _buffer, start, _end: start + length


_LINKS: Final[dict[int, Callable[[bytes, int, int], int]]] = {
    0: _fixed(4),  # BSD loopback: the family, in the byte order of a machine; IP says its version itself
    1: _ethernet,
    12: _fixed(0),  # raw IP as some systems number it
    14: _fixed(0),
    101: _fixed(0),
    108: _fixed(4),
    113: _typed(14, 16),  # Linux cooked
    228: _fixed(0),
    229: _fixed(0),
    276: _typed(0, 20),  # Linux cooked, version 2
}


def parse_packet(link: int, buffer: bytes, start: int, end: int, cut: int) -> TcpSegment:
    """Return the segment in a packet from `start` to `end`. Raises Ignored."""
    if link != 101:
        skip = _LINKS.get(link)
        if skip is None:
            raise Ignored(f"link type {link}" if link < 512 else "link type")
        start = skip(buffer, start, end)
    if end - start < 20:
        raise Ignored("too short")
    if buffer[start] == 0x45:  # no options, as nearly always
        _, total, fragment, protocol = _IPV4.unpack_from(buffer, start)
        if protocol == _PROTOCOL_TCP and not fragment & 0x3FFF:
            return _segment(
                buffer, start + 20, end, cut, start + total if total else 0, buffer[start + 12 : start + 20]
            )
    version = buffer[start] >> 4
    if version == 4:
        return _in_ipv4(buffer, start, end, cut)
    if version == 6 and end - start >= 40:
        return _in_ipv6(buffer, start, end, cut)
    raise Ignored("not IP")


def _in_ipv4(buffer: bytes, start: int, end: int, cut: int) -> TcpSegment:
    head, total, fragment, protocol = _IPV4.unpack_from(buffer, start)
    header = (head & 15) * 4
    if fragment & 0x3FFF:
        raise Ignored("fragment")
    if protocol != _PROTOCOL_TCP:
        raise Ignored("not TCP")
    if header < 20:
        raise Ignored("too short")
    # Where a network card cuts for the system, the length may be 0.
    whole = start + total if total else 0
    return _segment(buffer, start + header, end, cut, whole, buffer[start + 12 : start + 20])


def _in_ipv6(buffer: bytes, start: int, end: int, cut: int) -> TcpSegment:
    length, protocol = _IPV6.unpack_from(buffer, start + 4)
    at = start + 40
    for _ in range(_MAX_EXTENSIONS):
        if protocol not in _EXTENSIONS or end - at < 8:
            break
        if protocol == _FRAGMENT and _TYPE.unpack_from(buffer, at + 2)[0] & 0xFFF9:
            raise Ignored("fragment")
        following, size = buffer[at], buffer[at + 1]
        if protocol == _FRAGMENT:
            at += 8
        elif protocol == _AUTHENTICATION:
            at += 4 * size + 8
        else:
            at += 8 * size + 8
        protocol = following
    if protocol != _PROTOCOL_TCP:
        raise Ignored("not TCP")
    return _segment(buffer, at, end, cut, start + 40 + length if length else 0, buffer[start + 8 : start + 40])


def _segment(buffer: bytes, start: int, end: int, cut: int, whole: int, addresses: bytes) -> TcpSegment:
    """Read TCP at `start`. `whole`: the end of the packet according to IP; 0: unknown."""
    if end - start < 20:
        raise Ignored("too short")
    sequence, acknowledgement, head, flags = _TCP.unpack_from(buffer, start + 4)
    header = (head >> 4) * 4
    payload = start + header
    if header < 20 or payload > end or (whole and whole < payload):
        raise Ignored("too short")
    if whole:
        cut = max(0, whole - end)
        end = min(whole, end)
    return TcpSegment(addresses + buffer[start : start + 4], sequence, acknowledgement, flags, payload, end, cut)
