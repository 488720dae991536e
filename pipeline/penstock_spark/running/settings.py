"""The configuration of the pipeline: `config/pipeline.toml`, read into typed frozen structs.

| table | content |
|---|---|
| `[spark]` | the master, and Spark's own settings |
| `[source]` | a server and its streams |
| `[captures]` | recordings |
| `[target]` | the place and format of tables |
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["CaptureSettings", "JobSettings", "SourceSettings", "SparkSettings", "TargetSettings"]


def _key(description: str) -> Meta:
    return Meta(description=description)


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables."""


class SparkSettings(_Table, frozen=True, kw_only=True):
    """Spark's master and settings."""

    master: Annotated[
        str,
        _key(
            'The master: `local[*]` for this process and all cores, or a cluster such as "spark://host:7077" or "yarn".'
        ),
    ] = ""
    """Empty: that of spark-submit, and `local[*]` without it."""
    name: Annotated[str, _key("Name of the jobs in Spark's user interface.")] = "penstock"
    driver_memory: Annotated[
        str,
        _key("Maximum memory of this process's JVM, such as 4g; empty: a quarter of the machine's, from 1 to 8 GiB."),
        Meta(pattern=r"^([1-9][0-9]*[kmgt]b?)?\Z"),
    ] = ""
    conf: Annotated[
        dict[str, str | int | float | bool], _key("Spark's own settings; they take precedence over these.")
    ] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.conf:
            if not name.startswith("spark."):
                raise ValueError(f"conf: {name} is not a setting of Spark, which begin with spark.")


class SourceSettings(_Table, frozen=True, kw_only=True):
    """A server and some of its streams."""

    endpoint: Annotated[str, _key("Gateway, or another S2 server: http(s)://HOST:PORT; empty: none.")] = ""
    streams: Annotated[
        tuple[str, ...],
        _key('Streams by name or pattern: "penstock/orders", "penstock/*". Empty: no streams are read.'),
    ] = ()
    options: Annotated[
        dict[str, str | int | float | bool], _key("Further options of the source `penstock` (docs/pipeline.md).")
    ] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.streams and not self.endpoint:
            raise ValueError("endpoint: needed with streams")
        for name in ("endpoint", "stream", "streams"):
            if name in self.options:
                raise ValueError(f"options.{name}: set the key of this name in [source] instead")


class CaptureSettings(_Table, frozen=True, kw_only=True):
    """Recordings to read."""

    path: Annotated[
        tuple[str, ...], _key("Files, directories or globs: pcapng, plain or zstd. Empty: no recordings are read.")
    ] = ()
    options: Annotated[
        dict[str, str | int | float | bool],
        _key("Further options of the source `penstock-capture` (docs/pipeline.md)."),
    ] = msgspec.field(default_factory=dict)


class TargetSettings(_Table, frozen=True, kw_only=True):
    """The place and format of tables."""

    path: Annotated[
        str,
        _key("A directory, or any URL that Spark can write to (hdfs://, s3a://); each table is a directory in it."),
    ] = "./data/tables"
    format: Annotated[
        Literal["parquet", "delta", "iceberg"],
        _key("Format of the tables. delta and iceberg need their jar (`spark.jars.packages`)."),
    ] = "parquet"
    compression: Annotated[
        Literal["zstd", "snappy", "gzip", "none"], _key("Compression of columns; readers detect it.")
    ] = "zstd"
    interval_seconds: Annotated[
        float,
        _key("`ingest --follow`: seconds per micro-batch. Shorter intervals write sooner, but more files."),
        Meta(ge=0),
    ] = 60.0
    file_bytes: Annotated[
        int, _key("Maximum size of files in bytes; small ones are merged up to this size."), Meta(ge=1 << 20)
    ] = 128 << 20

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("path: must not be empty")


class JobSettings(_Table, frozen=True, kw_only=True):
    """The whole file."""

    spark: SparkSettings = SparkSettings()
    source: SourceSettings = SourceSettings()
    captures: CaptureSettings = CaptureSettings()
    target: TargetSettings = TargetSettings()
