"""Every command of docs/wireshark.md is run, in order, on a recording such as the page describes; so is each filter."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.captures.traffic import until
from support.captures.tshark import ROOT, SECONDS, as_user, exported, need_tshark, tshark
from support.management import ask, management_port
from support.peers import call, create_stream, finish
from support.ports import free_ports
from support.pravega.clients import PravegaClient, need_pravega
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.sdk import connector
from support.s3p.client import S3PClient

pytest.importorskip("s2_sdk")
from s2_sdk import AppendInput, Compression, Record, SeqNum

PAGE = (ROOT / "docs" / "wireshark.md").read_text()
BLOCKS: list[str] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
FILTERS: list[str] = re.findall(r"^\| `(.*?)` \|", PAGE, re.MULTILINE)
LIVE = ("penstock tail", "penstock extcap", "TCP@")


def is_live(block: str) -> bool:
    """Return whether the commands watch a running gateway."""
    return any(words in block for words in LIVE)


# What each block prints, by a piece of it that no other block has.
EXPECTED = {
    "penstock export": [],
    "penstock.lua -r decoded.pcapng\n": ["APPEND orders 200 records", "Hello", "AppendInput", "GRPC"],
    "mkdir": ["APPEND orders 200 records"],
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


@pytest.mark.parametrize("block", [block for block in BLOCKS if not is_live(block)], ids=lambda block: block[:40])
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
    file = exported(home / "recording.pcapng", home / "filters.pcapng")
    table = tshark(file, "-q", "-z", ",".join(["io,stat,0", *FILTERS]))
    (row,) = [line for line in table.splitlines() if "<>" in line]
    counts = [int(cell) for cell in row.split("|")[2:-1:2]]
    assert len(counts) == len(FILTERS) > 10
    for found, count in zip(FILTERS, counts, strict=True):
        assert count > 0, found


LIVE_BLOCKS = [block for block in BLOCKS if is_live(block)]


def joined(blocks: list[str]) -> list[list[str]]:
    """Return the blocks that run together: a server of PCAP over IP, and its reader."""
    server = next(index for index, block in enumerate(blocks) if "--pcap-over-ip" in block)
    return [*([block] for block in blocks[:server]), blocks[server : server + 2], *([b] for b in blocks[server + 2 :])]


@pytest.mark.parametrize("blocks", joined(LIVE_BLOCKS), ids=lambda blocks: blocks[-1][:30])
def test_live(blocks: list[str], home: Path) -> None:
    """Messages sent while tshark listens are decoded at once."""
    with GatewayProcess(CONFIG + MANAGEMENT) as gateway, contextlib.ExitStack() as stack:
        management, other = management_port(gateway), str(free_ports(1)[0])
        for block in blocks:
            text = block.replace("9600", str(management)).replace("57012", other)
            text = re.sub(r"(^|[ $])tshark ", rf"\1{shlex.join(as_user('tshark'))} ", text)
            process = stack.enter_context(running(text, home, management))
            if len(blocks) > 1 and block is blocks[0]:
                assert process.stderr is not None
                assert b"listening on" in process.stderr.readline()
        until(lambda: ask(management, "/recordings")[1]["recordings"], SECONDS)
        with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
            client.create("orders")
            client.append("orders", b"body")
            assert process.stdout is not None
            said = (line.decode() for line in process.stdout if not line.startswith(b"wrote"))
            lines = list(itertools.islice(said, 4))
        for line, words in zip(lines, ["CREATE orders", "OK", "APPEND orders 1 record", "-"], strict=True):
            assert "S3P" in line and words in line


@contextlib.contextmanager
def running(text: str, home: Path, management: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the commands until the block ends."""
    process = subprocess.Popen(
        ["bash", "-c", text],
        cwd=home,
        env=environment(home) | {"PENSTOCK_MANAGEMENT": f"127.0.0.1:{management}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
