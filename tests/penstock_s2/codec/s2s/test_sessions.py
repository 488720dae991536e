"""S2S sessions: each end by its words, and a client wired to a server (S2 fact sheet, 2.3, 2.4, 2.7)."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, OperationFailed, RemoteProtocolError
from penstock.model.operations import Append, Appended
from penstock.model.records import Columns, Header, RecordBatch, StreamPosition, StreamRef, metered_size
from penstock.wire import conformance
from penstock.wire.codec import NEED_DATA, PAUSED, Codec, Role
from penstock.wire.compression import Compression, compress
from penstock_s2.codec.protobuf import encode_append_input
from penstock_s2.codec.s2s import PLUGIN, AppendClient, AppendServer, ReadClient, ReadServer
from penstock_s2.codec.s2s.frames import encode_frame, encode_terminal

STREAM = StreamRef("basin-01", "a/b")
MISMATCH = Failure(FailureCode.SEQ_NUM_MISMATCH, "sequence number mismatch: the next is 7", {"seq_num_mismatch": 7})


def append(*bodies: bytes, **more: Any) -> Append:
    return Append(STREAM, list(bodies), metered_size(bodies, {}), **more)


def acked(start: int, end: int, timestamp: int = 1000) -> Appended:
    tail = StreamPosition(end, timestamp)
    return Appended(StreamPosition(start, timestamp if start else 0), tail, tail)


def batch(first: int, *bodies: bytes, tail: StreamPosition | None = None) -> RecordBatch:
    return RecordBatch(Columns(range(first, first + len(bodies)), [1000] * len(bodies), list(bodies)), tail=tail)


def events(codec: Codec[Any, Any]) -> list[Any]:
    """All events that can be had now; the last is a Pull or a RemoteProtocolError."""
    some = []
    while True:
        try:
            some.append(codec.next_event())
        except RemoteProtocolError as error:
            return [*some, error]
        if some[-1] is NEED_DATA or some[-1] is PAUSED:
            return some


def fed(codec: Codec[Any, Any], *pieces: bytes) -> list[Any]:
    for piece in pieces:
        codec.receive(piece)
    return events(codec)


def wire(*pieces: bytes) -> bytes:
    return b"".join(pieces)


# ---- golden vectors (2.7) ------------------------------------------------------------------------------------

APPENDS = {
    "00000f000a0c12060a016b1201761a026869": Append(STREAM, [b"hi"], 14, headers={0: (Header(b"k", b"v"),)}),
    "00000d000a0608001a02686910001a00": append(b"hi", timestamps=[0], match_seq_num=0, fencing_token=""),
    "000011000a0e1207120566656e63651a03746f6b": Append(STREAM, [b"tok"], 18, headers={0: (Header(b"", b"fence"),)}),
    "000015000a1212061204" + b"trim".hex() + "1a080000000000000005": Append(
        STREAM, [bytes(7) + b"\5"], 22, headers={0: (Header(b"", b"trim"),)}
    ),
}


@pytest.mark.parametrize("frame", APPENDS)
def test_golden_inputs(frame: str) -> None:
    assert wire(*AppendClient().send(APPENDS[frame])).hex() == frame
    assert fed(AppendServer(STREAM), bytes.fromhex(frame)) == [APPENDS[frame], NEED_DATA]


@pytest.mark.parametrize(("advised", "flag"), [(False, "00"), (True, "10")])
def test_golden_acknowledgements(advised: bool, flag: str) -> None:
    server, client = AppendServer(STREAM), AppendClient()
    fed(server, *client.send(append(b"hi")))
    server.reconnect_advised = advised
    frame = wire(*server.send(acked(0, 1)))
    assert frame.hex() == "000011" + flag + "0a001205080110e8071a05080110e807"
    assert fed(client, frame) == [acked(0, 1), NEED_DATA]
    assert client.reconnect_advised is advised


def test_golden_reads() -> None:
    server, client = ReadServer(), ReadClient()
    frames = {
        "000003001200": StreamPosition(0, 0),
        "0000080012050803" + "10e807": StreamPosition(3, 1000),
    }
    for frame, tail in frames.items():
        assert wire(*server.send(tail)).hex() == frame
        assert fed(client, bytes.fromhex(frame)) == [tail, NEED_DATA]
    records = RecordBatch(Columns([0], [1000], [b"hi"], {0: (Header(b"k", b"v"),)}))
    assert wire(*server.send(records)).hex() == "000012000a0f10e8071a060a016b12017622026869"
    server.reconnect_advised = True
    assert wire(*server.send(StreamPosition(0, 0))).hex() == "000003101200"


def test_golden_terminal() -> None:
    frame = "00001980019c" + b'{"seq_num_mismatch":7}'.hex()
    for server in (AppendServer(STREAM), ReadServer()):
        assert wire(*server.send(MISMATCH)).hex() == frame
    for client in (AppendClient(), ReadClient()):
        [failure, end] = fed(client, bytes.fromhex(frame))
        assert end is PAUSED
        assert (failure.code, failure.details) == (MISMATCH.code, MISMATCH.details)


# ---- append sessions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", Compression)
def test_pipelined_appends(compression: Compression) -> None:
    client, server = AppendClient(compression), AppendServer(STREAM, compression)
    inputs = [append(b"x" * size, match_seq_num=at) for at, size in enumerate((0, 10, 1024, 5000, 700_000))]
    sent = wire(*(piece for each in inputs for piece in client.send(each)))
    assert (len(sent) < 100_000) is (compression is not Compression.NONE)
    assert fed(server, sent, b"") == [*inputs, PAUSED]
    answers = wire(*(piece for at in range(5) for piece in server.send(acked(at, at + 1))))
    assert fed(client, answers, b"") == [*(acked(at, at + 1) for at in range(5)), PAUSED]


def test_a_server_reads_any_mix_of_compressions() -> None:
    inputs, frames = [], b""
    for at, compression in enumerate([*Compression, *Compression]):
        inputs.append(append(b"%d" % at))
        content = compress(compression, encode_append_input(inputs[-1]))
        frames += wire(*encode_frame([content], compression))
    assert fed(AppendServer(STREAM), frames, b"") == [*inputs, PAUSED]


def test_an_invalid_input_comes_in_its_place_and_ends_the_session() -> None:
    client, server = AppendClient(), AppendServer(STREAM)
    frames = wire(*client.send(append(b"ok")), *client.send(append()), *client.send(append(b"not applied")))
    [first, failure, end] = fed(server, frames)
    assert first == append(b"ok")
    assert failure == Failure(FailureCode.INVALID, "record batch must not be empty")
    assert end is PAUSED
    assert fed(server, frames) == [PAUSED]
    assert server.buffered == 0
    answer = wire(*server.send(acked(0, 1)), *server.send(failure))
    [ack, seen, end] = fed(client, answer)
    assert (ack, seen, end) == (acked(0, 1), failure, PAUSED)


FAULTS: dict[str, tuple[bytes, str]] = {
    "too long": (b"\x20\x00\x01", "frame exceeds decode limit"),
    "empty": (b"\x00\x00\x00", "empty frame payload"),
    "compression": (b"\x00\x00\x02\x60x", "unknown compression algorithm"),
    "terminal": (b"\x00\x00\x03\x80\x01\x9c", "Unexpected terminal frame as input"),
    "terminal of a redirect": (b"\x00\x00\x03\x80\x01\x2c", "Unexpected terminal frame as input"),
    "garbage": (b"\x00\x00\x04\x00\xff\xff\xff", "not a valid AppendInput"),
    "cut short": (b"\x00\x00\x09\x00abc", "bytes remaining on stream"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_come_after_what_was_good(fault: str) -> None:
    frame, text = FAULTS[fault]
    server = AppendServer(STREAM)
    [good, error] = fed(server, *AppendClient().send(append(b"ok")), frame, b"")
    assert good == append(b"ok")
    assert error.failure.code is FailureCode.BAD_FRAME
    assert error.failure.message.startswith(f"Failed to decode S2S frame: {text}")
    [again] = fed(server, b"more")
    assert again.failure is error.failure
    assert server.buffered == 0
    answer = wire(*server.send(acked(0, 1)), *server.send(error.failure))
    assert answer.endswith(wire(*encode_terminal(400, b'{"code":"bad_frame",' + answer.partition(b'"bad_frame",')[2])))


@pytest.mark.parametrize("status", [200, 204, 299])
def test_a_terminal_frame_of_success_ends_the_input(status: int) -> None:
    server = AppendServer(STREAM)
    last = encode_terminal(status, b"{}")
    assert fed(server, *AppendClient().send(append(b"ok")), *last, *AppendClient().send(append(b"late"))) == [
        append(b"ok"),
        PAUSED,
    ]
    assert server.buffered == 0
    assert server.send(acked(0, 1)), "what came before is acknowledged"


def test_what_a_server_may_not_say() -> None:
    server = AppendServer(STREAM)
    with pytest.raises(LocalProtocolError, match="without an input"):
        server.send(acked(0, 1))
    fed(server, *AppendClient().send(append(b"x")))
    server.send(acked(0, 1))
    with pytest.raises(LocalProtocolError, match="without an input"):
        server.send(acked(1, 2))
    server.send(MISMATCH)
    for event in (MISMATCH, acked(0, 1)):
        with pytest.raises(LocalProtocolError):
            server.send(event)
    assert fed(server, *AppendClient().send(append(b"x"))) == [PAUSED]


@pytest.mark.parametrize(
    ("acks", "text"),
    [
        ([acked(0, 2), acked(2, 3)], "acknowledged 2 records of an input of 1"),
        ([acked(3, 3)], "acknowledged 0 records of an input of 1"),
        ([acked(5, 6), acked(5, 6)], "acknowledged sequence number 5 after 5"),
        ([acked(0, 1), acked(1, 2), acked(2, 3)], "acknowledged an input that was not sent"),
        ([acked(0, 1)], "ended with 1 inputs unacknowledged"),
        ([], "ended with 2 inputs unacknowledged"),
    ],
)
def test_what_a_client_does_not_believe(acks: list[Appended], text: str) -> None:
    client, server = AppendClient(), AppendServer(STREAM)
    for _ in range(2):
        fed(server, *client.send(append(b"x")))
    fed(server, *AppendClient().send(append(b"somebody else's")))
    [*_, error] = fed(client, *(piece for ack in acks for piece in server.send(ack)), b"")
    assert isinstance(error, RemoteProtocolError) and text in error.failure.message
    assert error.failure.side_effect_possible


def test_a_client_sends_nothing_after_the_end() -> None:
    client = AppendClient()
    fed(client, *encode_terminal(503, b'{"code":"server_draining","message":"bye"}'))
    with pytest.raises(LocalProtocolError):
        client.send(append(b"x"))


# ---- read sessions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", Compression)
def test_reads(compression: Compression) -> None:
    server, client = ReadServer(compression), ReadClient()
    tail = StreamPosition(5, 1000)
    live = batch(3, b"x" * 5000, b"y", tail=tail)
    pieces = [*server.send(batch(0, b"a", b"b", b"c")), *server.send(StreamPosition(3, 1000)), *server.send(live)]
    assert (len(wire(*pieces)) < 1000) is (compression is not Compression.NONE)
    [first, heartbeat, second, end] = fed(client, *pieces, b"")
    assert (first.columns.bodies, first.tail) == ([b"a", b"b", b"c"], None)
    assert heartbeat == StreamPosition(3, 1000)
    assert (second.columns, second.tail) == (live.columns, tail)
    assert end is PAUSED


def test_a_batch_is_compressed_once_for_all_followers() -> None:
    followed = batch(0, b"x" * 5000)
    [one], [other] = ReadServer(Compression.ZSTD).send(followed), ReadServer(Compression.ZSTD).send(followed)
    assert one is other
    advising = ReadServer(Compression.ZSTD)
    advising.reconnect_advised = True
    [advised] = advising.send(followed)
    assert (advised[3], one[3]) == (0x30, 0x20)
    assert ReadServer(Compression.GZIP).send(followed)[0][3] == 0x40


def test_a_received_batch_is_sent_on_untouched() -> None:
    client = ReadClient()
    frame = wire(*ReadServer().send(batch(5, b"a", b"b", tail=StreamPosition(7, 1000))))
    [received, _] = fed(client, frame)
    pieces = ReadServer().send(received)
    assert wire(*pieces) == frame
    assert pieces[1] is received.wire.data


def test_a_read_server_has_no_ears() -> None:
    server = ReadServer()
    assert fed(server, b"anything", b"") == [PAUSED]
    assert server.buffered == 0


def test_a_batch_that_no_frame_holds_is_refused_cleanly() -> None:
    """262,000 headers of one byte and one byte: 1 MiB metered, and 8 bytes each in protobuf."""
    headers = {0: (Header(b"k", b"v"),) * 262_142}
    largest = RecordBatch(Columns([2**60], [2**60], [b""], headers))
    assert largest.metered == 1024 * 1024
    for compression in Compression:
        server = ReadServer(compression)
        with pytest.raises(OperationFailed) as caught:
            server.send(largest)
        assert caught.value.failure.code is FailureCode.NOT_REPRESENTABLE
        assert server.send(caught.value.failure)


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_that_no_frame_holds_becomes_several(compression: Compression) -> None:
    headers = {index: (Header(b"k", b"v"),) * 60_000 for index in range(5)}
    large = RecordBatch(Columns(range(5), [7] * 5, [b"x"] * 5, headers), tail=StreamPosition(5, 7))
    received = fed(ReadClient(), *ReadServer(compression).send(large))
    batches = [event for event in received if isinstance(event, RecordBatch)]
    assert len(batches) > 1
    assert [record for some in batches for record in some.records()] == list(large.records())
    assert [some.tail for some in batches][-1] == large.tail


@pytest.mark.parametrize("first", [0, 4])
def test_records_that_come_twice(first: int) -> None:
    client, server = ReadClient(), ReadServer()
    [_, error] = fed(client, *server.send(batch(3, b"a", b"b")), *server.send(batch(first, b"b")))
    assert isinstance(error, RemoteProtocolError) and error.failure.code is FailureCode.OTHER


def test_records_that_were_trimmed_meanwhile_leave_a_gap() -> None:
    client, server = ReadClient(), ReadServer()
    [_, second, _] = fed(client, *server.send(batch(3, b"a", b"b")), *server.send(batch(9, b"c")))
    assert second.first_seq_num == 9


def test_a_read_client_says_nothing() -> None:
    with pytest.raises(LocalProtocolError):
        ReadClient().send(MISMATCH)


@pytest.mark.parametrize(
    "frame", [b"\x00\x00\x01\x00", b"\x00\x00\x00", b"\x00\x00\x04\x00\xff\xff\xff", b"\x00\x00\x09"]
)
def test_a_client_blames_the_server_for_bad_frames(frame: bytes) -> None:
    """An empty message is bad too: a batch has records or a tail."""
    [error] = fed(ReadClient(), frame, b"")
    assert error.failure.code is FailureCode.OTHER
    assert error.failure.message.startswith("Failed to decode S2S frame: ")


# ---- the laws ------------------------------------------------------------------------------------------------

ENDS = [(role, dialect) for role in Role for dialect in PLUGIN.dialects]
every_end = pytest.mark.parametrize(
    ("role", "dialect"), ENDS, ids=[f"{dialect}-{role.value}" for role, dialect in ENDS]
)


LISTENERS = [end for end in ENDS if end != (Role.SERVER, "read")]
every_listener = pytest.mark.parametrize(
    ("role", "dialect"), LISTENERS, ids=[f"{d}-{role.value}" for role, d in LISTENERS]
)
"""All ends but the one that never listens."""


def maker(role: Role, dialect: str) -> Callable[[], Codec[Any, Any]]:
    return lambda: PLUGIN.make(role, dialect)


def test_the_plugin_is_registered() -> None:
    [entry] = entry_points(group="penstock.codecs", name="s2s")
    assert entry.load() is PLUGIN


@every_listener
@given(cuts=st.lists(st.integers(0, 1 << 16), max_size=12))
def test_law_cut_anywhere(role: Role, dialect: str, cuts: list[int]) -> None:
    conformance.cut_anywhere(maker(role, dialect), PLUGIN.sample(role, dialect), cuts)


@every_end
def test_law_byte_by_byte_and_every_prefix(role: Role, dialect: str) -> None:
    sample = PLUGIN.sample(role, dialect)
    conformance.cut_anywhere(maker(role, dialect), sample, range(len(sample)))
    for length in range(len(sample)):
        conformance.prefix(maker(role, dialect), sample, length)


@every_listener
@given(data=st.binary(max_size=200))
def test_law_no_surprise_in_garbage(role: Role, dialect: str, data: bytes) -> None:
    conformance.no_surprise(maker(role, dialect), data)


@every_listener
@given(content=st.binary(max_size=100), flags=st.integers(0, 255), cuts=st.lists(st.integers(0, 200), max_size=4))
def test_law_no_surprise_in_well_framed_garbage(
    role: Role, dialect: str, content: bytes, flags: int, cuts: list[int]
) -> None:
    data = (len(content) + 1).to_bytes(3, "big") + bytes([flags]) + content
    conformance.no_surprise(maker(role, dialect), data)
    conformance.cut_anywhere(maker(role, dialect), data, cuts)


@every_listener
@given(data=st.data())
def test_law_near_misses(role: Role, dialect: str, data: st.DataObject) -> None:
    sample = bytearray(PLUGIN.sample(role, dialect))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(sample) - 1))
        change = data.draw(st.sampled_from(["set", "drop", "double"]))
        piece = {"set": [data.draw(st.integers(0, 255))], "drop": [], "double": [sample[at]] * 2}[change]
        sample[at : at + 1] = bytes(piece)
        if not sample:
            return
    conformance.no_surprise(maker(role, dialect), bytes(sample))
    conformance.cut_anywhere(maker(role, dialect), bytes(sample), data.draw(st.lists(st.integers(0, 999), max_size=3)))


@every_end
@pytest.mark.parametrize(
    "head", [b"", b"\x20\x00\x00\x00", b"\x20\x00\x00\x20", b"\x20\x00\x00\x40", b"\x20\x00\x00\x80"]
)
def test_law_bounded(role: Role, dialect: str, head: bytes) -> None:
    conformance.bounded(maker(role, dialect), head + bytes(3 * 1024 * 1024), PLUGIN.limit, piece=65536)
    conformance.bounded(maker(role, dialect), head + b"\xff" * (3 * 1024 * 1024), PLUGIN.limit, piece=65536)
