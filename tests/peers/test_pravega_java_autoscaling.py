"""Scaling by rate, with Pravega's Java client 0.13.0: its stream is split while it writes, and is read in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.peers import unique
from support.pravega.clients import wait_until
from support.pravega.java import MAVEN_SECONDS, JavaProgram, running_java
from support.process import CONFIG, running_gateway

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

PROJECT = Path(__file__).parent / "java" / "client"
KEYS = 11
QUICK = f"""{CONFIG}
[listeners.controller.scaling]
sample_seconds = 0.2
cooldown_seconds = 1
burst_seconds = 1
busy_seconds = 2
steady_seconds = 3
"""


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    with running_gateway(QUICK) as gateway:
        uri = f"tcp://127.0.0.1:{gateway.controller_port}"
        with running_java(PROJECT, "Peer", tmp_path_factory.mktemp("java"), uri) as program:
            yield program


def ask(java: JavaProgram, *question: object) -> list[str]:
    verdict, *words = java.ask(*question)
    assert verdict == "ok", words
    return words


def test_a_busy_stream_is_split_while_it_is_written(java: JavaProgram) -> None:
    scope = unique("Rated")
    assert ask(java, "scope", scope) == ["true"]
    assert ask(java, "rated", scope, "s", 1, 3, 1) == ["true"]
    ask(java, "start", scope, "s", KEYS, 50)
    wait_until(lambda: len(ask(java, "segments", scope, "s")) >= 3, 40)
    [count] = ask(java, "stop")
    segments = ask(java, "segments", scope, "s")
    assert "0" not in segments
    ask(java, "checkpointed", scope, "g", "s", 500)
    read = ask(java, "read", scope, "s", "g", "r", count, 30_000)
    assert len(read) == int(count)
    by_key = defaultdict(list)
    for one in read:
        number = int(one.rsplit(":", 1)[1].split("-")[1])
        by_key[number % KEYS].append(number)
    assert len({one.split(":")[0] for one in read}) >= 3
    assert by_key == {key: list(range(key, int(count), KEYS)) for key in range(KEYS)}
