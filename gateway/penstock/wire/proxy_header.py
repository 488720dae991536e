"""PROXY protocol, versions 1 and 2: the header by which a proxy announces its client's address.

Specification: "The PROXY protocol", versions 1 & 2 (haproxy.org, doc/proxy-protocol.txt). `ProxyHeader` is fed with as
many bytes as it wants, so that it takes none of the client's own bytes behind the header.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

import google_crc32c

__all__ = ["MAX_HEADER_BYTES", "MalformedProxyHeader", "ProxyHeader"]

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
"""The first bytes of version 2 (section 2.2)."""
MAX_V1_BYTES: Final = 107
"""Longest header of version 1, CRLF included (section 2.1)."""
MAX_HEADER_BYTES: Final = 4096
"""Longest header of version 2 that is accepted; its addresses take 36 bytes, and the rest are extensions (TLVs)."""
_HEAD: Final = struct.Struct(">12sBBH")
_LOCAL, _PROXY = 0, 1
_FAMILIES: Final = {1: ("4s4sHH", ipaddress.IPv4Address), 2: ("16s16sHH", ipaddress.IPv6Address)}
_UNIX_BYTES: Final = 216
_UNIX: Final = 3
_CRC32C: Final = 0x03
"""Extension with the checksum of the whole header, its own four bytes as zeros (section 2.2.3)."""


class MalformedProxyHeader(Exception):
    """The bytes are no header of the PROXY protocol, or too long."""


class ProxyHeader:
    """The header at the beginning of one connection."""

    def __init__(self) -> None:
        self._data = b""
        self.complete = False
        """True once the whole header was fed."""
        self.client: tuple[str, int] | None = None
        """Address and port of the proxy's client; None if the proxy speaks for itself, as in a health check, or does
        not know an internet address."""

    @property
    def wanted(self) -> tuple[int, bytes]:
        """Most bytes to feed next, and the byte after which to stop if it is among them (b"": none)."""
        size = len(self._data)
        if size < len(SIGNATURE):
            return len(SIGNATURE) - size, b"\n" if self._data[:1] != b"\r" and size else b""
        if not self._data.startswith(SIGNATURE):
            return MAX_V1_BYTES - size, b"\n"
        if size < _HEAD.size:
            return _HEAD.size - size, b""
        return _HEAD.size + self._length() - size, b""

    def feed(self, data: bytes) -> None:
        """Take bytes, as `wanted` says. Raises MalformedProxyHeader as soon as they cannot begin a header."""
        self._data += data
        if SIGNATURE.startswith(self._data[: len(SIGNATURE)]):
            if len(self._data) >= _HEAD.size and len(self._data) == _HEAD.size + self._length():
                self._read_v2()
                self.complete = True
        elif not b"PROXY ".startswith(self._data[:6]):
            raise MalformedProxyHeader("it does not begin with a header of the PROXY protocol")
        elif self._data.endswith(b"\n"):
            self._read_v1()
            self.complete = True
        elif len(self._data) >= MAX_V1_BYTES:
            raise MalformedProxyHeader(f"its header of version 1 is longer than {MAX_V1_BYTES} bytes")

    def _length(self) -> int:
        length: int = _HEAD.unpack_from(self._data)[3]
        if _HEAD.size + length > MAX_HEADER_BYTES:
            raise MalformedProxyHeader(f"its header has {_HEAD.size + length} bytes, at most {MAX_HEADER_BYTES}")
        return length

    def _read_v1(self) -> None:
        """Read `PROXY TCP4|TCP6 SOURCE DESTINATION SOURCEPORT DESTINATIONPORT` or `PROXY UNKNOWN ...` (section 2.1)."""
        line = self._data
        if not line.endswith(b"\r\n"):
            raise MalformedProxyHeader("its header of version 1 does not end with CRLF")
        words = line[:-2].split(b" ")
        if words[1:2] == [b"UNKNOWN"]:
            return
        family = {b"TCP4": ipaddress.IPv4Address, b"TCP6": ipaddress.IPv6Address}.get(words[1])
        if family is None or len(words) != 6:
            raise MalformedProxyHeader("its header of version 1 is not TCP4 or TCP6 with two addresses and two ports")
        try:
            source, _ = (str(family(word.decode("ascii"))) for word in words[2:4])
            port, _ = (_port(word) for word in words[4:])
        except ValueError:
            raise MalformedProxyHeader("its header of version 1 has no valid addresses and ports") from None
        self.client = source, port

    def _read_v2(self) -> None:
        """Read the binary header (section 2.2)."""
        _, version, family, _ = _HEAD.unpack_from(self._data)
        if version >> 4 != 2 or version & 15 not in (_LOCAL, _PROXY):
            raise MalformedProxyHeader(f"its header has version and command {version:#04x}")
        extensions = _HEAD.size
        if family >> 4 in _FAMILIES:
            layout, address = _FAMILIES[family >> 4]
            fields = struct.Struct(f">{layout}")
            extensions += fields.size
            if len(self._data) < extensions:
                raise MalformedProxyHeader("its header ends within the addresses")
            source, _, port, _ = fields.unpack_from(self._data, _HEAD.size)
            if version & 15 == _PROXY:
                self.client = str(address(source)), port
        elif family >> 4 == _UNIX:
            extensions += _UNIX_BYTES
        elif family >> 4:
            raise MalformedProxyHeader(f"its header has the address family {family >> 4}")
        else:
            return  # unspecified: what follows is to be ignored
        self._check_extensions(extensions)

    def _check_extensions(self, at: int) -> None:
        """Check the checksum, if there is one."""
        data = self._data
        while at < len(data):
            if len(data) - at < 3 or (end := at + 3 + int.from_bytes(data[at + 1 : at + 3], "big")) > len(data):
                raise MalformedProxyHeader("its header ends within an extension")
            if data[at] == _CRC32C:
                value = data[at + 3 : end]
                if int.from_bytes(value, "big") != google_crc32c.value(data[: at + 3] + bytes(len(value)) + data[end:]):
                    raise MalformedProxyHeader("its header does not match its checksum")
            at = end


def _port(word: bytes) -> int:
    """Return a port. Raises ValueError unless it is spelled in digits without leading zeros."""
    if not word.isdigit() or len(word) > 5 or (number := int(word)) > 65535 or str(number).encode() != word:
        raise ValueError
    return number
