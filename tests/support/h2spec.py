"""h2spec: judges of servers of HTTP/2 whether they keep to the specification."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from support.real_peers import h2spec_program

__all__ = ["CASES", "EXCEPTIONS", "FEWER_STREAMS", "LISTENERS", "H2SpecResult", "run_h2spec"]

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


class H2SpecResult(NamedTuple):
    """Number of tests, and the result of those that did not pass: `failed` or `skipped`, by name."""

    count: int
    others: dict[str, str]


def run_h2spec(port: int, *arguments: str) -> H2SpecResult:
    """Run h2spec, strict, against a port of loopback."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [str(h2spec_program()), "--strict", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--junit-report", str(report), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert report.exists(), done.stdout + done.stderr
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    others = {
        f"{case.get('package')}: {case.get('classname')}": "skipped" if case[0].tag == "skipped" else "failed"
        for case in cases
        if len(case)
    }
    print(done.stdout)
    return H2SpecResult(len(cases), others)
