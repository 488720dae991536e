"""The plug-in for pytest: fixtures with a gateway and with mock servers, and the names of tests under
`penstock mock`.

pytest loads it by its entry point. It imports nothing of the gateway until a fixture is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.gateway import Gateway
from penstock.testing.mock_servers import MockServers, name_test
from penstock.tools.mock.naming import MOCK_URL

__all__ = ["penstock_gateway", "penstock_mock"]


@pytest.fixture
def penstock_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """A gateway with an empty store, a `penstock.testing.Gateway`. Known clients find it by their environment variables
    while the test runs."""
    with Gateway(directory=tmp_path / "penstock") as gateway:
        _set(monkeypatch, gateway.environment)
        yield gateway


@pytest.fixture
def penstock_mock(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., MockServers]]:
    """A function that starts the mock servers of a recording: `penstock_mock("recordings/orders")`, with the options of
    `penstock.testing.MockServers`. They give the answers that were recorded for this test. Known clients find them by
    their environment variables while the test runs; a request without an answer fails the test at its end."""
    with ExitStack() as stack:

        def start(recording: Path | str, **options: Any) -> MockServers:
            servers = stack.enter_context(MockServers(recording, **{"test": request.node.nodeid, **options}))
            _set(monkeypatch, servers.environment)
            return servers

        yield start


def _set(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


# ---- under `penstock mock` ---------------------------------------------------------------------------------------


class _Naming:
    """Names each test to the mock servers of the run while it runs. Fixtures of a wider scope than one test ask for all
    tests, since any test may be the first to use them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        self._name_test()
        try:
            return (yield)
        finally:
            self._test = ""
            self._name_test()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        fixturedef.addfinalizer(self._name_test)  # finalizers run in reverse: this one after the fixture's own
        self._name_none()
        try:
            return (yield)
        finally:
            fixturedef.addfinalizer(self._name_none)
            self._name_test()

    def _name_test(self) -> None:
        name_test(self._url, self._test)

    def _name_none(self) -> None:
        name_test(self._url, "")


def pytest_configure(config: pytest.Config) -> None:
    """Name tests if mock servers run. Raises UsageError if tests would run at the same time."""
    url = os.environ.get(MOCK_URL)
    if not url:
        return
    if getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput"):
        raise pytest.UsageError(
            "penstock mock answers one test at a time: run pytest without -n, or use the fixture penstock_mock"
        )
    config.pluginmanager.register(_Naming(url), "penstock-naming")
