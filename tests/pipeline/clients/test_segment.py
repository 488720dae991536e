"""The client of segments with a real gateway, straight to the store and by its controller."""

from __future__ import annotations

import itertools
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from support.flaky import CuttingRelay
from support.process import BASIN, GatewayProcess
from support.segment.client import ReleasedSocket

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.segment import join_events
from penstock_spark.clients import Endpoint, ReadPosition, StreamClient, open_client

_numbers = itertools.count()
BODIES = [b"%d" % n * (n % 50) for n in range(2000)]
"""Some of them empty."""
PLACES = list(itertools.accumulate((8 + len(body) for body in BODIES), initial=0))
TAIL = ReadPosition(2000, str(PLACES[-1]))


@pytest.fixture(params=["segment", "controller"])
def endpoint(request: pytest.FixtureRequest, gateway: GatewayProcess) -> Endpoint:
    if request.param == "segment":
        return Endpoint("segment", "127.0.0.1", gateway.segment_port)
    return Endpoint("segment", "127.0.0.1", gateway.controller_port, directory=True)


@pytest.fixture
def stream(client: StreamClient) -> str:
    name = f"{BASIN}/pipeline-segments-{next(_numbers)}"
    assert client.create(name)
    return name


@pytest.fixture
def filled(client: StreamClient, stream: str) -> str:
    """A stream with BODIES."""
    append(client, stream, uuid4(), BODIES)
    return stream


def append(client: StreamClient, stream: str, writer: UUID, bodies: list[bytes], first: int = 0) -> None:
    appender = client.numbered_appender(stream, writer)
    appender.append(bodies, first + len(bodies))
    appender.flush()
    assert appender.acknowledged == 1
    appender.close()


def read(client: StreamClient, stream: str, start: ReadPosition, end: ReadPosition) -> list[bytes]:
    """The numbers must go on, and the marks must be the places behind the events."""
    found: list[bytes] = []
    for rows in client.read(stream, start, end):
        columns = rows.columns
        assert list(columns.seq_nums) == [start.seq_num + len(found) + n for n in range(len(columns.bodies))]
        assert not columns.timestamps and not columns.headers
        found += columns.bodies
        assert rows.next.seq_num == start.seq_num + len(found)
    return found


def failure_of(work: object) -> tuple[FailureCode, dict[str, object]]:
    with pytest.raises(OperationFailed) as raised:
        assert callable(work)
        work()
    return raised.value.failure.code, dict(raised.value.failure.details)


# ---- what there is ---------------------------------------------------------------------------------------------------


def test_streams_are_made_once_and_deleted_for_good(client: StreamClient, stream: str) -> None:
    assert not client.create(stream)
    client.delete(stream)
    client.delete(stream)
    for ask in (client.first, client.tail, client.last_timestamp):
        assert failure_of(lambda: ask(stream))[0] is FailureCode.STREAM_NOT_FOUND  # noqa: B023
    assert client.create(stream)
    assert client.first(stream) == client.tail(stream) == ReadPosition(0, "0")


def test_places_are_counted(client: StreamClient, filled: str) -> None:
    assert client.first(filled) == ReadPosition(0, "0")
    assert (
        client.tail(filled) == client.tail(filled, ReadPosition(7, str(PLACES[7]))) == client.tail(filled, TAIL) == TAIL
    )
    assert client.advance(filled, ReadPosition(0, "0"), 1234) == ReadPosition(1234, str(PLACES[1234]))
    assert client.advance(filled, ReadPosition(1234, str(PLACES[1234])), 10**6) == TAIL
    assert client.advance(filled, ReadPosition(1234), 1) == ReadPosition(1235, str(PLACES[1235]))
    assert client.last_timestamp(filled) is None
    assert failure_of(lambda: client.at_timestamp(filled, 0))[0] is FailureCode.NOT_IMPLEMENTED


def test_a_stream_may_be_called_as_its_first_segment_is(client: StreamClient, filled: str) -> None:
    assert client.tail(f"{filled}/0.#epoch.0") == client.tail(f"{filled}/0") == TAIL
    assert failure_of(lambda: client.tail(f"{filled}/1"))[0] is FailureCode.STREAM_NOT_FOUND


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_ranges_end_exactly_where_they_should(client: StreamClient, filled: str) -> None:
    cuts = [ReadPosition(n, str(PLACES[n])) for n in (0, 1, 2, 1000, 1999, 2000)]
    found = [read(client, filled, start, end) for start, end in itertools.pairwise(cuts)]
    assert [len(part) for part in found] == [1, 1, 998, 999, 1]
    assert list(itertools.chain(*found)) == BODIES
    assert read(client, filled, ReadPosition(10), ReadPosition(20)) == BODIES[10:20]
    assert read(client, filled, TAIL, TAIL) == []


def test_events_larger_than_a_request_come_whole(client: StreamClient, stream: str) -> None:
    bodies = [b"small", b"x" * 3_000_000, b"", b"y" * 1_048_568, b"z" * 1_500_000, b"end"]
    append(client, stream, uuid4(), bodies)
    assert read(client, stream, ReadPosition(0, "0"), client.tail(stream)) == bodies


def test_reads_may_be_given_up_and_interleaved(client: StreamClient, stream: str) -> None:
    appender = client.numbered_appender(stream, uuid4())
    for n in range(1, 13):
        appender.append([bytes([n]) * 700_000], n)
    appender.flush()
    tail = client.tail(stream)
    one, other = client.read(stream, ReadPosition(0, "0"), tail), client.read(stream, ReadPosition(0, "0"), tail)
    assert next(one).columns.bodies == next(other).columns.bodies
    one.close()  # type: ignore[attr-defined]
    assert client.tail(stream) == tail
    assert sum(len(rows.columns.bodies) for rows in other) == 11
    assert appender.acknowledged == 12
    client.close()
    assert failure_of(lambda: appender.append([b"x"], 13))[0] is FailureCode.UNAVAILABLE


def test_a_range_that_was_truncated_says_what_is_first_now(client: StreamClient, filled: str) -> None:
    kept = ReadPosition(1000, str(PLACES[1000]))
    client.trim(filled, kept)
    assert client.first(filled) == ReadPosition(0, kept.place)
    assert read(client, filled, kept, TAIL) == BODIES[1000:]
    gone = FailureCode.RANGE_NOT_SATISFIABLE
    for end in (ReadPosition(1500, str(PLACES[1500])), TAIL):
        found = failure_of(lambda: read(client, filled, ReadPosition(999, str(PLACES[999])), end))  # noqa: B023
        assert found == (gone, {"first": kept})
    start = ReadPosition(10, str(PLACES[10]))
    assert failure_of(lambda: client.tail(filled, start)) == (gone, {"first": ReadPosition(10, kept.place)})
    assert failure_of(lambda: client.advance(filled, start, 1)) == (gone, {"first": ReadPosition(10, kept.place)})


def test_a_range_beyond_the_tail_gives_what_there_is(client: StreamClient, filled: str) -> None:
    found: list[bytes] = []

    def gather(end: ReadPosition) -> None:
        for rows in client.read(filled, ReadPosition(1999, str(PLACES[1999])), end):
            found.extend(rows.columns.bodies)

    for end in (ReadPosition(2001), ReadPosition(2001, str(PLACES[2000] + 9))):
        assert failure_of(lambda: gather(end)) == (FailureCode.RANGE_NOT_SATISFIABLE, {"tail": TAIL})  # noqa: B023
    assert found == [BODIES[1999]] * 2


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, ReadPosition(10, "11")), (1, ReadPosition(10, str(PLACES[10]))), (0, ReadPosition(9, "9999"))],
)
def test_marks_that_do_not_fit_are_refused(client: StreamClient, filled: str, start: int, end: ReadPosition) -> None:
    assert failure_of(lambda: read(client, filled, ReadPosition(start, "0"), end))[0] is FailureCode.INVALID


@pytest.mark.parametrize("place", ["x", "-1", "1.0", "٣", "9" * 20])
def test_what_can_be_no_place_is_refused_by_name(client: StreamClient, stream: str, place: str) -> None:
    with pytest.raises(OperationFailed, match="no offset in bytes"):
        client.advance(stream, ReadPosition(1, place), 1)


def test_bytes_that_are_no_events_are_told_where(gateway: GatewayProcess, client: StreamClient, stream: str) -> None:
    data = join_events([b"one", b"two"]) + b"\x00\x00\x00\x05\x00\x00\x00\x01x"
    with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as store:
        writer = uuid4()
        store.setup(f"{stream}/0.#epoch.0", writer)
        store.append_raw(writer, data, 3)
    with pytest.raises(OperationFailed, match=r"offset 22: message type 5 where an event \(0\) was expected"):
        client.tail(stream)
    assert client.advance(stream, ReadPosition(0, "0"), 2) == ReadPosition(2, "22")


def test_sealed_segments_are_read_like_others(gateway: GatewayProcess, client: StreamClient, filled: str) -> None:
    with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as store:
        store.seal(f"{filled}/0.#epoch.0")
    assert client.tail(filled) == TAIL
    assert read(client, filled, ReadPosition(0, "0"), TAIL) == BODIES
    appender = client.numbered_appender(filled, uuid4())

    def go_on() -> None:
        appender.append([b"x"], 1)
        appender.flush()

    assert failure_of(go_on)[0] is FailureCode.STREAM_SEALED


# ---- appending -------------------------------------------------------------------------------------------------------


def test_a_writer_goes_on_where_it_was(client: StreamClient, stream: str) -> None:
    writer = uuid4()
    first = client.numbered_appender(stream, writer)
    assert first.last is None and first.acknowledged == 0
    first.flush()
    first.append([b"a", b"b"], 1 << 40)
    first.append([b"c"], (1 << 40) + 1)
    first.flush()
    assert first.acknowledged == 2
    second = client.numbered_appender(stream, writer)
    assert second.last == (1 << 40) + 1
    assert failure_of(lambda: second.append([b"c"], second.last))[0] is FailureCode.STALE_WRITER_POSITION
    second.append([b"d"], second.last + 1)
    second.flush()
    other = client.numbered_appender(stream, uuid4())
    other.append([b"e"], 1)
    other.flush()
    assert read(client, stream, ReadPosition(0, "0"), client.tail(stream)) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_writer_that_has_gone_on_without_us_stores_nothing_twice(client: StreamClient, stream: str) -> None:
    """Whichever of two came first; also where the late one's number would be higher."""
    writer = uuid4()
    late, early = client.numbered_appender(stream, writer), client.numbered_appender(stream, writer)
    early.append([b"1", b"2"], 2)
    early.flush()

    def go_on() -> None:
        late.append([b"1", b"2", b"3"], 3)
        late.append([b"4"], 4)
        late.flush()

    assert failure_of(go_on)[0] is FailureCode.STALE_WRITER_POSITION
    assert failure_of(late.flush)[0] is FailureCode.STALE_WRITER_POSITION
    late.close()
    assert read(client, stream, ReadPosition(0, "0"), client.tail(stream)) == [b"1", b"2"]


def test_more_is_under_way_than_sockets_hold(client: StreamClient, stream: str) -> None:
    bodies = [b"%d" % n + b"x" * 1_000_000 for n in range(30)]
    appender = client.numbered_appender(stream, uuid4())
    for n, body in enumerate(bodies):
        appender.append([body], n)
    appender.flush()
    assert appender.acknowledged == 30
    assert read(client, stream, ReadPosition(0, "0"), client.tail(stream)) == bodies


def test_an_append_that_no_store_takes_is_not_sent(client: StreamClient, stream: str) -> None:
    appender = client.numbered_appender(stream, uuid4())
    assert failure_of(lambda: appender.append([b"x" * (8 << 20), b"y"], 1))[0] is FailureCode.LIMIT_EXCEEDED
    assert failure_of(lambda: appender.append([], 1))[0] is FailureCode.INVALID
    appender.append([b"x" * (8 << 20)], 1)
    appender.flush()
    assert appender.acknowledged == 1


def test_there_are_no_sequence_numbers_to_append_at(client: StreamClient, stream: str) -> None:
    assert failure_of(lambda: client.appender(stream))[0] is FailureCode.NOT_IMPLEMENTED


def test_writers_of_streams_that_are_not_there(client: StreamClient) -> None:
    code, _ = failure_of(lambda: client.numbered_appender(f"{BASIN}/never-made", uuid4()))
    assert code is FailureCode.STREAM_NOT_FOUND


# ---- connections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [(1,), (20, 100, 30_000, 0, 40_000), (16_000,)])
def test_a_connection_that_is_cut_is_made_again(
    gateway: GatewayProcess, client: StreamClient, filled: str, cuts: tuple[int, ...]
) -> None:
    with CuttingRelay(gateway.segment_port, cuts) as relay:
        relayed = open_client(Endpoint("segment", "127.0.0.1", relay.port))
        assert relayed.tail(filled) == TAIL
        assert read(relayed, filled, ReadPosition(0, "0"), TAIL) == BODIES
        relayed.close()
        assert relay.accepted > len(cuts)


@pytest.mark.parametrize("said", [1000, 5000, 8020])
def test_an_append_that_was_cut_off_is_stored_or_not_and_the_writer_knows(
    gateway: GatewayProcess, client: StreamClient, stream: str, said: int
) -> None:
    writer = uuid4()
    bodies = [b"x" * 992] * 10
    with CuttingRelay(gateway.segment_port, (said,), client_says=True) as relay:
        relayed = open_client(Endpoint("segment", "127.0.0.1", relay.port))
        appender = relayed.numbered_appender(stream, writer)

        def go_on() -> None:
            for number, body in enumerate(bodies, 1):
                appender.append([body], number)
            appender.flush()

        assert failure_of(go_on)[0] is FailureCode.UNAVAILABLE
        again = relayed.numbered_appender(stream, writer)
        stored = again.last or 0
        assert appender.acknowledged <= stored <= 10
        for number, body in list(enumerate(bodies, 1))[stored:]:
            again.append([body], number)
        again.flush()
        relayed.close()
    assert read(client, stream, ReadPosition(0, "0"), client.tail(stream)) == bodies


@pytest.mark.slow
def test_a_server_that_is_started_again_is_asked_again(fresh_gateway: GatewayProcess) -> None:
    for endpoint in (
        Endpoint("segment", "127.0.0.1", fresh_gateway.segment_port),
        Endpoint("segment", "127.0.0.1", fresh_gateway.controller_port, directory=True),
    ):
        client = open_client(endpoint)
        name = f"{BASIN}/restarted-{endpoint.directory}".lower()
        client.create(name)
        append(client, name, uuid4(), BODIES)
        fresh_gateway.restart(kill=True)
        assert client.tail(name, ReadPosition(0, "0")) == TAIL
        assert read(client, name, ReadPosition(0, "0"), TAIL) == BODIES
        client.close()


def test_a_server_that_was_never_there_is_not_waited_for_long(endpoint: Endpoint) -> None:
    with CuttingRelay(endpoint.port, ()) as relay:
        port = relay.port
    client = open_client(replace(endpoint, port=port, connect_seconds=0.1))
    assert failure_of(lambda: client.first(f"{BASIN}/stream"))[0] is FailureCode.UNAVAILABLE
