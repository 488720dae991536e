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

__all__ = ["FORMATS", "Captures", "Settings", "Source", "Spark", "Target"]

FORMATS = ("parquet", "delta", "iceberg")
"""Formats of tables; all but the first need a jar that Spark does not include."""


def _key(description: str) -> Meta:
    return Meta(description=description)


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables."""


class Spark(_Table, frozen=True, kw_only=True):
    """Spark's master and settings."""

    master: Annotated[
        str,
        _key('`local[*]`: in this process, on all its cores; or a cluster, such as "spark://host:7077", "yarn".'),
    ] = ""
    """Empty: that of spark-submit, and `local[*]` without it."""
    name: Annotated[str, _key("What Spark's pages call the jobs.")] = "penstock"
    driver_memory: Annotated[
        str,
        _key("Most memory of this process's JVM, such as 4g; empty: a quarter of the machine's, from 1 to 8 GiB."),
        Meta(pattern=r"^([1-9][0-9]*[kmgt]b?)?\Z"),
    ] = ""
    conf: Annotated[dict[str, str | int | float | bool], _key("Any of Spark's own settings; they win over ours.")] = (
        msgspec.field(default_factory=dict)
    )

    def __post_init__(self) -> None:
        for name in self.conf:
            if not name.startswith("spark."):
                raise ValueError(f"conf: {name} is no setting of Spark: they begin with spark.")


class Source(_Table, frozen=True, kw_only=True):
    """A server and some of its streams."""

    endpoint: Annotated[
        str, _key("http(s)://, s3p(s)://, segment(s)://, pravega(s)://, each followed by HOST:PORT; empty: none.")
    ] = ""
    streams: Annotated[
        tuple[str, ...],
        _key('Streams by name or pattern: "penstock/orders", "penstock/*"; S3P: "orders". None: streams are not read.'),
    ] = ()
    options: Annotated[
        dict[str, str | int | float | bool], _key("Further options of the source `penstock` (docs/pipeline.md).")
    ] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.streams and not self.endpoint:
            raise ValueError("endpoint: streams are named, and no server that has them")
        for name in ("endpoint", "stream", "streams"):
            if name in self.options:
                raise ValueError(f"options.{name}: it has a key of its own in [source]")


class Captures(_Table, frozen=True, kw_only=True):
    """Recordings to read."""

    path: Annotated[
        tuple[str, ...], _key("Files, directories or globs: pcapng, plain or zstd. None: recordings are not read.")
    ] = ()
    options: Annotated[
        dict[str, str | int | float | bool],
        _key("Further options of the source `penstock-capture` (docs/pipeline.md)."),
    ] = msgspec.field(default_factory=dict)


class Target(_Table, frozen=True, kw_only=True):
    """The place and format of tables."""

    path: Annotated[
        str, _key("A directory, or any place that Spark can write to (hdfs://, s3a://); tables are directories in it.")
    ] = "./data/tables"
    format: Annotated[
        Literal["parquet", "delta", "iceberg"],
        _key("How tables are written. delta, iceberg: their jar must be there (`spark.jars.packages`)."),
    ] = "parquet"
    compression: Annotated[
        Literal["zstd", "snappy", "gzip", "none"], _key("How columns are compressed; readers find out.")
    ] = "zstd"
    interval_seconds: Annotated[
        float,
        _key("`ingest --follow`: how long a micro-batch gathers. Shorter: sooner there, in more files."),
        Meta(ge=0),
    ] = 60.0
    file_bytes: Annotated[
        int, _key("How large files may become; small ones are put together up to this."), Meta(ge=1 << 20)
    ] = 128 << 20

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("path: tables need a place")


class Settings(_Table, frozen=True, kw_only=True):
    """The whole file."""

    spark: Spark = Spark()
    source: Source = Source()
    captures: Captures = Captures()
    target: Target = Target()
