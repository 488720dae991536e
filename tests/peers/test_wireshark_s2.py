"""Wireshark shows S2's sessions exactly as the codecs decode them, over both HTTP versions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from google.protobuf.message import Message
from h2.config import H2Configuration
from h2.connection import H2Connection
from support.captures.tshark import Layer, Said, Talk, captured, client_says, cut, layers, server_says, tshark

from penstock.capture.pcapng.events import Sender
from penstock.wire.compression import Compression, compress
from penstock_proto import s2_pb2 as pb
from penstock_s2.codec.s2s.frames import encode_frame, encode_terminal

TWICE = ("-2", "-R", "tcp")
PASSES = ((), TWICE)
PATHS = {"AppendInput": "append_input", "AppendAck": "append_ack", "ReadBatch": "read_batch"}
META = re.compile(r"s2s\.(flags|records|heartbeat|message|time|request|response)|penstock|_ws|^$")
POSITION = pb.StreamPosition(seq_num=2**64 - 1, timestamp=1_790_000_000_000)
ACKS = [
    pb.AppendAck(start=pb.StreamPosition(seq_num=start), end=pb.StreamPosition(seq_num=end, timestamp=5), tail=POSITION)
    for start, end in [(0, 1), (1, 3), (3, 4)]
]
INPUTS = [
    pb.AppendInput(records=[pb.AppendRecord(body=b"hi", headers=[pb.Header(name=b"k", value=b"v")])]),
    pb.AppendInput(records=[pb.AppendRecord(timestamp=0), pb.AppendRecord(body=b"\0\xff")], match_seq_num=0),
    pb.AppendInput(records=[pb.AppendRecord(body=b"large" * 800)], fencing_token="token é"),
]
BATCHES = [
    pb.ReadBatch(records=[pb.SequencedRecord(seq_num=n, timestamp=2**63 + n, body=b"record") for n in range(3)]),
    pb.ReadBatch(tail=POSITION),
    pb.ReadBatch(tail=pb.StreamPosition()),
    pb.ReadBatch(
        records=[pb.SequencedRecord(seq_num=3, body=b"large" * 800, headers=[pb.Header(value=b"fence")])], tail=POSITION
    ),
]
ERROR = b'{"code":"unavailable","message":"sample"}'


def frame(message: Message, compression: Compression = Compression.NONE) -> bytes:
    payload = message.SerializeToString()
    plain = compression is Compression.NONE
    return b"".join(encode_frame([payload if plain else compress(compression, payload)], compression))


def fields_of(message: Message, path: str) -> Iterator[tuple[str, str]]:
    """Yield each value of a message as Wireshark shows it, with its path; empty bytes are not shown."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            continue
        for each in value if field.is_repeated else [value]:
            name = f"{path}.{field.name}"
            if isinstance(each, Message):
                yield name, ""
                yield from fields_of(each, name)
            elif each != b"":
                yield name, each.hex(":") if isinstance(each, bytes) else str(each)


def expected(message: Message) -> list[tuple[str, str]]:
    path = f"s2s.{PATHS[message.DESCRIPTOR.name]}"
    return sorted([(path, ""), *fields_of(message, path)])


def decoded(layer: Layer) -> list[tuple[str, str]]:
    return sorted(pair for pair in layer.fields if not META.match(pair[0]))


def of_talk(found: Sequence[Layer], talk: int) -> list[Layer]:
    """The messages of a conversation."""
    return [layer for layer in found if layer.talk == talk]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


REQUEST = b"%b /v1/streams/a/records HTTP/1.1\r\nhost: b.localhost\r\ncontent-type: s2s/proto\r\n%b\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
TAIL_REQUEST = b"GET /v1/streams/a/records/tail HTTP/1.1\r\nhost: b.localhost\r\n\r\n"
TAIL = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 38\r\n\r\n"
    b'{"tail":{"seq_num":0,"timestamp":0}}  '
)


def http1(uploads: Sequence[bytes], downloads: Sequence[bytes], *, ends: bool = True) -> list[Said]:
    """A unary exchange and a session with these pieces of bodies, each a chunk, over HTTP/1.1."""
    method, more = (b"POST", CHUNKED) if uploads else (b"GET", b"")
    said = client_says(TAIL_REQUEST) + server_says(TAIL) + client_says(REQUEST % (method, more))
    said += server_says(RESPONSE % b"s2s/proto")
    said += client_says(*map(chunk, uploads)) + server_says(*map(chunk, downloads))
    if ends:
        said += (client_says(b"0\r\n\r\n") if uploads else []) + server_says(b"0\r\n\r\n")
        said += client_says(TAIL_REQUEST) + server_says(TAIL)
    return said


class Http2Talk:
    """Both ends of a connection of HTTP/2, and what they say."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self._client = H2Connection(H2Configuration(client_side=True))
        self._server = H2Connection(H2Configuration(client_side=False))
        self._client.initiate_connection()
        self._server.initiate_connection()
        self._flush()

    def _flush(self) -> None:
        for sender, own, other in (
            (Sender.CLIENT, self._client, self._server),
            (Sender.SERVER, self._server, self._client),
        ):
            if data := own.data_to_send():
                self.said.append((sender, data))
                other.receive_data(data)

    def begin(self, stream: int, method: str, kind: str = "s2s/proto") -> None:
        head = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "b.localhost"),
            (":path", "/v1/streams/a/records"),
        ]
        head += [("content-type", "s2s/proto")] if kind == "s2s/proto" else []
        self._client.send_headers(stream, head, end_stream=method == "GET")
        self._flush()
        self._server.send_headers(stream, [(":status", "200"), ("content-type", kind)])
        self._flush()

    def data(self, sender: Sender, stream: int, *pieces: bytes) -> None:
        own, other = (self._client, self._server) if sender is Sender.CLIENT else (self._server, self._client)
        for piece in pieces:
            for at in range(0, len(piece), 16_384):
                part = piece[at : at + 16_384]
                own.send_data(stream, part)
                self._flush()
                other.acknowledge_received_data(len(part), stream)
                self._flush()


def http2(uploads: Sequence[bytes], downloads: Sequence[bytes], *others: bytes) -> list[Said]:
    """A session with these pieces of bodies over HTTP/2, between those of a read session with `others`."""
    talk = Http2Talk()
    talk.begin(1, "POST" if uploads else "GET")
    talk.begin(3, "GET")
    talk.data(Sender.SERVER, 3, *others[:1])
    talk.data(Sender.CLIENT, 1, *uploads)
    talk.data(Sender.SERVER, 1, *downloads[:1])
    talk.data(Sender.SERVER, 3, *others[1:])
    talk.data(Sender.SERVER, 1, *downloads[1:])
    return talk.said


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


UPLOAD = b"".join(map(frame, INPUTS))
ANSWERS = b"".join(map(frame, ACKS))
DOWNLOAD = b"".join(map(frame, BATCHES)) + b"".join(encode_terminal(503, ERROR))


def checked(layers_: Sequence[Layer], *messages: Message, terminal: bool = False) -> None:
    """These messages in this order, and maybe a terminal frame behind them."""
    assert [layer.all("s2s.message") for layer in layers_] == [
        *([message.DESCRIPTOR.name] for message in messages),
        *([["Terminal"]] if terminal else []),
    ]
    for layer, message in zip(layers_, messages, strict=False):
        assert decoded(layer) == expected(message)
    if terminal:
        assert (layers_[-1].one("s2s.status"), layers_[-1].one("s2s.error")) == ("503", "unavailable: sample")
        assert layers_[-1].all("s2s.flags.terminal") == ["1"]


@pytest.mark.parametrize("size", [1 << 20, 97])
def test_sessions_over_http1(size: int, tmp_path: Path) -> None:
    """Frames in chunks that are cut elsewhere, and both in segments that are cut elsewhere again."""
    append = http1(pieces_of(UPLOAD, size), pieces_of(ANSWERS, size))
    read = http1([], pieces_of(DOWNLOAD, size))
    capture = captured(
        tmp_path / "http1.pcapng",
        Talk("s2", append),
        Talk("s2", cut(append, 61), port=4444),
        Talk("s2", read),
        Talk("s2", cut(read, 1 << 20), noted=False),
        Talk("s2", http1(pieces_of(UPLOAD, size), pieces_of(ANSWERS, size), ends=False), ends=False),
    )
    for arguments in PASSES:
        found = layers(capture, "s2s", arguments=arguments)
        for talk in (0, 1, 4):
            checked(of_talk(found, talk), *INPUTS, *ACKS)
        for talk in (2, 3):
            checked(of_talk(found, talk), *BATCHES, terminal=True)


@pytest.mark.parametrize("size", [1 << 20, 97])
def test_sessions_over_http2(size: int, tmp_path: Path) -> None:
    """Two sessions interleaved, and their frames cut by DATA frames and by segments."""
    others = pieces_of(DOWNLOAD, 5_000)
    append = http2(pieces_of(UPLOAD, size), pieces_of(ANSWERS, size), *others)
    capture = captured(
        tmp_path / "http2.pcapng",
        Talk("s2", append),
        Talk("s2", cut(append, 61), port=4444),
        Talk("", cut(append, 1 << 20), noted=False),
    )
    for arguments in PASSES:
        found = layers(capture, "s2s", arguments=arguments)
        for talk in range(3):
            mine = of_talk(found, talk)
            reads = [one for one in mine if one.one("s2s.message") in ("ReadBatch", "Terminal")]
            checked(reads, *BATCHES, terminal=True)
            checked([one for one in mine if one not in reads], *INPUTS, *ACKS)


def test_compressed_frames(tmp_path: Path) -> None:
    """Also those that this Wireshark cannot decompress."""
    batches = [pb.ReadBatch(records=[pb.SequencedRecord(seq_num=n, body=b"large" * 800)]) for n in range(3)]
    frames = [*map(frame, batches, (Compression.GZIP, Compression.ZSTD, Compression.NONE))]
    capture = captured(tmp_path / "compressed.pcapng", Talk("s2", http2([], frames)), Talk("s2", http1([], frames)))
    found = layers(capture, "s2s")
    for talk in range(2):
        messages = of_talk(found, talk)
        assert [decoded(layer) for layer in messages] == list(map(expected, batches))
        assert [layer.one("s2s.flags.compression") for layer in messages] == ["gzip", "zstd", "none"]


EVENTS = (
    b'event: batch\r\nid: 1,2,24\r\ndata: {"records":[{"seq_num":1,"timestamp":7,"body":"text"}]}\r\n\r\n'
    b'event: ping\ndata: {"timestamp":5,"tail":{"seq_num":2,"timestamp":7}}\n\n: a comment\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize("size", [1 << 20, 10, 1])
def test_server_sent_events(size: int, tmp_path: Path) -> None:
    request = b"GET /v1/streams/a/records HTTP/1.1\r\nhost: b.localhost\r\naccept: text/event-stream\r\n\r\n"
    chunks = [chunk(piece) for piece in pieces_of(EVENTS, size)]
    first = client_says(request) + server_says(RESPONSE % b"text/event-stream", *chunks, b"0\r\n\r\n")
    talk = Http2Talk()
    talk.begin(1, "GET", "text/event-stream; charset=utf-8")
    talk.data(Sender.SERVER, 1, *pieces_of(EVENTS, size))
    capture = captured(tmp_path / "events.pcapng", Talk("s2", first), Talk("s2", talk.said))
    for arguments in PASSES:
        found = layers(capture, "sse", arguments=arguments)
        for number in range(2):
            mine = of_talk(found, number)
            assert [layer.one("sse.event") for layer in mine] == ["batch", "ping", "done"]
            assert [layer.all("sse.id") for layer in mine] == [["1,2,24"], [], []]
            assert mine[0].all("sse.records.seq_num") == ["1"]
            assert mine[0].all("sse.records.body") == [b"text".hex(":")]


BAD = [
    b"\0\0\0",
    b"\0\0\x05\0\xff\xff\xff\xff",
    b"\0\0\x01\x80",
    b"\0\0\x02\x60x",
    b"\0\0\x03\0\x0a\x7f",
]


def test_what_is_malformed(tmp_path: Path) -> None:
    """Behind good frames, over both versions of HTTP."""
    talks = [Talk("s2", talk([UPLOAD, bad], [])) for bad in BAD for talk in (http1, http2)]
    capture = captured(tmp_path / "malformed.pcapng", *talks)
    rows = tshark(capture, "-Y", "penstock.malformed", "-T", "fields", "-e", "penstock.connection").split()
    assert [number for number, _ in itertools.groupby(rows)] == [str(number) for number in range(1, len(talks) + 1)]
