"""Events become pcapng: the very bytes, and what must hold for each packet."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures import NOW_NS, conversation, read, story, written

from penstock.capture.pcapng import (
    CaptureWriter,
    Chunk,
    Closed,
    Conversation,
    Lost,
    Noted,
    Opened,
    Sender,
    Side,
    SocketAddress,
)
from penstock.capture.pcapng.notes import note, parse_note

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER


class Seen:
    """A packet of our own files, told apart by fixed places."""

    def __init__(self, body: bytes) -> None:
        self.interface, high, low, captured, original = struct.unpack_from("<5I", body)
        self.time_ns = high << 32 | low
        assert captured == original
        self.packet = body[20 : 20 + captured]
        self.options = body[20 + captured + (-captured & 3) :]
        self.version = self.packet[0] >> 4
        self.header = {4: 20, 6: 40}[self.version]
        sequence = struct.unpack_from(">HHIIBB", self.packet, self.header)
        self.ports, self.sequence, self.acknowledgement, self.flags = sequence[:2], *sequence[2:4], sequence[5]
        self.data = self.packet[self.header + 4 * (sequence[4] >> 4) :]
        length = struct.unpack_from(">H", self.packet, {4: 2, 6: 4}[self.version])[0]
        assert length + {4: 0, 6: 40}[self.version] == captured

    @property
    def comments(self) -> list[str]:
        found, place = [], 0
        while True:
            code, length = struct.unpack_from("<HH", self.options, place)
            if code == 0:
                return found
            if code == 1:
                found.append(self.options[place + 4 : place + 4 + length].decode())
            place += 4 + length + (-length & 3)

    @property
    def way(self) -> int:
        return struct.unpack("<HHII", self.options[-12:])[2]


def packets(file: bytes) -> list[Seen]:
    """Every packet of a file, whose blocks must be whole."""
    found, place = [], 0
    while place < len(file):
        kind, length = struct.unpack_from("<II", file, place)
        assert length % 4 == 0 and struct.unpack_from("<I", file, place + length - 4)[0] == length
        if kind == 6:
            found.append(Seen(file[place + 8 : place + length - 4]))
        place += length
    return found


def test_the_bytes_of_a_file() -> None:
    """Each field by the draft: section 4.1 (SHB), 4.2 (IDB), 4.3 (EPB), 3.5 (options)."""
    one = Conversation(
        0, SocketAddress("10.0.0.1", 258), SocketAddress("10.0.0.2", 80), Side.FRONT, "l", "s3p", run="r"
    )
    writer = CaptureWriter("app")
    assert b"".join(writer.begin()).hex(" ", 4) == (
        "0a0d0d0a 28000000 4d3c2b1a 01000000 ffffffff ffffffff "  # type, length, byte order, 1.0, length unknown
        "04000300 61707000 00000000 28000000"  # shb_userappl "app", end of options, length
    )
    opened = b"".join(writer.encode(Opened(one, 1, 3, 4)))
    comment = (
        b"penstock connection=0 side=front name=l protocol=s3p tls=no run=r client_offset=3 server_offset=4"
        # 97 bytes, so 3 of padding
    )
    assert len(comment) == 97
    assert opened.hex(" ", 4) == (
        "01000000 28000000 65000000 00000400 "  # LINKTYPE_RAW, 262,144
        "02000100 6c000000 09000100 09000000 00000000 28000000 "  # if_name "l", if_tsresol 9
        "06000000 bc000000 00000000 00000000 01000000 28000000 28000000 "
        "45000028 00004000 400626ce 0a000001 0a000002 "
        "01020050 00000004 00000005 5010ffff 00000000 "
        f"01006100 {(comment + bytes(3)).hex(' ', 4)} 02000400 01000000 00000000 bc000000"
    )
    assert b"".join(writer.encode(Chunk(one, 2, SERVER, 4, b"hello"))).hex(" ", 4) == (
        "06000000 5c000000 00000000 00000000 02000000 2d000000 2d000000 "
        "4500002d 00004000 400626c9 0a000002 0a000001 "
        "00500102 00000005 00000004 5018ffff 00000000 "
        "68656c6c 6f000000 02000400 02000000 00000000 5c000000"
    )


def test_a_conversation_begins_and_ends_as_tcp_does() -> None:
    one = conversation()
    seen = packets(written([Opened(one, NOW_NS), Closed(one, NOW_NS + 1, CLIENT), Closed(one, NOW_NS + 2, SERVER)]))
    base = 65_537
    assert [(each.flags, each.sequence - base, each.acknowledgement - base) for each in seen] == [
        (0x02, 0, -base),
        (0x12, 0, 1),
        (0x10, 1, 1),
        (0x11, 1, 1),
        (0x11, 1, 2),
        (0x10, 2, 2),
    ]
    assert seen[0].data == b"" and seen[0].packet[-8:].hex() == "0204ffd70103030e"
    assert [each.time_ns - NOW_NS for each in seen] == [0, 0, 0, 1, 2, 2]


def test_a_reset_ends_it_at_once() -> None:
    one = conversation()
    seen = packets(written([Opened(one, 5), Closed(one, 6, SERVER, reset=True), Closed(one, 7, CLIENT)]))
    assert [each.flags for each in seen] == [0x02, 0x12, 0x10, 0x14]


@pytest.mark.parametrize(("side", "ways"), [(Side.FRONT, (1, 2)), (Side.BACK, (2, 1)), (Side.FOREIGN, (0, 0))])
def test_directions_are_the_gateways(side: Side, ways: tuple[int, int]) -> None:
    one = Conversation(1, SocketAddress("::1", 1), SocketAddress("::1", 2), side)
    seen = packets(written([Opened(one, 0), Chunk(one, 0, CLIENT, 0, b"a"), Chunk(one, 0, SERVER, 0, b"b")]))
    assert (seen[-2].way, seen[-1].way) == ways


@pytest.mark.parametrize(("host", "most"), [("127.0.0.1", 65_495), ("::1", 65_475)])
def test_packets_are_never_too_large(host: str, most: int) -> None:
    one = conversation(host=host)
    data = bytes(range(256)) * 1024
    seen = packets(written([Opened(one, 0), Chunk(one, 0, CLIENT, 0, data)]))[3:]
    assert [len(each.packet) for each in seen][:-1] == [65_535] * (len(data) // most)
    assert b"".join(each.data for each in seen) == data


@given(
    st.integers(1, 0xFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFFFFFFFF),
    st.binary(max_size=50),
    st.integers(0, 2**31),
)
def test_checksums_of_ipv4_are_right(port: int, source: int, target: int, data: bytes, number: int) -> None:
    one = Conversation(number, SocketAddress(_dotted(source), port), SocketAddress(_dotted(target), 1), Side.BACK)
    for each in packets(written([Opened(one, 0), Chunk(one, 0, CLIENT, 0, data)])):
        total = sum(struct.unpack_from(">10H", each.packet))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        assert total == 0xFFFF


def _dotted(number: int) -> str:
    return ".".join(str(byte) for byte in number.to_bytes(4, "big"))


def test_the_data_is_not_copied() -> None:
    one, data = conversation(), bytearray(1000)
    writer = CaptureWriter("x")
    writer.encode(Opened(one, 0))
    assert any(piece is data for piece in writer.encode(Chunk(one, 0, CLIENT, 0, data)))


@pytest.mark.parametrize("size", [200, 10_000])
def test_much_of_one_side_is_acknowledged(size: int) -> None:
    """A reader keeps what is not, and Wireshark says where a window is full."""
    one = conversation()
    chunks = [Chunk(one, 0, SERVER, place * size, bytes(size)) for place in range(500)]
    behind = most = packets_behind = most_packets = 0
    for each in packets(written([Opened(one, 0), *chunks])):
        if each.ports[0] == 8080:
            behind, packets_behind = behind + len(each.data), packets_behind + 1
        else:
            behind = packets_behind = 0
        most, most_packets = max(most, behind), max(most_packets, packets_behind)
    assert most < 2**20 + size and most_packets <= 64


def test_acknowledgements_are_of_what_was_written() -> None:
    """Also where one side's bytes come late, or were lost."""
    one = conversation()
    events = [
        Opened(one, 10),
        Chunk(one, 12, SERVER, 0, b"answer"),
        Chunk(one, 11, CLIENT, 0, b"question"),
        Lost(one, 13, SERVER, 6, 1000, "no room"),
        Chunk(one, 14, CLIENT, 8, b"more"),
        Chunk(one, 15, SERVER, 1006, b"late"),
        Closed(one, 16, CLIENT),
        Closed(one, 17, SERVER),
    ]
    reached = {40_001: 0, 8080: 0}
    for each in packets(written(events)):
        sender, peer = each.ports
        if each.flags & 0x10:
            assert (each.acknowledgement - 65_538) <= reached[peer]
        if each.data or each.flags & 1:
            reached[sender] = each.sequence - 65_538 + len(each.data) + (each.flags & 1)
    assert reached == {40_001: 13, 8080: 1011}


def test_one_interface_for_each_listener() -> None:
    spoken = ["listeners.s2", "backs.lite", "listeners.s2", ""]
    ends = SocketAddress("127.0.0.1", 1), SocketAddress("127.0.0.1", 2)
    events = [Opened(Conversation(number, *ends, name=name), 0) for number, name in enumerate(spoken)]
    file = written(events)
    assert [each.interface for each in packets(file) if each.flags == 2] == [0, 1, 0, 2]
    assert file.count(struct.pack("<HHI", 101, 0, 262_144)) == 3
    names = [b"\x02\x00\x0c\x00listeners.s2", b"\x02\x00\x0a\x00backs.lite\x00\x00", b"\x02\x00\x08\x00penstock"]
    assert [file.count(name) for name in names] == [1, 1, 1]


def test_notes_stand_in_comments() -> None:
    one = conversation(12)
    events = [
        Opened(one, 0),
        Noted(one, 1, "route", "orders"),  # nothing to acknowledge: waits for a packet
        Chunk(one, 2, CLIENT, 0, b"GET"),
        Noted(one, 3, "stream", 'odd "name" \n é \udc80'),
        Lost(one, 4, CLIENT, 3, 7, "no room"),
        Closed(one, 5, CLIENT),
    ]
    comments = [comment for each in packets(written(events)) for comment in each.comments]
    assert comments == [
        "penstock connection=12 side=front name=listeners.s2 protocol=s2 tls=no run=run-1 client_offset=0 "
        "server_offset=0",
        "penstock connection=12 route=orders",
        'penstock connection=12 stream="odd \\"name\\" \\n \\u00e9 \\udc80"',
        'penstock connection=12 lost=client at=3 length=7 reason="no room"',
    ]


def test_notes_do_not_wait_for_ever() -> None:
    one = conversation()
    writer = CaptureWriter("x")
    writer.encode(Opened(one, 0))
    told = [b"".join(writer.encode(Noted(one, 0, "stream", f"s{number}"))) for number in range(1000)]
    assert sum(b"stream=" in each for each in told) > 10 and max(map(len, told)) < 10_000


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,32}", fullmatch=True), st.text(st.characters(), max_size=40)))
def test_what_notes_say_can_be_read(pairs: dict[str, str]) -> None:
    pairs.pop("connection", None)
    for key, value in pairs.items():
        assert parse_note(note(conversation(7), key, value)) == {"connection": "7", key: value}


@pytest.mark.parametrize(
    "comment",
    [
        b"penstock connection=1  side=front",
        b"penstock connection=1 side",
        b'penstock connection=1 name="',
        b'penstock connection=1 name="\\x"',
        b"penstock side=front connection=1",
        b"penstock connection=1 name=\xff",
        b"penstock",
        b"Penstock connection=1",
        b"penstock connection=1 name=\xc3\xa9",
        b"penstock connection=1" + b"".join(b" %c%c=x" % (97 + n // 26, 97 + n % 26) for n in range(32)),
    ],
)
def test_what_is_no_note_is_not_read(comment: bytes) -> None:
    assert parse_note(comment) is None


def test_a_conversation_that_the_file_has_not_seen_is_identified() -> None:
    one = conversation()
    told = story(read(written([Chunk(one, 0, SERVER, 500, b"on"), Chunk(one, 1, SERVER, 502, b"ward")])))
    assert told == {(1, "run-1"): [("opened", 0, 500, True), (SERVER, 500, b"onward")]}


def test_the_next_file_goes_on() -> None:
    """Offsets beyond 4 GiB, notes, and a conversation that says nothing until the file after the next."""
    one, two, three = conversation(1), conversation(2), conversation(3)
    first = CaptureWriter("x")
    far = 5 * 2**32
    before = [Opened(each, 0, far, 7) for each in (one, two)] + [Opened(three, 0)]
    written([*before, Noted(one, 1, "route", "orders"), Chunk(one, 2, CLIENT, far, b"abc")], first)
    second = CaptureWriter("x", after=first)
    events = read(written([Closed(three, 3, CLIENT, reset=True), Chunk(one, 3, SERVER, 7, b"x")], second))
    assert story(events) == {
        (3, "run-1"): [("opened", 0, 0, True), ("closed", CLIENT, True)],
        (1, "run-1"): [("opened", far + 3, 7, True), (SERVER, 7, b"x")],
    }
    assert [event.value for event in events if isinstance(event, Noted)] == ["orders"]
    third = CaptureWriter("x", after=second)
    told = story(read(written([Chunk(two, 4, CLIENT, far, b"at last"), Closed(three, 5, SERVER)], third)))
    assert told == {(2, "run-1"): [("opened", far, 7, True), (CLIENT, far, b"at last")]}


def test_ends_that_have_no_address() -> None:
    """As memory streams have none, and what the two ends of a connection are called need not be of one kind."""
    ends = SocketAddress("memory", 1), SocketAddress("::ffff:10.0.0.1%lo", 2)
    one = Conversation(1, *ends, side=Side.BACK, name="b")
    (opened,) = [event for event in read(written([Opened(one, 0)])) if isinstance(event, Opened)]
    assert (opened.conversation.client, opened.conversation.server) == ends
