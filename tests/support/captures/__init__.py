"""Captures for tests, written from events and read back, and some conversations in Penstock's protocols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from penstock.capture.pcapng import (
    CaptureEvent,
    CaptureReader,
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

__all__ = [
    "NOW_NS",
    "by_side",
    "conversation",
    "notes",
    "read",
    "s2_talk",
    "s3p_talk",
    "story",
    "written",
]

NOW_NS = 1_700_000_000_123_456_789


def conversation(number: int = 1, host: str = "127.0.0.1", port: int | None = None) -> Conversation:
    """One of the S2 listener."""
    client = SocketAddress(host, 40_000 + number if port is None else port)
    return Conversation(number, client, SocketAddress(host, 8080), Side.FRONT, "listeners.s2", "s2", run="run-1")


def written(events: Iterable[CaptureEvent], writer: CaptureWriter | None = None) -> bytes:
    """Return the file that a writer makes of these events."""
    writer = writer or CaptureWriter("penstock test")
    pieces = list(writer.begin())
    for event in events:
        pieces += writer.encode(event)
    return b"".join(pieces)


def read(file: bytes, cuts: Sequence[int] = (), reader: CaptureReader | None = None) -> list[CaptureEvent]:
    """Return the events of a file that is received in pieces."""
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
    """Return the events of each conversation independently of packets: adjacent bytes of a side joined, without times
    and notes.
    """
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
    """Return the bytes of each side, of one conversation."""
    sides = {sender: bytearray() for sender in Sender}
    for event in events:
        if isinstance(event, Chunk):
            sides[event.sender] += event.data
    return {sender: bytes(data) for sender, data in sides.items()}


def notes(events: Iterable[CaptureEvent]) -> list[tuple[int, str, str]]:
    """Number, key and value of each note."""
    return [(event.conversation.number, event.key, event.value) for event in events if isinstance(event, Noted)]


# ---- what Penstock's protocols say -----------------------------------------------------------------------------------


def s3p_talk(number: int = 1, rounds: int = 1, ends: bool = True, start_ns: int = NOW_NS) -> list[CaptureEvent]:
    """Return a conversation: in each round an append that is acknowledged 2 ms later; at the end an error."""
    one = Conversation(
        number,
        SocketAddress("127.0.0.1", 40_000 + number),
        SocketAddress("127.0.0.1", 7500),
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
        SocketAddress("127.0.0.1", 40_000 + number),
        SocketAddress("127.0.0.1", 8080),
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
