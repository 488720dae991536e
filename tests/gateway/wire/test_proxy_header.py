"""Headers of the PROXY protocol: both versions, cut at every byte, and what is no header."""

from __future__ import annotations

import struct

import google_crc32c
import pytest

from penstock.wire.proxy_header import MAX_HEADER_BYTES, SIGNATURE, MalformedProxyHeader, ProxyHeader

BEHIND = b"GET / HTTP/1.1\r\n"


def v2(command: int, family: int, addresses: bytes, *extensions: bytes) -> bytes:
    body = addresses + b"".join(extensions)
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


def extension(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


IPV4 = bytes([192, 0, 2, 7, 198, 51, 100, 1]) + struct.pack(">HH", 4711, 443)
IPV6 = bytes.fromhex("20010db8" + "00" * 11 + "01" + "20010db8" + "00" * 11 + "02") + struct.pack(">HH", 4711, 443)
SUMMED = v2(0x21, 0x11, IPV4, extension(0x03, bytes(4)))
SUMMED = SUMMED[:-4] + struct.pack(">I", google_crc32c.value(SUMMED))
HEADERS = {
    b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n": ("192.0.2.7", 4711),
    b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 443\r\n": ("2001:db8::1", 4711),
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n": None,
    v2(0x21, 0x11, IPV4): ("192.0.2.7", 4711),
    v2(0x21, 0x21, IPV6): ("2001:db8::1", 4711),
    v2(0x21, 0x11, IPV4, extension(0x04, bytes(20)), extension(0xEA, b"vpce")): ("192.0.2.7", 4711),
    SUMMED: ("192.0.2.7", 4711),
    v2(0x20, 0x00, b""): None,
    v2(0x20, 0x11, IPV4): None,
    v2(0x21, 0x00, b"ignored"): None,
    v2(0x21, 0x31, bytes(216)): None,
}
WRONG = [
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 65536\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 04711 443\r\n",
    b"PROXY TCP4 2001:db8::1 2001:db8::2 4711 443\r\n",
    b"PROXY TCP4 192.0.2.7  198.51.100.1 4711 443\r\n",
    b"PROXY UDP4 192.0.2.7 198.51.100.1 4711 443\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\n",
    b"PROXY \r\n",
    b"PROXY UNKNOWN " + b"x" * 100,
    v2(0x11, 0x11, IPV4),
    v2(0x22, 0x11, IPV4),
    v2(0x21, 0x41, IPV4),
    v2(0x21, 0x11, IPV4[:-1]),
    v2(0x21, 0x11, IPV4, b"\x04\0"),
    v2(0x21, 0x11, IPV4, b"\x04\0\x05abcd"),
    SUMMED[:-1] + bytes([SUMMED[-1] ^ 1]),
    SIGNATURE + struct.pack(">BBH", 0x21, 0x11, MAX_HEADER_BYTES),
]


def fed(data: bytes, at_once: int) -> tuple[ProxyHeader, bytes]:
    """A header that was fed with at most so many bytes at a time, and what is behind it."""
    header = ProxyHeader()
    while not header.complete and data:
        most, stop = header.wanted
        piece = data[: min(most, at_once)]
        if stop and stop in piece:
            piece = piece[: piece.index(stop) + 1]
        header.feed(piece)
        data = data[len(piece) :]
    return header, data


@pytest.mark.parametrize("at_once", [1, 7, 5000])
@pytest.mark.parametrize("data", HEADERS)
def test_a_header_names_the_client_and_takes_nothing_behind_it(data: bytes, at_once: int) -> None:
    header, behind = fed(data + BEHIND, at_once)
    assert (header.complete, header.client, behind) == (True, HEADERS[data], BEHIND)
    assert not fed(data[:-1], at_once)[0].complete


@pytest.mark.parametrize("at_once", [1, 5000])
@pytest.mark.parametrize("data", WRONG)
def test_what_is_no_header_is_refused(data: bytes, at_once: int) -> None:
    with pytest.raises(MalformedProxyHeader):
        fed(data, at_once)
