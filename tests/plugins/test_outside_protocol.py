"""A protocol of another distribution, in all layers: nothing of Penstock names it.

Its distribution is tests/outside. All programs are processes of their own, since plug-ins are loaded once.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.captures.traffic import until
from support.process import GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient

from penstock.wire import conformance
from penstock.wire.codec import Role

LISTENERS = """
[listeners.s2]
bind = "127.0.0.1:{s2_port}"
[listeners.s3p]
bind = "127.0.0.1:{s3p_port}"
[[listeners.lines]]
name = "main"
bind = "127.0.0.1:0"
[listeners.lines.loss]
headers = "drop"
[store]
directory = "{data}"
[[store.basins]]
name = "penstock"
[log]
format = "json"
"""
ROUTED = """
[backs.far]
kind = "lines"
address = "127.0.0.1:%d"
[[routes]]
name = "there"
stream = "far-"
match = "prefix"
back = "far"
[[routes]]
name = "here"
back = "embedded"
"""


def lines_port(gateway: GatewayProcess) -> int:
    return next(event["port"] for event in gateway.events("listening") if event["listener"] == "listeners.lines.main")


def say(port: int, *lines: str) -> list[str]:
    """Say some lines, and return the answers, one final line for each."""
    answers: list[str] = []
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as connection:
        file = connection.makefile("rw", newline="\n")
        for line in lines:
            file.write(line + "\n")
            file.flush()
            while (answer := file.readline().rstrip("\n")).startswith("ROW"):
                answers.append(answer)
            answers.append(answer)
    return answers


def penstock(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout


class Pair:
    """A gateway whose route `there` leads to another one over numbered lines; the near one records."""

    def __init__(self, far: GatewayProcess, near: GatewayProcess, recordings: Path) -> None:
        self.far, self.near, self.recordings = far, near, recordings
        self.config = near.directory / "gateway.toml"

    @property
    def capture(self) -> str:
        (file,) = self.recordings.glob("*.pcapng")
        return str(file)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    recordings = tmp_path_factory.mktemp("pair") / "recordings"
    with GatewayProcess(LISTENERS) as far:
        routed = LISTENERS + ROUTED % lines_port(far)
        with GatewayProcess(routed, arguments=("--record", str(recordings))) as near:
            yield Pair(far, near, recordings)


@pytest.fixture(scope="module")
def played(pair: Pair) -> str:
    """The recording of what `test_...` below found: made once, after the near gateway stopped."""
    assert say(lines_port(pair.near), "PUT orders first", "PUT orders second", "GET orders 0 10") == [
        "OK 0",
        "OK 1",
        "ROW 0 first",
        "ROW 1 second",
        "END 2",
    ]
    S2Client(("127.0.0.1", pair.near.s2_port), "penstock").append("far-orders", "over S2", "again")
    until(lambda: b"END 2" in Path(pair.capture).read_bytes())  # the recorder writes in the background
    return pair.capture


def test_front_and_the_other_protocols_share_streams(pair: Pair, played: str) -> None:
    with S3PClient(("127.0.0.1", pair.near.s3p_port)) as s3p:
        assert [body for _, body in s3p.read_all(b"orders")] == [b"first", b"second"]
    headed = {"records": [{"headers": [["a", "b"]], "body": "third"}, {"body": ""}]}
    S2Client(("127.0.0.1", pair.near.s2_port), "penstock").append_json("headed", headed)
    assert say(lines_port(pair.near), "GET headed 0 1") == ["ROW 0 third", "END 1"], "without its headers"
    assert say(lines_port(pair.near), "GET headed 1 1") == ["NO not_representable: record 1 is no line"]
    assert say(lines_port(pair.far), "HELLO there") == ["NO b'HELLO there' is no line of this side"]


def test_its_back_is_routed_to(pair: Pair, played: str) -> None:
    assert say(lines_port(pair.far), "GET far-orders 0 10") == ["ROW 0 over S2", "ROW 1 again", "END 2"]
    assert say(lines_port(pair.near), "GET far-orders 1 10") == ["ROW 1 again", "END 2"]


def test_it_is_held_to_its_specification(pair: Pair) -> None:
    results = penstock("conform", f"lines://127.0.0.1:{lines_port(pair.far)}", "--json").splitlines()
    assert [json.loads(line)["outcome"] for line in results] == ["pass", "pass"]


def test_reports_and_positions(pair: Pair, played: str) -> None:
    report = penstock("check", "--config", str(pair.config))
    words = " ".join(report.split())
    assert "Numbered Lines (lf) on 127.0.0.1:0, for any client" in words
    assert "far: Numbered Lines at 127.0.0.1:" in words
    assert "Records that Numbered Lines cannot carry" in words and "bodies with a line feed: refused" in words
    assert "Route there, clients of lines.main" in words and "at most once for each try" in words
    url = f"http://127.0.0.1:{pair.near.management_port}"
    with urllib.request.urlopen(f"{url}/positions?lines=orders&seq_num=1") as answer:
        assert json.load(answer)["read_on"]["lines"] == {"listener": "listeners.lines.main", "get": "orders 1"}
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        assert (
            'listener="listeners.lines.main"' in answer.read().decode() or 'protocol="lines"' in answer.read().decode()
        )


def test_bad_configuration_names_its_keys(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[listeners.lines]\nbnid = '127.0.0.1:0'\n")
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "check", "--config", str(tmp_path / "bad.toml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "at listeners.lines.bnid: unknown key; did you mean bind?" in done.stderr


def test_its_page_of_documentation() -> None:
    program = "from penstock.app.config.document import configuration_page; print(configuration_page())"
    page = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "## `[[listeners.lines]]`" in page and "How lines end." in page and "## `[backs.lines]`" in page


@pytest.mark.slow
def test_recordings_are_shown_and_replayed(pair: Pair, played: str) -> None:
    shown = penstock("show", "--json", "--protocol", "lines", "--stream", "orders", played)
    assert {json.loads(line)["kind"] for line in shown.splitlines()} >= {"PUT", "OK", "GET", "END"}
    for scheme in ("lines", "s3p"):
        with GatewayProcess(LISTENERS) as fresh:
            port = lines_port(fresh) if scheme == "lines" else fresh.s3p_port
            url = f"{scheme}://127.0.0.1:{port}"
            penstock("replay", played, "--to", url, "--stream", "orders", "--speed", "100", "--strict")
            rows = [f"ROW {number} {body}" for number, body in enumerate(["first", "second"])]
            assert say(lines_port(fresh), "GET orders 0 10")[:-1] == rows


def test_it_is_mocked(pair: Pair, played: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["mock", played, "--listen", f"lines=127.0.0.1:{port}"]
    log = tmp_path / "log"
    with log.open("wb") as output, subprocess.Popen([sys.executable, "-m", "penstock", *words], stderr=output) as mock:
        try:
            deadline = time.monotonic() + 60
            while b"lines on " not in log.read_bytes() and time.monotonic() < deadline:
                assert mock.poll() is None, log.read_text()
                time.sleep(0.05)
            assert say(port, "PUT orders first", "PUT orders second") == ["OK 0", "OK 1"]
        finally:
            mock.terminate()


PROGRAM = """
import sys
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.source.datasource import PenstockDataSource
source = PenstockDataSource({"endpoint": sys.argv[1], "stream": "penstock/far-orders"})
reader = source.reader(spark_schema(RECORDS))
batches = [batch for part in reader.partitions() for batch in reader.read(part)]
print([body for batch in batches for body in batch.column("body").to_pylist()])
"""


def test_spark_reads_its_server_through_a_gateway(pair: Pair, played: str) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: make .venv/.spark")
    address = f"http://127.0.0.1:{pair.near.s2_port}"
    done = subprocess.run([sys.executable, "-c", PROGRAM, address], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[b'over S2', b'again']", done.stderr


@pytest.mark.parametrize("dialect", ["lf", "crlf"])
@pytest.mark.parametrize("role", Role)
def test_its_codec_keeps_the_laws(role: Role, dialect: str) -> None:
    from numbered_lines.codec import PLUGIN

    def make() -> Any:
        return PLUGIN.make(role, dialect)

    sample = PLUGIN.sample(role, dialect)
    for cut in range(len(sample) + 1):
        conformance.cut_anywhere(make, sample, [cut])
        conformance.prefix(make, sample, cut)
        conformance.no_surprise(make, sample[:cut] + b"\xff" + sample[cut:])
    conformance.bounded(make, sample[:5] + b"a" * 3_000_000, PLUGIN.limit)
