"""The client of S3P with a real gateway: counting, places, ranges that were trimmed, connections that are cut."""

from __future__ import annotations

import itertools
from dataclasses import replace
from uuid import UUID

import pytest
from support.flaky import CuttingRelay
from support.process import GatewayProcess
from support.s3p.client import S3PClient

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients import Endpoint, ReadPosition, StreamClient, open_client

_numbers = itertools.count()
RECORDS = [(ms, b"%d-%d" % (ms, seq)) for ms, count in ((1000, 1500), (1001, 1), (2**40, 700)) for seq in range(count)]
"""More than a page holds, and more than one in a millisecond."""


@pytest.fixture
def endpoint(gateway: GatewayProcess) -> Endpoint:
    return Endpoint("s3p", "127.0.0.1", gateway.s3p_port)


@pytest.fixture
def stream(client: StreamClient) -> str:
    name = f"pipeline clients/{next(_numbers)} ä\r\n"
    assert client.create(name)
    return name


@pytest.fixture
def filled(gateway: GatewayProcess, stream: str) -> str:
    """A stream with RECORDS."""
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as writer:
        for ms, records in itertools.groupby(RECORDS, lambda record: record[0]):
            bodies = [body for _, body in records]
            for start in range(0, len(bodies), 1000):
                writer.append(stream, *bodies[start : start + 1000], ID=ms)
    return stream


def read(client: StreamClient, stream: str, start: ReadPosition, end: ReadPosition) -> list[tuple[int, bytes]]:
    """Timestamps and bodies; the numbers must go on, and the marks must be those between."""
    found: list[tuple[int, bytes]] = []
    for rows in client.read(stream, start, end):
        columns = rows.columns
        assert list(columns.seq_nums) == [start.seq_num + len(found) + n for n in range(len(columns.bodies))]
        found += zip(columns.timestamps, columns.bodies, strict=True)
        assert rows.next.seq_num == start.seq_num + len(found)
    return found


# ---- what there is ---------------------------------------------------------------------------------------------------


def test_streams_are_made_once_and_deleted_for_good_and_not_listed(client: StreamClient, stream: str) -> None:
    assert not client.create(stream)
    client.delete(stream)
    client.delete(stream)
    for ask in (client.first, client.tail, client.last_timestamp):
        with pytest.raises(OperationFailed) as raised:
            ask(stream)
        assert raised.value.failure.code is FailureCode.STREAM_NOT_FOUND
    with pytest.raises(OperationFailed, match="cannot list streams"):
        client.streams()


def test_an_empty_stream_begins_and_ends_at_its_first_possible_record(client: StreamClient, stream: str) -> None:
    assert client.first(stream) == client.tail(stream) == client.at_timestamp(stream, 5) == ReadPosition(0, "0-0")
    assert client.last_timestamp(stream) is None
    assert list(client.read(stream, ReadPosition(0, "0-0"), ReadPosition(0, "0-0"))) == []


def test_places_are_counted(client: StreamClient, filled: str) -> None:
    tail = ReadPosition(2201, f"{2**40}-700")
    assert client.first(filled) == ReadPosition(0, "1000-0")
    assert (
        client.tail(filled) == client.tail(filled, ReadPosition(1500, "1000-1500")) == client.tail(filled, tail) == tail
    )
    assert client.last_timestamp(filled) == 2**40
    assert [client.at_timestamp(filled, ms) for ms in (0, 1001, 1002, 2**40 + 1)] == [
        ReadPosition(0, "1000-0"),
        ReadPosition(1500, "1001-0"),
        ReadPosition(1501, f"{2**40}-0"),
        tail,
    ]
    assert client.advance(filled, ReadPosition(0, "1000-0"), 1499) == ReadPosition(1499, "1000-1499")
    assert client.advance(filled, ReadPosition(1499, "1000-1499"), 2) == ReadPosition(1501, "1001-1")
    assert client.advance(filled, ReadPosition(1501, "1001-1"), 10**6) == tail
    assert client.advance(filled, ReadPosition(1501, ""), 0) == ReadPosition(1501, "1001-1")


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_ranges_end_exactly_where_they_should(client: StreamClient, filled: str) -> None:
    cuts = [
        ReadPosition(0, "1000-0"),
        ReadPosition(1, "1000-1"),
        ReadPosition(1500, "1000-1500"),
        ReadPosition(1501, "1001-1"),
        client.tail(filled),
    ]
    found = [read(client, filled, start, end) for start, end in itertools.pairwise(cuts)]
    assert [len(part) for part in found] == [1, 1499, 1, 700]
    assert list(itertools.chain(*found)) == RECORDS
    assert read(client, filled, ReadPosition(1499), ReadPosition(1502)) == RECORDS[1499:1502]


def test_reads_may_be_given_up_and_interleaved(client: StreamClient, filled: str) -> None:
    start, tail = client.first(filled), client.tail(filled)
    one, other = client.read(filled, start, tail), client.read(filled, start, tail)
    assert next(one).columns.bodies == next(other).columns.bodies
    one.close()  # type: ignore[attr-defined]
    assert client.first(filled) == start
    assert sum(len(rows.columns.bodies) for rows in other) == 2201 - 100


def test_large_records_come_whole(gateway: GatewayProcess, client: StreamClient, stream: str) -> None:
    bodies = [bytes([n]) * 900_000 for n in range(12)]
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as writer:
        for body in bodies:
            writer.append(stream, body)
    found = read(client, stream, client.first(stream), client.tail(stream))
    assert [body for _, body in found] == bodies


def test_a_range_that_was_trimmed_says_what_is_first_now(client: StreamClient, filled: str) -> None:
    tail = client.tail(filled)
    client.trim(filled, ReadPosition(1000, "1000-1000"))
    assert client.first(filled) == ReadPosition(0, "1000-1000")
    assert len(read(client, filled, ReadPosition(1000, "1000-1000"), tail)) == 1201
    for start in (ReadPosition(0, "1000-0"), ReadPosition(999, "1000-999")):
        for end in (ReadPosition(1200, "1000-1200"), tail):
            with pytest.raises(OperationFailed) as raised:
                read(client, filled, start, end)
            assert raised.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
            assert raised.value.failure.details["first"] == ReadPosition(1000, "1000-1000")
        for count in (lambda: client.tail(filled, start), lambda: client.advance(filled, start, 5)):  # noqa: B023
            with pytest.raises(OperationFailed, match=r"1000-1000 is first"):
                count()


def test_whole_milliseconds_that_were_trimmed_are_missed_by_their_number(client: StreamClient, filled: str) -> None:
    """The first remaining record begins its millisecond, so only the count reveals the loss."""
    tail = client.tail(filled)
    client.trim(filled, ReadPosition(1501, f"{2**40}-0"))
    found = []
    with pytest.raises(OperationFailed) as raised:
        found += client.read(filled, ReadPosition(1499, "1000-1499"), tail)
    assert not found
    assert raised.value.failure.details["first"] == ReadPosition(1501, f"{2**40}-0")
    assert read(client, filled, ReadPosition(1501, "1001-1"), tail) == RECORDS[1501:]


def test_a_stream_that_was_empty_when_it_was_looked_at_first(
    gateway: GatewayProcess, client: StreamClient, stream: str
) -> None:
    start = client.first(stream)
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as writer:
        writer.append(stream, b"a", b"b", b"c", ID=7)
    tail = client.tail(stream, start)
    assert tail == ReadPosition(3, "7-3")
    assert read(client, stream, start, tail) == [(7, b"a"), (7, b"b"), (7, b"c")]
    client.trim(stream, ReadPosition(1, "7-1"))
    with pytest.raises(OperationFailed) as raised:
        read(client, stream, start, tail)
    assert raised.value.failure.details["first"] == ReadPosition(1, "7-1")


def test_all_that_was_read_may_be_trimmed(gateway: GatewayProcess, client: StreamClient, filled: str) -> None:
    tail = client.tail(filled)
    client.trim(filled, tail)
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as writer:
        writer.append(filled, b"more", ID=2**40 + 1)
    later = client.tail(filled, tail)
    assert later == ReadPosition(2202, f"{2**40 + 1}-1")
    assert read(client, filled, tail, later) == [(2**40 + 1, b"more")]


def test_a_range_beyond_the_tail_gives_what_there_is(client: StreamClient, filled: str) -> None:
    found = []
    with pytest.raises(OperationFailed) as raised:
        for rows in client.read(filled, ReadPosition(2200, f"{2**40}-699"), ReadPosition(2300, f"{2**50}-0")):
            found += rows.columns.bodies
    assert found == [RECORDS[-1][1]]
    assert raised.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
    assert raised.value.failure.details["tail"] == client.tail(filled)


@pytest.mark.parametrize("place", ["x", "1", "1-", "-1-0", "1-0-0", f"{2**64}-0", "١-٠"])
def test_what_can_be_no_place_is_refused_by_name(client: StreamClient, stream: str, place: str) -> None:
    with pytest.raises(OperationFailed, match="no identifier ms-seq") as raised:
        client.advance(stream, ReadPosition(1, place), 1)
    assert raised.value.failure.code is FailureCode.INVALID


# ---- appending -------------------------------------------------------------------------------------------------------


def test_nothing_can_be_appended_twice_as_nothing_can_be_appended(client: StreamClient, stream: str) -> None:
    for append in (client.appender, lambda name: client.numbered_appender(name, UUID(int=1))):
        with pytest.raises(OperationFailed) as raised:
            append(stream)
        assert raised.value.failure.code is FailureCode.NOT_IMPLEMENTED


# ---- connections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [(1,), (700, 40, 3000, 0, 12345), (9000, 5)])
def test_a_connection_that_is_cut_is_made_again(endpoint: Endpoint, filled: str, cuts: tuple[int, ...]) -> None:
    with CuttingRelay(endpoint.port, cuts) as relay:
        client = open_client(replace(endpoint, port=relay.port))
        start, tail = client.first(filled), client.tail(filled)
        assert read(client, filled, start, tail) == RECORDS
        client.close()
        assert relay.accepted > len(cuts)


def test_a_server_that_was_never_there_is_not_waited_for_long(endpoint: Endpoint) -> None:
    with CuttingRelay(endpoint.port, ()) as relay:
        port = relay.port
    client = open_client(replace(endpoint, port=port, connect_seconds=0.1))
    with pytest.raises(OperationFailed, match=f"s3p://127.0.0.1:{port}") as raised:
        client.first("stream")
    assert raised.value.failure.code is FailureCode.UNAVAILABLE


@pytest.mark.slow
def test_a_server_that_is_started_again_is_asked_again(fresh_gateway: GatewayProcess) -> None:
    """Also by connections that were idle all the while."""
    client = open_client(Endpoint("s3p", "127.0.0.1", fresh_gateway.s3p_port))
    client.create("stream")
    with S3PClient(("127.0.0.1", fresh_gateway.s3p_port)) as writer:
        writer.append("stream", b"one")
    mark = client.tail("stream")
    fresh_gateway.restart(kill=True)
    assert client.tail("stream", mark) == mark
    assert [body for _, body in read(client, "stream", client.first("stream"), mark)] == [b"one"]
    client.close()
