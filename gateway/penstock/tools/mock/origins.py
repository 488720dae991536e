"""The servers that answer what was not recorded, and the recordings of what they answer.

A server that speaks the client's protocol is asked directly; else a gateway within this process translates. Connections
to servers are recorded apart for each test, as a gateway's connections to its backs are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import trio
from msgspec.structs import replace

from penstock.app.bootstrap import open_recordings
from penstock.app.config import RecorderTable, default_config
from penstock.net.tls.client import ClientTls
from penstock.net.upstream import Dial, Upstream, UpstreamSettings, Watch, unwatched
from penstock.observe.taps.connections import Connections
from penstock.protocols.servers import Server
from penstock.tools.target.back import TargetOptions
from penstock.tools.target.gateway import LazyGateway

__all__ = ["Origins"]

CONNECT_SECONDS: Final = 30.0
"""Time limit of a connection to a server; the gateway that translates is started within it."""
_NAME: Final = "origin"


class Origins:
    """The servers. An async context manager that completes the recordings at its end."""

    def __init__(self, servers: Sequence[Server], tls_ca: str | None, directory: Callable[[str], Path] | None) -> None:
        """`servers`: at least one; the first that speaks a protocol answers its requests, else the first of all.
        `tls_ca`: PEM file of the authorities to trust. `directory`: where what they answer a test is recorded; None:
        nowhere. Raises CannotStart for authorities that cannot be used."""
        self._servers = servers
        self._directory = directory
        self._watches: dict[str, Watch] = {}
        self._upstreams: dict[tuple[str, str], Upstream] = {}
        self._lock = trio.Lock()
        self._over = trio.Event()
        self._manager = trio.open_nursery()
        self._nursery: trio.Nursery
        self._gateway = LazyGateway(servers[0], TargetOptions(tls_ca=tls_ca))
        self._tls = ClientTls(tls_ca) if any(server.tls for server in servers) else None

    async def __aenter__(self) -> Self:
        """Enter the context; nothing is opened yet."""
        self._nursery = await self._manager.__aenter__()
        await self._gateway.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Complete the recordings. Exceptions of the block are raised as they are, not in a group."""
        await self._gateway.__aexit__(None, None, None)
        self._over.set()
        await self._manager.__aexit__(None, None, None)

    async def upstream(self, protocol: str, test: str) -> Upstream:
        """Return the server that answers a test's requests in a protocol. Raises CannotStart if the recording cannot be
        written."""
        async with self._lock:
            known = self._upstreams.get((protocol, test))
            if known is None:
                known = self._upstreams[protocol, test] = self._made(protocol, await self._watch(test))
            return known

    @property
    def recorded(self) -> list[str]:
        """The directories with new recordings."""
        return sorted(str(self._directory(test)) for test in self._watches) if self._directory else []

    def _made(self, protocol: str, watch: Watch) -> Upstream:
        server = next(
            (candidate for candidate in self._servers if candidate.kind.protocol == protocol), self._servers[0]
        )
        direct = server.kind.protocol == protocol

        async def dial(_host: str, _port: int) -> trio.abc.Stream:
            return await (await self._gateway.get()).connect(protocol)

        settings = UpstreamSettings(
            name=_NAME,
            host=server.address.host,
            port=server.address.port,
            protocol=protocol,
            tls=self._tls if direct and server.tls else None,
            connect_seconds=CONNECT_SECONDS,
            request_seconds=math.inf,
        )
        translated: Dial | None = None if direct else dial
        return Upstream(settings, dial=translated, watch=watch)

    async def _watch(self, test: str) -> Watch:
        if self._directory is None:
            return unwatched
        if test not in self._watches:
            self._watches[test] = await self._nursery.start(self._record, str(self._directory(test)))
        return self._watches[test]

    async def _record(self, directory: str, *, task_status: trio.TaskStatus[Watch]) -> None:
        connections = Connections()
        table = RecorderTable(directory=directory, keep_bytes=0)
        async with open_recordings(replace(default_config(), recorder=table), connections):
            task_status.started(connections.dialled)
            await self._over.wait()
