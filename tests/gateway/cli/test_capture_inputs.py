"""The commands that look at captures, with damaged, invalid, unfinished and large ones."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import zstandard
from support.captures import NOW_NS, s3p_talk, written
from support.captures.commands import PENSTOCK, run

from penstock.capture.pcapng import (
    CaptureEvent,
    CaptureWriter,
    Chunk,
    Closed,
    Conversation,
    Opened,
    Sender,
    SocketAddress,
)

# ---- all of them -----------------------------------------------------------------------------------------------------

COMMANDS = [
    ["show"],
    ["show", "--conversations"],
    ["explain"],
    ["records"],
    ["stats"],
    ["export", "--to", "jsonl"],
    ["export", "--to", "har"],
    ["export", "--to", "pcapng"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_reads_every_kind(command: list[str], capture: Path, tmp_path: Path) -> None:
    """Compressed, from standard input, and a directory."""
    expected = run(*command, capture).stdout
    data = capture.read_bytes()
    assert run(*command, "-", data=data).stdout == expected
    assert run(*command, "-", data=zstandard.compress(data)).stdout == expected
    assert run(*command, tmp_path).stdout == expected


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_what_is_damaged(command: list[str], capture: Path) -> None:
    whole = run(*command, capture).stdout
    capture.write_bytes(capture.read_bytes()[:-30])
    result = run(*command, capture)
    assert result.exit_code == 0 and "Warning:" in result.stderr and "in the middle of a block (byte" in result.stderr
    assert result.stdout.splitlines()[:5] == whole.splitlines()[:5]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_what_is_no_capture(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("no capture at all\n")
    for source, words in ((path, "this is not a capture"), (tmp_path, "no captures"), (tmp_path / "x", "No such file")):
        result = run(*command, source)
        assert result.exit_code == 1 and result.stderr.startswith("Error: ") and words in result.stderr
        assert not result.stdout, "no table's head without a table"


def test_a_pipe_that_closes_is_no_error(tmp_path: Path) -> None:
    """As `penstock records ... | head -1` closes it."""
    path = tmp_path / "long.pcapng"
    path.write_bytes(written(s3p_talk(rounds=3000)))
    process = subprocess.Popen([PENSTOCK, "records", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    with process:
        assert process.stdout.readline().startswith(b'{"action"')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_what_is_no_capture_destroys_no_file(tmp_path: Path) -> None:
    kept = tmp_path / "kept.har"
    kept.write_text("{}")
    assert run("export", "--to", "har", kept, "-o", tmp_path / "kept.har").exit_code == 1
    assert run("export", "--to", "har", tmp_path / "nothing", "-o", kept).exit_code == 1
    assert kept.read_text() == "{}"


def test_what_cannot_be_written_is_one_line(capture: Path) -> None:
    result = run("export", "--to", "har", capture, "-o", "/dev/full")
    assert (result.exit_code, result.stderr) == (1, "Error: /dev/full: No space left on device\n")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([PENSTOCK, "show", capture], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"Error: the output: No space left on device\n")


def test_an_interrupt_ends_quietly(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.capture.dialogue.dialogues.Dialogues.receive", interrupt)
    result = run("records", capture)
    assert (result.exit_code, result.output) == (130, "")


def test_progress_is_shown_on_a_terminal(capture: Path) -> None:
    """On standard error, where that is one and the lines go elsewhere."""
    leader, follower = pty.openpty()
    try:
        done = subprocess.run([PENSTOCK, "stats", capture], stdout=subprocess.PIPE, stderr=follower, check=True)
        shown = os.read(leader, 65_536)
    finally:
        os.close(leader)
        os.close(follower)
    assert b"Counting" in shown and b"100%" in shown and b"all " in done.stdout


def test_what_is_still_being_written_is_shown_at_once() -> None:
    """Lines come as their messages do, not when the pipe ends."""
    events = s3p_talk(rounds=1, ends=False)
    with subprocess.Popen([PENSTOCK, "show", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(written(events))
        process.stdin.flush()
        shown = [process.stdout.readline() for _ in range(3)]
        assert b"APPEND" in shown[1] and b" ID " in shown[2]
        process.stdin.close()
    assert process.returncode == 0


# ---- memory ----------------------------------------------------------------------------------------------------------


def generate(path: Path, size: int, body_bytes: int = 20_000) -> None:
    """Generate a capture of that many bytes: many conversations one after the other, each of a hundred appends."""
    writer = CaptureWriter("x")
    body = b"x" * body_bytes
    command = b"*4\r\n$6\r\nAPPEND\r\n$6\r\norders\r\n*0\r\n*1\r\n$%d\r\n%b\r\n" % (body_bytes, body)
    reply = b"$15\r\n1700000000000-0\r\n"
    with path.open("wb") as file:
        file.writelines(writer.begin())
        number = 0
        while file.tell() < size:
            number += 1
            for event in one_after_the_other(number, command, reply):
                file.writelines(writer.encode(event))


def one_after_the_other(number: int, command: bytes, reply: bytes) -> Iterable[CaptureEvent]:
    ends = SocketAddress("127.0.0.1", 1024 + number % 60_000), SocketAddress("127.0.0.1", 7500)
    one = Conversation(number, *ends, name="listeners.s3p", protocol="s3p", run="r")
    time_ns = NOW_NS + number * 10**9
    yield Opened(one, time_ns)
    for turn in range(100):
        yield Chunk(one, time_ns + turn * 10**6, Sender.CLIENT, turn * len(command), command)
        yield Chunk(one, time_ns + turn * 10**6 + 1000, Sender.SERVER, turn * len(reply), reply)
    yield Closed(one, time_ns + 10**9, Sender.CLIENT)
    yield Closed(one, time_ns + 10**9, Sender.SERVER)


def peak(*arguments: str | Path) -> int:
    """The most memory that a command takes, in bytes."""
    process = subprocess.Popen([PENSTOCK, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


def assert_flat(tmp_path: Path, size: int, commands: list[list[str]]) -> None:
    small, large = tmp_path / "small.pcapng", tmp_path / "large.pcapng"
    generate(small, 4_000_000)
    generate(large, size)
    for command in commands:
        assert peak(*command, large) < peak(*command, small) + 8_000_000, command


def test_memory_is_flat(tmp_path: Path) -> None:
    assert_flat(tmp_path, 60_000_000, [["show"]])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_memory_is_flat_for_every_command(tmp_path: Path) -> None:
    assert_flat(tmp_path, 400_000_000, COMMANDS)
