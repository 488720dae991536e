"""What a command looks at, out of a word of the user's.

| word | what it is |
|---|---|
| `http://HOST:PORT/BASIN/STREAM`, `s3p://HOST:PORT/STREAM`, ... | a stream of a server, or those of a pattern |
| a directory with tables of `ingest`, or one of them | these |
| any other path, or a glob | recordings |
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import msgspec

from penstock_spark.cli.common import Job, wrong
from penstock_spark.jobs.configuring import texts
from penstock_spark.jobs.ingest import source_options
from penstock_spark.jobs.places import Place
from penstock_spark.jobs.tables import TABLES
from penstock_spark.jobs.target import CHECKPOINT, read_table
from penstock_spark.running.settings import Source
from penstock_spark.schemas import CAPTURE_TABLES, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["all_tables", "capture_table", "has_tables", "records_tables"]

_URL: Final = re.compile(r"(?P<endpoint>(?:https?|s3ps?|segments?|pravegas?)://[^/]+)/(?P<stream>.+)")


def records_tables(session: SparkSession, job: Job, view: str) -> dict[str, DataFrame]:
    """The tables of records that the view has: `streams`, `records`, or both."""
    url = _URL.fullmatch(view)
    if url is not None:
        return {"streams": _live(session, job, url["endpoint"], url["stream"])}
    found = _ingested(session, job, view, ("streams", "records"))
    return found or {"records": _captured(session, job, view, "records")}


def all_tables(session: SparkSession, job: Job, view: str) -> dict[str, DataFrame]:
    """All tables that the view has: `streams`, or those of captures, or both."""
    url = _URL.fullmatch(view)
    if url is not None:
        return {"streams": _live(session, job, url["endpoint"], url["stream"])}
    found = _ingested(session, job, view, tuple(TABLES))
    if not _names_one(session, view):
        found = _completed(session, found)
    return found or {name: _captured(session, job, view, name) for name in CAPTURE_TABLES}


def capture_table(session: SparkSession, job: Job, view: str, name: str) -> DataFrame:
    """One of the tables that only captures have."""
    if _URL.fullmatch(view):
        raise wrong(f"{view}: that is a stream; this job needs recordings, or tables of them")
    found = all_tables(session, job, view)
    if name not in found:
        raise wrong(f"{view}: there is no table {name}; ingest recordings to have one")
    return found[name]


def has_tables(session: SparkSession, job: Job, place: str) -> bool:
    """Whether `ingest` has written any table there."""
    return bool(_ingested(session, job, place, tuple(TABLES)))


def _ingested(session: SparkSession, job: Job, view: str, names: tuple[str, ...]) -> dict[str, DataFrame]:
    """Tables of these names in the directory; or the directory is one of them itself."""
    above, _, last = view.rstrip("/").rpartition("/")
    if _names_one(session, view):
        view, names = above or ".", tuple(name for name in names if name == last)
    target = msgspec.structs.replace(job.settings.target, path=view)
    tables = ((name, read_table(session, name, target)) for name in names)
    return {name: table for name, table in tables if table is not None}


def _names_one(session: SparkSession, view: str) -> bool:
    """Whether it is the directory of one table, and not of them all."""
    return view.rstrip("/").rpartition("/")[2] in TABLES and Place(session, view).below(CHECKPOINT).exists


def _completed(session: SparkSession, found: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """With tables that have no files, since nothing was recorded for them: that is so where there are others."""
    if not found.keys() & CAPTURE_TABLES.keys():
        return found
    missing = CAPTURE_TABLES.keys() - found.keys()
    return found | {name: session.createDataFrame([], spark_schema(TABLES[name].stored)) for name in missing}


def _live(session: SparkSession, job: Job, endpoint: str, stream: str) -> DataFrame:
    given = job.settings.source
    options = given.options if given.endpoint in ("", endpoint) else {}  # what is right for one server is for no other
    source = Source(endpoint=endpoint, streams=(stream,), options=options)
    return session.read.format("penstock").options(**source_options(source)).load()


def _captured(session: SparkSession, job: Job, view: str, name: str) -> DataFrame:
    reader = session.read.format("penstock-capture").options(**texts(job.settings.captures.options))
    return reader.option("paths", json.dumps([view])).option("table", name).load()
