"""Write tables, each micro-batch once.

Structured Streaming repeats a micro-batch, with the same rows, if it cannot know that it was written. So every format
must recognize a batch that it has:

* Parquet: the batch's number is the innermost directory, and a batch replaces its own directories. No other file
  defines the table's contents, so that every program that reads Parquet sees each row once, and the table can be moved.
  (Spark's file sink keeps a list of valid files instead; other programs ignore it, and it holds full paths.) While a
  batch is written, and after a kill until the next run, a part of it may be visible.
* Delta: the batch's number is the version of the application's transaction, which Delta remembers.
* Iceberg: its own streaming writer does the same with the query's identifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as fn

from penstock_spark.jobs.configuring import CATALOG
from penstock_spark.jobs.directories import HadoopDirectory
from penstock_spark.jobs.tables import BATCH, TABLES, OutputTable, laid_out
from penstock_spark.running.failures import JobFailed
from penstock_spark.running.session import computed_once, in_one_task, is_small
from penstock_spark.running.settings import TargetSettings
from penstock_spark.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["CHECKPOINT", "check_format", "checkpoint_of", "prepared", "read_table", "writer_of"]

CHECKPOINT: Final = "_checkpoint"
"""Name of a checkpoint's directory. It is in the table's directory, so that removing the table removes both, or beside
those of recordings, which one query writes; readers skip names with `_`."""
_DATABASE: Final = "penstock"
"""Database of Iceberg's tables, in their catalog."""
_STAGING: Final = ".spark-staging-"

_CLASSES: Final = {
    "delta": ("org.apache.spark.sql.delta.sources.DeltaDataSource", "io.delta:delta-spark_SPARK_2.13:VERSION"),
    "iceberg": (
        "org.apache.iceberg.spark.source.IcebergSource",
        "org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:VERSION",
    ),
}
"""A class of each format, to test for its presence, and the package to ask for."""


def check_format(session: SparkSession, target: TargetSettings) -> None:
    """Raise JobFailed if the JVM lacks the format's classes."""
    needed = _CLASSES.get(target.format)
    if needed is None:
        return
    name, package = needed
    jvm: Any = session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(name)
    except Py4JJavaError:
        raise JobFailed(
            f"target.format is {target.format}, and Spark has no {name}. Add its jar: "
            f"--conf spark.jars.packages={package} (the version that fits Spark {session.version}), or set "
            "target.format to parquet"
        ) from None


def prepared(session: SparkSession, tables: tuple[OutputTable, ...], target: TargetSettings) -> None:
    """Prepare tables for a query that starts or resumes.

    Raises JobFailed if a table has rows and its checkpoint is gone, or the other way round: it is then unknown which
    rows of the source it has.
    """
    check_format(session, target)
    checkpoint = checkpoint_of(tables, target)
    begun = HadoopDirectory(session, checkpoint).exists
    for table in tables:
        place = _place(session, table, target)
        there = place.names()
        rows = [name for name in there if name.startswith(("date=", "_delta_log", "metadata"))]
        if rows and not begun:
            raise JobFailed(
                f"{place} has rows, but {checkpoint} is gone: their position in the source is unknown. "
                "Move the table away, or restore the checkpoint"
            )
        if begun and len(tables) > 1 and not place.exists:
            others = ", ".join(other_table.name for other_table in tables if other_table is not table)
            raise JobFailed(
                f"{place} is gone, but {checkpoint} says that its rows were written. Restore the table, or move away "
                f"the checkpoint and {others} too"
            )
        for name in there:  # of a run that was killed
            if name.startswith(_STAGING):
                place.below(name).remove()
        if target.format == "iceberg" and not rows:
            _create_iceberg(session, table)
        elif len(tables) > 1:
            place.make()


def checkpoint_of(tables: tuple[OutputTable, ...], target: TargetSettings) -> str:
    """Return the checkpoint of the query that writes the tables: in the directory of the table, if it is one. Iceberg's
    table directories hold nothing else."""
    root = target.path.rstrip("/")
    if len(tables) > 1:
        return f"{root}/{CHECKPOINT}/recordings"
    if target.format == "iceberg":
        return f"{root}/{CHECKPOINT}/{tables[0].name}"
    return f"{root}/{tables[0].name}/{CHECKPOINT}"


def writer_of(
    frame: DataFrame, tables: tuple[OutputTable, ...], target: TargetSettings, *, protocol: str = ""
) -> DataStreamWriter:
    """Return the writer of a streaming frame. `tables`, `protocol`: see `Incoming`."""
    if target.format == "iceberg":
        (table,) = tables
        own = laid_out(frame, table, protocol=protocol).withColumn(BATCH, fn.lit(None).cast("bigint"))
        return own.writeStream.format("iceberg").option("path", _iceberg(table)).option("fanout-enabled", "true")

    def write(batch: DataFrame, number: int) -> None:
        rows = computed_once(batch) if len(tables) > 1 else batch
        try:
            for table in tables:
                own = rows.where(fn.col(table.name).isNotNull()).select(f"{table.name}.*") if len(tables) > 1 else rows
                batch.sparkSession.sparkContext.setJobDescription(f"write table {table.name}, batch {number}")
                made = laid_out(own, table, protocol=protocol)
                _write(made.withColumn(BATCH, fn.lit(number).cast("bigint")), number, table, target)
        finally:
            if len(tables) > 1:
                rows.unpersist()

    return frame.writeStream.foreachBatch(write)


def read_table(session: SparkSession, name: str, target: TargetSettings) -> DataFrame | None:
    """Return a table that `ingest` wrote; None if it does not exist."""
    table = TABLES[name]
    place = _place(session, table, target)
    if target.format == "iceberg":
        return session.read.table(_iceberg(table)) if place.exists else None
    if not any(not found.startswith((CHECKPOINT, ".")) for found in place.names()):
        return None
    if target.format == "delta":
        return session.read.format("delta").load(str(place))
    return in_one_task(session.read.schema(spark_schema(table.stored)).parquet(str(place)))


def _write(batch: DataFrame, number: int, table: OutputTable, target: TargetSettings) -> None:
    """Write one micro-batch, in files that are neither many nor too large: a shuffle that Spark sizes at run time
    collects the rows of a directory, and divides those of a large one. Small jobs have one task."""
    directories = [column.name for column in table.partitions]
    session = batch.sparkSession
    if is_small(session):
        rows = in_one_task(batch)
    else:
        session.conf.set("spark.sql.adaptive.enabled", "true")  # a streaming query disables it for itself
        session.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", str(target.file_bytes))
        rows = batch.hint("rebalance", *directories)
    rows = rows.sortWithinPartitions(*directories, *table.order)
    writer = rows.write.partitionBy(*directories).option("compression", target.compression)
    place = f"{target.path.rstrip('/')}/{table.name}"
    if target.format == "delta":
        once = writer.option("txnAppId", f"penstock-{table.name}").option("txnVersion", str(number))
        once.format("delta").mode("append").save(place)
        return
    writer = writer.option("parquet.enable.dictionary#body", "false")  # bodies rarely repeat; costs a third of the time
    writer.mode("overwrite").option("partitionOverwriteMode", "dynamic").parquet(place)


def _place(session: SparkSession, table: OutputTable, target: TargetSettings) -> HadoopDirectory:
    """Return the table's directory."""
    root = HadoopDirectory(session, target.path)
    return root.below(_DATABASE).below(table.name) if target.format == "iceberg" else root.below(table.name)


def _iceberg(table: OutputTable) -> str:
    return f"{CATALOG}.{_DATABASE}.{table.name}"


def _create_iceberg(session: SparkSession, table: OutputTable) -> None:
    columns = ", ".join(f"`{column.name}` {column.type}" for column in table.stored)
    directories = ", ".join(column.name for column in table.directories)
    session.sql(
        f"CREATE TABLE IF NOT EXISTS {_iceberg(table)} ({columns}) USING iceberg PARTITIONED BY ({directories})"
    )
