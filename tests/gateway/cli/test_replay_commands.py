"""Errors of `penstock replay` and `penstock mock`."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.captures import written
from support.captures.replay import Recording, create

from penstock.cli.mock import mock_command
from penstock.cli.replay import replay_command
from penstock_s3p.codec import Ok


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["replay", "nothing.pcapng", "--to", "s2://127.0.0.1:1"], "nothing.pcapng"),
        (["replay", "x.pcapng", "--to", "gopher://127.0.0.1:70"], "give a URL such as durable://"),
        (["replay", "x.pcapng", "--to", "s2://127.0.0.1:1", "--fast", "--rate", "5"], "give only one of"),
        (["replay", "x.pcapng", "--to", "s2://127.0.0.1:1", "--speed", "nan"], "--speed: nan is not a number"),
        (["replay", "x.pcapng", "--to", "s2://127.0.0.1:1", "--rename", "orders"], "expected GLOB=NAME"),
        (["replay", "x.pcapng", "--to", "s2://127.0.0.1:1", "--rename", "*={what}"], "nothing captures {what}"),
        (["replay", "x.pcapng", "--to", "s2://127.0.0.1:1", "--from", "soon"], "neither a number of seconds"),
        (["replay", "x.pcapng", "--to", "s2+tls://127.0.0.1:1", "--tls-ca", "x.pcapng"], "cannot use the authorities"),
        (["mock", "nothing.pcapng"], "nothing.pcapng"),
        (["mock", "x.pcapng", "--listen", "127.0.0.1:0"], "expected KIND=HOST:PORT; kinds are "),
        (["mock", "x.pcapng", "--listen", "s3p=here"], "--listen s3p=here: expected HOST:PORT"),
        (["mock", "x.pcapng", "--tls-key", "x.pcapng"], "--tls-key needs --tls-certificate"),
        (["mock", "x.pcapng", "--tls-certificate", "x.pcapng"], "x.pcapng for TLS: "),
        (["mock", "x.pcapng", "--tls-certificate", "x.pcapng", "true"], "--tls-certificate takes no COMMAND"),
        (["mock", "x.pcapng"], "has no requests that can be answered"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    recording = Recording()
    recording.of(1)
    if arguments[0] == "replay":
        recording.asked(create())
    (tmp_path / "x.pcapng").write_bytes(written(recording.events))
    command, *rest = arguments
    rest = [str(tmp_path / one) if one.endswith(".pcapng") else one for one in rest]
    result = CliRunner().invoke({"replay": replay_command, "mock": mock_command}[command], rest)
    assert result.exit_code in (1, 2), result.output
    assert complaint in result.output
    assert "Traceback" not in result.output and not isinstance(result.exception, ValueError)


def test_where_no_server_listens_nothing_is_said(tmp_path: Path) -> None:
    recording = Recording()
    recording.asked(create())
    recording.closed()
    (tmp_path / "x.pcapng").write_bytes(written(recording.events))
    result = CliRunner().invoke(replay_command, [str(tmp_path / "x.pcapng"), "--to", "s3p://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "nothing was replayed: back target at 127.0.0.1:1: cannot connect" in result.output


def test_without_a_back_behind_the_front_nothing_is_said(tmp_path: Path) -> None:
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    recording.closed()
    (tmp_path / "x.pcapng").write_bytes(written(recording.events))
    result = CliRunner().invoke(replay_command, [str(tmp_path / "x.pcapng"), "--to", "s2://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "nothing was replayed: back target at 127.0.0.1:1: cannot connect" in result.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_may_be_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    """The second command is said an hour after the first; what was done by then is told."""
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    recording.now = 3600.0
    recording.asked(create())
    (tmp_path / "x.pcapng").write_bytes(written(recording.events))
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"s3p://127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "penstock", "replay", str(tmp_path / "x.pcapng"), "--to", where, "--strict"]
        if number == signal.SIGTERM:  # from a pipe whose other end says nothing more
            command[4] = "-"
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                assert process.stdin is not None
                process.stdin.buffer.write((tmp_path / "x.pcapng").read_bytes())
                process.stdin.buffer.flush()
                server.accept()[0].close()  # the connection that tells whether it is there
                client, _ = server.accept()
                with client:
                    assert b"CREATE" in client.recv(1000)
                    client.sendall(b"+OK\r\n")
                    process.send_signal(number)
                    process.wait(30)
                    assert process.stdout is not None and process.stderr is not None
                    said, complaints = process.stdout.read(), process.stderr.read()
            finally:
                process.kill()
    assert process.returncode == 1, "not all was played"
    assert "interrupted" in complaints and "Traceback" not in complaints
    assert "1 conversation: 1 messages said" in said
