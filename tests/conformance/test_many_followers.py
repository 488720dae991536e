"""1,000 idle followers and one reader that stops reading: other clients keep their latency, memory stays flat."""

import resource
import statistics
import threading
import time
from collections.abc import Iterator

import pytest
from support.http.h2_client import H2Connection
from support.process import GatewayProcess, running_gateway
from support.s2.client import Events, Http1Stream, S2Client, stream_path
from support.s2.frames import Session, append_input, encode_frame

MIB = 1 << 20
CANCEL = 8
SSE_FOLLOWERS = 500
S2S_FOLLOWERS = 500
STREAMS_PER_CONNECTION = 100
FLOOD = 192 * MIB
PROBES = 150


@pytest.fixture(scope="module")
def roomy_gateway() -> Iterator[GatewayProcess]:
    """A gateway that may hold thousands of sockets, as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    try:
        with running_gateway() as process:
            yield process
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


IMPATIENT_CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:{s2_port}"

[listeners.s2.limits]
slow_reader_seconds = 1.5

[store]
directory = "{data}"

[log]
format = "json"
"""


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def probe(s2: S2Client, stream: str, probes: int = PROBES) -> list[float]:
    """Seconds from before an append until a follower has the record."""
    times = []
    with s2.append_session(stream) as writer, s2.read_session(stream, tail_offset=0) as reader:
        assert writer.stream.status == 200
        reader.batch()
        for number in range(probes):
            began = time.perf_counter()
            writer.send(append_input(b"%d" % number))
            assert reader.records(1)[0].body == b"%d" % number
            times.append(time.perf_counter() - began)
            writer.ack()
            time.sleep(0.005)
    return times


def open_followers(s2: S2Client, stream: str) -> tuple[list[Events], list[Session], list[H2Connection]]:
    """All of them, each seen to follow."""
    events = [s2.events(stream, "h1") for _ in range(SSE_FOLLOWERS)]
    connections = [H2Connection(s2.address) for _ in range(S2S_FOLLOWERS // STREAMS_PER_CONNECTION)]
    sessions = [
        s2.read_session(stream, connection) for connection in connections for _ in range(STREAMS_PER_CONNECTION)
    ]
    for follower in events:
        ping = follower.next()
        assert ping is not None
        assert ping.name == "ping"
    for session in sessions:
        assert not session.batch().records
    return events, sessions, connections


def flood(s2: S2Client, stream: str, size: int) -> None:
    """Append that many bytes as fast as they are acknowledged, eight batches in flight."""
    frame = encode_frame(append_input(*[b"f" * 16_000] * 32))
    total = size // len(frame)
    with s2.append_session(stream) as session:
        for number in range(total + 8):
            if number < total:
                session.stream.send(frame)
            if number >= 8:
                session.ack(30)


class StalledReaders:
    """Readers of a stream that take its head and then nothing, one of each kind."""

    def __init__(self, s2: S2Client, stream: str) -> None:
        target = stream_path(stream) + "/records?seq_num=0"
        self._sse = Http1Stream(s2.address, "GET", target, s2.head({"accept": "text/event-stream"}))
        self._s2s = Http1Stream(s2.address, "GET", target, s2.head({"content-type": "s2s/proto"}))
        self._connection = H2Connection(s2.address)
        self._h2 = self._connection.open("GET", target, s2.head({"content-type": "s2s/proto"}))
        assert [exchange.status for exchange in (self._sse, self._s2s, self._h2)] == [200] * 3

    def close(self) -> None:
        self._sse.close()
        self._s2s.close()
        self._connection.close()


@pytest.mark.timeout(180)
def test_idle_followers_and_stalled_readers(roomy_gateway: GatewayProcess) -> None:
    s2 = S2Client(("127.0.0.1", roomy_gateway.s2_port)).ensure_basin("crowd-basin")
    for stream in ("probe", "crowd", "flood"):
        s2.ensure_stream(stream)
    flood(s2, "flood", 16 * MIB)  # caches are warm, so that what comes after is growth
    probe(s2, "probe")
    alone = percentiles(probe(s2, "probe"))
    memory_before = roomy_gateway.resident_bytes()

    events, sessions, connections = open_followers(s2, "crowd")
    memory_followed = roomy_gateway.resident_bytes()
    followed = percentiles(probe(s2, "probe"))

    # The same flood twice: without readers, and with readers that stopped.
    unread = percentiles(probe_during_flood(s2))
    memory_flooded = roomy_gateway.resident_bytes()
    stalled_readers = StalledReaders(s2, "flood")
    stalled = percentiles(probe_during_flood(s2))
    memory_stalled = roomy_gateway.resident_bytes()

    began = time.perf_counter()
    s2.append("crowd", "at last")
    for follower in events:
        assert follower.batch().json()["records"][0]["body"] == "at last"
    for session in sessions:
        assert session.records(1)[0].body == b"at last"
    fan_out = time.perf_counter() - began
    stalled_readers.close()
    for follower in events:
        follower.close()
    for connection in connections:
        connection.close()

    print(
        "\nappend -> delivery p50/p99 in ms: "
        f"alone {alone[0]:.1f}/{alone[1]:.1f}, 1,000 followers {followed[0]:.1f}/{followed[1]:.1f}, "
        f"flood {unread[0]:.1f}/{unread[1]:.1f}, flood and stalled readers {stalled[0]:.1f}/{stalled[1]:.1f}"
        f"\nresident MiB: alone {memory_before / MIB:.0f}, 1,000 followers {memory_followed / MIB:.0f} "
        f"({(memory_followed - memory_before) / 1024 / (SSE_FOLLOWERS + S2S_FOLLOWERS):.0f} KiB each), "
        f"after a flood of {FLOOD // MIB} MiB {memory_flooded / MIB:.0f}, "
        f"after another with stalled readers {memory_stalled / MIB:.0f}"
        f"\none record to 1,000 followers: {fan_out * 1000:.0f} ms"
    )
    # Bounds are generous: two busy cores also run the clients. But no client may wait for another's reader.
    assert followed[0] < alone[0] + 20
    assert followed[1] < alone[1] + 200
    assert stalled[0] < 2 * unread[0] + 50
    assert stalled[1] < 2 * unread[1] + 500
    assert memory_followed - memory_before < 200 * MIB
    assert memory_stalled - memory_flooded < 64 * MIB
    assert fan_out < 10


def probe_during_flood(s2: S2Client) -> list[float]:
    """The probe's times while the flood runs."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            flood(s2, "flood", FLOOD)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    times: list[float] = []
    while thread.is_alive():
        times += probe(s2, "probe", 20)
    thread.join()
    assert not failures, failures
    return times


def test_a_reader_that_stopped_is_dropped_by_rule() -> None:
    """`slow_reader_seconds`: no forever for a client that takes nothing; idle followers are not slow readers."""
    with running_gateway(IMPATIENT_CONFIG) as gateway:
        s2 = S2Client(("127.0.0.1", gateway.s2_port)).ensure_basin("crowd-basin")
        for stream in ("flood", "quiet"):
            s2.ensure_stream(stream)
        idle = s2.events("quiet")
        assert idle.next() is not None
        flood(s2, "flood", 32 * MIB)
        target = stream_path("flood") + "/records?seq_num=0"
        with H2Connection(s2.address, window=65_535) as connection:
            stalled = connection.open("GET", target, s2.head({"content-type": "s2s/proto"}))
            sse = Http1Stream(s2.address, "GET", target, s2.head({"accept": "text/event-stream"}), receive_buffer=4096)
            assert sse.status == 200
            began = time.monotonic()
            while not stalled.ended:  # its data is taken in, but never acknowledged: the window stays shut
                connection.pump(10)
            assert stalled.reset == CANCEL
            assert 1 < time.monotonic() - began < 5
            time.sleep(2)  # the other one stopped a little later, when its socket's buffers were full
            with pytest.raises((EOFError, ConnectionResetError)):
                while sse.receive():
                    pass
            sse.close()
        s2.append("quiet", "still there")
        assert idle.batch().json()["records"][0]["body"] == "still there"
        idle.close()


def test_a_stalled_stream_does_not_stall_its_connection(shared_basin: S2Client) -> None:
    """HTTP/2: one reader that takes nothing, and others beside it on the same connection."""
    s2 = shared_basin
    stream, other = s2.ensure_stream("stalled"), s2.ensure_stream("beside-stalled")
    flood(s2, stream, 16 * MIB)
    with H2Connection(s2.address, window=65_535, connection_window=8 * MIB) as connection:
        stalled = s2.read_session(stream, connection, seq_num=0)
        assert stalled.stream.status == 200
        writer = s2.append_session(other, connection)
        reader = s2.read_session(other, connection, seq_num=0)
        for number in range(50):
            writer.send(append_input(b"%d" % number))
            assert writer.ack(5).end.seq_num == number + 1
            assert reader.records(1, 5)[0].body == b"%d" % number
        assert len(stalled.records(500)) >= 500  # and it goes on from where it was
