"""Output of commands: readers that leave, an output that is closed, colours, and progress beside a pager."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import main

PENSTOCK = Path(sys.executable).parent / "penstock"
BUFFERED = {**os.environ, "PYTHONUNBUFFERED": ""}
"""As for most users: what could not be written is still there when the interpreter ends."""


def to_no_reader(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard output is a pipe that was closed at its other end."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [PENSTOCK, *map(str, arguments)]
        return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=BUFFERED, check=False, timeout=60)
    finally:
        os.close(writer)


def on_a_terminal(*arguments: object, out: int) -> tuple[bytes, bytes]:
    """Run a command whose standard error is a terminal; return what that showed, and standard output if it is a pipe.

    `out`: standard output, subprocess.PIPE or a file descriptor.
    """
    leader, follower = pty.openpty()
    try:
        done = subprocess.run(
            [PENSTOCK, *map(str, arguments)],
            stdout=out,
            stderr=follower,
            env=BUFFERED,
            check=False,
            timeout=60,
        )
        shown = b""
        while select.select([leader], [], [], 0)[0]:
            shown += os.read(leader, 65_536)
    finally:
        os.close(leader)
        os.close(follower)
    return shown, done.stdout or b""


OF_NO_CAPTURE = (["--help"], ["show", "--help"], ["completion", "bash"])
OF_A_CAPTURE = (["show"], ["records"], ["stats"], ["export", "--to=har"])


@pytest.mark.parametrize("arguments", [*OF_NO_CAPTURE, *OF_A_CAPTURE], ids=" ".join)
def test_a_reader_that_leaves_is_no_error(arguments: list[str], capture: Path) -> None:
    done = to_no_reader(*arguments, *([capture] if arguments in OF_A_CAPTURE else []))
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_verdict_stands_when_the_reader_leaves(capture: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[listeners.s2]\nbind = 1\n")
    done = to_no_reader("doctor", "--config", wrong)
    assert (done.returncode, done.stderr) == (1, b"")
    done = to_no_reader("diff", capture, capture)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("redirection", "arguments", "message"),
    [
        (">&-", ["--help"], b"Error: standard input or output is closed\n"),
        (">&-", ["show", "CAPTURE"], b"Error: the output: Bad file descriptor\n"),
        ("<&-", ["decode", "--protocol=s3p", "-"], b"Error: standard input or output is closed\n"),
        ("<&-", ["append", "stream"], b"\n"),
        ("<&-", ["delete", "stream"], b"only with --yes\n"),
    ],
)
def test_the_use_of_a_closed_stream_is_one_line(
    redirection: str, arguments: list[str], message: bytes, capture: Path
) -> None:
    arguments = [str(capture) if word == "CAPTURE" else word for word in arguments]
    command = ["sh", "-c", f'exec "$0" "$@" {redirection}', PENSTOCK, *arguments]
    completed = subprocess.run(command, capture_output=True, env=BUFFERED, check=False, timeout=60)
    assert completed.returncode in (1, 2) and completed.stderr.endswith(message)
    assert b"Traceback" not in completed.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"]], ids=" ".join)
def test_a_disk_that_is_full_is_one_line(arguments: list[str]) -> None:
    for environment in (BUFFERED, {**BUFFERED, "PYTHONUNBUFFERED": "1"}):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [PENSTOCK, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment, check=False, timeout=60
            )
        assert (done.returncode, done.stderr) == (1, b"Error: the output: No space left on device\n")


def test_progress_leaves_a_pager_alone(capture: Path, tmp_path: Path) -> None:
    """`show` prints while it reads: it draws a bar if its lines go into a file, and none if a screen may show them."""
    shown, printed = on_a_terminal("show", capture, out=subprocess.PIPE)
    assert shown == b"" and b"APPEND" in printed
    with (tmp_path / "listing").open("wb") as file:
        shown, _ = on_a_terminal("show", capture, out=file.fileno())
    assert b"Reading" in shown and b"100%" in shown
    assert b"Reading" not in (tmp_path / "listing").read_bytes()


def test_no_colour_is_honoured() -> None:
    coloured = CliRunner().invoke(main, ["doctor"], color=True, env={"NO_COLOR": ""}).output
    plain = CliRunner().invoke(main, ["doctor"], color=True, env={"NO_COLOR": "1"}).output
    assert "\x1b[" in coloured
    assert "\x1b[" not in plain and "ok " in plain
