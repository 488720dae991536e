"""`penstock pipeline ingest` and `backfill`: write to tables, and from tables to streams."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click
import msgspec

from penstock_spark.cli.common import Job, changed, common_options, running, signalled, wrong

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["backfill_command", "ingest_command", "ingest_options", "ingested", "require_source", "what_is_read"]

_LOOK_SECONDS: Final = 0.5
_END_SECONDS: Final = 10.0


def ingest_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the flags for sources and the target."""
    for option in (
        click.argument("captures", nargs=-1, type=click.Path()),
        click.option("--endpoint", help="Gateway, or another S2 server: http(s)://HOST:PORT."),
        click.option("--stream", "streams", multiple=True, help="A stream of the server, or a pattern; repeatable."),
        click.option("--target", type=click.Path(), help="Directory or URL for the tables."),
    ):
        command = option(command)
    return command


@click.command("ingest")
@ingest_options
@click.option("--follow", is_flag=True, help="Continue until Ctrl-C, and write new data as it arrives.")
@common_options
def ingest_command(
    job: Job, captures: tuple[str, ...], endpoint: str, streams: tuple[str, ...], target: str, follow: bool
) -> None:
    """Write recordings (CAPTURES: files, directories, globs) and live streams to tables.

    Rows written by an earlier run, even if it was killed, are not written again. Without CAPTURES and --stream the
    configuration's sources are read.
    """
    job = require_source(job, captures, endpoint, streams, target)
    with running(job, *(() if follow else what_is_read(job))) as session:
        ingested(session, job, follow=follow)


def require_source(
    job: Job, captures: tuple[str, ...], endpoint: str | None, streams: tuple[str, ...], target: str | None
) -> Job:
    """Return the job with flags applied. If flags name a source, only such sources are read: others of the file are
    left out."""
    if endpoint and not streams and not job.settings.source.streams:
        raise wrong("--endpoint needs --stream")
    if streams and not (endpoint or job.settings.source.endpoint):
        raise wrong("--stream needs --endpoint")
    if endpoint:
        _check_address(endpoint)
    asked_for_streams = bool(streams or endpoint)
    if captures and not asked_for_streams:
        job = _without(job, "source", "streams")
    if asked_for_streams and not captures:
        job = _without(job, "captures", "path")
    if endpoint and endpoint != job.settings.source.endpoint:  # options, tokens among them, are for one server
        job = _without(job, "source", "options")
    job = changed(changed(job, "target", path=target), "captures", path=captures)
    job = changed(job, "source", endpoint=endpoint, streams=streams)
    if not job.settings.captures.path and not job.settings.source.streams:
        raise wrong("nothing to read: give captures, or --endpoint and --stream, or a --config FILE that names them")
    return job


def what_is_read(job: Job) -> tuple[str, ...]:
    """Return the paths that an ingest reads; none if it reads streams, too."""
    return () if job.settings.source.streams else job.settings.captures.path


def ingested(session: SparkSession, job: Job, *, follow: bool = False) -> None:
    """Run the queries and print the result of each. Returns when they end; raises the first failure."""
    from penstock_spark.jobs.ingest import capture_tables, ingest, live_streams

    settings = job.settings
    incoming = list(capture_tables(session, settings.captures, settings.target)) if settings.captures.path else []
    if settings.source.streams:
        incoming.append(live_streams(session, settings.source))
    if follow:
        _follow([ingest(input_settings, settings.target, follow=True) for input_settings in incoming])
        return
    for input_settings in incoming:  # one after another: each uses all cores, and decodes one recording at a time
        query = ingest(input_settings, settings.target)
        try:
            query.awaitTermination()
            click.echo(_outcome(query, settings.target.path))
        finally:
            query.stop()


def _outcome(query: StreamingQuery, target: str) -> str:
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    if not batches:
        return f"Nothing new for {query.name} in {target}."
    return f"Ingested {sum(batch['numInputRows'] for batch in batches):,} rows of {query.name} into {target}."


def _follow(queries: list[StreamingQuery]) -> None:
    """Wait until a signal comes or a query fails; then stop all, between two micro-batches or after a few seconds. The
    next run repeats an interrupted micro-batch."""
    with signalled() as told:
        while not told.wait(_LOOK_SECONDS) and all(query.isActive for query in queries):
            pass
        patience = time.monotonic() + _END_SECONDS
        for query in queries:
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < patience:
                time.sleep(_LOOK_SECONDS / 10)
            query.stop()
    for query in queries:
        if (error := query.exception()) is not None:
            raise error


@click.command("backfill")
@click.argument("view")
@click.option("--endpoint", required=True, help="Gateway, or another S2 server: http(s)://HOST:PORT.")
@click.option("--name", required=True, help="Name of this backfill; running it again under its name resumes it.")
@click.option("--to", "renamed", multiple=True, metavar="STREAM=STREAM", help="Another name for a stream.")
@click.option("--create", is_flag=True, help="Create missing streams.")
@click.option(
    "--unwritable",
    type=click.Choice(("fail", "skip", "keep")),
    default="fail",
    show_default=True,
    help="Handling of rows that cannot be written as records, such as fences and trims; keep saves them below the "
    "log, in unwritable.",
)
@click.option(
    "--log", type=click.Path(), help="Directory or URL for the log of this backfill (default: _backfill in the target)."
)
@common_options
def backfill_command(
    job: Job,
    view: str,
    endpoint: str,
    name: str,
    renamed: tuple[str, ...],
    create: bool,
    unwritable: str,
    log: str | None,
) -> None:
    """Write the records of VIEW to streams, in order, each exactly once.

    VIEW: a directory of tables written by `ingest`, recordings, or streams as http://HOST:PORT/BASIN/STREAM.
    """
    names = dict(pair.split("=", 1) for pair in renamed if "=" in pair)
    if len(names) != len(renamed):
        raise wrong("--to: expected STREAM=STREAM, each stream once")
    _check_address(endpoint)
    with running(job) as session:
        from penstock_spark.cli.views import records_tables
        from penstock_spark.jobs.backfill import ProgressLog, backfill
        from penstock_spark.jobs.directories import HadoopDirectory

        tables = records_tables(session, job, view)
        if len(tables) > 1:
            raise wrong(f"{view} has the tables {' and '.join(tables)}; name the directory of one")
        options = {"endpoint": endpoint, "sink": name, "create": str(create).lower(), "unwritable": unwritable}
        place = HadoopDirectory(session, log or f"{job.settings.target.path}/_backfill/{name}")
        if unwritable == "keep":
            options["unwritable_path"] = str(place.below("unwritable")).removeprefix("file:")
        [records] = tables.values()
        for batch, rows in backfill(records, ProgressLog(place), options, names=names):
            click.echo(f"batch {batch.number}: {sum(rows.values()):,} records of {len(rows)} streams")


def _check_address(endpoint: str) -> None:
    """Check an address before a session is started; the source and the sink check its options."""
    from penstock_spark.clients.endpoint import EndpointError, parse_endpoint

    try:
        parse_endpoint(endpoint)
    except EndpointError as error:
        raise wrong(str(error)) from None


def _without(job: Job, table: str, key: str) -> Job:
    settings = job.settings
    before = getattr(settings, table)
    emptied = msgspec.structs.replace(before, **{key: type(getattr(before, key))()})
    return job._replace(settings=msgspec.structs.replace(settings, **{table: emptied}))
