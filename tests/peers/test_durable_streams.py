"""Durable Streams by programs of others: the server conformance suite from npm, and the Python client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.peers import unique
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway

NODE = Path(__file__).parent / "node"
DURABLE = """bind = "127.0.0.1:{durable_port}"
cors_origins = ["*"]
limits.long_poll_seconds = 1.5"""
CASES = 332
"""Cases of the suite that are not about subscriptions, an extension that it leaves out unless it is asked for."""
PATIENT = ["--testTimeout=60000"]
"""A case may take a minute, not five seconds: on a busy machine a large payload does."""


@pytest.fixture(scope="module")
def durable_gateway() -> Iterator[GatewayProcess]:
    """A gateway whose long polls are short, and which web pages may use."""
    with running_gateway(CONFIG.replace('bind = "127.0.0.1:{durable_port}"', DURABLE)) as process:
        yield process


@pytest.fixture
def url(durable_gateway: GatewayProcess) -> str:
    """The URL of a stream that does not exist yet."""
    return durable_gateway.durable_url + unique("durable")


def records_over_s2(gateway: GatewayProcess, url: str) -> list[str]:
    """The bodies of a stream as a client of S2 reads them."""
    name = url.rsplit("/", 1)[1]
    where = f"{gateway.s2_url}/v1/streams/{name}/records?seq_num=0"
    request = urllib.request.Request(where, headers={"s2-basin": BASIN})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [record["body"] for record in json.load(answer)["records"]]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_conformance_suite(durable_gateway: GatewayProcess, tmp_path: Path) -> None:
    """Every case passes but those for subscriptions, which are skipped by the suite itself."""
    if shutil.which("npx") is None or not (NODE / "node_modules" / "@durable-streams").is_dir():
        pytest.skip("the suite is not installed: install Node.js 20 or newer, then `make node-peers`")
    report = tmp_path / "report.json"
    environment = {
        **os.environ,
        "DURABLE_URL": durable_gateway.durable_url.removesuffix("/v1/stream/"),
        "LONG_POLL_MS": "1500",
    }
    done = subprocess.run(
        ["npx", "vitest", "run", "durable.test.mjs", *PATIENT, "--reporter=json", f"--outputFile={report}"],
        cwd=NODE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert report.exists(), done.stdout + done.stderr
    cases = [case for file in json.loads(report.read_text())["testResults"] for case in file["assertionResults"]]
    failed = [f"{case['fullName']}: {case['failureMessages']}" for case in cases if case["status"] == "failed"]
    assert failed == [], durable_gateway.log_tail()
    assert sum(case["status"] == "passed" for case in cases) >= CASES
    skipped = [case["fullName"] for case in cases if case["status"] not in ("passed", "failed")]
    assert all("subscription" in name for name in skipped), skipped


@pytest.fixture
def client() -> Any:
    """The Python client's module."""
    return pytest.importorskip("durable_streams", reason="`pip install durable-streams`")


def test_python_client_writes_and_resumes(durable_gateway: GatewayProcess, client: Any, url: str) -> None:
    with client.DurableStream.create(url, content_type="application/json") as stream:
        stream.append({"n": 1})
        stream.append([2, 3])
        with client.stream(url, live=False) as response:
            assert response.read_json() == [{"n": 1}, [2, 3]]
            offset = response.offset
        durable_gateway.restart(kill=True)
        stream.append("four")
        with client.stream(url, offset=offset, live=False) as response:
            assert response.read_json() == ["four"]
    assert [json.loads(body) for body in records_over_s2(durable_gateway, url)] == [{"n": 1}, [2, 3], "four"]


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_python_client_follows(durable_gateway: GatewayProcess, client: Any, url: str, live: str) -> None:
    """Records of a client of S2, appended while it waits, reach it in order."""
    client.DurableStream.create(url, content_type="application/json").close()
    seen: list[Any] = []
    waiting = threading.Event()

    def follow() -> None:
        with client.stream(url, offset="-1", live=live) as response:
            waiting.set()
            for item in response.iter_json():
                seen.append(item)
                if item == 9:
                    return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert waiting.wait(20)
    where = f"{durable_gateway.s2_url}/v1/streams/{url.rsplit('/', 1)[1]}/records"
    for number in range(10):
        body = json.dumps({"records": [{"body": str(number)}]}).encode()
        headers = {"s2-basin": BASIN, "content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(where, body, headers), timeout=10).close()
    thread.join(20)
    assert not thread.is_alive() and seen == list(range(10))


def test_python_client_meets_what_is_refused(durable_gateway: GatewayProcess, client: Any, url: str) -> None:
    with pytest.raises(client.StreamNotFoundError):
        client.DurableStream.connect(url)
    with client.DurableStream.create(url, content_type="text/plain") as stream:
        stream.append("first", seq="b")
        with pytest.raises(client.SeqConflictError):
            stream.append("second", seq="a")
        with pytest.raises(client.StreamExistsError):
            client.DurableStream.create(url, content_type="application/json")
        stream.delete()
    with pytest.raises(client.StreamNotFoundError):
        client.DurableStream.connect(url)
