"""The sink under a real Spark, into a real gateway: tasks that die after they sent, batches that are done again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.errors import PySparkException
from support.process import BASIN, GatewayProcess
from support.spark.gateways import gateway_before

from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.sink import by_key
from penstock_spark.sink.writer import PenstockStreamWriter, PenstockWriter
from penstock_spark.source.datasource import PenstockDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 6000


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[StreamClient]:
    client = StreamClient(Endpoint("127.0.0.1", gateway.s2_port))
    yield client
    client.close()


@pytest.fixture
def url(gateway: GatewayProcess) -> str:
    return f"http://127.0.0.1:{gateway.s2_port}"


def bodies(client: StreamClient, stream: str) -> list[bytes]:
    return [body for rows in client.read(stream, 0, client.tail(stream)) for body in rows.columns.bodies]


def ledgers(client: StreamClient) -> set[str]:
    return set(client.streams(f"{BASIN}/penstock-sink."))


def source(called: str, batch: type[PenstockWriter], streaming: type[PenstockStreamWriter]) -> type[PenstockDataSource]:
    """The format with writers that die. Defined in a function, so that workers get it by value."""

    class Dying(PenstockDataSource):
        @classmethod
        def name(cls) -> str:
            return called

        def writer(self, schema: Any, overwrite: bool) -> PenstockWriter:
            return batch(self.options, schema, overwrite)

        def streamWriter(self, schema: Any, overwrite: bool) -> PenstockStreamWriter:  # noqa: N802 - Spark's name
            return streaming(self.options, schema, overwrite)

    return Dying


def dying_writer() -> type[PenstockWriter]:
    """In their first attempts the task of partition 0 dies halfway, and that of partition 1 after all was stored."""

    class DyingWriter(PenstockWriter):
        def write(self, iterator: Any) -> Any:
            context = TaskContext.get()
            assert context is not None

            def halfway() -> Any:
                yield next(iterator)
                raise RuntimeError("died halfway")

            if context.attemptNumber():
                return super().write(iterator)
            super().write(halfway() if context.partitionId() == 0 else iterator)
            raise RuntimeError("died after all was sent")

    return DyingWriter


def dying_stream_writer(stages: str) -> type[PenstockStreamWriter]:
    """Its driver dies before it commits batch 1, then after that, as the stages in a file say."""

    class DyingStreamWriter(PenstockStreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
            left = Path(stages).read_text().split()
            stage = left[0] if batchId == 1 and left else ""
            if stage:
                Path(stages).write_text(" ".join(left[1:]))
            if stage == "before":
                raise RuntimeError("died before the commit")
            super().commit(messages, batchId)
            if stage == "after":
                raise RuntimeError("died after the commit")

    return DyingStreamWriter


def keyed(spark: SparkSession, streams: list[str]) -> DataFrame:
    """Rows of 40 keys, which go to two streams, from two partitions."""
    names = ", ".join(f"'{name}'" for name in streams)
    frame = spark.range(ROWS, numPartitions=2).selectExpr(
        "id", "id % 40 as key", f"element_at(array({names}), cast(id % 2 + 1 as int)) as stream"
    )
    frame = frame.selectExpr("*", "concat(key, ' ', id, repeat(' ', 90)) as body")
    return by_key(frame, "key", order="id", partitions=2)


def check(stored: list[list[bytes]]) -> None:
    """Each row once, those of each key in order."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for some in stored:
        for body in some:
            key, number = body.split()
            places[key].append(int(number))
    assert {int(key): numbers for key, numbers in places.items()} == {
        key: list(range(key, ROWS, 40)) for key in range(40)
    }


def test_tasks_that_die_after_they_sent(spark: SparkSession, client: StreamClient, url: str) -> None:
    """And the whole job, done again when it was committed."""
    spark.dataSource.register(source("dying", dying_writer(), PenstockStreamWriter))
    streams = [f"{BASIN}/sink-dying-{one}" for one in "ab"]
    frame = keyed(spark, streams)
    options = {"endpoint": url, "ledger": BASIN, "ignore": "id, key", "sink": "dying", "batch": "7"}
    for called in ("dying", "penstock"):
        frame.write.format(called).mode("append").options(**options).save()
        check([bodies(client, stream) for stream in streams])


def test_a_job_without_a_name_leaves_no_ledger(spark: SparkSession, client: StreamClient, url: str) -> None:
    before, stream = ledgers(client), f"{BASIN}/sink-one-off"
    frame = spark.range(3, numPartitions=1).selectExpr("cast(id as string) body")
    frame.write.format("penstock").mode("append").options(endpoint=url, stream=stream).save()
    assert bodies(client, stream) == [b"0", b"1", b"2"]
    assert ledgers(client) == before


def test_keys_and_order_must_be_there(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("id", "map(id, id) as pairs")
    with pytest.raises(ValueError, match="no such column: key; the frame has id, pairs"):
        by_key(frame, "key", order="id")
    with pytest.raises(ValueError, match="key and order must name a column each"):
        by_key(frame, "id", order=[])
    with pytest.raises(ValueError, match="columns without an order cannot be sorted: pairs"):
        by_key(frame, "id", order="id")


def test_what_is_wrong_is_said_when_a_job_is_planned(spark: SparkSession, url: str) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) body")
    write = frame.write.format("penstock").options(endpoint=url, stream=f"{BASIN}/sink-wrong")
    with pytest.raises(PySparkException, match="streams can only be appended to"):
        write.mode("overwrite").save()
    with pytest.raises(PySparkException, match="sin: unknown option; is it sink"):
        write.option("sin", "x").mode("append").save()


def test_micro_batches_that_are_done_again(spark: SparkSession, client: StreamClient, url: str, tmp_path: Path) -> None:
    stages, rows, checkpoint = tmp_path / "stages", tmp_path / "rows", tmp_path / "checkpoint"
    stream = f"{BASIN}/sink-micro-batches"
    rows.mkdir()
    for number in range(3):
        part = pa.table({"body": [str(one) for one in range(number * 1500, number * 1500 + 1500)]})
        parquet.write_table(part, rows / f"{number}.parquet")
    stages.write_text("before after")
    spark.dataSource.register(source("dying-driver", PenstockWriter, dying_stream_writer(str(stages))))
    frame = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1).parquet(str(rows))

    def run() -> str:
        query = (
            frame.writeStream.format("dying-driver")
            .options(endpoint=url, stream=stream, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        finished(query)
        return str(query.id)

    expected = sorted(b"%d" % number for number in range(4500))
    for stored in (3000, 3000, 4500):
        name = run()
        assert len(bodies(client, stream)) == stored
    assert sorted(bodies(client, stream)) == expected
    for commit in (checkpoint / "commits").glob("*2*"):
        commit.unlink()
    assert run() == name
    assert sorted(bodies(client, stream)) == expected
    assert client.first(f"{BASIN}/penstock-sink.{name}") > 0


def finished(query: Any) -> None:
    try:
        query.awaitTermination()
    except PySparkException as error:
        assert "died" in str(error)


def test_a_gateway_before_a_segment_store(spark: SparkSession, gateway: GatewayProcess) -> None:
    stream, trims = f"{BASIN}/sink-segments", {'command_records = "refuse"': 'command_records = "envelope"'}
    with gateway_before("segment", f"127.0.0.1:{gateway.controller_port}", trims) as near:
        spark.dataSource.register(source("dying-segments", dying_writer(), PenstockStreamWriter))
        frame = spark.range(5000, numPartitions=2).selectExpr("cast(id as string) body")
        save = frame.write.format("dying-segments").mode("append")
        save = save.options(endpoint=near.s2_url, stream=stream, sink="segments", create="true")
        save.option("batch", 3).save()
        with closing(StreamClient(Endpoint("127.0.0.1", near.s2_port))) as client:
            stored = [int(body) for body in bodies(client, stream)]
    assert sorted(stored) == list(range(5000))
    for part in (range(2500), range(2500, 5000)):
        assert [number for number in stored if number in part] == list(part)
