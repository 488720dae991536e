"""Clients that do not read what they are sent, and clients that leave."""

import gzip
import select
import time
from pathlib import Path

import pytest
import zstandard
from support.http.h2_client import H2Connection, H2Stream
from support.process import GatewayProcess
from support.s2.client import Http1Stream, S2Client, eventually, stream_path
from support.s2.frames import GZIP, ZSTD, Session, append_input, encode_frame

from penstock_proto import s2_pb2 as pb

MIB = 1 << 20


@pytest.mark.slow
def test_acknowledgements_that_are_not_read_hold_the_sender_back_on_http2(
    gateway: GatewayProcess, s2: S2Client, stream: str
) -> None:
    """The window stays shut until the client reads; then the session goes on."""
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
    """Send `frames` again and again until the server's window stays shut for a second; return how many bytes went."""
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


def test_acknowledgements_that_are_not_read_hold_the_sender_back_on_http1(
    gateway: GatewayProcess, s2: S2Client, stream: str
) -> None:
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


@pytest.mark.parametrize("carrier", ["h1", "h2"])
def test_a_batch_of_a_client_that_leaves_is_stored_whole_or_not_at_all(s2: S2Client, stream: str, carrier: str) -> None:
    session = s2.append_session(stream, carrier)
    session.send(append_input(b"a", b"b"))
    session.ack()
    session.send(append_input(b"c", b"d"))
    session.stream.send(encode_frame(append_input(b"e", b"f"))[:7])
    session.close()
    time.sleep(0.3)
    assert s2.tail(stream)["seq_num"] in (2, 4)
    assert s2.append(stream, "g")["start"]["seq_num"] in (2, 4)


def open_files(process: GatewayProcess) -> int:
    """Return how many files and sockets the gateway has open."""
    return sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())


def test_a_reader_that_leaves_frees_its_connection(fresh_gateway: GatewayProcess) -> None:
    """Also while nothing happens."""
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port)).ensure_basin("served-basin")
    s2.ensure_stream("s")
    before = open_files(fresh_gateway)
    readers = [s2.events("s", seq_num=0) for _ in range(40)]
    for reader in readers:
        ping = reader.next()
        assert ping is not None and ping.name == "ping"
    assert open_files(fresh_gateway) >= before + 38  # those that made the stream may have gone by now
    for reader in readers:
        reader.close()
    for _ in eventually(5):
        if open_files(fresh_gateway) <= before:
            break
    else:
        pytest.fail(f"{open_files(fresh_gateway) - before} connections are still there")


def test_readers_that_reset_their_streams_make_room_for_others(s2: S2Client, stream: str) -> None:
    """On one HTTP/2 connection there is room for many readers one after the other, if each is given up."""
    with H2Connection(s2.address) as connection:
        for _ in range(3):
            readers = [s2.events(stream, connection, seq_num=0) for _ in range(100)]
            for reader in readers:
                ping = reader.next()
                assert ping is not None and ping.name == "ping"
            for reader in readers:
                reader.close()


def test_compressed_frames_cost_no_more_than_a_frame_holds(gateway: GatewayProcess, s2: S2Client, stream: str) -> None:
    """Frames of a kilobyte that are 64 MiB once decompressed are refused for little memory."""
    bombs = {ZSTD: zstandard.compress(bytes(64 * MIB)), GZIP: gzip.compress(bytes(64 * MIB))}
    before = gateway.resident_bytes()
    for flag, bomb in bombs.items():
        with s2.append_session(stream) as session:
            session.send(bomb, flag)
            status, error = session.failure()
        assert (status, error["code"]) == (400, "bad_frame")
        head = {"content-type": "application/protobuf", "content-encoding": "zstd" if flag == ZSTD else "gzip"}
        s2.request("POST", stream_path(stream) + "/records", bomb, head).fails(400, "bad_proto")
    assert gateway.resident_bytes() - before < 32 * MIB
