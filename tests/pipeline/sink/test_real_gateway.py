"""Tasks without Spark, into a real gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pyarrow as pa
import pytest
from support.process import BASIN, GatewayProcess
from support.real_backs import SecondPenstock
from support.spark.gateways import gateway_before_segments

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients import Endpoint, ReadPosition, StreamClient, open_client
from penstock_spark.clients.patience import Patience
from penstock_spark.clients.plugin import AppendLimits
from penstock_spark.sink.columns import ColumnLayout
from penstock_spark.sink.entries import RowTally
from penstock_spark.sink.failures import SinkFailed
from penstock_spark.sink.identity import Identity
from penstock_spark.sink.task import Task, TaskResources
from penstock_spark.sink.writer import Written, commit_batch

LAYOUT = ColumnLayout(f"{BASIN}/sink-killed", headers=False, timestamp=False)
SIZE = 3000


@pytest.mark.parametrize("protocol", ["s2s", "segment", "durable"])
def test_a_gateway_that_is_killed_while_a_task_writes(fresh_gateway: GatewayProcess, protocol: str) -> None:
    ports = {"s2s": fresh_gateway.s2_port, "segment": fresh_gateway.segment_port, "durable": fresh_gateway.durable_port}
    endpoint = Endpoint(protocol, "127.0.0.1", ports[protocol])
    ledger = f"{BASIN}/penstock-sink.killed" if protocol == "s2s" else ""

    def batches(meanwhile: Callable[[], object]) -> Iterator[pa.RecordBatch]:
        for start in range(0, 3 * SIZE, SIZE):
            yield pa.RecordBatch.from_pydict({"body": [b"%d" % row for row in range(start, start + SIZE)]})
            meanwhile()

    def killed() -> None:
        fresh_gateway.kill()
        fresh_gateway.start()

    def write(meanwhile: Callable[[], object]) -> RowTally:
        client = open_client(endpoint)
        try:
            identity = Identity("killed", 0, 0)
            tally = Task(identity, resources(client, endpoint, ledger), LAYOUT).write(batches(meanwhile))
            commit_batch(client, [Written(identity, tally, ledger)], partial(Patience, endpoint, reached=True))
            return tally
        finally:
            client.close()

    tally = write(killed)
    assert write(lambda: None) == tally
    assert stored(endpoint) == [b"%d" % row for row in range(3 * SIZE)]


def test_a_gateway_before_an_s3p_server_takes_no_rows(s3p_gateway: GatewayProcess) -> None:
    """Its server has no conditional appends."""
    endpoint = Endpoint("s2s", "127.0.0.1", s3p_gateway.s2_port)
    layout = ColumnLayout(f"{BASIN}/sink-refused", headers=False, timestamp=False)
    rows = pa.RecordBatch.from_pydict({"body": [b"row"]})
    with closing(open_client(endpoint)) as client:
        assert client.create(f"{BASIN}/sink-refused")
        task = Task(Identity("refused", 0, 0), resources(client, endpoint, f"{BASIN}/penstock-sink.refused"), layout)
        with pytest.raises(OperationFailed, match="no conditional appends") as raised:
            task.write(iter([rows]))
        assert raised.value.failure.code is FailureCode.NOT_IMPLEMENTED
        assert client.tail(f"{BASIN}/sink-refused") == ReadPosition(0)


@pytest.mark.parametrize("headers", ["envelope", "drop"])
def test_a_gateway_before_a_segment_store(headers: str) -> None:
    """A batch that is written again is stored once. If the gateway dropped markers, it would be stored twice."""
    layout = ColumnLayout(f"{BASIN}/sink-events", headers=False, timestamp=False)
    rows = pa.RecordBatch.from_pydict({"body": [b"%d" % row for row in range(SIZE)]})
    with (
        SecondPenstock("segment") as server,
        gateway_before_segments(server.process.controller_port, headers) as gateway,
        closing(open_client(endpoint := Endpoint("s2s", "127.0.0.1", gateway.s2_port))) as client,
    ):
        client.create(f"{BASIN}/sink-events")
        tools = resources(client, endpoint, f"{BASIN}/penstock-sink.events")
        for _ in range(2):
            if headers == "drop":
                with pytest.raises(SinkFailed, match=r'does not keep headers.* set headers = "envelope"'):
                    Task(Identity("events", 0, 0), tools, layout).write(iter([rows]))
            else:
                Task(Identity("events", 0, 0), tools, layout).write(iter([rows]))
        assert client.tail(f"{BASIN}/sink-events") == ReadPosition(0 if headers == "drop" else SIZE)


def resources(client: StreamClient, endpoint: Endpoint, ledger: str) -> TaskResources:
    patience = partial(Patience, endpoint, reached=True)
    return TaskResources(client, patience, ledger, AppendLimits(1000, 900_000, 900_000), create=True)


def stored(endpoint: Endpoint) -> list[bytes]:
    client: StreamClient = open_client(endpoint)
    stream = LAYOUT.stream or ""
    start = client.first(stream)
    assert start.seq_num == ReadPosition(0).seq_num
    found = [body for rows in client.read(stream, start, client.tail(stream)) for body in rows.columns.bodies]
    client.close()
    return found
