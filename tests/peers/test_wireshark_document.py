"""Every command of docs/wireshark.md is run, in order, on a recording such as the page describes; so is each filter."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.captures.tshark import ROOT, need_tshark, tshark
from support.management import ask, management_port
from support.peers import call, create_stream, finish
from support.pravega.clients import PravegaClient, need_pravega
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.sdk import connector
from support.s3p.client import S3PClient

pytest.importorskip("s2_sdk")
from s2_sdk import AppendInput, Compression, Record, SeqNum

PAGE = (ROOT / "docs" / "wireshark.md").read_text()
BLOCKS: list[str] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
FILTERS: list[str] = re.findall(r"^\| `(.*?)` \|", PAGE, re.MULTILINE)
LIVE = "penstock tail"
# What each block prints, by a piece of it that no other block has.
EXPECTED = {
    "penstock.lua -r recording.pcapng\n": ["APPEND orders 200 records", "Hello", "AppendInput", "GRPC"],
    "mkdir": ["APPEND orders 200 records"],
    "pravega.ports": ["APPEND orders 200 records", "AppendSetup"],
    "-G fields": ["pravega.entries.key.version", "s2s.read_batch.tail.seq_num", "s3p.min_id.seq", "penstock.route"],
    "-e s3p.request": ["APPEND\tid\t\t0.", "READ\trecords\t200\t0."],
    "-T json": ['"s2s.append_input.records.body": ['],
    "follow": ["Follow: tcp,ascii"],
    "io,phs": ["s3p", "pravega", "s2s"],
    "protobuf_search_paths": ["scope = scope (string)", "ScopeInfo"],
}
MANAGEMENT = '\n[management]\nbind = "127.0.0.1:0"\n'
BODIES = [b"record %d" % number for number in range(200)]


def record(gateway: GatewayProcess) -> None:
    """A client of each kind appends the records and reads them."""
    create_stream(gateway.s2_port, BASIN, "two")
    call(gateway.s2_port, "GET", "/v1/streams/two/records/tail", basin=BASIN)

    async def main() -> None:
        async with connector(gateway.s2_port)(Compression.GZIP) as client:
            stream = client.basin(BASIN).stream("two")
            async with stream.append_session() as session:
                await (await session.submit(AppendInput([Record(body) for body in BODIES])))
            async for batch in stream.read_session(start=SeqNum(0)):
                if batch.records[-1].seq_num == 199:
                    break

    finish(main())
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        client.create("orders")
        client.append("orders", *BODIES)
        client.read_all("orders")
        client.send("DELETE", "nothing", [])
        client.reply()
    with PravegaClient(gateway.controller_port) as pravega:
        pravega.call("manage", "create_scope", "scope")
        pravega.call("manage", "create_stream", "scope", "one", 1)
        pravega.call("write", "scope", "one", [(body.decode(), None) for body in BODIES])
        pravega.call("group", "g", "scope", "one")
        pravega.call("reader", "r", "g")
        pravega.call("read", ["r"], len(BODIES), 20)
    curl = ["curl", "-sS", "-H", f"s2-basin: {BASIN}", "-H", "accept: text/event-stream"]
    subprocess.run([*curl, f"{gateway.s2_url}/v1/streams/two/records?seq_num=0&count=1"], check=True, timeout=20)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the recording, and the repository's folders that the commands use."""
    need_tshark()
    need_pravega()
    directory = tmp_path_factory.mktemp("home")
    with GatewayProcess(CONFIG, arguments=("--record", str(directory / "recordings"))) as gateway:
        record(gateway)
        assert gateway.terminate() == 0
    (file,) = (directory / "recordings").glob("*.pcapng")
    file.rename(directory / "recording.pcapng")
    for name in ("config", "proto"):
        (directory / name).symlink_to(ROOT / name)
    yield directory


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("block", [block for block in BLOCKS if LIVE not in block], ids=lambda block: block[:40])
def test_the_commands_work(block: str, home: Path) -> None:
    (expected,) = [EXPECTED[key] for key in EXPECTED if key in block]
    command = ["bash", "-e", "-o", "pipefail", "-c", block]
    run = subprocess.run(command, cwd=home, env=environment(home), capture_output=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr.decode()
    for words in expected:
        assert words in run.stdout.decode()
    if "~" in block:
        assert (home / ".local/lib/wireshark/plugins/penstock.lua").exists()
        (home / ".local").rename(home / "tried")


def test_every_expected_block_is_there() -> None:
    assert all(sum(key in block for block in BLOCKS) == 1 for key in EXPECTED)


def test_the_filters_find_something(home: Path) -> None:
    """All at once: statistics count the frames of each."""
    table = tshark(home / "recording.pcapng", "-q", "-z", ",".join(["io,stat,0", *FILTERS]))
    (row,) = [line for line in table.splitlines() if "<>" in line]
    counts = [int(cell) for cell in row.split("|")[2:-1:2]]
    assert len(counts) == len(FILTERS) > 10
    for found, count in zip(FILTERS, counts, strict=True):
        assert count > 0, found


def until_heard(port: int) -> None:
    """Until the gateway has a listener for its live traffic."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if any(one["kind"] == "live" for one in ask(port, "/recordings")[1]["recordings"]):
            return
        time.sleep(0.01)
    raise AssertionError("there is no listener")


def test_live(home: Path) -> None:
    """Messages sent while tshark listens are decoded at once."""
    (block,) = [block for block in BLOCKS if LIVE in block]
    with GatewayProcess(CONFIG + MANAGEMENT) as gateway:
        port = management_port(gateway)
        text = block.replace(LIVE, f"{LIVE} --management 127.0.0.1:{port}")
        process = subprocess.Popen(
            ["bash", "-c", text],
            cwd=home,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until_heard(port)
            with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
                client.create("orders")
                client.append("orders", b"body")
                assert process.stdout is not None
                lines = [process.stdout.readline().decode() for _ in range(4)]
            for line, words in zip(lines, ["CREATE orders", "OK", "APPEND orders 1 record", "-"], strict=True):
                assert "S3P" in line and words in line
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
