"""Where tables are written, and how a micro-batch is written once.

Structured Streaming runs a micro-batch again, with the same rows, where it cannot know that it was written. So every
format must know a batch that it has:

* Parquet: the batch's number is the innermost directory, and a batch replaces its own directories. Nothing else tells
  what is in the table, so that every program that reads Parquet sees each row once, and the table can be moved. (The
  file sink of Spark keeps a list of the files that count instead; other programs do not look at it, and it holds full
  paths.) While a batch is written, and after a run that was killed until the next one, a part of it may be seen.
* Delta: the batch's number is the version of the application's transaction, which Delta remembers.
* Iceberg: its own streaming writer does the same with the query's identifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as fn

from penstock_spark.jobs.configuring import CATALOG
from penstock_spark.jobs.places import Place
from penstock_spark.jobs.tables import BATCH, TABLES, Table
from penstock_spark.running.failures import JobFailed
from penstock_spark.running.settings import Target
from penstock_spark.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["CHECKPOINT", "check_format", "checkpoint_of", "prepared", "read_table", "writer_of"]

CHECKPOINT: Final = "_checkpoint"
"""Stands in the table's directory, so that who removes the table removes both; readers skip names with `_`."""
_DATABASE: Final = "penstock"
"""Of Iceberg's tables, in their catalog."""
_STAGING: Final = ".spark-staging-"

_CLASSES: Final = {
    "delta": ("org.apache.spark.sql.delta.sources.DeltaDataSource", "io.delta:delta-spark_SPARK_2.13:VERSION"),
    "iceberg": (
        "org.apache.iceberg.spark.source.IcebergSource",
        "org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:VERSION",
    ),
}
"""What is there where the format is, and what to ask for."""


def check_format(session: SparkSession, target: Target) -> None:
    """Raises JobFailed where the JVM has not what the format needs."""
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
            f"target.format is {target.format}, and Spark has no {name}. Give the jar: "
            f"--conf spark.jars.packages={package} (the version that fits Spark {session.version}), or let "
            "target.format be parquet"
        ) from None


def prepared(session: SparkSession, table: Table, target: Target) -> None:
    """The table is made ready to be written by a query that begins, or goes on.

    Raises JobFailed where it has rows and no checkpoint: nobody knows what of the source they are.
    """
    check_format(session, target)
    place = _place(session, table, target)
    there = place.names()
    rows = [name for name in there if name.startswith(("date=", "_delta_log", "metadata"))]
    if rows and not Place(session, checkpoint_of(table, target)).exists:
        raise JobFailed(
            f"{place} has rows, but {checkpoint_of(table, target)} is gone: what they are of the source is not known. "
            "Move the table away, or put the checkpoint back"
        )
    for name in there:  # of a run that was killed
        if name.startswith(_STAGING):
            place.below(name).remove()
    if target.format == "iceberg" and not rows:
        _create_iceberg(session, table)


def checkpoint_of(table: Table, target: Target) -> str:
    """Where the query that writes the table keeps how far it is. Iceberg wants its directories for itself."""
    root = target.path.rstrip("/")
    if target.format == "iceberg":
        return f"{root}/{CHECKPOINT}/{table.name}"
    return f"{root}/{table.name}/{CHECKPOINT}"


def writer_of(frame: DataFrame, table: Table, target: Target) -> DataStreamWriter:
    """Writes the rows of a streaming table that is laid out."""
    if target.format == "iceberg":
        own = frame.withColumn(BATCH, fn.lit(None).cast("bigint"))
        return own.writeStream.format("iceberg").option("path", _iceberg(table)).option("fanout-enabled", "true")

    def write(batch: DataFrame, number: int) -> None:
        _write(batch.withColumn(BATCH, fn.lit(number).cast("bigint")), number, table, target)

    return frame.writeStream.foreachBatch(write)


def read_table(session: SparkSession, name: str, target: Target) -> DataFrame | None:
    """A table that `ingest` wrote; None where it is not there."""
    table = TABLES[name]
    place = _place(session, table, target)
    if target.format == "iceberg":
        return session.read.table(_iceberg(table)) if place.exists else None
    if not any(not found.startswith((CHECKPOINT, ".")) for found in place.names()):
        return None
    if target.format == "delta":
        return session.read.format("delta").load(str(place))
    return session.read.schema(spark_schema(table.stored)).parquet(str(place))


def _write(batch: DataFrame, number: int, table: Table, target: Target) -> None:
    """One micro-batch, in files that are neither many nor too large: a shuffle that Spark sizes when it knows how much
    there is puts the rows of a directory together, and divides those of a large one."""
    directories = [column.name for column in table.partitions]
    session = batch.sparkSession
    session.conf.set("spark.sql.adaptive.enabled", "true")  # a streaming query switches it off for itself
    session.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", str(target.file_bytes))
    rows = batch.hint("rebalance", *directories).sortWithinPartitions(*directories, *table.order)
    writer = rows.write.partitionBy(*directories).option("compression", target.compression)
    place = f"{target.path.rstrip('/')}/{table.name}"
    if target.format == "delta":
        once = writer.option("txnAppId", f"penstock-{table.name}").option("txnVersion", str(number))
        once.format("delta").mode("append").save(place)
        return
    writer = writer.option("parquet.enable.dictionary#body", "false")  # bodies differ: it costs a third of the time
    writer.mode("overwrite").option("partitionOverwriteMode", "dynamic").parquet(place)


def _place(session: SparkSession, table: Table, target: Target) -> Place:
    """The table's directory."""
    root = Place(session, target.path)
    return root.below(_DATABASE).below(table.name) if target.format == "iceberg" else root.below(table.name)


def _iceberg(table: Table) -> str:
    return f"{CATALOG}.{_DATABASE}.{table.name}"


def _create_iceberg(session: SparkSession, table: Table) -> None:
    columns = ", ".join(f"`{column.name}` {column.type}" for column in table.stored)
    directories = ", ".join(column.name for column in table.directories)
    session.sql(
        f"CREATE TABLE IF NOT EXISTS {_iceberg(table)} ({columns}) USING iceberg PARTITIONED BY ({directories})"
    )
