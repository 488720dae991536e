"""Captures for tests: written from events, made by hand from packets, and read back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from itertools import pairwise
from typing import NamedTuple

from penstock_codecs.capture import (
    CaptureEvent,
    CaptureReader,
    CaptureWriter,
    Chunk,
    Closed,
    Conversation,
    Endpoint,
    Lost,
    Noted,
    Opened,
    Sender,
    Side,
)

__all__ = [
    "FIN",
    "NOW_NS",
    "RST",
    "SYN",
    "Tcp",
    "block",
    "by_side",
    "conversation",
    "enhanced",
    "interface",
    "notes",
    "pcap",
    "read",
    "s2_talk",
    "s3p_talk",
    "section",
    "story",
    "written",
]

NOW_NS = 1_700_000_000_123_456_789
FIN, SYN, RST, ACK = 1, 2, 4, 16


def conversation(number: int = 1, host: str = "127.0.0.1", port: int | None = None) -> Conversation:
    """One of the S2 listener."""
    client = Endpoint(host, 40_000 + number if port is None else port)
    return Conversation(number, client, Endpoint(host, 8080), Side.FRONT, "listeners.s2", "s2", run="run-1")


def written(events: Iterable[CaptureEvent], writer: CaptureWriter | None = None) -> bytes:
    """The file that a writer makes of them."""
    writer = writer or CaptureWriter("penstock test")
    pieces = list(writer.begin())
    for event in events:
        pieces += writer.encode(event)
    return b"".join(pieces)


def read(file: bytes, cuts: Sequence[int] = (), reader: CaptureReader | None = None) -> list[CaptureEvent]:
    """The events of a file that is received in pieces."""
    reader = reader or CaptureReader()
    events: list[CaptureEvent] = []
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(file)), len(file)]
    for begin, end in pairwise(places):
        if end > begin:
            reader.receive(file[begin:end])
            events += reader.events()
    reader.receive(b"")
    events += reader.events()
    return events


def story(events: Iterable[CaptureEvent]) -> dict[tuple[int, str], list[object]]:
    """What happened in each conversation, whatever packets it took: adjacent bytes of one side are joined, times and
    notes are left out."""
    told: dict[tuple[int, str], list[object]] = {}
    for event in events:
        lines = told.setdefault((event.conversation.number, event.conversation.run), [])
        if isinstance(event, Chunk):
            data = bytes(event.data)
            last = lines[-1] if lines else None
            if isinstance(last, tuple) and last[0] is event.sender and last[1] + len(last[2]) == event.offset:
                lines[-1] = (event.sender, last[1], last[2] + data)
            elif data:
                lines.append((event.sender, event.offset, data))
        elif isinstance(event, Opened):
            lines.append(("opened", event.client_offset, event.server_offset, event.continued))
        elif isinstance(event, Lost):
            lines.append(("lost", event.sender, event.offset, event.length))
        elif isinstance(event, Closed):
            lines.append(("closed", event.sender, event.reset))
    return told


def by_side(events: Iterable[CaptureEvent]) -> dict[Sender, bytes]:
    """The bytes of each side, of one conversation."""
    sides = {sender: bytearray() for sender in Sender}
    for event in events:
        if isinstance(event, Chunk):
            sides[event.sender] += event.data
    return {sender: bytes(data) for sender, data in sides.items()}


def notes(events: Iterable[CaptureEvent]) -> list[tuple[int, str, str]]:
    """Number, key and value of each note."""
    return [(event.conversation.number, event.key, event.value) for event in events if isinstance(event, Noted)]


# ---- by hand ---------------------------------------------------------------------------------------------------------


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
        """A segment the other way."""
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
        """An IP packet. `options`: of IPv4; `extensions`: headers of IPv6, of which `first` is the first's number."""
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
    """A block of pcapng."""
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
    """An Enhanced Packet Block; `time`: in the interface's units."""
    original = len(packet) if original is None else original
    head = struct.pack(f"{sign}5I", number, time >> 32, time & 0xFFFFFFFF, len(packet), original)
    return block(6, head + packet + bytes(-len(packet) & 3) + options, sign)


def pcap(packets: Iterable[tuple[int, int, bytes]], link: int = 101, sign: str = "<", magic: int = 0xA1B2C3D4) -> bytes:
    """A file of the older kind; for each packet seconds, fraction and bytes."""
    file = struct.pack(f"{sign}IHHiIII", magic, 2, 4, 0, 0, 65_535, link)
    for seconds, fraction, packet in packets:
        file += struct.pack(f"{sign}IIII", seconds, fraction, len(packet), len(packet)) + packet
    return file


# ---- what Penstock's protocols say -----------------------------------------------------------------------------------


def s3p_talk(number: int = 1, rounds: int = 1, ends: bool = True, start_ns: int = NOW_NS) -> list[CaptureEvent]:
    """A client appends one record in each round and is told its identifier 2 ms later; then it says what is wrong."""
    one = Conversation(
        number,
        Endpoint("127.0.0.1", 40_000 + number),
        Endpoint("127.0.0.1", 7500),
        Side.FRONT,
        "listeners.s3p",
        "s3p",
        run="run-1",
    )
    events: list[CaptureEvent] = [Opened(one, start_ns), Noted(one, start_ns, "route", "orders")]
    asked = answered = 0
    for turn in range(rounds):
        body = b"record %d" % turn
        command = b"*4\r\n$6\r\nAPPEND\r\n$6\r\norders\r\n*0\r\n*1\r\n$%d\r\n%b\r\n" % (len(body), body)
        record_id = b"1700000000000-%d" % turn
        reply = b"$%d\r\n%b\r\n" % (len(record_id), record_id)
        now_ns = start_ns + turn * 10_000_000
        events.append(Chunk(one, now_ns, Sender.CLIENT, asked, command))
        events.append(Chunk(one, now_ns + 2_000_000, Sender.SERVER, answered, reply))
        asked, answered = asked + len(command), answered + len(reply)
    if ends:
        wrong, refusal = b"*1\r\n$4\r\nNOPE\r\n", b"-ERR_BAD_FORMAT unknown command\r\n"
        now_ns = start_ns + rounds * 10_000_000
        events.append(Chunk(one, now_ns, Sender.CLIENT, asked, wrong))
        events.append(Chunk(one, now_ns + 1000, Sender.SERVER, answered, refusal))
        events += [Closed(one, now_ns + 2000, Sender.SERVER), Closed(one, now_ns + 3000, Sender.CLIENT)]
    return events


def s2_talk(number: int = 2, start_ns: int = NOW_NS) -> list[CaptureEvent]:
    """Two exchanges over HTTP/1.1: an append of two records, and a read that fails."""
    one = Conversation(
        number,
        Endpoint("127.0.0.1", 40_000 + number),
        Endpoint("127.0.0.1", 8080),
        Side.FRONT,
        "listeners.s2",
        "s2",
        run="run-1",
    )
    asked = b'{"records":[{"body":"first"},{"body":"second"}]}'
    told = b'{"start":{"seq_num":5,"timestamp":9},"end":{"seq_num":7,"timestamp":9},"tail":{"seq_num":7,"timestamp":9}}'
    refused = b'{"code":"stream_not_found","message":"no such stream"}'
    requests = [
        b"POST /v1/streams/in/records HTTP/1.1\r\nhost: example.test\r\ns2-basin: penstock\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(asked), asked),
        b"GET /v1/streams/none/records?seq_num=0&count=1 HTTP/1.1\r\nhost: example.test\r\ns2-basin: penstock\r\n\r\n",
    ]
    answers = [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told),
        b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(refused), refused),
    ]
    events: list[CaptureEvent] = [Opened(one, start_ns)]
    places = dict.fromkeys(Sender, 0)
    for turn, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        now_ns = start_ns + turn * 10_000_000
        for sender, data, later_ns in ((Sender.CLIENT, request, 0), (Sender.SERVER, answer, 3_000_000)):
            events.append(Chunk(one, now_ns + later_ns, sender, places[sender], data))
            places[sender] += len(data)
    return [*events, Closed(one, now_ns + 10**7, Sender.CLIENT), Closed(one, now_ns + 10**7, Sender.SERVER)]
