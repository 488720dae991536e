"""The source over each protocol of a real gateway, as tasks and the driver use it, without Spark."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from support.process import BASIN, GatewayProcess

from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import Header
from penstock_spark.clients import ReadPosition, StreamClient, open_client
from penstock_spark.clients.endpoint import parse_endpoint
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.source.datasource import PenstockDataSource
from penstock_spark.source.loss import DataLost
from penstock_spark.source.streaming import StreamReader

SCHEMA = spark_schema(RECORDS)
_numbers = itertools.count()

PROTOCOLS = {
    "s2s": ("http://127.0.0.1:{0.s2_port}", BASIN + "/{}"),
    "s3p": ("http://127.0.0.1:{0.s2_port}", BASIN + "/{}"),
    "segment": ("segment://127.0.0.1:{0.segment_port}", BASIN + "/{}"),
    "durable": ("durable://127.0.0.1:{0.durable_port}", "{}"),
    "controller": ("pravega://127.0.0.1:{0.controller_port}", BASIN + "/{}"),
}
"""Addresses, and what a stream is called. "s3p": of a gateway before the S3P listener of the one with the streams."""

each = pytest.mark.parametrize("protocol", PROTOCOLS)
stamped = pytest.mark.parametrize("protocol", ["s2s", "s3p"])


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[StreamClient]:
    client = open_client(parse_endpoint(gateway.s2_url))
    yield client
    client.close()


@pytest.fixture
def served(request: pytest.FixtureRequest) -> GatewayProcess:
    """The gateway that Spark reads from over the protocol of a test."""
    protocol = request.node.callspec.params["protocol"]
    gateway: GatewayProcess = request.getfixturevalue("s3p_gateway" if protocol == "s3p" else "gateway")
    return gateway


@pytest.fixture
def name() -> str:
    return f"source-protocols-{next(_numbers)}"


@pytest.fixture(autouse=True)
def json_stream(request: pytest.FixtureRequest, gateway: GatewayProcess, name: str) -> None:
    """Durable Streams: the stream exists as one of JSON, since a stream of bytes has no records there."""
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("protocol") == "durable":
        kind = {"content-type": "application/json"}
        with urlopen(Request(gateway.durable_url + name, method="PUT", headers=kind), timeout=20):
            pass


def fill(client: StreamClient, name: str, count: int, headers: dict[int, tuple[Header, ...]] | None = None) -> None:
    """Records stamped by their number from 1000 on, over S2."""
    stream = f"{BASIN}/{name}"
    client.create(stream)
    at = client.tail(stream).seq_num
    appender = client.appender(stream)
    bodies = [b"%d" % (at + index) for index in range(count)]
    appender.append(bodies, headers or {}, range(1000 + at, 1000 + at + count), at)
    appender.flush()
    appender.close()


def source(gateway: GatewayProcess, protocol: str, name: str, **given: str) -> PenstockDataSource:
    address, spelled = PROTOCOLS[protocol]
    where = {} if "stream_pattern" in given else {"stream": spelled.format(name)}
    return PenstockDataSource({"endpoint": address.format(gateway), **where, **given})


def rows(reader: DataSourceReader | StreamReader, partitions: Any) -> list[tuple[int, bytes]]:
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return [(row["seq_num"], row["body"]) for batch in batches for row in batch.to_pylist()]  # type: ignore[union-attr]


def batch(gateway: GatewayProcess, protocol: str, name: str, **given: str) -> list[tuple[int, bytes]]:
    reader = source(gateway, protocol, name, **given).reader(SCHEMA)
    return rows(reader, reader.partitions())


def expected(start: int, end: int, origin: int = 0) -> list[tuple[int, bytes]]:
    return [(number - origin, b"%d" % number) for number in range(start, end)]


@each
def test_bounds_by_number(served: GatewayProcess, client: StreamClient, name: str, protocol: str) -> None:
    fill(client, name, 1000)
    fill(client, name, 500)
    assert batch(served, protocol, name) == expected(0, 1500)
    assert batch(served, protocol, name, start="seq_num:1200", end="seq_num:1300") == expected(1200, 1300)
    assert batch(served, protocol, name, start="seq_num:650", end="seq_num:5000") == expected(650, 1500)


@stamped
def test_bounds_by_time(served: GatewayProcess, client: StreamClient, name: str, protocol: str) -> None:
    fill(client, name, 1000)
    bounds = {"start": "timestamp:1100", "end": "timestamp:1970-01-01T00:00:01.900Z"}
    assert batch(served, protocol, name, **bounds) == expected(100, 900)


@pytest.mark.parametrize("protocol", ["segment", "controller"])
def test_bounds_by_offset(gateway: GatewayProcess, client: StreamClient, name: str, protocol: str) -> None:
    """An event takes its body and 8 bytes."""
    fill(client, name, 1000)
    bounds = {"start": f"offset:{10 * 9}", "end": f"offset:{10 * 9 + 90 * 10 + 100 * 11}"}
    assert batch(gateway, protocol, name, **bounds) == expected(10, 200, origin=10)


@each
def test_micro_batches(served: GatewayProcess, client: StreamClient, name: str, protocol: str) -> None:
    fill(client, name, 1000)

    def reader() -> StreamReader:
        made = source(served, protocol, name).streamReader(SCHEMA)
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
def test_what_was_trimmed(served: GatewayProcess, client: StreamClient, name: str, protocol: str) -> None:
    fill(client, name, 1000)
    reader = source(served, protocol, name).streamReader(SCHEMA)
    assert isinstance(reader, StreamReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = reader.partitions(start, end)
    client.trim(f"{BASIN}/{name}", ReadPosition(400))
    while client.first(f"{BASIN}/{name}").seq_num < 400:
        pass
    with pytest.raises(DataLost, match=r"was trimmed: records from 0 .*up to 400"):
        rows(reader, planned)
    lenient = source(served, protocol, name, fail_on_data_loss="false").streamReader(SCHEMA)
    assert isinstance(lenient, StreamReader)
    assert rows(lenient, planned) == expected(400, 1000)
    reader.stop()


@pytest.mark.parametrize("protocol", ["s2s", "controller"])
def test_patterns(gateway: GatewayProcess, client: StreamClient, name: str, protocol: str) -> None:
    for one in ("a", "b"):
        fill(client, f"{name}-{one}", 5)
    found = batch(gateway, protocol, name, basin=BASIN, stream_pattern=f"{name}-[bc]")
    assert found == expected(0, 5)


@pytest.mark.parametrize(("protocol", "given"), [("s3p", {}), ("segment", {"envelopes": "true"})])
def test_envelopes(
    gateway: GatewayProcess, served: GatewayProcess, name: str, protocol: str, given: dict[str, str]
) -> None:
    """Records in envelopes are unwrapped: by the source, or by the gateway before an S3P server."""
    from penstock_codecs.envelope import wrap

    address, spelled = PROTOCOLS["s2s"]
    writer = open_client(parse_endpoint(address.format(gateway)))
    stream = spelled.format(name)
    writer.create(stream)
    appender = writer.appender(stream)
    appender.append([wrap((Header(b"n", b"v"),), b"x"), b"plain"], {}, None, 0)
    appender.flush()
    appender.close()
    writer.close()
    reader = source(served, protocol, name, **given).reader(SCHEMA)
    (found,) = (one for partition in reader.partitions() for one in reader.read(partition))
    assert [row["headers"] for row in found.to_pylist()] == [[{"name": b"n", "value": b"v"}], []]  # type: ignore[union-attr]
    assert [row["body"] for row in found.to_pylist()] == [b"x", b"plain"]  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", ["s2s", "segment", "controller"])
def test_a_stream_that_was_made_again_with_more_records(
    gateway: GatewayProcess, client: StreamClient, name: str, protocol: str
) -> None:
    """The place up to which the old one was read is in the midst of the new one."""
    fill(client, name, 100)

    def reader(**given: str) -> StreamReader:
        found = source(gateway, protocol, name, start="earliest", **given).streamReader(SCHEMA)
        assert isinstance(found, StreamReader)
        return found

    strict = reader()
    begun = strict.initialOffset()
    known = strict.latestOffset(begun, ReadAllAvailable())
    assert rows(strict, strict.partitions(begun, known)) == expected(0, 100)
    client.delete(f"{BASIN}/{name}")
    client.create(f"{BASIN}/{name}")
    appender = client.appender(f"{BASIN}/{name}")
    appender.append([b"%d of the new one" % index for index in range(150)], {}, None, 0)
    appender.flush()
    appender.close()
    with pytest.raises(DataLost, match=rf"{name} has another record before 100 .*deleted and created again"):
        strict.latestOffset(known, ReadAllAvailable())
    strict.stop()
    lenient = reader(fail_on_data_loss="false")
    anew = lenient.latestOffset(known, ReadAllAvailable())
    end = lenient.latestOffset(anew, ReadAllAvailable())
    new = [(index, b"%d of the new one" % index) for index in range(150)]
    assert rows(lenient, lenient.partitions(anew, end)) == new
    lenient.stop()


def test_reading_makes_no_stream(gateway: GatewayProcess, client: StreamClient, name: str) -> None:
    """Even if the basin has create_stream_on_read: an absent stream is an error that names it."""
    absent = f"there is no stream {BASIN}/{name}"
    with pytest.raises(OperationFailed, match=absent):
        source(gateway, "s2s", name).reader(SCHEMA).partitions()
    early = source(gateway, "s2s", name).streamReader(SCHEMA)
    with pytest.raises(OperationFailed, match=absent):
        early.initialOffset()
    early.stop()
    assert not list(client.streams(f"{BASIN}/{name}"))
    fill(client, name, 10)
    reader = source(gateway, "s2s", name, start="earliest").streamReader(SCHEMA)
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
