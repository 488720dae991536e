"""Times that a writer notes, and the time windows of a reader, with Pravega's Java client 0.13.0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.peers import unique
from support.pravega.java import MAVEN_SECONDS, JavaProgram, running_java
from support.process import CONFIG, running_gateway

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 60)

PROJECT = Path(__file__).parent / "java" / "client"
LISTENER = 'bind = "127.0.0.1:{controller_port}"\n'
OFTEN = CONFIG.replace(LISTENER, f"{LISTENER}watermark_seconds = 0.2\n")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    with running_gateway(OFTEN) as gateway:
        uri = f"tcp://127.0.0.1:{gateway.controller_port}"
        with running_java(PROJECT, "Peer", tmp_path_factory.mktemp("java"), uri) as program:
            yield program


@pytest.mark.parametrize(("segments", "mode"), [(1, []), (3, []), (3, ["transactions"])])
def test_the_windows_of_a_reader(java: JavaProgram, segments: int, mode: list[str]) -> None:
    """Each event was written before the time that its writer noted after it, or committed before it with that time."""
    scope = unique("Times")
    assert java.ask("scope", scope) == ["ok", "true"]
    assert java.ask("stream", scope, "s", segments) == ["ok", "true"]
    verdict, *windows = java.ask("times", scope, "s", 4, 1500, *mode)
    assert verdict == "ok", windows
    bounds = [tuple(map(_time, window.split("-"))) for window in windows]
    assert all(upper is None or (lower or 0) <= upper for lower, upper in bounds)
    lowers = [lower or 0 for lower, _ in bounds]
    assert lowers == sorted(lowers)
    assert lowers[-1] >= 3000
    assert all(lower <= 1000 * number for number, lower in enumerate(lowers, 1))


def _time(text: str) -> int | None:
    return None if text == "null" else int(text)
