"""The client of Durable Streams with a real gateway, and with the reference server: offsets are theirs."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.flaky import CuttingRelay
from support.process import GatewayProcess
from support.real_backs import BackServer, DurableReference

from penstock_codecs.durable import RECORDS_TYPE
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import Header
from penstock_proto import s2_pb2
from penstock_spark.clients import Endpoint, ReadPosition, StreamClient, open_client

pytestmark = pytest.mark.peer
_numbers = itertools.count()
JSON = "application/json"
WRITER = UUID(int=7)
BATCH = 1 << 32
"""Numbers of a batch: those of a writer's next one begin so much later."""


@pytest.fixture(scope="module")
def reference() -> Iterator[BackServer]:
    with DurableReference() as server:
        yield server


@pytest.fixture(params=["gateway", "reference"])
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    if request.param == "gateway":
        gateway: GatewayProcess = request.getfixturevalue("gateway")
        return Endpoint("durable", "127.0.0.1", gateway.durable_port)
    return Endpoint("durable", *request.getfixturevalue("reference").address)


@pytest.fixture
def stream() -> str:
    return f"pipeline clients/{next(_numbers)} ä"


def send(endpoint: Endpoint, method: str, stream: str, body: bytes | None = None, kind: str = JSON) -> Any:
    """Make a request as any client does; return the headers of the answer."""
    url = f"http://{endpoint.authority}/v1/stream/{urllib.request.quote(stream)}"  # type: ignore[attr-defined]
    asked = urllib.request.Request(url, body, {"content-type": kind}, method=method)
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return answer.headers


def fill(endpoint: Endpoint, stream: str, numbers: range, at_once: int = 500) -> None:
    """Append messages that are numbers."""
    for start in numbers[::at_once]:
        send(endpoint, "POST", stream, json.dumps(list(range(start, min(start + at_once, numbers.stop)))).encode())


def read(client: StreamClient, stream: str, start: ReadPosition, end: ReadPosition) -> list[bytes]:
    """Bodies; their numbers must go on, and the positions must be those between."""
    found: list[bytes] = []
    for rows in client.read(stream, start, end):
        count = len(rows.columns.bodies)
        assert [*rows.columns.seq_nums] == [*range(rows.next.seq_num - count, rows.next.seq_num)]
        found += rows.columns.bodies
        assert rows.next.seq_num == start.seq_num + len(found)
    return found


def texts(numbers: range) -> list[bytes]:
    return [b"%d" % number for number in numbers]


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_positions_are_counted_and_ranges_end_exactly(endpoint: Endpoint, client: StreamClient, stream: str) -> None:
    send(endpoint, "PUT", stream)
    empty = client.tail(stream)
    assert client.first(stream).seq_num == empty.seq_num == 0
    fill(endpoint, stream, range(2500))
    first, tail = client.first(stream), client.tail(stream)
    assert (first.seq_num, tail.seq_num) == (0, 2500)
    assert client.tail(stream, tail) == client.advance(stream, first, 10**6) == tail
    assert client.tail(stream, empty).seq_num == 2500
    cuts = [first, *(client.advance(stream, first, count) for count in (1, 999, 1000, 1700)), tail]
    assert [cut.seq_num for cut in cuts] == [0, 1, 999, 1000, 1700, 2500]
    parts = [read(client, stream, start, end) for start, end in itertools.pairwise(cuts)]
    assert list(itertools.chain(*parts)) == texts(range(2500))
    assert read(client, stream, ReadPosition(1699), ReadPosition(1702)) == texts(range(1699, 1702))
    fill(endpoint, stream, range(2500, 2600))
    later = client.tail(stream, cuts[3])
    assert later.seq_num == 2600
    assert read(client, stream, tail, later) == texts(range(2500, 2600))
    assert read(client, stream, cuts[4], later) == texts(range(1700, 2600))
    with pytest.raises(OperationFailed) as raised:
        read(client, stream, tail, later._replace(seq_num=2601))
    assert raised.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE
    assert raised.value.failure.details["tail"] == later


def test_records_of_a_stream_of_records_have_headers(endpoint: Endpoint, client: StreamClient, stream: str) -> None:
    assert client.create(stream)
    assert not client.create(stream)
    sent = s2_pb2.AppendInput()
    for number in range(40):
        sent.records.add(body=bytes([number]) * 60_000, headers=[s2_pb2.Header(name=b"n", value=b"%d" % number)])
    for at in range(0, 40, 10):
        some = s2_pb2.AppendInput(records=sent.records[at : at + 10])
        send(endpoint, "POST", stream, some.SerializeToString(), RECORDS_TYPE)
    first, tail = client.first(stream), client.tail(stream)
    rows = list(client.read(stream, first, tail))
    assert [body for one in rows for body in one.columns.bodies] == [record.body for record in sent.records]
    headers = [one.columns.headers[index] for one in rows for index in range(len(one.columns.bodies))]
    assert headers == [(Header(b"n", b"%d" % number),) for number in range(40)]
    for one in rows:
        assert len(read(client, stream, one.next, tail)) == 40 - one.next.seq_num
    client.delete(stream)
    client.delete(stream)


@pytest.mark.parametrize("cuts", [(1,), (700, 40, 3000, 0, 12345), (9000, 5)])
def test_a_connection_that_is_cut_is_made_again(
    endpoint: Endpoint, client: StreamClient, stream: str, cuts: tuple[int, ...]
) -> None:
    send(endpoint, "PUT", stream)
    fill(endpoint, stream, range(3000))
    with CuttingRelay(endpoint.port, cuts) as relay:
        cut = open_client(replace(endpoint, port=relay.port))
        first = cut.first(stream)
        assert read(cut, stream, first, cut.tail(stream)) == texts(range(3000))
        cut.close()
        assert relay.accepted > len(cuts)


def test_a_stream_that_was_made_again_ends_before_the_position(
    endpoint: Endpoint, client: StreamClient, stream: str
) -> None:
    send(endpoint, "PUT", stream)
    fill(endpoint, stream, range(100))
    tail = client.tail(stream)
    client.delete(stream)
    for ask in (client.first, client.tail, client.last_timestamp, lambda name: client.tail(name, tail)):
        with pytest.raises(OperationFailed) as raised:
            ask(stream)
        assert raised.value.failure.code is FailureCode.STREAM_NOT_FOUND
    send(endpoint, "PUT", stream)
    fill(endpoint, stream, range(10))
    with pytest.raises(OperationFailed, match="before offset") as raised:
        client.tail(stream, tail)
    assert raised.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE


def test_content_without_boundaries_is_refused_by_name(endpoint: Endpoint, client: StreamClient, stream: str) -> None:
    send(endpoint, "PUT", stream, kind="text/plain")
    send(endpoint, "POST", stream, b"a line\n", kind="text/plain")
    for ask in (client.tail, lambda name: client.numbered_appender(name, WRITER)):
        with pytest.raises(OperationFailed, match="content type text/plain") as raised:
            ask(stream)
        assert raised.value.failure.code is FailureCode.NOT_REPRESENTABLE


@pytest.mark.parametrize("place", ["x", "1-0", "a,b", "1:zz,a", "1,", "1,ä", "99999999999999999,a"])
def test_other_protocols_places_are_refused(client: StreamClient, stream: str, place: str) -> None:
    with pytest.raises(OperationFailed, match="no place") as raised:
        client.advance(stream, ReadPosition(1, place), 1)
    assert raised.value.failure.code is FailureCode.INVALID


def test_what_the_protocol_lacks(client: StreamClient, stream: str) -> None:
    for ask in (client.streams, client.appender, lambda name: client.trim(name, ReadPosition(0))):
        with pytest.raises(OperationFailed) as raised:
            ask(stream)
        assert raised.value.failure.code is FailureCode.NOT_IMPLEMENTED


# ---- appending -------------------------------------------------------------------------------------------------------


def test_a_writers_rows_are_stored_once(endpoint: Endpoint, client: StreamClient, stream: str) -> None:
    send(endpoint, "PUT", stream)
    one = client.numbered_appender(stream, WRITER)
    assert one.last is None
    one.append(texts(range(3)), 3)
    one.append(texts(range(3, 5)), 5)
    one.flush()
    assert one.acknowledged == 2
    other = client.numbered_appender(stream, WRITER)
    assert other.last == 5
    other.append(texts(range(5, 7)), 7)
    one.append(texts(range(5, 8)), 8)  # an attempt that does not know of the other, and divides the rows otherwise
    later = client.numbered_appender(stream, WRITER)
    assert later.last == 8
    later.append([b"10"], 3 * BATCH + 1)
    assert client.numbered_appender(stream, WRITER).last == 3 * BATCH + 1
    with pytest.raises(OperationFailed) as raised:
        other.append([b"8"], 9)
    assert raised.value.failure.code is FailureCode.STALE_WRITER_POSITION
    assert client.numbered_appender(stream, UUID(int=8)).last is None
    found = read(client, stream, client.first(stream), client.tail(stream))
    assert found == [*texts(range(8)), b"10"]
    for appender in (one, other, later):
        appender.close()
        appender.close()
    with pytest.raises(OperationFailed, match="was closed"):
        one.append([b"1"], 10)


def test_an_append_that_is_not_json_stores_nothing(endpoint: Endpoint, client: StreamClient, stream: str) -> None:
    send(endpoint, "PUT", stream)
    appender = client.numbered_appender(stream, WRITER)
    with pytest.raises(OperationFailed) as raised:
        appender.append([b"1", b"not JSON"], 2)
    assert raised.value.failure.code is FailureCode.NOT_REPRESENTABLE
    assert client.tail(stream).seq_num == 0
    appender.append([b"1"], 1)
    assert client.tail(stream).seq_num == 1
    appender.close()
