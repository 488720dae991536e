"""Every command of docs/looking.md is run on a recording such as the page describes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.captures import NOW_NS, s2_talk, s3p_talk, written
from support.peers import need

from penstock.capture.pcapng import CaptureWriter

DOCUMENT = Path(__file__).parents[3] / "docs" / "looking.md"

# What each block prints, by a piece of the block that no other has; files that it makes, with what stands in them.
EXPECTED: dict[str, list[str]] = {
    "penstock show recordings/\n": ["TIME", "#1 -> s3p     APPEND", "#2 <- http    404", "(S3P 0.2.0"],
    "--kind 'ERR_*'": ["APPEND", "ERR_BAD_FORMAT", "AppendAck", "#1 -> !!"],
    "--filter 'kind": ["APPEND  "],
    "--bodies": ["appended  8 B record 2", '"kind":"APPEND"', "|*4..$6..APPEND.."],
    "--conversations": ["listeners.s3p", "server closed", "route=orders", "#2"],
    "penstock explain": ["clause: S3P 0.2.0", "^^", "|-ERR_BAD_FORMAT |", '"clause":"S3P 0.2.0'],
    "--stream orders\n": ['"body":"record 0"', '"record_id":"1700000000000-2"'],
    "wc -l": ["0"],
    "penstock stats": ["PROTOCOL", "orders", "P99", '"records_appended": 3'],
    "--to jsonl": [],
    "tshark": ["0\tpenstock connection=1 side=front name=listeners.s3p"],
}
MADE = {"messages.jsonl": '"kind":"APPEND"', "exchanges.har": '"startedDateTime"', "one.pcapng": "connection=2"}


def test_every_command_works(tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    writer, events = CaptureWriter("Penstock"), [*s3p_talk(1, rounds=3), *s2_talk(2, NOW_NS + 10**9)]
    (recordings / "penstock-1.pcapng").write_bytes(written(events[:5], writer))
    (recordings / "penstock-2.pcapng").write_bytes(written(events[5:], CaptureWriter("Penstock", writer)))
    expected = dict(EXPECTED)
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    if shutil.which("tshark") is None:
        blocks = [block for block in blocks if "tshark" not in block]
        expected.pop("tshark")
    with ThreadPoolExecutor(4) as pool:  # starting them takes longer than what they do
        told = pool.map(output, blocks, [tmp_path] * len(blocks))
    for block, printed in zip(blocks, told, strict=True):
        key = next((key for key in expected if key in block), None)
        assert key is not None, f"say in EXPECTED what this prints: {block}"
        for one in expected.pop(key):
            assert one in printed, f"{block}\nprinted: {printed}"
    assert not expected, "these blocks are not there any more"
    for name, words in MADE.items():
        assert words.encode() in (tmp_path / name).read_bytes()


def output(block: str, directory: Path) -> str:
    """Run a block, which must succeed, and return its output."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    arguments = ["bash", "-e", "-o", "pipefail", "-c", block]
    need("bash")
    done = subprocess.run(arguments, cwd=directory, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{block}\n{done.stderr}"
    return done.stdout
