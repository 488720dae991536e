"""The client of S2 with a real gateway: listing streams, reading ranges, appending on condition."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.process import BASIN, GatewayProcess

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import Header
from penstock.wire.compression import Compression
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint

_numbers = itertools.count()


@pytest.fixture
def endpoint(gateway: GatewayProcess) -> Endpoint:
    return Endpoint("127.0.0.1", gateway.s2_port)


@pytest.fixture
def stream(client: StreamClient) -> str:
    name = f"{BASIN}/pipeline-clients/{next(_numbers)} ä?%&#/.."
    assert client.create(name)
    return name


def _fill(client: StreamClient, stream: str, bodies: Sequence[bytes], *, at: int = 0, stamp: int | None = None) -> None:
    appender = client.appender(stream)
    stamps = None if stamp is None else [stamp] * len(bodies)
    appender.append(bodies, {}, stamps, at)
    appender.flush()
    appender.close()


def _bodies(client: StreamClient, stream: str, start: int, end: int) -> list[bytes]:
    found: list[bytes] = []
    for rows in client.read(stream, start, end):
        assert list(rows.columns.seq_nums) == list(range(start, start + len(rows.columns.bodies)))
        start += len(rows.columns.bodies)
        assert rows.next_seq_num == start
        found += rows.columns.bodies
    return found


def _trimmed(client: StreamClient, stream: str, first: int) -> None:
    client.trim(stream, first)
    while client.first(stream) < first:
        pass


# ---- what there is ---------------------------------------------------------------------------------------------------


def test_an_empty_stream_begins_and_ends_at_0(client: StreamClient, stream: str) -> None:
    assert client.first(stream) == client.tail(stream) == client.at_timestamp(stream, 5) == 0
    assert list(client.read(stream, 0, 0)) == []


def test_places_in_a_stream(client: StreamClient, stream: str) -> None:
    _fill(client, stream, [b"a", b"b"], stamp=1000)
    _fill(client, stream, [b"c"], at=2, stamp=3000)
    assert client.first(stream) == 0
    assert client.tail(stream) == 3
    found = [client.at_timestamp(stream, timestamp) for timestamp in (-5, 1000, 1001, 3000, 3001)]
    assert found == [0, 0, 2, 2, 3]


def test_places_in_a_stream_that_was_trimmed(client: StreamClient, stream: str) -> None:
    _fill(client, stream, [b"a", b"b", b"c"], stamp=1000)
    _trimmed(client, stream, 2)
    assert client.first(stream) == client.at_timestamp(stream, 0) == 2
    assert client.tail(stream) == 4, "the trim is a record, too"
    _trimmed(client, stream, 5)
    assert client.first(stream) == client.tail(stream) == 5
    assert client.at_timestamp(stream, 0) == 5


def test_streams_are_listed_by_prefix(client: StreamClient) -> None:
    prefix = f"{BASIN}/pipeline-listing/"
    names = [f"{prefix}{number:02}" for number in range(12)]
    for name in reversed(names):
        assert client.create(name)
    assert list(client.streams(prefix)) == names
    assert list(client.streams(f"{prefix}1")) == names[10:]
    assert names[7] in set(client.streams(BASIN[:3]))
    with pytest.raises(OperationFailed, match="there is no basin 'no-such-basin'"):
        list(client.streams("no-such-basin/"))
    with pytest.raises(OperationFailed, match="basin name"):
        list(client.streams("Not a basin/x"))


def test_streams_are_made_once_and_deleted_for_good(client: StreamClient, stream: str) -> None:
    assert not client.create(stream)
    client.delete(stream)
    client.delete(stream)
    assert stream not in set(client.streams(f"{BASIN}/pipeline-clients/"))
    assert client.create(stream, endless=True)
    assert client.tail(stream) == 0


@pytest.mark.parametrize("name", ["", "plain", "penstock/", "Penstock/x", "a/x", "penstock/.", "penstock/\ud800"])
def test_what_can_be_no_stream_is_refused_by_name(client: StreamClient, name: str) -> None:
    with pytest.raises(OperationFailed, match="is not a stream") as raised:
        client.tail(name)
    assert raised.value.failure.code is FailureCode.INVALID


def test_what_can_begin_no_stream_is_refused_by_name(client: StreamClient) -> None:
    with pytest.raises(OperationFailed, match="no stream's name begins with 'nobasin/'"):
        list(client.streams("nobasin/"))


def test_what_the_server_says_is_raised(client: StreamClient) -> None:
    with pytest.raises(OperationFailed) as raised:
        client.tail("no-such-basin/x")
    assert raised.value.failure.code is FailureCode.BASIN_NOT_FOUND
    with pytest.raises(OperationFailed) as raised:
        client.appender("no-such-basin/x").append([b""], {}, None, 0)
    assert raised.value.failure.code is FailureCode.BASIN_NOT_FOUND
    assert client.tail(f"{BASIN}/x") == 0, "the client is as good as before"


# ---- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", Compression)
def test_ranges_end_exactly_where_they_should(endpoint: Endpoint, compression: Compression, stream: str) -> None:
    client = StreamClient(replace(endpoint, compression=compression))
    bodies = [b"%d " % number * (number % 300) for number in range(5000)]
    appender = client.appender(stream)
    for begin in range(0, len(bodies), 500):
        appender.append(bodies[begin : begin + 500], {}, None, begin)
    end = appender.flush()
    assert end is not None and end.seq_num == 5000
    assert appender.acknowledged == 10
    for start, stop in ((0, 5000), (0, 1), (499, 501), (2500, 4999), (4999, 5000), (5000, 5000)):
        assert _bodies(client, stream, start, stop) == bodies[start:stop]
    client.close()


def test_headers_and_commands_are_records_like_the_others(client: StreamClient, stream: str) -> None:
    appender = client.appender(stream)
    headers = {1: (Header(b"k", b"v"), Header(b"k", b"")), 2: (Header(b"", b"fence"),)}
    appender.append([b"a", b"b", b"token"], headers, [7, None, 9], None)
    appender.flush()
    [rows] = client.read(stream, 0, 3)
    assert rows.columns.bodies == [b"a", b"b", b"token"]
    assert rows.columns.headers == headers
    assert rows.columns.timestamps[0] == 7
    appender.close()


def test_a_range_that_was_trimmed_says_where_the_stream_begins(client: StreamClient, stream: str) -> None:
    _fill(client, stream, [b"a", b"b", b"c"])
    _trimmed(client, stream, 2)
    for start, end in ((0, 4), (1, 2), (0, 1)):
        with pytest.raises(OperationFailed, match="were trimmed") as raised:
            list(client.read(stream, start, end))
        assert raised.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
        assert raised.value.failure.details == {"first": 2}
    assert _bodies(client, stream, 2, 3) == [b"c"]
    _trimmed(client, stream, 5)
    with pytest.raises(OperationFailed, match="the first that is kept is 5"):
        list(client.read(stream, 2, 4))


def test_a_range_beyond_the_tail_gives_what_there_is(client: StreamClient, stream: str) -> None:
    _fill(client, stream, [b"a", b"b", b"c"])
    for start, there in ((1, [b"b", b"c"]), (3, []), (4, [])):
        reading = client.read(stream, start, 6)
        assert [body for _ in there[:1] for body in next(reading).columns.bodies] == there
        with pytest.raises(OperationFailed, match="up to 6, its tail is 3") as raised:
            next(reading)
        assert raised.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
        assert raised.value.failure.details == {"tail": 3}


def test_reads_may_be_given_up_and_interleaved(client: StreamClient, stream: str) -> None:
    for at in range(0, 6, 2):
        _fill(client, stream, [b"x" * 600_000] * 1, at=at)
        _fill(client, stream, [b"y" * 600_000] * 1, at=at + 1)
    first, second = (client.read(stream, 0, 6) for _ in range(2))
    assert next(first).next_seq_num == next(second).next_seq_num == 1
    assert client.tail(stream) == 6
    del first
    assert len(list(second)) == 5
    assert _bodies(client, stream, 4, 5) == [b"x" * 600_000]


# ---- appending -------------------------------------------------------------------------------------------------------


def test_appends_are_stored_where_they_were_meant_to_be_or_not_at_all(client: StreamClient, stream: str) -> None:
    appender = client.appender(stream)
    assert appender.flush() is None
    for number in range(50):
        appender.append([b"%d" % number], {}, None, number)
    assert appender.flush() is not None
    assert appender.acknowledged == 50
    with pytest.raises(OperationFailed) as raised:
        appender.append([b"zombie"], {}, None, 49)
        appender.append([b"after it"], {}, None, 50)
        appender.flush()
    assert raised.value.failure.code is FailureCode.SEQ_NUM_MISMATCH
    assert raised.value.failure.details == {"seq_num_mismatch": 50}
    with pytest.raises(OperationFailed, match="mismatch"):
        appender.flush()
    with pytest.raises(OperationFailed, match="mismatch"):
        appender.append([b"z"], {}, None, 50)
    assert appender.acknowledged == 50
    assert client.tail(stream) == 50


def test_a_batch_that_s2_does_not_take_is_not_sent(client: StreamClient, stream: str) -> None:
    appender = client.appender(stream)
    for bodies in ([], [b""] * 1001, [b"x" * (1 << 20)]):
        with pytest.raises(OperationFailed) as raised:
            appender.append(bodies, {}, None, 0)
        assert raised.value.failure.code is FailureCode.INVALID
    with pytest.raises(OperationFailed, match="at most 2097151 fit") as raised:
        headers = {index: (Header(b"n", b"v"),) * (87_380 - bool(index)) for index in range(3)}
        appender.append([b""] * 3, headers, [2**62] * 3, 2**62)
    assert raised.value.failure.code is FailureCode.NOT_REPRESENTABLE
    appender.append([b"x"], {}, None, 0)
    appender.flush()
    assert client.tail(stream) == 1


def test_more_is_under_way_than_sockets_hold(client: StreamClient, stream: str) -> None:
    """Neither side waits for the other to read first, and what has no acknowledgement stays bounded."""
    appender = client.appender(stream)
    body = bytes(1 << 19)
    for number in range(60):
        appender.append([body], {}, None, number)
    assert appender.acknowledged >= 28, "no more than 16 MiB wait"
    end = appender.flush()
    assert end is not None and end.seq_num == 60
    assert sum(map(len, _bodies(client, stream, 0, 60))) == 60 << 19


def test_a_session_that_the_server_ended_while_nothing_was_under_way_begins_again(
    fresh_gateway: GatewayProcess,
) -> None:
    client = StreamClient(Endpoint("127.0.0.1", fresh_gateway.s2_port))
    stream = f"{BASIN}/x"
    appender = client.appender(stream)
    appender.append([b"a"], {}, None, 0)
    appender.flush()
    fresh_gateway.restart(kill=True)
    appender.append([b"b"], {}, None, 1)
    end = appender.flush()
    assert end is not None and end.seq_num == 2
    assert appender.acknowledged == 2
    assert _bodies(client, stream, 0, 2) == [b"a", b"b"]
    client.close()
