"""Settings that every test shares."""

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from support.needs import PACKAGES
from support.process import GatewayProcess, running_gateway
from support.sharing import SLOW, ByFile, check_marks, file_of, left_out, place, processes
from xdist.remote import Producer

for profile, examples in (("default", 20), ("more", 300), ("long", 2000)):
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(os.environ.get("PENSTOCK_TEST_PROFILE", "default"))


SPARK_SECONDS = 600
"""Most time for a test that needs Spark, on a machine that is busy otherwise: the first one starts the session."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Return the scheduler of tests for several processes."""
    return ByFile(config, log)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes for `--numprocesses auto`."""
    return processes(config.option.markexpr)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files of which the marks that were asked for leave nothing."""
    return left_out(collection_path, config.option.markexpr) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones, and put files in the order in which processes take them."""
    for item in items:
        if file_of(item) in SLOW:
            item.add_marker("slow")
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_SECONDS))
    check_marks(items)
    items.sort(key=lambda item: place(file_of(item)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from modules and tests, which live until the end: to pass over them again and again
    takes a sixth of all processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def signal_mask() -> Iterator[None]:
    """Check that a test leaves no signal blocked: the programs that later tests start would ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, before) - before
    assert not blocked, f"the test blocked {blocked}"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file or folder that imports a package which may be missing."""
    report = yield
    error = report.call.excinfo.value if report.failed else None
    cause = error and (error.__cause__ or error)
    package = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    if package in PACKAGES:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {package} is not installed: {PACKAGES[package].how}")
    return report


@pytest.fixture(scope="session", autouse=True)
def loggers_are_not_cached() -> Iterator[None]:
    """A command that is run in this process says how it logs; tests that look at logs must not be bound by that."""
    configure = structlog.configure

    def uncached(**said: Any) -> None:
        configure(**{**said, "cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", uncached)
        yield


@pytest.fixture(autouse=True)
def logs_are_as_they_were(loggers_are_not_cached: None) -> Iterator[None]:
    """See above: nor by what it has said."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
    if root.handlers != handlers:
        root.setLevel(level)
        root.handlers[:] = handlers


@pytest.fixture(scope="session")
def gateway() -> Iterator[GatewayProcess]:
    """One real gateway for the whole run. Tests share it: each uses streams (or basins) of its own, none stops it."""
    with running_gateway() as process:
        yield process


@pytest.fixture
def fresh_gateway() -> Iterator[GatewayProcess]:
    """A real gateway for one test, which may kill, terminate and restart it."""
    with GatewayProcess() as process:
        yield process
