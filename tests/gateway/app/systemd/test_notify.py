"""Notifications to a service manager: over a socket in the file system, or an abstract one."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import trio

from penstock.app.systemd import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Its end, and its address as the environment says it."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@penstock-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + address[1:] if address.startswith("@") else address)
        receiver.settimeout(5)
        yield receiver, address


def test_each_state_is_told(manager: tuple[socket.socket, str]) -> None:
    receiver, address = manager
    notifier = Notifier.of_environment({"NOTIFY_SOCKET": address})
    notifier.ready("serving\nand more")
    assert receiver.recv(1000) == b"READY=1\nSTATUS=serving and more"
    notifier.reloading()
    assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+\nSTATUS=reloading", receiver.recv(1000))
    notifier.stopping("draining")
    assert receiver.recv(1000) == b"STOPPING=1\nSTATUS=draining"


async def test_signs_of_life_come_twice_as_often_as_they_are_expected(
    manager: tuple[socket.socket, str], nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    receiver, address = manager
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}
    nursery.start_soon(Notifier.of_environment(environment).watchdog)
    assert environment == {}, "no child speaks for us"
    await trio.sleep(12)
    receiver.setblocking(False)
    assert [receiver.recv(1000) for _ in range(3)] == [b"WATCHDOG=1"] * 3
    with pytest.raises(BlockingIOError):
        receiver.recv(1000)


@pytest.mark.parametrize("watched", [{}, {"WATCHDOG_USEC": "10", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
async def test_no_signs_of_life_are_sent_unasked(watched: dict[str, str]) -> None:
    with trio.fail_after(5):
        await Notifier.of_environment({"NOTIFY_SOCKET": "@nobody", **watched}).watchdog()


def test_a_manager_that_has_gone_harms_no_connection(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        Notifier(str(tmp_path / "gone")).ready("serving")
        Notifier().ready("serving")
    assert [(line["event"], line["said"]) for line in lines] == [("systemd_not_notified", "READY=1")]
