"""Common parts of the commands: flags, a session, and failures as one line and an exit code."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from penstock_spark.running import CannotRun, JobFailed, JobSettings, SettingsError, cause, load_settings, open_session
from penstock_spark.running.progress import progress_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "CANNOT_RUN",
    "DIFFERENT",
    "FAILED",
    "INTERRUPTED",
    "WRONG_USE",
    "Job",
    "changed",
    "common_options",
    "running",
    "signalled",
    "wrong",
]

DIFFERENT: Final = 1
WRONG_USE: Final = 2
CANNOT_RUN: Final = 3
FAILED: Final = 4
INTERRUPTED: Final = 130
"""Ended by a signal, as in shells."""
SMALL_BYTES: Final = 32 << 20
"""Maximum input of a small job, in bytes: some hundred thousand records."""


class _WrongUse(click.ClickException):
    exit_code = WRONG_USE


class _CannotRun(click.ClickException):
    exit_code = CANNOT_RUN


class _Failed(click.ClickException):
    exit_code = FAILED


_CLASSES: Final = {kind.exit_code: kind for kind in (_WrongUse, _CannotRun, _Failed)}


class Job(NamedTuple):
    """The settings, with common flags taking precedence over the file."""

    settings: JobSettings
    debug: bool


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that every command has; the command gets them as one argument, `job`."""

    @click.option("--config", "path", type=click.Path(path_type=Path), help="Settings (TOML), as config/pipeline.toml.")
    @click.option("--master", help="The master: local[*], spark://HOST:PORT or yarn.")
    @click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
    @click.option("--debug", is_flag=True, help="Show Spark's whole log, and stack traces of failures.")
    @functools.wraps(command)
    def made(path: Path | None, master: str | None, conf: tuple[str, ...], debug: bool, **rest: Any) -> Any:
        return command(job=Job(_settings(path, master, conf), debug), **rest)

    return made


def changed(job: Job, table: str, **options: object) -> Job:
    """Return the job with keys of a settings table replaced; keys that are None or empty are left as they are."""
    new = {key: value for key, value in options.items() if value not in (None, "", ())}
    try:
        values = msgspec.to_builtins(job.settings)
        values[table] |= {key: list(value) if isinstance(value, tuple) else value for key, value in new.items()}
        return job._replace(settings=msgspec.convert(values, JobSettings))
    except msgspec.ValidationError as error:
        raise wrong(str(error)) from error


def wrong(message: str, code: int = WRONG_USE) -> click.ClickException:
    """Return a failure that click shows as `Error: MESSAGE`, with this exit code."""
    return _CLASSES[code](message)


@contextmanager
def running(job: Job, *reads: str) -> Iterator[SparkSession]:
    """Open a session. An error inside ends the command with its cause only, unless `--debug`. `reads`: paths and URLs
    that will be read, to tune the session for small jobs; none: unknown."""
    from penstock_spark.jobs.configuring import spark_settings

    settings = job.settings
    try:
        session = open_session(
            settings.spark.master,
            name=settings.spark.name,
            configuration=spark_settings(settings),
            memory=settings.spark.driver_memory,
            debug=job.debug,
            small=_is_small(reads),
        )
    except CannotRun as error:
        raise wrong(str(error), CANNOT_RUN) from error
    try:
        with _interruptible(), progress_lines(session):
            yield session
    except (click.ClickException, click.exceptions.Exit, BrokenPipeError):  # of standard output: `| head`
        raise
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        if job.debug and not isinstance(error, JobFailed):
            raise
        raise wrong(cause(error), FAILED) from error
    finally:
        with contextlib.suppress(Exception):  # a session interrupted in a call, or one whose JVM is gone
            session.stop()


def _is_small(reads: Sequence[str]) -> bool:
    """Return whether all of `reads` are local files of at most `SMALL_BYTES`; False if there is none."""
    places = [Path(path) for pattern in reads for path in glob(pattern)]  # noqa: PTH207 - as Spark takes them
    files = (file for place in places for file in (place.rglob("*") if place.is_dir() else [place]))
    left = SMALL_BYTES
    for file in files:
        with contextlib.suppress(OSError):  # deleted meanwhile
            left -= file.stat().st_size
        if left < 0:
            return False
    return bool(places)


@contextmanager
def signalled() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT (Ctrl-C) set, for a command that ends by itself then."""
    told = threading.Event()
    with _handled(lambda *_: told.set()):
        yield told


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGTERM and SIGINT raise KeyboardInterrupt at once, without the stack that Py4J would log."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt

    with _handled(interrupt):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


def _settings(path: Path | None, master: str | None, conf: tuple[str, ...]) -> JobSettings:
    try:
        settings = JobSettings() if path is None else load_settings(path)
    except SettingsError as error:
        raise wrong(str(error)) from error
    given: dict[str, str | int | float | bool] = {}
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not equals or not key.startswith("spark."):
            raise wrong(f"--conf {setting}: expected spark.KEY=VALUE")
        given[key] = value
    spark = msgspec.structs.replace(
        settings.spark, master=master or settings.spark.master, conf={**settings.spark.conf, **given}
    )
    return msgspec.structs.replace(settings, spark=spark)
