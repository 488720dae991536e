"""Encode blocks of pcapng in little-endian order: from a pipe Wireshark accepts only its machine's own order.

Facts: RFC draft "PCAP Now Generic" (draft-ietf-opsawg-pcapng), sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack
from typing import Final

__all__ = [
    "BYTE_ORDER_MAGIC",
    "END_OF_OPTIONS",
    "ENHANCED_PACKET",
    "INTERFACE",
    "LINK_RAW",
    "OPTION_COMMENT",
    "OPTION_FLAGS",
    "SECTION",
    "interface_block",
    "option",
    "section_block",
]

SECTION: Final = 0x0A0D0D0A
INTERFACE: Final = 1
ENHANCED_PACKET: Final = 6
BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D
LINK_RAW: Final = 101
"""LINKTYPE_RAW: packets begin with an IPv4 or IPv6 header."""
OPTION_COMMENT: Final = 1
OPTION_FLAGS: Final = 2
"""epb_flags: its two lowest bits are 1 for inbound and 2 for outbound packets (4.3.1)."""
END_OF_OPTIONS: Final = bytes(4)

_APPLICATION: Final = 4
_INTERFACE_NAME: Final = 2
_RESOLUTION: Final = 9
_NANOSECONDS: Final = b"\x09"
_SNAP_LENGTH: Final = 262_144
"""Usual among capture programs; our packets are smaller."""
_UNKNOWN_LENGTH: Final = 0xFFFF_FFFF_FFFF_FFFF


def option(code: int, value: bytes) -> bytes:
    """Return one option, padded to 32 bits (3.5). `value`: at most 65,535 bytes."""
    return pack("<HH", code, len(value)) + value + bytes(-len(value) & 3)


def _block(kind: int, body: bytes, options: Iterable[bytes]) -> bytes:
    body += b"".join(options) + END_OF_OPTIONS
    length = len(body) + 12
    return pack("<II", kind, length) + body + pack("<I", length)


def section_block(application: str) -> bytes:
    """Return a section header of unknown length (4.1), version 1.0."""
    body = pack("<IHHQ", BYTE_ORDER_MAGIC, 1, 0, _UNKNOWN_LENGTH)
    return _block(SECTION, body, [option(_APPLICATION, application.encode()[:1024])])


def interface_block(name: str) -> bytes:
    """Return the description of an interface of raw IP packets whose times are in nanoseconds (4.2)."""
    options = [option(_INTERFACE_NAME, name.encode(errors="replace")[:1024]), option(_RESOLUTION, _NANOSECONDS)]
    return _block(INTERFACE, pack("<HHI", LINK_RAW, 0, _SNAP_LENGTH), options)
