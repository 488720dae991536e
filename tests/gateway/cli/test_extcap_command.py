"""`penstock extcap` as Wireshark calls it, and its readers, without Wireshark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.captures.traffic import until
from support.management import ask
from support.process import GatewayProcess
from support.s3p.client import S3PClient

from penstock.capture.pcapng import CaptureReader, Chunk, Lost
from penstock.cli import main
from penstock.cli.traffic.extcap import extcap_command
from penstock.cli.traffic.selecting import parse_selection
from penstock.core.address import Address
from penstock.model.limits import MIB

PENSTOCK = [sys.executable, "-m", "penstock", "extcap"]
INTERFACE = ("--extcap-interface", "penstock")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["extcap", *arguments])


# ---- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("", {}),
        ("stream=penstock/orders*", {"stream": ("penstock/orders*",)}),
        ("listener=s2  stream=a stream='b c'", {"listener": ("s2",), "stream": ("a", "b c")}),
        ("stream=a=b", {"stream": ("a=b",)}),
    ],
)
def test_selections(text: str, selection: dict[str, tuple[str, ...]]) -> None:
    assert parse_selection(text) == selection


@pytest.mark.parametrize("text", ["orders", "stream", "stream=", "=x", "colour=red", "stream='a"])
def test_selections_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected NAME=VALUE|No closing quotation"):
        parse_selection(text)


def test_interfaces_are_listed_as_wireshark_asks() -> None:
    result = run("--extcap-interfaces", "--extcap-version=4.0")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["extcap", "interface"]


def test_each_argument_of_the_dialog_is_an_option() -> None:
    lines = run(*INTERFACE, "--extcap-config").stdout.splitlines()
    calls = [line.partition("{call=")[2].partition("}")[0] for line in lines]
    assert "--management" in calls and "--token" in calls
    options = {name for parameter in extcap_command.params for name in parameter.opts}
    assert set(calls) <= options


def test_a_capture_filter_is_checked() -> None:
    """Wireshark takes what is printed as the reason why a filter is wrong."""
    assert run(*INTERFACE, "--extcap-capture-filter", "stream=orders").output == ""
    result = run(*INTERFACE, "--extcap-capture-filter", "tcp port 80")
    assert (result.exit_code, result.stdout[:21]) == (0, "'tcp': expected NAME=")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "install is missing"),
        (("--extcap-interface", "eth0", "--extcap-dlts"), "'eth0' is unknown"),
        ((*INTERFACE, "--capture"), "needs --fifo"),
        (("--pcap-over-ip", "port"), "port"),
        (("--pcap-over-ip", "0", "--select", "x"), "expected NAME=VALUE"),
    ],
)
def test_calls_that_are_refused(arguments: tuple[str, ...], why: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and why in result.stderr


def test_install(tmp_path: Path) -> None:
    result = run("install", "--directory", str(tmp_path))
    assert result.output == f"wrote {tmp_path}/penstock; Wireshark lists the interface as penstock when it starts\n"
    (tmp_path / "file").write_text("")
    result = run("install", "--directory", str(tmp_path / "file" / "folder"))
    assert result.exit_code != 0 and "Not a directory" in result.output


def test_install_where_wireshark_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("install").exit_code == 0
    assert os.access(tmp_path / ".local/lib/wireshark/extcap/penstock", os.X_OK)


# ---- readers ---------------------------------------------------------------------------------------------------------


@contextmanager
def serving(gateway: GatewayProcess, *arguments: str) -> Iterator[tuple[str, int]]:
    """`penstock extcap --pcap-over-ip`, and where it listens."""
    command = [*PENSTOCK, "--management", f"127.0.0.1:{gateway.management_port}", "--pcap-over-ip", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield Address.parse(process.stderr.readline().split()[2].rstrip(":"))
    finally:
        process.kill()
        process.communicate()


def listeners(gateway: GatewayProcess) -> int:
    return len(ask(gateway.management_port, "/recordings")[1]["recordings"])


def test_over_ip_each_reader_gets_what_is_selected(gateway: GatewayProcess) -> None:
    """A reader that leaves is noticed though no traffic comes."""
    with serving(gateway, "--select", "protocol=s3p") as address:
        with socket.create_connection(address) as one, socket.create_connection(address) as two:
            until(lambda: listeners(gateway) == 2)
            with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
                client.create("over-ip")
            for reader in (one, two):
                capture, chunks = CaptureReader(), list[bytes]()
                while len(chunks) < 2:
                    capture.receive(reader.recv(65_536))
                    chunks += [event.data for event in capture.events() if type(event) is Chunk]
                assert chunks[0].endswith(b"$7\r\nover-ip\r\n*0\r\n") and chunks[1] == b"+OK\r\n"
        until(lambda: listeners(gateway) == 0)


def test_a_slow_reader_loses_a_connection_and_is_told(gateway: GatewayProcess) -> None:
    """Meanwhile the client's appends are acknowledged as ever."""
    with serving(gateway) as address, socket.create_connection(address) as reader:
        until(lambda: listeners(gateway) == 1)
        with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
            client.create("much")
            for _ in range(128):  # more than all buffers between the gateway and the reader
                client.append("much", bytes(MIB // 2))
        capture, lost = CaptureReader(), list[Lost]()
        while not lost:
            piece = reader.recv(MIB)
            assert piece, "the capture ended"
            capture.receive(piece)
            lost += [event for event in capture.events() if type(event) is Lost]
        assert lost[0].length == 0


def test_into_a_pipe_until_its_reader_leaves(gateway: GatewayProcess, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    address = f"127.0.0.1:{gateway.management_port}"
    command = [*PENSTOCK, *INTERFACE, "--capture", "--fifo", str(fifo), "--management", address, "--token", ""]
    with subprocess.Popen(command) as process:
        with fifo.open("rb", buffering=0) as reader:
            assert reader.read(4) == b"\x0a\x0d\x0d\x0a"
        assert process.wait(20) == 0
    until(lambda: listeners(gateway) == 0)


def test_an_error_is_said_while_the_pipe_is_open(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = threading.Thread(target=fifo.read_bytes)
    reader.start()
    command = [*PENSTOCK, *INTERFACE, "--capture", "--fifo", str(fifo), "--extcap-capture-filter", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    reader.join()
    assert done.returncode == 2 and "expected NAME=VALUE" in done.stderr
