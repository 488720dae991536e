"""A worker process: a complete gateway, except for its store and its management listener."""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec
import structlog
import trio
from structlog.contextvars import bind_contextvars

from penstock.app.bootstrap import store_settings
from penstock.app.config import Config
from penstock.app.host import HostServices
from penstock.app.memory import prepare_memory
from penstock.app.server import RunningGateway, serve
from penstock.app.workers.back import RemoteBack, open_remote
from penstock.app.workers.channel import Channel
from penstock.app.workers.messages import Ask, CallFailed, CallResult, DrainWorker, Ready, StartRefused, Welcome
from penstock.core.back import Back
from penstock.core.errors import CannotReload, CannotStart
from penstock.observe import configure_logging
from penstock.observe.connections import number_connections_from
from penstock.observe.metrics.exposition import snapshot
from penstock.store.settings import StoreSettings
from penstock_codecs.failures import Failure, FailureCode

__all__ = ["CONNECTIONS", "main"]

log = structlog.get_logger()

CONNECTIONS: Final = 1_000_000_000
"""The connections of worker N are numbered from N times this on."""


def main(descriptor: int) -> None:
    """Serve clients until the parent ends or drains this worker."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent drains its workers on signals
    prepare_memory()
    trio.run(_Process(Channel(socket.socket(fileno=descriptor))).run)


def own_config(config: Config) -> Config:
    """Return the configuration that a worker runs: its gateway's, without management and further workers."""
    management = msgspec.structs.replace(config.management, enabled=False)
    return msgspec.structs.replace(config, workers=1, management=management)


def own_settings(config: Config) -> StoreSettings:
    """Return a worker's share of the store's bounds."""
    whole = store_settings(config)
    return replace(
        whole,
        append_inflight_bytes=whole.append_inflight_bytes // config.workers,
        tail_cache_bytes=whole.tail_cache_bytes // config.workers,
        read_ahead_batches=max(1, whole.read_ahead_batches // config.workers),
        reader_threads=max(1, whole.reader_threads // config.workers),
    )


class _Process:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._welcome: Welcome | None = None
        self._welcomed = trio.Event()
        self._back: RemoteBack | None = None
        self._running: RunningGateway | None = None
        self._begun = trio.Event()
        self._drain = False
        self._nursery: trio.Nursery
        self._asked: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "alive": self._alive,
            "snapshot": self._snapshot,
            "connections": self._connections,
            "close": self._close,
            "level": self._level,
            "reload": self._reload,
        }

    async def run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._listen)
            await self._welcomed.wait()
            await self._serve()
            await self._channel.flushed()
            self._nursery.cancel_scope.cancel()

    async def _listen(self) -> None:
        await self._channel.run(self._receive)
        log.error("parent_gone")
        if self._back is not None:
            self._back.lose()
        self._nursery.cancel_scope.cancel()

    async def _serve(self) -> None:
        assert self._welcome is not None
        number, config, descriptors = self._welcome
        configure_logging(config.log.level, config.log.format)
        bind_contextvars(worker=number)
        number_connections_from(number * CONNECTIONS)
        sockets = {name: [socket.socket(fileno=one) for one in some] for name, some in descriptors.items()}
        surroundings = HostServices(sockets=sockets, open_embedded=self._open_embedded)
        try:
            async with trio.open_nursery() as nursery:
                self._running = await nursery.start(serve, own_config(config), surroundings)
                self._begun.set()
                self._channel.post(Ready())
                if self._drain:
                    self._running.drain()
        except* CannotStart as group:
            self._channel.post(StartRefused(str(group.exceptions[0])))

    @asynccontextmanager
    async def _open_embedded(self, _config: Config) -> AsyncIterator[Back]:
        assert self._welcome is not None
        async with open_remote(self._channel, own_settings(self._welcome.config)) as self._back:
            yield self._back

    # ---- messages from the parent --------------------------------------------------------------------------------

    def _receive(self, message: Any) -> None:
        if self._back is not None and self._back.receive(message):
            return
        match message:
            case Welcome():
                self._welcome = message
                bind_contextvars(worker=message.number)  # tasks that answer later calls inherit it
                self._welcomed.set()
            case DrainWorker():
                self._drain = True
                if self._running is not None:
                    self._running.drain()
            case Ask():
                self._nursery.start_soon(self._answer, message)

    async def _answer(self, asked: Ask) -> None:
        answer: CallResult | CallFailed
        try:
            answer = CallResult(asked.call, await self._asked[asked.what](asked.argument))
        except CannotReload as error:
            answer = CallFailed(asked.call, Failure(FailureCode.INVALID, str(error)))
        if asked.call:
            self._channel.post(answer)

    async def _alive(self, _nothing: object) -> None:
        await trio.lowlevel.checkpoint()

    async def _snapshot(self, _nothing: object) -> bytes:
        await trio.lowlevel.checkpoint()
        return snapshot()

    async def _connections(self, _nothing: object) -> list[dict[str, Any]]:
        return [] if self._running is None else await self._running.traffic.connections()

    async def _close(self, number: int) -> bool:
        await trio.lowlevel.checkpoint()
        if self._running is None:
            return False
        return self._running.controls.close_connection(number) or self._running.traffic.break_off(number)

    async def _level(self, level: str) -> None:
        await trio.lowlevel.checkpoint()
        if self._running is not None:
            self._running.controls.set_log_level(level)

    async def _reload(self, config: Config) -> None:
        await self._begun.wait()  # it may still be starting with the previous configuration
        assert self._running is not None
        await self._running.reload(own_config(config))
