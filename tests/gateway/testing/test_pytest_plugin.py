"""The fixtures in a project of a user, whose pytest finds them by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import Gateway

CLIENT = """
import json, os, urllib.request

def append(body):
    url = os.environ["S2_BASIN_ENDPOINT"] + "/v1/streams/orders/records"
    headers = {"s2-basin": "penstock", "content-type": "application/json"}
    data = json.dumps({"records": [{"body": body}]}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return json.load(answer)["start"]["seq_num"]
"""


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (directory / "client.py").write_text(CLIENT)
    (directory / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_each_test_has_a_gateway_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_gateway.py").write_text("""
import os, pytest
from client import append

@pytest.mark.parametrize("time", [1, 2])
def test_first(penstock_gateway, time):
    assert append("a") == 0 and append("b") == 1
    assert penstock_gateway.url("s2") == os.environ["S2_BASIN_ENDPOINT"]

def test_without():
    assert "S2_BASIN_ENDPOINT" not in os.environ
""")
    done = run(tmp_path)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


MOCKED = """
from client import append

def test_first(penstock_mock):
    penstock_mock("recordings"{options})
    assert append("a") == 0

def test_second(penstock_mock):
    penstock_mock("recordings"{options})
    assert append("a") == 1
"""


def test_a_mock_gives_each_test_its_own_answers(tmp_path: Path) -> None:
    """Recorded in the order of the file; answered in any, and in several processes."""
    file = tmp_path / "test_mocked.py"
    with Gateway() as gateway:
        file.write_text(MOCKED.replace("{options}", f', on_miss="record", to=["s2://{gateway.address("s2")}"]'))
        done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "recordings" / "test_mocked.py" / "test_second").is_dir()
    file.write_text(MOCKED.replace("{options}", ""))
    done = run(tmp_path, "test_mocked.py::test_second", "test_mocked.py::test_first")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    done = run(tmp_path, "-n", "2")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    file.write_text(
        MOCKED.replace("{options}", "")
        .replace('append("a") == 1', 'fails("b")')
        .replace(
            "def test_first",
            "def fails(body):\n    try:\n        append(body)\n    except OSError:\n        return True\n\n"
            "def test_first",
        )
    )
    done = run(tmp_path)
    assert done.returncode == 1 and "2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "not recorded: POST /v1/streams/orders/records, by test_mocked.py/test_second" in done.stdout


def test_mock_answers_one_test_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    done = run(tmp_path, "-n", "2", PENSTOCK_MOCK_URL="http://127.0.0.1:1")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "run pytest without -n, or use the fixture penstock_mock" in done.stderr


def test_fixtures_are_listed_with_their_explanation(tmp_path: Path) -> None:
    done = run(tmp_path, "--fixtures")
    assert "penstock_gateway" in done.stdout and "A gateway with an empty store" in done.stdout
