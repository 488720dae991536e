"""Retention by size and consumption, as Pravega's Java client 0.13.0 configures it and sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.peers import unique
from support.pravega.clients import wait_until
from support.pravega.java import MAVEN_SECONDS, JavaProgram, running_java
from support.process import CONFIG, running_gateway

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 60)

PROJECT = Path(__file__).parent / "java" / "client"
OFTEN = CONFIG.replace(
    'bind = "127.0.0.1:{controller_port}"\n', 'bind = "127.0.0.1:{controller_port}"\nretention_seconds = 1\n'
)
EVENT = 8 + len("e-0-")
"""Bytes of each event in the segment."""


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    with running_gateway(OFTEN) as gateway:
        uri = f"tcp://127.0.0.1:{gateway.controller_port}"
        with running_java(PROJECT, "Peer", tmp_path_factory.mktemp("java"), uri) as program:
            yield program


def ask(java: JavaProgram, *question: object) -> list[str]:
    verdict, *words = java.ask(*question)
    assert verdict == "ok", words
    return words


def test_what_a_subscriber_has_read_goes_first(java: JavaProgram) -> None:
    scope = unique("Retained")
    assert ask(java, "scope", scope) == ["true"]
    assert ask(java, "retained", scope, "s", 2 * EVENT, 6 * EVENT) == ["true"]
    ask(java, "acknowledge", scope, "g", "s", "0=0")
    ask(java, "write", scope, "s", "e", 5, 1, 1)
    ask(java, "acknowledge", scope, "g", "s", f"0={EVENT}")
    wait_until(lambda: ask(java, "head", scope, "s") == [f"0={EVENT}"], 20)
    ask(java, "acknowledge", scope, "g", "s", f"0={3 * EVENT}")
    wait_until(lambda: ask(java, "head", scope, "s") == [f"0={3 * EVENT}"], 20)
    ask(java, "group", scope, "reading", "s")
    read = ask(java, "read", scope, "s", "reading", "r", 2, 20_000)
    assert [one.split(":")[-1] for one in read] == ["e-3-", "e-4-"]
