"""The life of the real process: starting, refusing to start, draining, being killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.process import BASIN, GatewayProcess

HEADERS = {"s2-basin": BASIN, "content-type": "application/json"}


def append(gateway: GatewayProcess, stream: str, body: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.s2_port, timeout=10)
    try:
        connection.request("POST", f"/v1/streams/{stream}/records", json.dumps({"records": [{"body": body}]}), HEADERS)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        response.read()
    finally:
        connection.close()


def bodies(gateway: GatewayProcess, stream: str) -> list[str]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.s2_port, timeout=10)
    try:
        connection.request("GET", f"/v1/streams/{stream}/records?seq_num=0", headers=HEADERS)
        return [record["body"] for record in json.loads(connection.getresponse().read())["records"]]
    finally:
        connection.close()


def follower(gateway: GatewayProcess, stream: str) -> socket.socket:
    """An event stream that is under way."""
    connection = socket.create_connection(("127.0.0.1", gateway.s2_port), timeout=10)
    connection.sendall(
        f"GET /v1/streams/{stream}/records?seq_num=0 HTTP/1.1\r\nhost: localhost\r\ns2-basin: {BASIN}\r\n"
        "accept: text/event-stream\r\n\r\n".encode()
    )
    received = b""
    while b"data:" not in received:
        received += connection.recv(65_536)
    return connection


def refusal(*arguments: str | Path) -> str:
    """Run `penstock serve`, which must not start, and return the one line on standard error that is its only output."""
    command = [sys.executable, "-m", "penstock", "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_gateway_answers_where_it_says(gateway: GatewayProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.s2_port, timeout=10)
    try:
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b"OK"
    finally:
        connection.close()
    with socket.create_connection(("127.0.0.1", gateway.s3p_port), timeout=10) as s3p:
        s3p.sendall(b"*3\r\n$4\r\nREAD\r\n$13\r\nnot-there-yet\r\n*0\r\n")
        assert s3p.recv(100)[:1] in b"-*"


def test_records_outlive_a_kill_and_the_ports_stay(fresh_gateway: GatewayProcess) -> None:
    append(fresh_gateway, "orders", "first")
    ports = fresh_gateway.s2_port, fresh_gateway.s3p_port
    fresh_gateway.restart(kill=True)
    assert (fresh_gateway.s2_port, fresh_gateway.s3p_port) == ports
    append(fresh_gateway, "orders", "second")
    fresh_gateway.restart()
    assert bodies(fresh_gateway, "orders") == ["first", "second"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_gateway_stops_at_once_with_0(fresh_gateway: GatewayProcess, number: signal.Signals) -> None:
    append(fresh_gateway, "orders", "first")
    assert fresh_gateway.process is not None
    begun = time.monotonic()
    fresh_gateway.process.send_signal(number)
    assert fresh_gateway.process.wait(10) == 0
    assert time.monotonic() - begun < 2
    assert [event["signal"] for event in fresh_gateway.events("signal_received")] == [number.name]
    assert fresh_gateway.events("stopped")


def test_signals_during_the_imports_wait_for_their_handlers(tmp_path: Path) -> None:
    """Process 1 would ignore this SIGTERM, and SIGHUP would end any process."""
    command = [sys.executable, "-m", "penstock", "serve", "--no-others", "--s3p", "127.0.0.1:0", "--data", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        status = Path(f"/proc/{process.pid}/status")
        deadline = time.monotonic() + 30
        while not blocks_sigterm(status.read_text()):
            assert process.poll() is None and time.monotonic() < deadline
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert "SIGHUP" in log and "SIGTERM" in log


def blocks_sigterm(status: str) -> bool:
    """Return whether a process, by its file `status` of /proc, lets SIGTERM wait (proc(5), SigBlk)."""
    (blocked,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked, 16) & 1 << signal.SIGTERM - 1)


def test_idle_connections_do_not_delay_the_end(fresh_gateway: GatewayProcess) -> None:
    ports = fresh_gateway.s2_port, fresh_gateway.s3p_port, fresh_gateway.segment_port
    addresses = [("127.0.0.1", port) for port in ports]
    idle = [socket.create_connection(address, timeout=10) for address in addresses]
    begun = time.monotonic()
    assert fresh_gateway.terminate() == 0
    assert time.monotonic() - begun < 2
    for connection in idle:
        assert connection.recv(1) == b""
        connection.close()


SHORT_DRAIN = """
[listeners.s2]
bind = "127.0.0.1:{s2_port}"
[store]
directory = "{data}"
[[store.basins]]
name = "{basin}"
[drain]
grace_seconds = 0.3
deadline_seconds = 5
[log]
format = "json"
"""


def test_a_follower_gets_its_grace_time_and_an_orderly_end() -> None:
    with GatewayProcess(SHORT_DRAIN) as gateway:
        append(gateway, "orders", "first")
        with follower(gateway, "orders") as stream:
            begun = time.monotonic()
            assert gateway.terminate() == 0
            assert 0.2 < time.monotonic() - begun < 4
            received = b""
            while piece := stream.recv(65_536):
                received += piece
            assert received.endswith(b"0\r\n\r\n"), "the answer ended, it was not cut"


def test_what_does_not_end_is_cut_at_the_deadline() -> None:
    config = SHORT_DRAIN.replace("grace_seconds = 0.3", "grace_seconds = 60").replace(
        "deadline_seconds = 5", "deadline_seconds = 0.5"
    )
    with GatewayProcess(config) as gateway:
        append(gateway, "orders", "first")
        with follower(gateway, "orders"):
            begun = time.monotonic()
            assert gateway.terminate() == 0
            assert 0.4 < time.monotonic() - begun < 4
        assert gateway.events("drain_deadline")


def test_a_second_signal_ends_it_at_once() -> None:
    config = SHORT_DRAIN.replace("grace_seconds = 0.3", "grace_seconds = 60").replace(
        "deadline_seconds = 5", "deadline_seconds = 60"
    )
    with GatewayProcess(config) as gateway:
        append(gateway, "orders", "first")
        with follower(gateway, "orders"):
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGTERM)
            while not gateway.events("draining"):
                time.sleep(0.01)
            gateway.process.send_signal(signal.SIGTERM)
            assert gateway.process.wait(5) == 128 + signal.SIGTERM
        gateway.start()
        assert bodies(gateway, "orders") == ["first"]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal("--s2", address, "--s3p", "off", "--data", tmp_path / "data")
    assert f"cannot listen on {address}: the port is in use" in said


def test_the_management_port_in_use_says_which_key(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = [flag for kind in ("s2", "s3p", "segment", "controller") for flag in (f"--{kind}", "127.0.0.1:0")]
        said = refusal(*flags, "--data", tmp_path / "data", "--management", address)
    assert f"management: cannot listen on {address}: the port is in use" in said
    assert "management.bind" in said and "--management off" in said


def test_a_store_in_use_is_named(fresh_gateway: GatewayProcess) -> None:
    said = refusal("--s2", "127.0.0.1:0", "--s3p", "off", "--data", fresh_gateway.data)
    assert str(fresh_gateway.data) in said and "in use" in said


def test_a_store_that_is_not_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "penstock.sqlite3").write_bytes(b"this is not a database, whatever its name says" * 100)
    said = refusal("--s2", "127.0.0.1:0", "--s3p", "off", "--data", tmp_path)
    assert "penstock.sqlite3" in said


def test_the_banner_has_the_ports_that_are_bound(fresh_gateway: GatewayProcess) -> None:
    banner = fresh_gateway.banner()
    assert f"127.0.0.1:{fresh_gateway.s2_port}/v1/streams" in banner
    assert f"s3p://127.0.0.1:{fresh_gateway.s3p_port}/" in banner
    assert f"http://127.0.0.1:{fresh_gateway.management_port}/\n" in banner


def test_what_is_insecure_is_logged() -> None:
    with GatewayProcess(SHORT_DRAIN, arguments=("--s3p", "127.0.0.1:0")) as gateway:
        assert not gateway.events("insecure")
    with GatewayProcess(SHORT_DRAIN, arguments=("--s2", "[::]:0", "--anonymous")) as gateway:
        (event,) = gateway.events("insecure")
        assert event["level"] == "warning" and "every client that reaches [::]:0" in event["reason"]


def test_it_runs_without_a_reader_of_the_banner(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "serve", "--s2", "127.0.0.1:0", "--s3p", "off", "--data", tmp_path]
    command += ["--durable", "off", "--kafka", "off", "--management", "off"]
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=writing, stderr=log)
    os.close(writing)
    try:
        deadline = time.monotonic() + 20
        while b"listening" not in (tmp_path / "log").read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert process.poll() is None, (tmp_path / "log").read_text()
    finally:
        process.terminate()
    assert process.wait(10) == 0
