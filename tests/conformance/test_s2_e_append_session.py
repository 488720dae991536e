"""S2 checklist, group E: S2S append sessions (S2 fact sheet, section 10 and 2.3), over HTTP/1.1 and h2c."""

import gzip
import itertools
import select
import time

import pytest
import zstandard
from support.http.h2_client import H2Connection, H2Stream
from support.process import GatewayProcess
from support.s2.client import Http1Stream, S2Client, stream_path
from support.s2.frames import GZIP, TERMINAL, ZSTD, Session, append_input, encode_frame

from penstock_proto import s2_pb2 as pb

MIB = 1 << 20
both = pytest.mark.parametrize("carrier", ["h1", "h2"])


@both
def test_item_58_the_head_comes_before_any_frame(s2: S2Client, stream: str, carrier: str) -> None:
    with s2.append_session(stream, carrier) as session:
        began = time.monotonic()
        assert session.stream.status == 200
        assert time.monotonic() - began < 2
        headers = session.stream.headers
        assert headers["content-type"] == "s2s/proto"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers
        session.stream.end()
        assert session.rest() == []


@both
def test_item_59_full_duplex(s2: S2Client, stream: str, carrier: str) -> None:
    """Each acknowledgement is read before the next input is written, on one exchange."""
    with s2.append_session(stream, carrier) as session:
        for number in range(20):
            session.send(append_input(b"%d" % number, b"+"))
            ack = session.ack()
            assert (ack.start.seq_num, ack.end.seq_num) == (2 * number, 2 * number + 2)
        session.stream.end()
        assert session.rest() == []


@both
def test_item_60_pipelined_inputs(s2: S2Client, stream: str, carrier: str) -> None:
    sizes = [1 + number % 7 for number in range(100)]
    with s2.append_session(stream, carrier) as session:
        for number, size in enumerate(sizes):
            session.send(append_input(*[b"%d" % number] * size))
        session.stream.end()
        acks = [pb.AppendAck.FromString(frame.message) for frame in session.rest()]
    assert len(acks) == 100
    assert [ack.end.seq_num - ack.start.seq_num for ack in acks] == sizes
    assert acks[0].start.seq_num == 0
    assert all(before.end.seq_num == after.start.seq_num for before, after in itertools.pairwise(acks))
    assert all(ack.HasField(name) for ack in acks for name in ("start", "end", "tail"))
    assert acks[-1].tail.seq_num == sum(sizes) == s2.tail(stream)["seq_num"]
    found = s2.read_proto(stream, seq_num=0).records
    assert [record.body for record in found] == [
        b"%d" % number for number, size in enumerate(sizes) for _ in range(size)
    ]


@both
def test_item_61_a_failed_condition_ends_the_session(s2: S2Client, stream: str, carrier: str) -> None:
    with s2.append_session(stream, carrier) as session:
        for number in range(5):
            session.send(append_input(b"ok", match_seq_num=number))
        session.send(append_input(b"no", match_seq_num=99))
        for _ in range(5):
            session.send(append_input(b"too late"))
        *acks, last = session.rest()
    assert [pb.AppendAck.FromString(frame.message).end.seq_num for frame in acks] == [1, 2, 3, 4, 5]
    assert (last.flag, last.payload) == (TERMINAL, b'\x01\x9c{"seq_num_mismatch":5}')
    time.sleep(0.2)  # an append that should not be applied would be by now
    assert s2.bodies(stream, seq_num=0) == ["ok"] * 5


@both
def test_item_61_a_failed_fence_ends_the_session(s2: S2Client, stream: str, carrier: str) -> None:
    s2.fence(stream, "tok").json()
    with s2.append_session(stream, carrier) as session:
        session.send(append_input(b"ok", fencing_token="tok"))
        session.send(append_input(b"no", fencing_token="other"))
        assert session.ack().end.seq_num == 2
        assert session.failure() == (412, {"fencing_token_mismatch": "tok"})


BAD_FRAMES = {
    "too long": (b"\x20\x00\x01", "frame exceeds decode limit"),
    "length 0": (b"\x00\x00\x00", "empty frame payload"),
    "compression 3": (encode_frame(append_input(b"x"), 0x60), "unknown compression algorithm"),
    "terminal": (encode_frame(b"\x01\x90{}", TERMINAL), "Unexpected terminal frame as input"),
    "garbage": (encode_frame(b"\xff\xff\xff\xff"), ""),
    "broken zstd": (encode_frame(b"not zstd at all", ZSTD), ""),
    "broken gzip": (encode_frame(b"not gzip at all", GZIP), ""),
    "zstd cut short": (encode_frame(zstandard.compress(append_input(b"x" * 5000))[:-9], ZSTD), ""),
}


@both
@pytest.mark.parametrize("name", BAD_FRAMES)
def test_item_62_bad_frames(s2: S2Client, stream: str, carrier: str, name: str) -> None:
    data, text = BAD_FRAMES[name]
    with s2.append_session(stream, carrier) as session:
        session.send(append_input(b"good"))
        session.stream.send(data)
        assert session.ack().end.seq_num == 1
        status, error = session.failure()
    assert (status, error["code"]) == (400, "bad_frame")
    assert error["message"].startswith(f"Failed to decode S2S frame: {text}")
    assert s2.bodies(stream, seq_num=0) == ["good"]


@both
def test_a_clients_terminal_frame_of_success_ends_the_session(s2: S2Client, stream: str, carrier: str) -> None:
    """Either side can end a session with one (the older page); what follows it is not applied."""
    with s2.append_session(stream, carrier) as session:
        session.stream.send(encode_frame(append_input(b"good")) + encode_frame(b"\x00\xc8{}", TERMINAL))
        session.send(append_input(b"late"))
        assert session.ack().end.seq_num == 1
        assert session.rest() == []
    assert s2.bodies(stream, seq_num=0) == ["good"]


@both
def test_item_62_the_longest_frame_is_accepted(s2: S2Client, stream: str, carrier: str) -> None:
    """Length 2,097,152 is legal; its batch is too large by then, which is another error."""
    with s2.append_session(stream, carrier) as session:
        overhead = len(append_input(b"x" * 2_000_000)) - 2_000_000
        session.send(append_input(b"x" * (2_097_151 - overhead)))
        status, error = session.failure()
    assert (status, error["code"]) == (422, "invalid")


@both
@pytest.mark.parametrize("cut", [1, 3, 4, 10])
def test_item_63_the_body_ends_inside_a_frame(s2: S2Client, stream: str, carrier: str, cut: int) -> None:
    with s2.append_session(stream, carrier) as session:
        session.send(append_input(b"whole"))
        session.stream.send(encode_frame(append_input(b"not whole"))[:cut])
        session.stream.end()
        assert session.ack().end.seq_num == 1
        status, error = session.failure()
    assert (status, error["code"]) == (400, "bad_frame")
    assert error["message"] == "Failed to decode S2S frame: bytes remaining on stream"


@both
def test_item_64_empty_input(s2: S2Client, stream: str, carrier: str) -> None:
    with s2.append_session(stream, carrier) as session:
        session.send(append_input(b"x"))
        session.send(b"")
        assert session.ack().end.seq_num == 1
        status, error = session.failure()
    assert (status, error["code"]) == (422, "invalid")
    assert "record batch must not be empty" in error["message"]


@both
def test_item_65_compressed_inputs(s2: S2Client, stream: str, carrier: str) -> None:
    streaming = zstandard.ZstdCompressor(write_content_size=False)
    packers = [
        (ZSTD, zstandard.ZstdCompressor().compress),
        (ZSTD, streaming.compress),  # live clients send frames that do not say their content's size
        (GZIP, gzip.compress),
        (0, bytes),
    ]
    bodies = [b"compressible " * count for count in (1, 100, 50_000)]
    with s2.append_session(stream, carrier) as session:
        for body in bodies:
            for flag, pack in packers:
                session.send(pack(append_input(body)), flag)
        for number in range(len(bodies) * len(packers)):
            assert session.ack().end.seq_num == number + 1
    found = [record.body for at in range(0, 12, 1) for record in s2.read_proto(stream, seq_num=at, count=1).records]
    assert found == [body for body in bodies for _ in packers]


@both
@pytest.mark.parametrize("flag", [ZSTD, GZIP])
def test_item_65_bombs(gateway: GatewayProcess, s2: S2Client, stream: str, carrier: str, flag: int) -> None:
    """Decompressing to more than 2 MiB - 1 is refused, at the cost of little more than that."""
    size = 64 * MIB
    if flag == ZSTD:
        packed = zstandard.ZstdCompressor(level=3).compress(b"\0" * size)
    else:
        packed = gzip.compress(b"\0" * size, 9)
    before = gateway.resident_bytes()
    with s2.append_session(stream, carrier) as session:
        session.send(append_input(b"x"))
        session.send(packed, flag)
        assert session.ack().end.seq_num == 1
        status, error = session.failure()
    assert (status, error["code"]) == (400, "bad_frame")
    assert gateway.resident_bytes() - before < 32 * MIB


@both
def test_item_66_any_cut_is_the_same(s2: S2Client, stream: str, carrier: str) -> None:
    frames = b"".join(encode_frame(append_input(b"%d" % number)) for number in range(6))
    with s2.append_session(stream, carrier) as session:
        for byte in frames:
            session.stream.send(bytes([byte]))
        session.stream.send(frames)
        session.stream.end()
        acks = [pb.AppendAck.FromString(frame.message).end.seq_num for frame in session.rest()]
    assert acks == list(range(1, 13))
    assert s2.bodies(stream, seq_num=0) == [str(number) for number in range(6)] * 2


@both
def test_item_67_failures_before_the_session(s2: S2Client, carrier: str) -> None:
    for client, stream, code in ((s2, "nope", "stream_not_found"), (s2.of("unknown-basin"), "s", "basin_not_found")):
        with client.append_session(stream, carrier) as session:
            assert session.stream.status == 404
            assert session.stream.headers["content-type"] == "application/json"
            assert f'"{code}"'.encode() in session.stream.receive()


@pytest.mark.slow
def test_item_68_flow_control_on_h2(gateway: GatewayProcess, s2: S2Client, stream: str) -> None:
    """A client that never reads acknowledgements is held back by the window, and goes on when it reads."""
    connection = H2Connection(s2.address, window=65_535)
    before = gateway.resident_bytes()
    with s2.append_session(stream, connection) as session:
        exchange = session.stream
        assert isinstance(exchange, H2Stream)
        inputs = 250
        frames = b"".join(encode_frame(append_input(b"x" * 50)) for _ in range(inputs))
        sent = _fill_window(exchange, frames, limit=64 * MIB)
        assert gateway.resident_bytes() - before < 64 * MIB
        assert s2.append(stream, "others are served")
        rounds = -(-sent // len(frames))
        rest = memoryview(frames)[len(frames) - (rounds * len(frames) - sent) :]
        acks = 0
        while rest:
            if (size := exchange.writable()) > 0:
                exchange.send(bytes(rest[:size]))
                rest = rest[size:]
            else:
                session.ack()
                acks += 1
        exchange.end()
        acks += len([pb.AppendAck.FromString(frame.message) for frame in session.rest()])
    assert acks == rounds * inputs
    assert s2.tail(stream)["seq_num"] == acks + 1
    connection.close()


def _fill_window(exchange: H2Stream, frames: bytes, limit: int) -> int:
    """Send `frames` again and again until the server's window stays shut for a second; how many bytes went."""
    sent = 0
    while sent < limit:
        size = exchange.writable()
        if size > 0:
            at = sent % len(frames)
            piece = frames[at : at + size]
            exchange.connection.h2.send_data(exchange.stream_id, piece)
            exchange.connection.flush()
            sent += len(piece)
            continue
        try:
            exchange.connection.pump(1)
        except TimeoutError:
            return sent
    raise AssertionError(f"the server took {sent} bytes although its acknowledgements are not read")


def test_item_68_flow_control_on_http1(gateway: GatewayProcess, s2: S2Client, stream: str) -> None:
    """The same on HTTP/1.1, where the socket is the window."""
    head = s2.head({"content-type": "s2s/proto"})
    exchange = Http1Stream(s2.address, "POST", stream_path(stream) + "/records", head, receive_buffer=4096)
    session = Session(exchange)
    assert exchange.status == 200
    before = gateway.resident_bytes()
    chunk = b"".join(encode_frame(append_input(b"x")) for _ in range(1000))
    data = memoryview(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    sent = chunks = 0
    exchange.socket.setblocking(False)
    while select.select([], [exchange.socket], [], 2)[1]:
        sent += exchange.socket.send(data[sent:])
        if sent == len(data):
            sent, chunks = 0, chunks + 1
            assert chunks * len(chunk) < 64 * MIB, "the server reads on although its acknowledgements are not read"
    assert gateway.resident_bytes() - before < 64 * MIB
    assert s2.append(stream, "others are served")
    session.close()


@both
def test_a_client_that_vanishes_harms_no_other(s2: S2Client, stream: str, carrier: str) -> None:
    """Inputs that were received may still become durable (2.3); a batch is stored whole or not at all."""
    session = s2.append_session(stream, carrier)
    session.send(append_input(b"a", b"b"))
    session.ack()
    session.send(append_input(b"c", b"d"))
    session.stream.send(encode_frame(append_input(b"e", b"f"))[:7])
    session.close()
    time.sleep(0.3)
    assert s2.tail(stream)["seq_num"] in (2, 4)
    assert s2.append(stream, "g")["start"]["seq_num"] in (2, 4)


@both
def test_reserved_flag_bits_are_ignored(s2: S2Client, stream: str, carrier: str) -> None:
    with s2.append_session(stream, carrier) as session:
        for flag in (0x01, 0x0F, 0x10, 0x1F):
            session.send(append_input(b"x"), flag)
            assert session.ack()
    assert s2.tail(stream)["seq_num"] == 4


def test_the_seeds_append_path(s2: S2Client, stream: str) -> None:
    """POST /v1/basins/{basin}/streams/{stream}/append with Content-Type and Accept s2s/proto."""
    path = f"/v1/basins/{s2.basin}{stream_path(stream).removeprefix('/v1')}/append"
    exchange = Http1Stream(s2.address, "POST", path, {"content-type": "s2s/proto", "accept": "s2s/proto"})
    with Session(exchange) as session:
        session.send(append_input(b"x"))
        assert session.ack().end.seq_num == 1
