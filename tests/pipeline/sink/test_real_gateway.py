"""Tasks without Spark, into a real gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from functools import partial

import pyarrow as pa
import pytest
from support.process import BASIN, GatewayProcess
from support.real_backs import SecondPenstock
from support.spark.gateways import gateway_before

from penstock.model.failures import FailureCode, OperationFailed
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.columns import ColumnLayout
from penstock_spark.sink.entries import RowTally
from penstock_spark.sink.failures import SinkFailed
from penstock_spark.sink.identity import Identity
from penstock_spark.sink.task import Task, TaskResources
from penstock_spark.sink.writer import Written, commit_batch

LAYOUT = ColumnLayout(f"{BASIN}/sink-killed", headers=False, timestamp=False)
SIZE = 3000


def test_a_gateway_that_is_killed_while_a_task_writes(fresh_gateway: GatewayProcess) -> None:
    endpoint = Endpoint("127.0.0.1", fresh_gateway.s2_port)
    ledger = f"{BASIN}/penstock-sink.killed"

    def batches(meanwhile: Callable[[], object]) -> Iterator[pa.RecordBatch]:
        for start in range(0, 3 * SIZE, SIZE):
            yield pa.RecordBatch.from_pydict({"body": [b"%d" % row for row in range(start, start + SIZE)]})
            meanwhile()

    def killed() -> None:
        fresh_gateway.kill()
        fresh_gateway.start()

    def write(meanwhile: Callable[[], object]) -> RowTally:
        client = StreamClient(endpoint)
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


@pytest.mark.parametrize("kind", ["s3p", "durable", "kafka"])
def test_a_gateway_before_a_server_without_conditional_appends_takes_no_rows(
    bridge: Callable[[str], GatewayProcess], kind: str
) -> None:
    endpoint = Endpoint("127.0.0.1", bridge(kind).s2_port)
    stream = f"{BASIN}/sink-refused-{kind}"
    rows = pa.RecordBatch.from_pydict({"body": [b"row"]})
    with closing(StreamClient(endpoint)) as client:
        assert client.create(stream)
        tools = resources(client, endpoint, f"{BASIN}/penstock-sink.refused-{kind}")
        task = Task(Identity("refused", 0, 0), tools, ColumnLayout(stream, headers=False, timestamp=False))
        with pytest.raises(OperationFailed, match="no condition") as raised:
            task.write(iter([rows]))
        assert raised.value.failure.code is FailureCode.NOT_IMPLEMENTED
        assert client.tail(stream) == 0


@pytest.mark.parametrize(
    ("key", "old", "new", "message"),
    [
        ("command_records", "refuse", "envelope", ""),
        ("command_records", "refuse", "refuse", r'cannot be trimmed.* set command_records = "envelope"'),
        ("headers", "envelope", "drop", r'does not keep headers.* set headers = "envelope"'),
    ],
)
def test_a_gateway_before_a_segment_store(key: str, old: str, new: str, message: str) -> None:
    """A batch that is written and committed again is stored once. If the gateway dropped markers, it would be stored
    twice; if it refused trims, the ledger would grow."""
    layout = ColumnLayout(f"{BASIN}/sink-events", headers=False, timestamp=False)
    ledger, identity = f"{BASIN}/penstock-sink.events", Identity("events", 0, 0)
    rows = pa.RecordBatch.from_pydict({"body": [b"%d" % row for row in range(SIZE)]})
    with (
        SecondPenstock("segment") as server,
        gateway_before(
            "segment", f"127.0.0.1:{server.process.controller_port}", {f'{key} = "{old}"': f'{key} = "{new}"'}
        ) as gateway,
        closing(StreamClient(endpoint := Endpoint("127.0.0.1", gateway.s2_port))) as client,
    ):
        client.create(f"{BASIN}/sink-events")
        tools = resources(client, endpoint, ledger)

        def write() -> None:
            tally = Task(identity, tools, layout).write(iter([rows]))
            commit_batch(client, [Written(identity, tally, ledger)], tools.patience)

        with pytest.raises(SinkFailed, match=message) if message else nullcontext():
            write()
        if key == "command_records":
            write()
            assert client.tail(f"{BASIN}/sink-events") == SIZE
            assert (client.first(ledger) > 0) == (new == "envelope")
        else:
            assert client.tail(f"{BASIN}/sink-events") == 0


def resources(client: StreamClient, endpoint: Endpoint, ledger: str) -> TaskResources:
    patience = partial(Patience, endpoint, reached=True)
    return TaskResources(client, patience, ledger, create=True)


def stored(endpoint: Endpoint) -> list[bytes]:
    client = StreamClient(endpoint)
    stream = LAYOUT.stream or ""
    found = [body for rows in client.read(stream, 0, client.tail(stream)) for body in rows.columns.bodies]
    client.close()
    return found
