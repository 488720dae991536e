"""Reloads in the process, when one comes at a bad moment or fails at the last step."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from penstock.app.config import Config, parse_config
from penstock.app.host import HostServices
from penstock.app.reload import reloader
from penstock.app.running import RunningGateway
from penstock.app.server import serve
from penstock.core.errors import CannotReload
from penstock.model.failures import FailureCode, fail

CONFIG = """
[listeners.s2]
bind = "127.0.0.1:0"
[management]
enabled = false
[store]
directory = "{}"
[drain]
deadline_seconds = 0.1
"""
MORE = '[listeners.s3p]\nbind = "127.0.0.1:0"\n[backs.far]\nkind = "s3p"\naddress = "127.0.0.1:1"\n'


def config(directory: Path, more: str = "") -> Config:
    return parse_config(CONFIG.format(directory) + more)


@pytest.fixture
async def running(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[RunningGateway]:
    running: RunningGateway = await nursery.start(serve, config(tmp_path))
    yield running
    nursery.cancel_scope.cancel()


async def refused(port: int) -> bool:
    try:
        await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
    except OSError:
        return True
    return False


async def test_what_was_opened_for_a_reload_that_fails_is_closed(
    running: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step that may fail is the store's."""
    ports: list[int] = []

    async def break_down(*_: Any) -> None:
        ports.extend(address.port for place in running._parts.places._listening for address in place.addresses)
        raise fail(FailureCode.STORAGE, "the disk is full")

    monkeypatch.setattr(reloader, "apply_resources", break_down)
    with pytest.raises(CannotReload, match="the disk is full"):
        await running.reload(config(tmp_path, MORE))
    ((address,),) = running.addresses.values()
    assert len(ports) == 2
    assert [await refused(port) for port in ports if port != address.port] == [True]
    assert not await refused(address.port)
    assert running.config == config(tmp_path)
    monkeypatch.undo()
    await running.reload(config(tmp_path, MORE))
    assert set(running.addresses) == {"listeners.s2", "listeners.s3p"}


async def test_a_gateway_that_drains_is_not_reloaded(running: RunningGateway, tmp_path: Path) -> None:
    running.drain()
    with pytest.raises(CannotReload, match="the gateway is draining"):
        await running.reload(config(tmp_path, MORE))


async def test_a_drain_that_comes_meanwhile_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the new listeners would never end."""
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            running: RunningGateway = await nursery.start(serve, config(tmp_path))

            async def drain(*_: Any) -> None:
                running.drain()
                await trio.sleep(0.05)

            monkeypatch.setattr(reloader, "apply_resources", drain)
            with pytest.raises(CannotReload, match="the gateway is draining"):
                await running.reload(config(tmp_path, MORE))


async def test_without_a_file_there_is_nothing_to_read(running: RunningGateway) -> None:
    with pytest.raises(CannotReload, match="started without a configuration file"):
        await running.reread()


async def test_what_is_read_again_is_put_in_force(tmp_path: Path, nursery: trio.Nursery) -> None:
    found = [config(tmp_path, MORE)]
    running: RunningGateway = await nursery.start(serve, config(tmp_path), HostServices(reread=lambda: found[0]))
    assert await running.reread() == "changed: backs.far, listeners.s3p"
    assert running.controls.config() == found[0]
    assert await running.reread() == "changed: nothing"
    nursery.cancel_scope.cancel()


async def test_of_two_reloads_at_once_the_file_as_it_was_last_stays(tmp_path: Path, nursery: trio.Nursery) -> None:
    """The first is slow to read the file, which changes meanwhile."""
    found, first = [config(tmp_path, MORE), config(tmp_path)], threading.Event()

    def reread() -> Config:
        if not first.is_set():
            first.set()
            time.sleep(0.2)  # the second, if it does not wait, ends meanwhile
            return found[0]
        return found[1]

    running: RunningGateway = await nursery.start(serve, config(tmp_path), HostServices(reread=reread))
    async with trio.open_nursery() as both:
        both.start_soon(running.reread)
        await trio.to_thread.run_sync(first.wait)
        both.start_soon(running.reread)
    assert running.config == found[1]
    nursery.cancel_scope.cancel()


async def test_a_listener_that_goes_before_it_has_begun_ends(running: RunningGateway, tmp_path: Path) -> None:
    """A drain that comes with the reload."""
    places = running._parts.places
    listeners = running._parts.build(config(tmp_path, MORE), running._parts.routing.router)
    place = await places.open(next(listener for listener in listeners if not places.has(listener)))
    places.replace(listeners, [place], 0.1)
    place.stop_accepting()
    with trio.fail_after(10):
        await place.over.wait()
    await wait_all_tasks_blocked(0.05)
    (address,) = running.addresses["listeners.s2"]
    assert not await refused(address.port)
