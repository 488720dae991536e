"""`penstock conform -- COMMAND`: clients before a gateway that misbehaves within its protocols."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner, Result
from support.walking import Walk, blocks_of

from penstock.cli import main
from penstock.tools.conform_run import FAULTS

WRONG = """
import os, socket
host, port = os.environ["PENSTOCK_S3P"].split(":")
with socket.create_connection((host, int(port))) as wrong:
    wrong.sendall(b"*2\\r\\n$6\\r\\nCREATE\\r\\n$1\\r\\ns\\r\\n")
    assert wrong.recv(1000).startswith(b"-"), "it is refused"
"""
"""An array of two elements is no command."""
READS = """
import json, os, socket
host, port = os.environ["PENSTOCK_S2"].split(":")
def ask(method, path, body=b""):
    with socket.create_connection((host, int(port)), timeout=20) as wire:
        head = f"{method} {path} HTTP/1.1\\r\\nhost: {host}\\r\\ns2-basin: penstock\\r\\nconnection: close\\r\\n"
        head += f"content-type: application/json\\r\\ncontent-length: {len(body)}\\r\\n\\r\\n"
        wire.sendall(head.encode() + body)
        received = b""
        try:
            while piece := wire.recv(65536):
                received += piece
        except ConnectionResetError:
            pass
    head, _, body = received.partition(b"\\r\\n\\r\\n")
    return head, body
ask("POST", "/v1/streams/orders/records", b'{"records": [{"body": "one"}]}')
for _ in range(ROUNDS):
    head, body = ask("GET", "/v1/streams/orders/records?seq_num=0&count=1")
    length = next((line for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length")), b":-1")
    print(json.dumps([int(length.split(b":")[1]), len(body), body.decode()]))
"""
"""A client in plain sockets, that prints of each read the size of its answer, how much of it came, and what."""


def conform(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["conform", *map(str, arguments)])


def reads(capfd: pytest.CaptureFixture[str], fault: str, rounds: int) -> list[tuple[int, int, str]]:
    """The reads of a client of S2 with one of the faults."""
    script = READS.replace("ROUNDS", str(rounds))
    result = conform("s2", "--fault", fault, "--", sys.executable, "-c", script)
    assert (result.exit_code, "pass: s2, client:" in result.output) == (0, True), result.output
    return [cast(tuple[int, int, str], tuple(json.loads(line))) for line in capfd.readouterr().out.splitlines()]


def test_the_client_of_the_document(tmp_path: Path) -> None:
    [block] = [block for block in blocks_of("conform.md") if "-- bash client.sh" in block.text]
    with Walk(tmp_path) as walk:
        printed = walk.run(block.text)
    assert "pass: s2, client:" in printed and printed.count("\n20\n") == 1
    assert all(f"\n{fault['name']}" in printed for fault in FAULTS)


def test_a_client_that_is_wrong(tmp_path: Path) -> None:
    """It is found out, and its recording is kept where that was asked for."""
    result = conform("--record", tmp_path, "--", sys.executable, "-c", WRONG)
    assert result.exit_code == 1
    assert "fail: s3p, client: no messages\n  S3P 0.2.0, section" in result.output
    # Connections are numbered in a process, in which other tests may have had some.
    assert re.search(r"^    once, on connection [0-9]+ at byte 0: ", result.output, re.MULTILINE)
    kept = conform(tmp_path, "--sender", "client")
    assert (kept.exit_code, kept.output) == (1, result.output.partition("\n\n")[2])


def test_answers_are_cut_at_one_place_after_the_other(capfd: pytest.CaptureFixture[str]) -> None:
    """Each second answer, before its beginning at first; then all of them are whole."""
    found = reads(capfd, "lost-reads", 70)
    whole = found[0][2]
    assert len(whole) > 32
    for number, (length, came, body) in enumerate(found):
        cut = number % 2 and number < 64
        place = number // 2
        if cut and not place:
            assert (length, came) == (-1, 0)
        else:
            assert length == len(whole)
            assert body == (whole[: place * len(whole) // 32] if cut else whole)
            assert came == len(body)


def test_it_exits_as_the_command_does() -> None:
    script = READS.replace("ROUNDS", "1") + "raise SystemExit(3)"
    result = conform("--json", "--fault", "in-pieces", "--", sys.executable, "-c", script)
    assert result.exit_code == 3
    fault, judged = map(json.loads, result.stdout.splitlines())
    assert (fault["fault"], judged["protocol"], judged["outcome"]) == ("in-pieces", "s2", "pass")
    assert fault["count"] >= 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "missing URL, CAPTURE, or -- COMMAND"),
        (["--"], 2, "missing COMMAND behind --"),
        (["nope", "--", "true"], 2, "'nope' is no protocol: choose from "),
        (["--fault", "nope", "--", "true"], 2, "--fault: 'nope' is no fault: choose from in-pieces, "),
        (["s2://127.0.0.1:1", "--fault", "in-pieces"], 2, "--fault and --record are for a command"),
        (["s2", "--", "true"], 2, "COMMAND sent nothing"),
        (["--", "/nowhere/at-all"], 127, "/nowhere/at-all: No such file"),
    ],
)
def test_wrong_usage(arguments: list[str], code: int, words: str) -> None:
    result = conform(*arguments)
    assert result.exit_code == code and words in result.output, result.output
