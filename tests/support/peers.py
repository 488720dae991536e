"""Helpers of tests with real programs: find them, run them with a deadline, and make a basin for each test."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.needs import PROGRAMS

__all__ = ["Curl", "call", "create_basin", "create_stream", "finish", "need", "run_client", "unique"]

T = TypeVar("T")
Curl = Callable[..., "subprocess.CompletedProcess[bytes]"]

_COUNTER = itertools.count()


def unique(prefix: str) -> str:
    """Return a name that no other test of this run uses; fits S2's rules for basins (8 to 48 of a-z, 0-9 and -)."""
    return f"{prefix}-{os.getpid()}-{next(_COUNTER):04d}"


def call(port: int, method: str, path: str, body: str | None = None, basin: str | None = None) -> bytes:
    """One plain HTTP/1.1 exchange on loopback that must end with 200 or 201; gives the body of the answer."""
    headers = {"content-type": "application/json"} if body is not None else {}
    if basin is not None:
        headers["s2-basin"] = basin
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    assert answer.status in (200, 201), f"{method} {path}: {answer.status} {text!r}"
    return text


def create_basin(port: int, name: str, config: str = "{}") -> None:
    """Ensures a basin over plain HTTP, so that no client under test is needed to set one up."""
    call(port, "PUT", f"/v1/basins/{name}", f'{{"config":{config}}}')


def create_stream(port: int, basin: str, stream: str) -> None:
    """Ensures a stream over plain HTTP; `stream` must need no percent-encoding."""
    call(port, "PUT", f"/v1/streams/{stream}", basin=basin)


def finish(main: Coroutine[Any, Any, T], seconds: float = 60) -> T:
    """Runs an asyncio client to its end, or fails after a deadline."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await main

    return asyncio.run(bounded())


def need(program: str) -> str:
    """Return the path of `program`; skip the test, saying how to get it, if it is missing."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: {PROGRAMS[program].how}")
    return found


def run_client(command: Sequence[str], *, cwd: Path, seconds: float, environment: Mapping[str, str] = {}) -> str:
    """Runs a client program to its end and gives its standard output; fails with its complaints if it failed."""
    result = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert result.returncode == 0, f"{' '.join(command)} ended with {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout
