"""Parse the VIEW argument of commands.

| argument | meaning |
|---|---|
| `http://HOST:PORT/BASIN/STREAM`, `https://...` | a stream of a server, or those of a pattern |
| a directory with tables of `ingest`, or one of them | these tables |
| any other path, or a glob | recordings |
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import msgspec

from penstock_spark.cli.common import Job, wrong
from penstock_spark.clients.endpoint import is_server
from penstock_spark.jobs.configuring import texts
from penstock_spark.jobs.directories import HadoopDirectory
from penstock_spark.jobs.ingest import source_options
from penstock_spark.jobs.tables import TABLES
from penstock_spark.jobs.target import CHECKPOINT, read_table
from penstock_spark.running.settings import SourceSettings
from penstock_spark.schemas import ALL_TABLES, CAPTURE_TABLES, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["all_tables", "capture_tables", "has_tables", "records_tables"]

_URL: Final = re.compile(r"(?P<endpoint>(?P<scheme>[a-z][a-z0-9]*)://[^/]+)/(?P<stream>.+)")


def _stream_url(view: str) -> re.Match[str] | None:
    """Return the parts of an address of streams; None for any other view, such as a directory on hdfs://."""
    match = _URL.fullmatch(view)
    return match if match is not None and is_server(match["scheme"]) else None


def records_tables(session: SparkSession, job: Job, view: str) -> dict[str, DataFrame]:
    """Return the view's tables of records: `streams`, `records`, or both."""
    url = _stream_url(view)
    if url is not None:
        return {"streams": _live(session, job, url["endpoint"], url["stream"])}
    tables = _ingested(session, job, view, ("streams", "records"))
    return tables or {"records": _captured(session, job, view, "records")}


def all_tables(session: SparkSession, job: Job, view: str) -> dict[str, DataFrame]:
    """Return all tables of the view: `streams`, or those of captures, or both."""
    url = _stream_url(view)
    if url is not None:
        return {"streams": _live(session, job, url["endpoint"], url["stream"])}
    tables = _ingested(session, job, view, tuple(TABLES))
    if not _names_one(session, view):
        tables = _completed(session, tables)
    return tables or _decoded(session, job, view)


def capture_tables(session: SparkSession, job: Job, view: str, *names: str) -> list[DataFrame]:
    """Return tables that only captures have."""
    if _stream_url(view):
        raise wrong(f"{view} is a stream; this job needs recordings, or tables of recordings")
    tables = all_tables(session, job, view)
    for name in names:
        if name not in tables:
            raise wrong(f"{view} has no table {name}; ingest recordings to create it")
    return [tables[name] for name in names]


def has_tables(session: SparkSession, job: Job, place: str) -> bool:
    """Return whether `ingest` has written any table there."""
    return bool(_ingested(session, job, place, tuple(TABLES)))


def _ingested(session: SparkSession, job: Job, view: str, names: tuple[str, ...]) -> dict[str, DataFrame]:
    """Return tables of these names in the directory, or the directory itself if it is one table."""
    above, _, last = view.rstrip("/").rpartition("/")
    if _names_one(session, view):
        view, names = above or ".", tuple(name for name in names if name == last)
    target = msgspec.structs.replace(job.settings.target, path=view)
    tables = ((name, read_table(session, name, target)) for name in names)
    return {name: table for name, table in tables if table is not None}


def _names_one(session: SparkSession, view: str) -> bool:
    """Return whether the path is the directory of one table, not of all: a checkpoint is inside or beside it."""
    above, _, last = view.rstrip("/").rpartition("/")
    if last not in TABLES:
        return False
    own = HadoopDirectory(session, view)
    return own.below(CHECKPOINT).exists or (
        own.exists and HadoopDirectory(session, above or ".").below(CHECKPOINT).exists
    )


def _completed(session: SparkSession, tables: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """Add empty tables of captures that have no files: if one table of captures exists, the others had no rows."""
    if not tables.keys() & CAPTURE_TABLES.keys():
        return tables
    missing = CAPTURE_TABLES.keys() - tables.keys()
    return tables | {name: session.createDataFrame([], spark_schema(TABLES[name].stored)) for name in missing}


def _live(session: SparkSession, job: Job, endpoint: str, stream: str) -> DataFrame:
    source_settings = job.settings.source
    options = (
        source_settings.options if source_settings.endpoint in ("", endpoint) else {}
    )  # options for one server are wrong for others
    source = SourceSettings(endpoint=endpoint, streams=(stream,), options=options)
    return session.read.format("penstock").options(**source_options(source)).load()


def _captured(session: SparkSession, job: Job, view: str, name: str) -> DataFrame:
    reader = session.read.format("penstock-capture").options(**texts(job.settings.captures.options))
    return reader.option("paths", json.dumps([view])).option("table", name).load()


def _decoded(session: SparkSession, job: Job, view: str) -> dict[str, DataFrame]:
    """Return all tables of recordings, decoded once for all of them and cached while the session lasts."""
    from pyspark.sql import functions as fn

    from penstock_spark.running.session import computed_once

    whole = computed_once(_captured(session, job, view, ALL_TABLES))
    return {name: whole.where(fn.col(name).isNotNull()).select(f"{name}.*") for name in CAPTURE_TABLES}
