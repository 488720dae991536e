"""Workers that cannot start, and ports that are taken."""

import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.app.config import Config, Listeners, Management, StoreTable
from penstock.app.server import serve
from penstock.core.errors import CannotStart
from penstock.protocols.s2.config import S2Listener


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        workers=2,
        listeners=Listeners(s2=(S2Listener(bind="127.0.0.1:0"),)),
        management=Management(enabled=False),
        store=StoreTable(directory=str(tmp_path)),
    )


async def test_a_worker_that_ends_before_it_accepts_is_why_nothing_starts(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CannotStart, match="worker 1 ended with code 1 before it accepted"):
        await serve(config)


async def test_a_port_that_another_gateway_has_is_not_shared_with_it(config: Config) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listener = S2Listener(bind=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(CannotStart, match="the port is in use"):
            await serve(msgspec.structs.replace(config, listeners=Listeners(s2=(listener,))))


def test_a_worker_without_a_parent_ends() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "penstock.app.workers", str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL)
    ours.close()
    assert process.wait(30) == 0
