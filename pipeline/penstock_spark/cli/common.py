"""What the commands share: flags, a session, failures as one line and an exit code."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from penstock_spark.running import CannotRun, JobFailed, Settings, SettingsError, cause, load_settings, open_session
from penstock_spark.running.progress import watched

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
"""By a signal, as shells count it."""


class _WrongUse(click.ClickException):
    exit_code = WRONG_USE


class _CannotRun(click.ClickException):
    exit_code = CANNOT_RUN


class _Failed(click.ClickException):
    exit_code = FAILED


_CLASSES: Final = {kind.exit_code: kind for kind in (_WrongUse, _CannotRun, _Failed)}


class Job(NamedTuple):
    """What the common flags say, and the file, which they win over."""

    settings: Settings
    debug: bool


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that every command has; they come to it as one argument, `job`."""

    @click.option("--config", "path", type=click.Path(path_type=Path), help="Settings (TOML), as config/pipeline.toml.")
    @click.option("--master", help="Where to run: local[*], spark://HOST:PORT, yarn.")
    @click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's own; may be repeated.")
    @click.option("--debug", is_flag=True, help="Show Spark's log in full, and failures with their stacks.")
    @functools.wraps(command)
    def made(path: Path | None, master: str | None, conf: tuple[str, ...], debug: bool, **rest: Any) -> Any:
        return command(job=Job(_settings(path, master, conf), debug), **rest)

    return made


def changed(job: Job, table: str, **given: object) -> Job:
    """With these keys of a table as flags say them; those that are None or empty stay as they are."""
    new = {key: value for key, value in given.items() if value not in (None, "", ())}
    try:
        values = msgspec.to_builtins(job.settings)
        values[table] |= {key: list(value) if isinstance(value, tuple) else value for key, value in new.items()}
        return job._replace(settings=msgspec.convert(values, Settings))
    except msgspec.ValidationError as error:
        raise wrong(str(error)) from error


def wrong(message: str, code: int = WRONG_USE) -> click.ClickException:
    """A failure that click shows as `Error: MESSAGE`, with this exit code."""
    return _CLASSES[code](message)


@contextmanager
def running(job: Job) -> Iterator[SparkSession]:
    """A session, while it is needed. What fails inside ends the command: the cause alone, unless `--debug`."""
    from penstock_spark.jobs.configuring import spark_settings

    settings = job.settings
    try:
        session = open_session(
            settings.spark.master,
            name=settings.spark.name,
            configuration=spark_settings(settings),
            memory=settings.spark.driver_memory,
            debug=job.debug,
        )
    except CannotRun as error:
        raise wrong(str(error), CANNOT_RUN) from error
    try:
        with _interruptible(), watched(session):
            yield session
    except (click.ClickException, click.exceptions.Exit):
        raise
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:
        if job.debug and not isinstance(error, JobFailed):
            raise
        raise wrong(cause(error), FAILED) from error
    finally:
        with contextlib.suppress(Exception):  # of a session that was interrupted amid a call, or whose JVM is gone
            session.stop()


@contextmanager
def signalled() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT (Ctrl-C) set, for what ends by itself once it is told to."""
    told = threading.Event()
    with _handled(lambda *_: told.set()):
        yield told


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGINT end what runs at once. Py4J would log the stack of where it was."""

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


def _settings(path: Path | None, master: str | None, conf: tuple[str, ...]) -> Settings:
    try:
        settings = Settings() if path is None else load_settings(path)
    except SettingsError as error:
        raise wrong(str(error)) from error
    given: dict[str, str | int | float | bool] = {}
    for one in conf:
        key, equals, value = one.partition("=")
        if not equals or not key.startswith("spark."):
            raise wrong(f"--conf {one}: expected spark.KEY=VALUE")
        given[key] = value
    spark = msgspec.structs.replace(
        settings.spark, master=master or settings.spark.master, conf={**settings.spark.conf, **given}
    )
    return msgspec.structs.replace(settings, spark=spark)
