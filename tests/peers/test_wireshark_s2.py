"""Wireshark reads S2's sessions with our dissectors exactly as the codecs do, over both HTTP versions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from google.protobuf.message import Message
from h2.config import H2Configuration
from h2.connection import H2Connection
from support.captures.tshark import Layer, Said, Talk, captured, client_says, cut, faults, layers, server_says, tshark

from penstock_analysis.capture.events import Sender
from penstock_codecs.compression import Compression, compress
from penstock_codecs.s2s.frames import encode_frame, encode_terminal
from penstock_proto import s2_pb2 as pb

TWICE = ("-2", "-R", "tcp")
PASSES = ((), TWICE)
PATHS = {"AppendInput": "append_input", "AppendAck": "append_ack", "ReadBatch": "read_batch"}
META = re.compile(r"s2s\.(length|flags|payload|records|heartbeat|message|part|compressed)|_ws|json|^$")
POSITION = pb.StreamPosition(seq_num=2**64 - 1, timestamp=1_790_000_000_000)
ACK = pb.AppendAck(start=pb.StreamPosition(), end=POSITION, tail=POSITION)
INPUTS = [
    pb.AppendInput(records=[pb.AppendRecord(body=b"hi", headers=[pb.Header(name=b"k", value=b"v")])]),
    pb.AppendInput(records=[pb.AppendRecord(timestamp=0), pb.AppendRecord(body=b"\0\xff")], match_seq_num=0),
    pb.AppendInput(records=[pb.AppendRecord(body=b"large" * 1500)], fencing_token="token é"),
]
BATCHES = [
    pb.ReadBatch(records=[pb.SequencedRecord(seq_num=n, timestamp=2**63 + n, body=b"record") for n in range(3)]),
    pb.ReadBatch(tail=POSITION),
    pb.ReadBatch(tail=pb.StreamPosition()),
    pb.ReadBatch(
        records=[pb.SequencedRecord(body=b"large" * 1500, headers=[pb.Header(value=b"fence")])], tail=POSITION
    ),
]
ERROR = b'{"code":"unavailable","message":"sample"}'


def frame(message: Message, compression: Compression = Compression.NONE) -> bytes:
    payload = message.SerializeToString()
    plain = compression is Compression.NONE
    return b"".join(encode_frame([payload if plain else compress(compression, payload)], compression))


def fields_of(message: Message, path: str) -> Iterator[tuple[str, str]]:
    """Yield each value of a message as the dissector shows it, with its path; empty bytes are not shown."""
    for field, value in message.ListFields():
        for one in value if field.is_repeated else [value]:
            name = f"{path}.{field.name}"
            if isinstance(one, Message):
                yield name, ""
                yield from fields_of(one, name)
            else:
                yield name, one.hex(":") if isinstance(one, bytes) else str(one)


def expected(message: Message) -> list[tuple[str, str]]:
    path = f"s2s.{PATHS[message.DESCRIPTOR.name]}"
    return sorted([(path, ""), *fields_of(message, path)])


def decoded(layer: Layer) -> list[tuple[str, str]]:
    return sorted((name, "" if is_branch(name) else value) for name, value in layer.fields if not META.match(name))


def is_branch(name: str) -> bool:
    return name.split(".")[-1] in {*PATHS.values(), "headers", "start", "end", "tail"} or name.endswith(
        "_input.records"
    )


def frames_of(found: Sequence[Layer], talk: int) -> list[Layer]:
    """The frames of a conversation, without the parts of those that are shown later."""
    return [layer for layer in found if layer.talk == talk and layer.all("s2s.length")]


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
ACKS = frame(ACK) * 3
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
        assert (layers_[-1].one("s2s.status"), layers_[-1].one("s2s.error")) == ("503", ERROR.decode())
        assert layers_[-1].all("s2s.flags.terminal") == ["1"]


@pytest.mark.parametrize("size", [1 << 20, 97])
def test_sessions_over_http1(size: int, tmp_path: Path) -> None:
    """Frames in chunks that are cut elsewhere, and both in segments that are cut elsewhere again."""
    append = http1(pieces_of(UPLOAD, size), pieces_of(ACKS, size))
    read = http1([], pieces_of(DOWNLOAD, size))
    capture = captured(
        tmp_path / "http1.pcapng",
        Talk("s2", append),
        Talk("s2", cut(append, 61), port=4444),
        Talk("s2", read),
        Talk("s2", cut(read, 1 << 20), noted=False),
        Talk("s2", http1(pieces_of(UPLOAD, size), pieces_of(ACKS, size), ends=False)),
    )
    for arguments in PASSES:
        found = layers(capture, "s2s", arguments=arguments)
        for talk in (0, 1, 4):
            checked(frames_of(found, talk), *INPUTS, ACK, ACK, ACK)
        for talk in (2, 3):
            checked(frames_of(found, talk), *BATCHES, terminal=True)
        heads = tshark(capture, *arguments, "-Y", "http.request", "-T", "fields", "-e", "http.request.uri").split()
        assert heads.count("/v1/streams/a/records") == 5 and heads.count("/v1/streams/a/records/tail") == 9
        codes = tshark(capture, *arguments, "-Y", "http.response", "-T", "fields", "-e", "http.response.code").split()
        assert set(codes) == {"200", "200,200"} or set(codes) == {"200"}


@pytest.mark.parametrize("size", [1 << 20, 97])
def test_sessions_over_http2(size: int, tmp_path: Path) -> None:
    """Two sessions interleaved, and their frames cut by DATA frames and by segments."""
    others = pieces_of(DOWNLOAD, 5_000)
    append = http2(pieces_of(UPLOAD, size), pieces_of(ACKS, size), *others)
    capture = captured(
        tmp_path / "http2.pcapng",
        Talk("s2", append),
        Talk("s2", cut(append, 61), port=4444),
        Talk("", cut(append, 1 << 20), noted=False),
    )
    for arguments in PASSES:
        found = layers(capture, "s2s", arguments=arguments)
        for talk in range(3):
            mine = frames_of(found, talk)
            reads = [one for one in mine if one.one("s2s.message") in ("ReadBatch", "Terminal")]
            checked(reads, *BATCHES, terminal=True)
            checked([one for one in mine if one not in reads], *INPUTS, ACK, ACK, ACK)
        streams = tshark(capture, *arguments, "-Y", "http2.type == 1", "-T", "fields", "-e", "http2.headers.path")
        assert streams.count("/v1/streams/a/records") >= 6


def test_compressed_frames(tmp_path: Path) -> None:
    """gzip is read, zstd is said to be that: Lua of Wireshark 4.0 cannot read it."""
    frames = [frame(BATCHES[3], Compression.GZIP), frame(BATCHES[3], Compression.ZSTD)]
    capture = captured(tmp_path / "compressed.pcapng", Talk("s2", http2([], frames)), Talk("s2", http1([], frames)))
    found = layers(capture, "s2s")
    for talk in range(2):
        gzip, zstd = frames_of(found, talk)
        assert decoded(gzip) == expected(BATCHES[3]) and gzip.one("s2s.flags.compression") == "2"
        assert zstd.one("s2s.flags.compression") == "1" and zstd.all("s2s.payload")
        assert zstd.all("s2s.message") in ([], ["ReadBatch"])


EVENTS = (
    b'event: batch\r\nid: 1,2,24\r\ndata: {"records":[{"seq_num":0}]}\r\n\r\n'
    b'event: ping\ndata: {"timestamp":5}\n\n: a comment\n\ndata: [DONE]\n\n'
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
        found = [layer for layer in layers(capture, "sse", arguments=arguments) if not layer.all("sse.part")]
        for number in range(2):
            mine = [layer for layer in found if layer.talk == number]
            assert [layer.all("sse.event") for layer in mine] == [["batch"], ["ping"], [], []]
            assert [layer.all("sse.id") for layer in mine] == [["1,2,24"], [], [], []]
            assert [layer.all("sse.comment") for layer in mine][2] == ["a comment"]
            data = ['{"records":[{"seq_num":0}]}', '{"timestamp":5}', "[DONE]"]
            assert [value for layer in mine for value in layer.all("sse.data")] == data


def test_the_controller(tmp_path: Path) -> None:
    """gRPC is decoded by Wireshark itself; our part is to recognise it on the controller's port."""
    talk = Http2Talk()
    talk.begin(1, "POST", "application/grpc")
    capture = captured(tmp_path / "grpc.pcapng", Talk("controller", talk.said, noted=False))
    types = tshark(capture, "-Y", "http2.headers.content_type", "-T", "fields", "-e", "http2.headers.content_type")
    assert "application/grpc" in types


BAD = [
    b"\0\0\0",
    b"\x20\x00\x01",
    b"\0\0\x05\0\xff\xff\xff\xff",
    b"\0\0\x01\x80",
    b"\0\0\x02\x60x",
    b"\0\0\x03\0\x0a\x7f",
]


def test_what_is_malformed(tmp_path: Path) -> None:
    """Behind good frames, over both versions of HTTP."""
    talks = [Talk("s2", talk([UPLOAD, bad], [])) for bad in BAD for talk in (http1, http2)]
    capture = captured(tmp_path / "malformed.pcapng", *talks)
    frames = tshark(capture, "-Y", "s2s.malformed", "-T", "fields", "-e", "penstock.connection").split()
    assert frames == [str(number) for number in range(1, len(talks) + 1)]


def test_garbage(tmp_path: Path) -> None:
    """No bytes cause an error of Lua. Most samples begin well."""
    dice = random.Random(4)

    def junk(whole: bytes) -> bytes:
        data = bytearray(whole[:300])
        for _ in range(dice.choice([0, 1, 9])):
            data[dice.randrange(len(data))] = dice.randrange(256)
        return bytes(data[: dice.choice([3, 20, 300])])

    talks = []
    for _ in range(25):
        whole = b"".join(data for _, data in http1([UPLOAD[:200]], [ACKS]))
        talks.append(Talk("s2", http1([junk(UPLOAD) for _ in range(3)], [junk(DOWNLOAD) for _ in range(3)])))
        talks.append(Talk("s2", http2([junk(UPLOAD) for _ in range(3)], [junk(ACKS)], junk(DOWNLOAD))))
        talks.append(Talk("s2", client_says(junk(whole), junk(whole)) + server_says(junk(whole), junk(ACKS))))
    capture = captured(tmp_path / "garbage.pcapng", *talks)
    assert faults(capture, "s2s.malformed") > 10
