"""h2spec, strict, against every listener that speaks HTTP/2."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from support.process import CONFIG, GatewayProcess, running_gateway
from support.real_peers import h2spec_program
from support.tls.certificates import needs_openssl, self_signed

FEWER_STREAMS = """
[listeners.s2.limits]
max_streams = 100

[listeners.controller.limits]
max_streams = 100
"""
"""As many as h2spec opens, and one more; of the usual 1000 it takes no answer either, which takes 8 s."""

LISTENERS = {"s2": "/v1/basins", "controller": "/", "management": "/health"}
"""And a path whose answer has a body."""
CASES = 146

EXCEPTIONS = {
    "http2/3.5: Sends invalid connection preface": "the port speaks HTTP/1.1 too, and answers 400 before it closes; "
    "where ALPN has chosen HTTP/2 it passes",
    "http2/4.2: Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE": "it sends 20 kB whatever "
    "the server announces, which is 64 KiB; with headers beyond that it passes",
}
"""Tests that must fail as h2spec has them, and why. Both pass where they test what they mean to."""


class Told(NamedTuple):
    """Number of tests, and the result of those that did not pass: `failed` or `skipped`, by name."""

    count: int
    others: dict[str, str]


Run = Callable[..., Told]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs h2spec against a port of loopback; skips the test where it is not installed."""
    program = h2spec_program()
    if not program.exists():
        pytest.skip("h2spec is not installed: `make peers`")

    def run(port: int, *arguments: str) -> Told:
        report = tmp_path / "report.xml"
        command = [str(program), "--strict", "--host", "127.0.0.1", "--port", str(port), "--junit-report", str(report)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=120)
        assert report.exists(), done.stdout + done.stderr
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
        others = {
            f"{case.get('package')}: {case.get('classname')}": "skipped" if case[0].tag == "skipped" else "failed"
            for case in cases
            if len(case)
        }
        print(done.stdout)
        return Told(len(cases), others)

    return run


@pytest.fixture(scope="module")
def plain() -> Iterator[GatewayProcess]:
    """A gateway without TLS."""
    with running_gateway(CONFIG + FEWER_STREAMS) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with TLS on all listeners of HTTP."""
    certificate, key = self_signed(tmp_path_factory.mktemp("tls"))
    tls = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    text = CONFIG + '[management]\nbind = "127.0.0.1:{management_port}"\n'
    for table in ("listeners.s2", "listeners.controller", "listeners.segment", "management"):
        text = text.replace(f"[{table}]\n", f"[{table}]\n{tls}")
    with running_gateway(text) as gateway:
        yield gateway


@pytest.mark.parametrize("listener", LISTENERS)
def test_all_but_the_exceptions_pass(plain: GatewayProcess, listener: str, run: Run) -> None:
    told = run(getattr(plain, f"{listener}_port"), "--path", LISTENERS[listener])
    assert told == (CASES, dict.fromkeys(EXCEPTIONS, "failed"))


@needs_openssl
@pytest.mark.parametrize("listener", LISTENERS)
def test_the_exceptions_pass_where_they_apply(secured: GatewayProcess, listener: str, run: Run) -> None:
    port = getattr(secured, f"{listener}_port")
    sections = [name.partition(":")[0] for name in EXCEPTIONS]
    told = run(port, "--tls", "--insecure", "--max-header-length", "14000", *sections)
    assert told == (5, {})
