"""Captures that others wrote: every kind of file and link, and damage."""

from __future__ import annotations

import struct

import pytest
from support.captures import read, story
from support.captures.blocks import (
    ANSWER,
    ASK,
    FIRST,
    SHORT,
    TOLD,
    Tcp,
    block,
    enhanced,
    interface,
    pcap,
    section,
)

from penstock.capture.pcapng import CaptureReader, Sender, Side, SocketAddress
from penstock.capture.pcapng.files import MAX_BLOCK

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER


@pytest.mark.parametrize("sign", "<>")
def test_pcapng_of_either_byte_order(sign: str) -> None:
    file = section(sign) + interface(sign=sign)
    file += b"".join(enhanced(each.ip(), 10 + time, sign) for time, each in enumerate(SHORT))
    events = read(file)
    assert story(events) == {(1, ""): TOLD}
    assert [event.time_ns for event in events] == [10_000, 12_000, 13_000]
    opened = events[0].conversation
    assert (opened.client, opened.server) == (SocketAddress("10.0.0.1", 50_000), SocketAddress("10.0.0.2", 80))
    assert (opened.side, opened.protocol) == (Side.FOREIGN, "")


@pytest.mark.parametrize("sign", "<>")
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_pcap_of_every_kind(sign: str, magic: int, unit: int) -> None:
    file = pcap([(7, time, each.ip()) for time, each in enumerate(SHORT)], sign=sign, magic=magic)
    events = read(file, range(0, len(file), 7))
    assert story(events) == {(1, ""): TOLD}
    assert [event.time_ns - 7 * 10**9 for event in events] == [0, 2 * unit, 3 * unit]


RESOLUTIONS = [
    (b"", 3, 3000),
    (struct.pack("<HHB3x", 9, 1, 3), 3, 3_000_000),
    (struct.pack("<HHB3x", 9, 1, 12), 3_000_000, 3000),
    (struct.pack("<HHB3x", 9, 1, 0x80 | 10), 512, 500_000_000),
    (struct.pack("<HHBxxxHHq", 9, 1, 9, 14, 8, 5), 3, 5 * 10**9 + 3),
    (struct.pack("<HHB3x", 9, 1, 127), 2**63, 0),
    (struct.pack("<HHB3x", 9, 1, 0), 2**64 - 1, 2**64 - 1),  # beyond what 64 bits of nanoseconds can say
    (struct.pack("<HHBxxxHHq", 9, 1, 9, 14, 8, -5), 7, 0),
]


@pytest.mark.parametrize(("options", "time", "time_ns"), RESOLUTIONS)
def test_resolutions_of_time(options: bytes, time: int, time_ns: int) -> None:
    (opened,) = read(section() + interface(options=options) + enhanced(FIRST.ip(), time))
    assert opened.time_ns == time_ns


def test_several_sections() -> None:
    """Of different byte orders; interfaces are counted anew in each."""
    file = section() + interface(1) + interface() + enhanced(FIRST.ip(), number=1)
    file += section(">") + interface(sign=">") + enhanced(ANSWER.ip(), sign=">") + enhanced(ASK.ip(), sign=">")
    file = file.replace(enhanced(FIRST.ip(), number=1), enhanced(FIRST.ip(), number=1) + enhanced(b"\0" * 60))
    lines = list(story(read(file)).values())
    assert ("opened", 0, 0, False) in lines[0]


def test_other_blocks_are_passed_by() -> None:
    """Name resolution, statistics, unknown ones; the obsolete packet and the simple one are read."""
    segments = [each.ip() for each in SHORT]
    obsolete = block(2, struct.pack("<HHIIII", 0, 7, 0, 5, len(segments[2]), len(segments[2])) + segments[2])
    file = section() + interface() + block(4, b"\0" * 8) + enhanced(segments[0], 3) + block(0x40000BAD, b"x" * 1000)
    file += enhanced(segments[1], 4) + obsolete + block(5, b"\0" * 12) + block(3, struct.pack("<I", 46) + segments[3])
    events = read(file)
    assert story(events) == {(1, ""): TOLD}
    assert [event.time_ns for event in events] == [3000, 5000, 5000]


VLAN = b"\x81\x00\x00\x05"
LINKS = {
    "Ethernet": (1, b"\x02" * 12 + b"\x08\x00"),
    "Ethernet with VLAN": (1, b"\x02" * 12 + VLAN + b"\x08\x00"),
    "Ethernet with two VLANs": (1, b"\x02" * 12 + b"\x88\xa8\x00\x01" + VLAN + b"\x08\x00"),
    "Linux cooked": (113, bytes(14) + b"\x08\x00"),
    "Linux cooked 2": (276, b"\x08\x00" + bytes(18)),
    "BSD loopback, little-endian": (0, b"\x02\0\0\0"),
    "BSD loopback, big-endian": (0, b"\0\0\0\x02"),
    "OpenBSD loopback": (108, b"\0\0\0\x02"),
    "raw, as BSD numbers it": (12, b""),
    "raw, as OpenBSD numbers it": (14, b""),
    "raw": (101, b""),
    "IPv4": (228, b""),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("padding", [b"", bytes(6)])
def test_links(link: str, padding: bytes) -> None:
    number, head = LINKS[link]
    file = section() + interface(number)
    file += b"".join(enhanced(head + each.ip() + padding) for each in SHORT)
    assert story(read(file)) == {(1, ""): TOLD}


IPV6_EXTENSIONS = [
    (6, b""),
    (0, bytes([60, 0]) + bytes(6) + bytes([6, 1]) + bytes(14)),  # hop-by-hop, destination options
    (43, bytes([6, 0]) + bytes(6)),
    (44, bytes([6, 0, 0, 0]) + bytes(4)),  # a fragment that is the whole
    (51, bytes([6, 4]) + bytes(22)),  # authentication
]


@pytest.mark.parametrize(("first", "extensions"), IPV6_EXTENSIONS)
def test_ipv6(first: int, extensions: bytes) -> None:
    file = section() + interface(1)
    for each in SHORT:
        ends = {"source": each.source.replace("10.0.0.", "fd00::"), "target": each.target.replace("10.0.0.", "fd00::")}
        packet = each._replace(**ends).ip(extensions=extensions, first=first)
        file += enhanced(b"\x02" * 12 + b"\x86\xdd" + packet + b"behind it")
    events = read(file)
    assert story(events) == {(1, ""): TOLD}
    assert events[0].conversation.client == SocketAddress("fd00::1", 50_000)


def test_options_of_ip_and_tcp() -> None:
    segments = [each._replace(options=b"\x01" * 12) for each in SHORT]
    file = section() + interface() + b"".join(enhanced(each.ip(options=b"\x01" * 8)) for each in segments)
    assert story(read(file)) == {(1, ""): TOLD}


def test_a_length_that_the_network_card_fills_in() -> None:
    packets = [bytearray(each.ip()) for each in SHORT]
    for packet in packets:
        packet[2:4] = bytes(2)
    file = section() + interface() + b"".join(enhanced(bytes(packet)) for packet in packets)
    assert story(read(file)) == {(1, ""): TOLD}


def test_what_is_not_tcp_is_counted() -> None:
    packets = {
        "fragment": ASK.ip(fragment=0x2000),
        "not TCP": ASK.ip()[:9] + b"\x11" + ASK.ip()[10:],
        "not IP": b"\x10" + bytes(30),
        "too short": ASK.ip()[:30],
    }
    sixes = Tcp("fd00::1", 1, "fd00::2", 2, data=b"x")
    late = sixes.ip(extensions=bytes([6, 0, 0, 9]) + bytes(4), first=44)
    file = section() + interface() + b"".join(map(enhanced, packets.values())) + enhanced(late)
    file += enhanced(sixes.ip(first=17)) + interface(1) + enhanced(b"\x02" * 12 + b"\x08\x06" + bytes(40), number=1)
    file += interface(195) + enhanced(bytes(60), number=2) + enhanced(bytes(60), number=9)
    reader = CaptureReader()
    assert read(file, reader=reader) == [] and reader.damage is None
    assert reader.ignored == {
        "fragment": 2,
        "not TCP": 2,
        "not IP": 2,
        "too short": 1,
        "link type 195": 1,
        "unknown interface": 1,
    }


# ---- damage ----------------------------------------------------------------------------------------------------------

GOOD = section() + interface() + enhanced(FIRST.ip())
DAMAGED = {
    "neither": (b"GET / HTTP/1.1\r\n", "neither like pcapng nor like pcap", 0),
    "empty": (b"", "it is empty", None),
    "two bytes": (b"\x0a\x0d", "this is not a capture", 0),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(20), "neither like pcapng nor like pcap", 0),
    "byte order": (GOOD + section().replace(b"\x4d\x3c\x2b\x1a", b"abcd"), "byte order", len(GOOD)),
    "length 0": (GOOD + bytes(64), "said to be 0 bytes", len(GOOD)),
    "odd length": (GOOD + struct.pack("<II", 6, 33) + bytes(60), "33 bytes", len(GOOD)),
    "4 GiB": (GOOD + struct.pack("<II", 6, 2**32 - 4) + bytes(60), "4294967292 bytes", len(GOOD)),
    "unknown, 4 GiB": (GOOD + struct.pack("<II", 77, 2**32 - 4) + bytes(60), "4294967292 bytes", len(GOOD)),
    "other length behind": (GOOD + struct.pack("<III", 9, 12, 16), "another length", len(GOOD)),
    "short packet": (GOOD + block(6, bytes(16)), "too short", len(GOOD)),
    "short packet, obsolete": (GOOD + block(2, bytes(16)), "too short", len(GOOD)),
    "short packet, simple": (GOOD + block(3, b""), "too short", len(GOOD)),
    "packet beyond its block": (
        GOOD + block(6, struct.pack("<5I", 0, 0, 0, 64, 64) + bytes(60)),
        "64 bytes",
        len(GOOD),
    ),
    "short interface": (GOOD + block(1, bytes(4)), "cannot be", len(GOOD)),
    "pcap, large": (pcap([]) + struct.pack("<IIII", 0, 0, MAX_BLOCK + 1, 9), "no program captures", 24),
    "pcap, half a record": (pcap([]) + bytes(15), "in the middle", 24),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_said_with_its_place(kind: str) -> None:
    file, words, place = DAMAGED[kind]
    reader = CaptureReader()
    events = read(file, range(0, len(file), 5), reader)
    assert reader.damage is not None and words in reader.damage
    assert place is None or reader.damage.endswith(f"(byte {place})")
    assert len(events) == (file.startswith(GOOD))


def test_lengths_claimed_cost_nothing() -> None:
    """A block that claims 16 MiB is held only as far as it has arrived; bytes after damage are not held at all."""
    reader = CaptureReader()
    reader.receive(GOOD + struct.pack("<III", 6, MAX_BLOCK + 4, 0))
    assert len(list(reader.events())) == 1 and reader.damage is not None
    for _ in range(100):
        reader.receive(bytes(100_000))
        assert list(reader.events()) == []
    assert reader._file._have < 1000


def test_options_are_not_believed() -> None:
    """A million of them, one that is longer than its block, and one of ours that is none."""
    mark = b"penstock connection=1"
    many = struct.pack("<HH", 2988, 0) * 1_000_000 + mark
    long = struct.pack("<HH", 1, 60_000) + mark
    odd = struct.pack("<HH", 1, len(mark) + 3) + mark + b' x="'[:3] + bytes(4)
    file = section() + interface() + b"".join(enhanced(FIRST.ip(), options=each) for each in (many, long, odd))
    reader = CaptureReader()
    assert story(read(file, reader=reader)) == {(1, ""): [("opened", 0, 0, False)]}
    assert reader.ignored == {"comment": 1}
