"""The source and a real gateway, also before servers of other protocols, as tasks and the driver use it, without
Spark."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from support.process import BASIN, GatewayProcess

from penstock.model.envelope import wrap
from penstock.model.failures import OperationFailed
from penstock.model.records import Header
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import parse_endpoint
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.source.datasource import PenstockDataSource
from penstock_spark.source.loss import DataLost
from penstock_spark.source.streaming import StreamReader

SCHEMA = spark_schema(RECORDS)
_numbers = itertools.count()

SERVERS = ["s2s", "s3p", "segment", "durable", "kafka"]
"""The server with the stream: the gateway that Spark reads from, or one behind it, a listener of the shared gateway."""

each = pytest.mark.parametrize("server", SERVERS)


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[StreamClient]:
    client = StreamClient(parse_endpoint(gateway.s2_url))
    yield client
    client.close()


@pytest.fixture
def served(gateway: GatewayProcess, bridge: Callable[[str], GatewayProcess], server: str) -> GatewayProcess:
    """The gateway that Spark reads from."""
    return gateway if server == "s2s" else bridge(server)


@pytest.fixture
def name() -> str:
    return f"source-protocols-{next(_numbers)}"


@pytest.fixture(autouse=True)
def json_stream(request: pytest.FixtureRequest, gateway: GatewayProcess, name: str) -> None:
    """Durable Streams: the stream exists as one of JSON, since a stream of bytes has no records there."""
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("server") == "durable":
        create_json(gateway, name)


def create_json(gateway: GatewayProcess, name: str) -> None:
    kind = {"content-type": "application/json"}
    with urlopen(Request(gateway.durable_url + name, method="PUT", headers=kind), timeout=20):
        pass


def fill(client: StreamClient, name: str, count: int, headers: dict[int, tuple[Header, ...]] | None = None) -> None:
    """Records stamped by their number from 1000 on, over S2."""
    stream = f"{BASIN}/{name}"
    client.create(stream)
    at = client.tail(stream)
    appender = client.appender(stream)
    bodies = [b"%d" % (at + index) for index in range(count)]
    appender.append(bodies, headers or {}, range(1000 + at, 1000 + at + count), at)
    appender.flush()
    appender.close()


def source(gateway: GatewayProcess, name: str, **given: str) -> PenstockDataSource:
    where = {} if "stream_pattern" in given else {"stream": f"{BASIN}/{name}"}
    return PenstockDataSource({"endpoint": gateway.s2_url, **where, **given})


def rows(reader: DataSourceReader | StreamReader, partitions: Any) -> list[tuple[int, bytes]]:
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return [(row["seq_num"], row["body"]) for batch in batches for row in batch.to_pylist()]  # type: ignore[union-attr]


def batch(gateway: GatewayProcess, name: str, **given: str) -> list[tuple[int, bytes]]:
    reader = source(gateway, name, **given).reader(SCHEMA)
    return rows(reader, reader.partitions())


def expected(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(start, end)]


@each
def test_bounds_by_number(served: GatewayProcess, client: StreamClient, name: str) -> None:
    fill(client, name, 1000)
    fill(client, name, 500)
    assert batch(served, name) == expected(0, 1500)
    assert batch(served, name, start="seq_num:1200", end="seq_num:1300") == expected(1200, 1300)
    assert batch(served, name, start="seq_num:650", end="seq_num:5000") == expected(650, 1500)


@pytest.mark.parametrize("server", ["s2s", "s3p", "kafka"])
def test_bounds_by_time(served: GatewayProcess, client: StreamClient, name: str) -> None:
    fill(client, name, 1000)
    bounds = {"start": "timestamp:1100", "end": "timestamp:1970-01-01T00:00:01.900Z"}
    assert batch(served, name, **bounds) == expected(100, 900)


@each
def test_micro_batches(served: GatewayProcess, client: StreamClient, name: str) -> None:
    fill(client, name, 1000)

    def reader() -> StreamReader:
        made = source(served, name).streamReader(SCHEMA)
        assert isinstance(made, StreamReader)
        return made

    first = reader()
    start = first.initialOffset()
    middle = json.loads(json.dumps(first.latestOffset(start, ReadMaxRows(300))))
    assert rows(first, first.partitions(start, middle)) == expected(0, 300)
    assert first.latestOffset(middle, ReadMaxRows(0)) == middle
    first.stop()
    second = reader()
    second.prepareForTriggerAvailableNow()
    assert second.latestOffset(middle, ReadMaxRows(0)) == middle
    fill(client, name, 200)
    end = second.latestOffset(middle, ReadAllAvailable())
    assert rows(second, second.partitions(middle, end)) == expected(300, 1000)
    assert second.latestOffset(end, ReadAllAvailable()) == end
    second.stop()
    third = reader()
    assert rows(third, third.partitions(end, third.latestOffset(end, ReadAllAvailable()))) == expected(1000, 1200)
    third.stop()


@each
def test_what_was_trimmed(served: GatewayProcess, client: StreamClient, name: str) -> None:
    fill(client, name, 1000)
    reader = source(served, name).streamReader(SCHEMA)
    assert isinstance(reader, StreamReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = reader.partitions(start, end)
    client.trim(f"{BASIN}/{name}", 400)
    while client.first(f"{BASIN}/{name}") < 400:
        pass
    with pytest.raises(DataLost, match=r"was trimmed: records from 0 .*up to 400"):
        rows(reader, planned)
    lenient = source(served, name, fail_on_data_loss="false").streamReader(SCHEMA)
    assert isinstance(lenient, StreamReader)
    assert rows(lenient, planned) == expected(400, 1000)
    reader.stop()


@pytest.mark.parametrize("server", ["s2s", "segment", "kafka"])
def test_patterns(served: GatewayProcess, client: StreamClient, name: str) -> None:
    for one in ("a", "b"):
        fill(client, f"{name}-{one}", 5)
    found = batch(served, name, basin=BASIN, stream_pattern=f"{name}-[bc]")
    assert found == expected(0, 5)


@pytest.mark.parametrize("server", ["s3p", "segment"])
def test_envelopes(client: StreamClient, served: GatewayProcess, name: str) -> None:
    """Records in envelopes are unwrapped by the gateway before the server."""
    stream = f"{BASIN}/{name}"
    client.create(stream)
    appender = client.appender(stream)
    appender.append([wrap((Header(b"n", b"v"),), b"x"), b"plain"], {}, None, 0)
    appender.flush()
    appender.close()
    reader = source(served, name).reader(SCHEMA)
    (found,) = (one for partition in reader.partitions() for one in reader.read(partition))
    assert [row["headers"] for row in found.to_pylist()] == [[{"name": b"n", "value": b"v"}], []]  # type: ignore[union-attr]
    assert [row["body"] for row in found.to_pylist()] == [b"x", b"plain"]  # type: ignore[union-attr]


def replace(gateway: GatewayProcess, client: StreamClient, name: str, server: str) -> list[bytes]:
    """Delete the stream on its server, and create it with more records, which are returned."""
    client.delete(f"{BASIN}/{name}")
    if server == "durable":
        create_json(gateway, name)
    else:
        client.create(f"{BASIN}/{name}")
    bodies = [b'"%d of the new one"' % index for index in range(150)]
    appender = client.appender(f"{BASIN}/{name}")
    appender.append(bodies, {}, None, 0)
    appender.flush()
    appender.close()
    return bodies


def stream_reader(gateway: GatewayProcess, name: str, **given: str) -> StreamReader:
    reader = source(gateway, name, start="earliest", **given).streamReader(SCHEMA)
    assert isinstance(reader, StreamReader)
    return reader


@pytest.mark.parametrize("server", ["s2s", "segment", "durable", "kafka"])
def test_a_stream_that_was_made_again_with_more_records(
    gateway: GatewayProcess, served: GatewayProcess, client: StreamClient, name: str, server: str
) -> None:
    """The place up to which the old one was read is in the midst of the new one."""
    fill(client, name, 100)
    strict = stream_reader(served, name)
    begun = strict.initialOffset()
    known = strict.latestOffset(begun, ReadAllAvailable())
    assert rows(strict, strict.partitions(begun, known)) == expected(0, 100)
    bodies = replace(gateway, client, name, server)
    with pytest.raises(DataLost, match=rf"{name} has another record before 100 .*deleted and created again"):
        for _ in range(2):  # a gateway learns from its first request that the segment it knew is gone
            assert strict.latestOffset(known, ReadAllAvailable()) == known
    strict.stop()
    lenient = stream_reader(served, name, fail_on_data_loss="false")
    anew = lenient.latestOffset(known, ReadAllAvailable())
    end = lenient.latestOffset(anew, ReadAllAvailable())
    assert rows(lenient, lenient.partitions(anew, end)) == list(enumerate(bodies))
    lenient.stop()


@pytest.mark.parametrize("server", ["s3p"])
def test_a_stream_that_was_made_again_on_an_s3p_server(
    gateway: GatewayProcess, served: GatewayProcess, client: StreamClient, name: str, server: str
) -> None:
    """Its numbers go on from the old one's."""
    fill(client, name, 100)
    reader = stream_reader(served, name)
    begun = reader.initialOffset()
    known = reader.latestOffset(begun, ReadAllAvailable())
    assert rows(reader, reader.partitions(begun, known)) == expected(0, 100)
    bodies = replace(gateway, client, name, server)
    end = reader.latestOffset(known, ReadAllAvailable())
    assert rows(reader, reader.partitions(known, end)) == list(enumerate(bodies, 100))
    reader.stop()


@pytest.mark.parametrize("server", ["s3p", "durable"])
def test_servers_that_cannot_list_streams(served: GatewayProcess, name: str) -> None:
    reader = source(served, name, stream_pattern=f"{BASIN}/{name}*").reader(SCHEMA)
    with pytest.raises(OperationFailed, match="cannot list streams"):
        reader.partitions()


def test_reading_makes_no_stream(gateway: GatewayProcess, client: StreamClient, name: str) -> None:
    """Even if the basin has create_stream_on_read: an absent stream is an error that names it."""
    absent = f"there is no stream {BASIN}/{name}"
    with pytest.raises(OperationFailed, match=absent):
        source(gateway, name).reader(SCHEMA).partitions()
    early = source(gateway, name).streamReader(SCHEMA)
    with pytest.raises(OperationFailed, match=absent):
        early.initialOffset()
    early.stop()
    assert not list(client.streams(f"{BASIN}/{name}"))
    fill(client, name, 10)
    reader = source(gateway, name, start="earliest").streamReader(SCHEMA)
    assert isinstance(reader, StreamReader)
    begun = reader.initialOffset()
    known = reader.latestOffset(begun, ReadAllAvailable())
    client.delete(f"{BASIN}/{name}")
    with pytest.raises(DataLost, match=f"{name} was deleted"):
        reader.latestOffset(known, ReadAllAvailable())
    with pytest.raises(DataLost, match=f"{name} was deleted"):
        rows(reader, reader.partitions(begun, known))
    reader.stop()
    assert not list(client.streams(f"{BASIN}/{name}"))
