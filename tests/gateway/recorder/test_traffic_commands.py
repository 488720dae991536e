"""`penstock tail`, `penstock record` and `penstock connections`, with a real gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.captures.traffic import MANAGEMENT, Talking, configuration, until
from support.management import ask, management_port
from support.peers import need
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient

PENSTOCK = [sys.executable, "-m", "penstock"]


@contextmanager
def following(port: int, *arguments: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock tail`, once it hears."""
    command = [*PENSTOCK, "tail", "--management", f"127.0.0.1:{port}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    try:
        until(lambda: [one for one in ask(port, "/recordings")[1]["recordings"] if one["kind"] == "live"])
        yield process
    finally:
        process.kill()
        process.communicate()


def test_tail_into_tshark() -> None:
    """The pipe is a capture that tshark decodes while it grows."""
    tshark = need("tshark")
    with GatewayProcess(CONFIG + MANAGEMENT) as gateway:
        port = management_port(gateway)
        with following(port, "--pcapng", "-", "--stream", f"{BASIN}/wanted") as tail:
            wanted = ("-Y", "http", "-T", "fields", "-e", "http.request.uri", "-e", "http.response.code")
            decode = ("-d", f"tcp.port=={gateway.s2_port},http")
            with subprocess.Popen(
                [tshark, "-l", "-i", "-", *decode, *wanted], stdin=tail.stdout, stdout=subprocess.PIPE
            ) as reading:
                try:
                    S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("unwanted", "not this")
                    S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("wanted", "this")
                    assert reading.stdout is not None
                    fields = [reading.stdout.readline().split() for _ in range(2)]
                    assert fields == [[b"/v1/streams/wanted/records"], [b"200"]]
                finally:
                    reading.kill()  # else a failure is hidden by the wait for its end


def test_tail_tells_messages_as_they_come() -> None:
    with GatewayProcess(CONFIG + MANAGEMENT) as gateway:
        port = management_port(gateway)
        arguments = (
            "--json",
            "--bodies",
            "--protocol",
            "s3p",
            "--stream",
            "wanted",
            "--kind",
            "APPEND",
            "--kind",
            "ID",
        )
        with following(port, *arguments) as tail:
            S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("wanted", "by another protocol")
            client = S3PClient(("127.0.0.1", gateway.s3p_port))
            for name in ("wanted", "unwanted", "wanted"):
                client.create(name)
                client.append(name, b"to " + name.encode())
            assert tail.stdout is not None
            lines = [json.loads(tail.stdout.readline()) for _ in range(4)]
            client.close()
            assert [(line["kind"], line["stream"]) for line in lines] == [("APPEND", "wanted"), ("ID", "wanted")] * 2
            gateway.terminate()
            assert tail.wait(20) == 0, "it ends with the gateway"


def command(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PENSTOCK, *arguments, "--management", f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done


def test_the_commands() -> None:
    with GatewayProcess(configuration(start=False)) as gateway, Talking(gateway.s3p_port, "orders"):
        port = management_port(gateway)
        until(lambda: any(one["streams"] for one in ask(port, "/connections")[1]["connections"]))
        table = command(port, "connections").stdout.splitlines()
        assert table[0].split()[:3] == ["#", "where", "speaks"]
        assert any(f"stream {BASIN}/orders" in line and "listeners.s3p" in line for line in table)
        lines = command(port, "connections", "--json").stdout.splitlines()
        assert {"listeners.s3p", "management"} == {json.loads(line)["name"] for line in lines}
        assert command(port, "record", "list").stdout == "no recordings are running\n"
        started = command(port, "record", "start", "--stream", "ord*", "--listener", "s3p").stdout
        assert started.startswith("recording 1: recording (1 file), listener s3p, stream ord*\n")
        assert "stream ord*" in command(port, "record", "list").stdout
        assert json.loads(command(port, "record", "list", "--json").stdout)["id"] == 1
        ask(port, "/recordings", {"streams": ["\x1b[31m"]})
        assert "stream \\x1b[31m" in command(port, "record", "list").stdout, "which a terminal would obey"
        assert command(port, "record", "stop").stderr == "Error: 2 recordings are running: give one of 1, 2\n"
        assert command(port, "record", "stop", "1").stdout.startswith("recording 1: stopped")
        assert command(port, "record", "stop", "1").stderr == "Error: no recording '1' is running\n"
        assert command(port, "record", "stop").stdout.startswith("recording 2: stopped")
        assert command(port, "record", "stop").stderr == "Error: no recordings are running\n"
        refused = command(port, "record", "start", "--back", "lite")
        assert (refused.returncode, refused.stderr) == (1, "Error: backs: 'lite' is unknown; expected none\n")
        refused = command(port, "tail", "--pcapng", "-", "--json")
        assert refused.returncode == 2 and "--pcapng writes all traffic" in refused.stderr


def test_a_connection_is_closed_by_command() -> None:
    with GatewayProcess(CONFIG) as gateway, S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        client.create("orders")
        port = gateway.management_port
        (number,) = [row["connection"] for row in ask(port, "/connections")[1]["connections"] if row["streams"]]
        assert command(port, "connections", "--close", str(number)).stdout == f"connection {number} is closed\n"
        with pytest.raises((EOFError, ConnectionError)):
            client.append("orders", b"lost")
        refused = command(port, "connections", "--close", str(number))
        assert (refused.returncode, refused.stderr) == (1, f"Error: no connection '{number}' is open\n")


def test_it_does_not_start_where_it_cannot_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [
            *PENSTOCK,
            "serve",
            "--s2",
            "127.0.0.1:0",
            "--data",
            str(tmp_path / "data"),
            "--record",
            str(tmp_path / "file"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == f"Error: recorder.directory: {tmp_path / 'file'} is not a directory\n"


@pytest.mark.parametrize("arguments", [("connections",), ("record", "list"), ("tail",)])
def test_commands_without_a_server(arguments: tuple[str, ...]) -> None:
    done = command(1, *arguments)
    assert (
        done.returncode == 1 and "no answer from 127.0.0.1:1: Connection refused. Is the gateway running" in done.stderr
    )
