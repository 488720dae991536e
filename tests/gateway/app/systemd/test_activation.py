"""Sockets inherited from the service manager: the listener of each, and none refuses while the gateway restarts."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from penstock.app.config import Config, parse_config
from penstock.app.systemd import activation
from penstock.app.systemd.activation import activated
from penstock.core.errors import CannotStart

CONFIG = """
[[listeners.s2]]
bind = "127.0.0.1:1"
[[listeners.s2]]
name = "public"
bind = "127.0.0.1:{port}"
[management]
bind = "127.0.0.1:2"
"""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Three sockets with descriptors in a row, as a service manager passes them; the last does not listen."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        first = 600  # descriptors that are unused
        for index, one in enumerate(sockets):
            one.bind(("127.0.0.1", 0))
            if index < 2:
                one.listen()
            os.dup2(one.fileno(), first + index)
        monkeypatch.setattr(activation, "FIRST", first)
        yield sockets
        for index in range(3):
            try:
                os.close(first + index)
            except OSError:
                continue  # closed by the code that took it


def environment(count: int, names: str | None = None, pid: int | None = None) -> dict[str, str]:
    found = {"LISTEN_PID": str(pid or os.getpid()), "LISTEN_FDS": str(count), "OTHER": "stays"}
    return found if names is None else {**found, "LISTEN_FDNAMES": names}


def config(port: int = 9) -> Config:
    return parse_config(CONFIG.format(port=port))


def test_a_name_says_which_listener_a_socket_is_for(given: list[socket.socket]) -> None:
    said = environment(2, "management:s2.public")
    found = activated(config(), said)
    assert said == {"OTHER": "stays"}, "no child takes the sockets for its own"
    assert {name: [one.getsockname() for one in some] for name, some in found.items()} == {
        "management": [given[0].getsockname()],
        "listeners.s2.public": [given[1].getsockname()],
    }
    for some in found.values():
        for one in some:
            assert not one.get_inheritable()
            one.close()


@pytest.mark.parametrize("names", [None, "penstock.socket", "", "unknown"])
def test_else_its_address_does(given: list[socket.socket], names: str | None) -> None:
    (name, (one,)), *none = activated(config(given[0].getsockname()[1]), environment(1, names)).items()
    assert name == "listeners.s2.public" and not none
    one.close()


def test_sockets_for_another_process_are_left_alone(given: list[socket.socket]) -> None:
    assert activated(config(), environment(2, pid=1)) == {}
    assert activated(config(), {}) == {}
    assert activated(config(), {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "many"}) == {}


def test_a_socket_without_a_listener_is_refused(given: list[socket.socket]) -> None:
    port = given[0].getsockname()[1]
    with pytest.raises(
        CannotStart, match=rf"socket other on 127\.0\.0\.1:{port} is for no listener.* s2, s2\.public, management"
    ):
        activated(config(), environment(1, "other"))


def test_what_does_not_listen_is_refused(given: list[socket.socket]) -> None:
    with pytest.raises(CannotStart, match=r"socket 602 \(s2\) does not listen on TCP"):
        activated(config(), environment(3, "management:s2.public:s2"))


# ---- the process ---------------------------------------------------------------------------------------------------

RESTARTED = """
[[listeners.s2]]
name = "public"
bind = "127.0.0.1:{port}"
[management]
enabled = false
[store]
directory = "{data}"
[[store.basins]]
name = "penstock"
[log]
format = "json"
"""


class Manager:
    """A service manager: it holds a socket and gives it to one gateway after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.config = folder / "gateway.toml"
        self.config.write_text(RESTARTED.format(port=self.port, data=folder / "data"))
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(str(folder / "notify"))
        self.notified.settimeout(60)

    def start(self) -> subprocess.Popen[bytes]:
        """Start a gateway as service managers do: the socket as descriptor 3, the pid known to it alone."""
        code = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_PID'] = str(os.getpid()); "
        code += "os.execv(sys.executable, [sys.executable, '-m', 'penstock', 'serve', '--config', sys.argv[2]])"
        environment = {**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "s2.public"}
        environment["NOTIFY_SOCKET"] = str(self.folder / "notify")
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", code, str(self.socket.fileno()), str(self.config)],
                pass_fds=(self.socket.fileno(),),
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def wait_for(self, state: bytes) -> None:
        while not (said := self.notified.recv(1000)).startswith(state):
            assert said

    def close(self) -> None:
        self.socket.close()
        self.notified.close()


class Writer(threading.Thread):
    """Appends one record per connection, and fails if a connection is refused.

    An append that is not answered, or is answered with a request to retry, is sent again with the position that it must
    get, so that nothing is duplicated.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.written = 0
        self.again = 0
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.write()
        except Exception as error:
            self.failure = error

    def write(self) -> None:
        words = {"records": [{"body": str(self.written)}], "match_seq_num": self.written}
        headers = {"s2-basin": "penstock", "content-type": "application/json"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as client:
            try:
                client.connect()
                client.request("POST", "/v1/streams/held/records", json.dumps(words), headers)
                answer = client.getresponse()
                text = answer.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.again += 1
                return
        if answer.status == 503:
            self.again += 1
            return
        assert answer.status in (200, 412), text
        self.written += 1


def test_no_connection_is_refused_while_the_gateway_restarts(tmp_path: Path) -> None:
    with closing(Manager(tmp_path)) as manager:
        writer = Writer(manager.port)
        for turn in range(3):
            process = manager.start()
            try:
                manager.wait_for(b"READY=1")
                if not turn:
                    writer.start()
                enough, deadline = writer.written + 20, time.monotonic() + 60
                while writer.written < enough and writer.is_alive() and time.monotonic() < deadline:
                    time.sleep(0.01)
                assert writer.written >= enough, (writer.failure, (tmp_path / "log").read_text())
                if turn == 2:
                    writer.stopping.set()
                    writer.join(30)
                process.terminate()
                manager.wait_for(b"STOPPING=1")
                assert process.wait(60) == 0, (tmp_path / "log").read_text()
            except BaseException:
                writer.stopping.set()
                raise
            finally:
                process.kill()
                process.wait()
        assert writer.failure is None


ACTIVATE = shutil.which("systemd-socket-activate")


@pytest.mark.skipif(ACTIVATE is None, reason="systemd-socket-activate is not installed")
def test_it_starts_under_systemd_socket_activate(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    path = tmp_path / "gateway.toml"
    path.write_text(RESTARTED.format(port=port, data=tmp_path / "data"))
    assert ACTIVATE is not None
    command = [ACTIVATE, f"--listen=127.0.0.1:{port}", "--fdname=s2.public", sys.executable, "-m", "penstock", "serve"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--config", str(path)], stdout=subprocess.DEVNULL, stderr=log, env={**os.environ}
        )
    try:
        deadline = time.monotonic() + 20
        answer = None
        while answer is None and time.monotonic() < deadline and process.poll() is None:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
                try:
                    client.request("GET", "/health")
                    answer = client.getresponse().read()
                except ConnectionRefusedError:
                    time.sleep(0.02)
        assert answer == b"OK", (tmp_path / "log").read_text()
    finally:
        process.terminate()
        assert process.wait(20) == 0
