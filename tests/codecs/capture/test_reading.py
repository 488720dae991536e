"""Captures that others wrote: every kind of file and link, and TCP as it is on real networks."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures import (
    FIN,
    RST,
    SYN,
    Tcp,
    block,
    by_side,
    conversation,
    enhanced,
    interface,
    pcap,
    read,
    section,
    story,
    written,
)

from penstock_codecs.capture import CaptureReader, CaptureWriter, Chunk, Closed, Endpoint, Lost, Opened, Sender, Side
from penstock_codecs.capture.files import MAX_BLOCK

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER
ACK = 16
FIRST = Tcp(flags=SYN, sequence=99)
ANSWER = FIRST.answer(flags=SYN | ACK, sequence=499, acknowledgement=100)
ASK = Tcp(sequence=100, acknowledgement=500, data=b"question")
REPLY = ASK.answer(sequence=500, acknowledgement=108, data=b"answer")
SHORT = [FIRST, ANSWER, ASK, REPLY]
TOLD = [("opened", 0, 0, False), (CLIENT, 0, b"question"), (SERVER, 0, b"answer")]


def captured(segments: Sequence[Tcp]) -> bytes:
    """A file of these segments over raw IP, a microsecond between."""
    return section() + interface() + b"".join(enhanced(each.ip(), time) for time, each in enumerate(segments))


def told(segments: Sequence[Tcp]) -> list[object]:
    """What the only conversation says."""
    (lines,) = story(read(captured(segments))).values()
    return lines


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", "<>")
def test_pcapng_of_either_byte_order(sign: str) -> None:
    file = section(sign) + interface(sign=sign)
    file += b"".join(enhanced(each.ip(), 10 + time, sign) for time, each in enumerate(SHORT))
    events = read(file)
    assert story(events) == {(1, ""): TOLD}
    assert [event.time_ns for event in events] == [10_000, 12_000, 13_000]
    opened = events[0].conversation
    assert (opened.client, opened.server) == (Endpoint("10.0.0.1", 50_000), Endpoint("10.0.0.2", 80))
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
        file += enhanced(b"\x02" * 12 + b"\x86\xdd" + packet)
    events = read(file)
    assert story(events) == {(1, ""): TOLD}
    assert events[0].conversation.client == Endpoint("fd00::1", 50_000)


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
    "neither": (b"GET / HTTP/1.1\r\n", "neither pcapng nor pcap", 0),
    "empty": (b"", "it is empty", None),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(20), "neither pcapng nor pcap", 0),
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
    """A block that says it has 16 MiB is kept as it comes; what comes after damage is not kept at all."""
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


# ---- TCP -------------------------------------------------------------------------------------------------------------


def test_both_ends() -> None:
    ends = [
        ASK._replace(sequence=108, acknowledgement=506, flags=ACK | FIN, data=b""),
        REPLY._replace(sequence=506, acknowledgement=109, data=b" and more"),
        REPLY._replace(sequence=515, acknowledgement=109, flags=ACK | FIN, data=b""),
        ASK._replace(sequence=109, acknowledgement=516, data=b""),
        REPLY._replace(sequence=506, data=b" and more"),  # sent once more, too late
    ]
    assert told([*SHORT, *ends]) == [
        *TOLD,
        ("closed", CLIENT, False),
        (SERVER, 6, b" and more"),
        ("closed", SERVER, False),
    ]


def test_a_reset() -> None:
    lines = told([*SHORT, REPLY._replace(sequence=506, flags=RST, data=b""), ASK._replace(sequence=108)])
    assert lines == [*TOLD, ("closed", SERVER, True)]


def test_sent_twice_and_overlapping() -> None:
    segments = [
        FIRST,
        FIRST,
        ANSWER,
        ANSWER,
        ASK,
        ASK,
        ASK._replace(sequence=99, data=b"q"),  # a keep-alive
        ASK._replace(sequence=104, data=b"tion and on"),
        ASK._replace(sequence=100, data=b"question and on and on"),
    ]
    assert told(segments) == [("opened", 0, 0, False), (CLIENT, 0, b"question and on and on")]


def test_out_of_order() -> None:
    parts = [ASK._replace(sequence=100 + place, data=bytes([97 + place])) for place in (3, 1, 2, 2, 5, 0, 4)]
    assert told([FIRST, ANSWER, *parts]) == [("opened", 0, 0, False), (CLIENT, 0, b"abcdef")]


def test_a_fin_that_comes_early() -> None:
    fin = ASK._replace(sequence=108, flags=ACK | FIN, data=b"")
    assert told([FIRST, ANSWER, fin, ASK]) == [TOLD[0], TOLD[1], ("closed", CLIENT, False)]


def test_what_stays_missing_is_lost() -> None:
    late = ASK._replace(sequence=120, data=b"later")
    assert told([*SHORT, late]) == [*TOLD, ("lost", CLIENT, 8, 12), (CLIENT, 20, b"later")]
    reset = REPLY._replace(sequence=506, flags=RST, data=b"")
    assert told([*SHORT, late, reset])[-3:] == [
        ("lost", CLIENT, 8, 12),
        (CLIENT, 20, b"later"),
        ("closed", SERVER, True),
    ]


@pytest.mark.parametrize("size", [1, 1000])
def test_no_more_is_held_than_the_window(size: int) -> None:
    reader = CaptureReader(window=100_000)
    reader.receive(captured([FIRST, ANSWER]))
    list(reader.events())
    waited = 0
    for place in range(10_000):
        reader.receive(enhanced(ASK._replace(sequence=150 + place * size, data=bytes(size)).ip()))
        if any(isinstance(event, Lost) for event in reader.events()):
            break
        waited += size + 200
    assert 90_000 < waited <= 100_000


def test_packets_that_were_cut() -> None:
    """With a snap length: what is missing is known at once."""
    whole = ASK.ip()
    file = captured([FIRST, ANSWER]) + enhanced(whole[:43], original=len(whole))
    file += enhanced(ASK._replace(sequence=108, data=b"!").ip())
    (lines,) = story(read(file)).values()
    assert lines == [("opened", 0, 0, False), (CLIENT, 0, b"que"), ("lost", CLIENT, 3, 5), (CLIENT, 8, b"!")]


def test_without_its_beginning() -> None:
    """The one with the lower port is the server, and places are sequence numbers, which are told apart beyond 4 GiB."""
    reply = REPLY._replace(sequence=2**32 - 3)
    segments = [reply, ASK, reply._replace(sequence=3, data=b"more")]
    events = read(captured(segments))
    assert story(events) == {
        (1, ""): [
            ("opened", 108, 2**32 - 3, False),
            (SERVER, 2**32 - 3, b"answermore"),
        ]
    }
    assert events[0].conversation.client.port == 50_000


def test_without_the_first_syn() -> None:
    assert told(SHORT[1:]) == TOLD
    assert told([SHORT[0], *SHORT[2:]]) == TOLD


def test_ports_used_again() -> None:
    again = [
        each._replace(sequence=each.sequence + 7777, acknowledgement=each.acknowledgement + 7777) for each in SHORT
    ]
    assert story(read(captured([*SHORT, *again]))) == {(1, ""): TOLD, (2, ""): TOLD}


def test_the_same_ends_on_two_interfaces() -> None:
    """A packet that goes by twice is not one that is sent twice."""
    file = section() + interface() + interface()
    file += b"".join(enhanced(each.ip(), number=number) for each in SHORT for number in (0, 1))
    assert story(read(file)) == {(1, ""): TOLD, (2, ""): TOLD}


def test_only_so_many_conversations_are_tracked() -> None:
    """Those that were silent longest are forgotten, and it is said."""
    reader = CaptureReader(max_conversations=10)
    segments = []
    for number in range(40):
        segments += [each._replace(source_port=1000 + number) for each in (FIRST, ASK)]
        segments.append(ASK._replace(source_port=1000, sequence=108 + number, data=b"!"))
    events = read(captured(segments), reader=reader)
    lost = [event for event in events if isinstance(event, Lost)]
    assert [event.conversation.client.port for event in lost] == list(range(1001, 1031))
    assert all(event.length == 0 for event in lost)
    assert len(reader._closed) <= 60
    first = [event for event in events if event.conversation.client.port == 1000]
    assert by_side(first)[CLIENT] == b"question" + b"!" * 40


@given(st.binary(min_size=1, max_size=400), st.integers(0, 2**32 - 1), st.data())
def test_any_order_of_any_pieces(sent: bytes, start: int, data: st.DataObject) -> None:
    """Sent in pieces that overlap, come in any order and more than once: the bytes are the same, each once."""
    pieces = [(0, len(sent))]
    for _ in range(data.draw(st.integers(0, 20))):
        begin = data.draw(st.integers(0, len(sent) - 1))
        pieces.append((begin, data.draw(st.integers(begin + 1, len(sent)))))
    order = data.draw(st.permutations(pieces))
    ask = ASK._replace(acknowledgement=500)
    segments = [FIRST._replace(sequence=start - 1), ANSWER._replace(acknowledgement=start % 2**32)]
    segments += [ask._replace(sequence=start + begin, data=sent[begin:end]) for begin, end in order]
    events = read(captured(segments))
    assert by_side(events)[CLIENT] == sent
    place = 0
    for event in events:
        if isinstance(event, Chunk):
            assert event.offset == place
            place += len(event.data)


def test_a_connection_with_itself() -> None:
    """Both its directions are one: what it says is no use, but nothing fails."""
    same = {"target": FIRST.source, "target_port": FIRST.source_port}
    read(captured([each._replace(**same) for each in (FIRST, ASK, ASK._replace(flags=RST), FIRST)]))


def test_files_of_one_recording() -> None:
    """A conversation goes on in the next file as the same object; one of other people's does too."""
    one = conversation()
    writer = CaptureWriter("x")
    first = written([Opened(one, 1), Chunk(one, 2, CLIENT, 0, b"question")], writer) + captured([FIRST, ANSWER, ASK])
    rest = written(
        [Chunk(one, 3, SERVER, 0, b"answer"), Closed(one, 4, CLIENT, reset=True)], CaptureWriter("x", writer)
    )
    again = written([Opened(one, 5)])
    reader = CaptureReader()
    events = []
    for file in (first, rest + captured([REPLY]), again):
        reader.receive(file)
        events += reader.events()
        assert reader.recognized and reader.damage is None
        reader.next_file()
        assert not reader.recognized
    ours = [event for event in events if event.conversation.run]
    assert [event.conversation is ours[0].conversation for event in ours] == [True] * 5 + [False]
    assert ours[2] == Opened(ours[0].conversation, 3, 8, 0, continued=True)
    assert story(event for event in events if not event.conversation.run) == {(1, ""): TOLD}


def test_ours_without_its_comments() -> None:
    """As `editcap -F pcap` leaves it: TCP alone says the same."""
    one = conversation()
    data = bytes(range(256)) * 1000
    events = [
        Opened(one, 1),
        Chunk(one, 2, CLIENT, 0, b"question"),
        Chunk(one, 3, SERVER, 0, data),
        Closed(one, 4, CLIENT),
        Closed(one, 5, SERVER),
    ]
    bare = written(events).replace(b"penstock connection", b"something different")
    assert list(story(read(bare)).values()) == list(story(events).values())
