"""Captures made by hand: segments, packets and blocks, and a short conversation of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from support.captures import read, story

from penstock.capture.pcapng import Sender

__all__ = [
    "ACK",
    "ANSWER",
    "ASK",
    "FIN",
    "FIRST",
    "REPLY",
    "RST",
    "SHORT",
    "SYN",
    "TOLD",
    "Tcp",
    "block",
    "captured",
    "enhanced",
    "interface",
    "pcap",
    "section",
    "told",
]

FIN, SYN, RST, ACK = 1, 2, 4, 16


class Tcp(NamedTuple):
    """A segment, and what stands around it."""

    source: str = "10.0.0.1"
    source_port: int = 50_000
    target: str = "10.0.0.2"
    target_port: int = 80
    sequence: int = 0
    acknowledgement: int = 0
    flags: int = ACK
    data: bytes = b""
    options: bytes = b""

    def answer(self, **changes: object) -> Tcp:
        """Return a TCP segment in the other direction."""
        turned = self._replace(
            source=self.target, source_port=self.target_port, target=self.source, target_port=self.source_port
        )
        return turned._replace(**changes)

    def segment(self) -> bytes:
        words = (5 + len(self.options) // 4) << 12 | self.flags
        head = struct.pack(
            ">HHIIHHHH",
            self.source_port,
            self.target_port,
            self.sequence % 2**32,
            self.acknowledgement % 2**32,
            words,
            512,
            0,
            0,
        )
        return head + self.options + self.data

    def ip(self, fragment: int = 0, options: bytes = b"", extensions: bytes = b"", first: int = 6) -> bytes:
        """Return an IP packet. `options`: of IPv4; `extensions`: headers of IPv6, of which `first` is the first's
        number.
        """
        segment = self.segment()
        source, target = ip_address(self.source), ip_address(self.target)
        if source.version == 6:
            head = struct.pack(">IHBB", 6 << 28, len(extensions) + len(segment), first, 64)
            return head + source.packed + target.packed + extensions + segment
        words = 5 + len(options) // 4
        total = 4 * words + len(segment)
        head = struct.pack(">BBHHHBBH", 0x40 | words, 0, total, 7, fragment, 64, 6, 0)
        return head + source.packed + target.packed + options + segment


def block(kind: int, body: bytes, sign: str = "<") -> bytes:
    """Return a block of pcapng."""
    body += bytes(-len(body) & 3)
    length = len(body) + 12
    return struct.pack(f"{sign}II", kind, length) + body + struct.pack(f"{sign}I", length)


def section(sign: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{sign}IHHq", 0x1A2B3C4D, 1, 0, -1), sign)


def interface(link: int = 101, sign: str = "<", options: bytes = b"", snap_length: int = 0) -> bytes:
    return block(1, struct.pack(f"{sign}HHI", link, 0, snap_length) + options, sign)


def enhanced(
    packet: bytes, time: int = 0, sign: str = "<", number: int = 0, original: int | None = None, options: bytes = b""
) -> bytes:
    """Return an Enhanced Packet Block; `time`: in the interface's units."""
    original = len(packet) if original is None else original
    head = struct.pack(f"{sign}5I", number, time >> 32, time & 0xFFFFFFFF, len(packet), original)
    return block(6, head + packet + bytes(-len(packet) & 3) + options, sign)


def pcap(packets: Iterable[tuple[int, int, bytes]], link: int = 101, sign: str = "<", magic: int = 0xA1B2C3D4) -> bytes:
    """Return a file of the older format; `packets`: seconds, fraction and bytes of each."""
    file = struct.pack(f"{sign}IHHiIII", magic, 2, 4, 0, 0, 65_535, link)
    for seconds, fraction, packet in packets:
        file += struct.pack(f"{sign}IIII", seconds, fraction, len(packet), len(packet)) + packet
    return file


FIRST = Tcp(flags=SYN, sequence=99)
ANSWER = FIRST.answer(flags=SYN | ACK, sequence=499, acknowledgement=100)
ASK = Tcp(sequence=100, acknowledgement=500, data=b"question")
REPLY = ASK.answer(sequence=500, acknowledgement=108, data=b"answer")
SHORT = [FIRST, ANSWER, ASK, REPLY]
TOLD = [("opened", 0, 0, False), (Sender.CLIENT, 0, b"question"), (Sender.SERVER, 0, b"answer")]
"""Events of SHORT."""


def captured(segments: Sequence[Tcp]) -> bytes:
    """Return a file of these segments over raw IP, a microsecond between."""
    return section() + interface() + b"".join(enhanced(each.ip(), time) for time, each in enumerate(segments))


def told(segments: Sequence[Tcp]) -> list[object]:
    """Return the events of the only conversation."""
    (lines,) = story(read(captured(segments))).values()
    return lines
