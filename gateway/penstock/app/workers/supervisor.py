"""The worker processes of a gateway: binds their sockets, starts, restarts, reloads and drains them.

The parent binds one socket for each listener and worker (SO_REUSEPORT), and keeps them open: connections that arrive
while a worker is restarted wait for the new one.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
import trio

from penstock.app.config import Config
from penstock.app.reload.changes import check_changes
from penstock.app.workers.worker import GRACE_SECONDS, Worker, WorkerGone
from penstock.backends.embedded import EmbeddedBack
from penstock.core.address import Address
from penstock.core.errors import CannotReload, CannotStart
from penstock.net.accepting import BACKLOG, listening_reason
from penstock_codecs.failures import FailureCode, OperationFailed, fail

__all__ = ["Supervisor"]

log = structlog.get_logger()

ANSWER_SECONDS: Final = 5.0
"""Timeout of a question to the workers. Their answers take milliseconds, and Prometheus gives a scrape 10 s by
default."""

Sockets = dict[str, list[socket.socket]]


class Supervisor:
    """The workers. `addresses`: the addresses that they listen on, by listener."""

    def __init__(self, config: Config, back: EmbeddedBack, given: Mapping[str, Sequence[socket.socket]]) -> None:
        """`given`: sockets that listen already, shared by all workers. Raises CannotStart."""
        self._config = config
        self.addresses: dict[str, list[Address]] = {}
        shares = [self._bind(given) for _ in range(config.workers)]
        self._workers = [Worker(number, config, back, sockets) for number, sockets in enumerate(shares, 1)]

    def _bind(self, given: Mapping[str, Sequence[socket.socket]]) -> Sockets:
        """Bind the sockets of one worker; those of the first determine ports that the system chooses."""
        sockets: Sockets = {}
        for label, table in self._config.listeners.labelled():
            name = f"listeners.{label}"
            first = name not in self.addresses
            wanted = [Address.parse(table.bind)] if first else self.addresses[name]
            found = list(given.get(name, ()))
            for address in () if found else wanted:
                found += _listening(name, address, first=first)
            sockets[name] = found
            self.addresses[name] = [Address(*one.getsockname()[:2]) for one in found]
        return sockets

    async def begin(self, nursery: trio.Nursery) -> None:
        """Start the workers in a nursery that ends when the last one has; return when all accept. Raises
        CannotStart."""
        for worker in self._workers:
            nursery.start_soon(worker.run)
        for worker in self._workers:
            await worker.settled.wait()
            if worker.refusal is not None:
                raise CannotStart(worker.refusal)

    async def drain(self) -> None:
        """Drain all workers and wait until they have ended; kill those that have not at their deadline."""
        for worker in self._workers:
            worker.drain()
        table = self._config.drain
        with trio.move_on_after(table.accept_seconds + table.deadline_seconds + GRACE_SECONDS):
            for worker in self._workers:
                await worker.over.wait()
        for worker in self._workers:
            if not worker.over.is_set():
                worker.kill()

    def close(self) -> None:
        """Close all sockets of the workers."""
        for worker in self._workers:
            worker.close_sockets()

    # ---- requests to all workers ---------------------------------------------------------------------------------

    async def ask(self, what: str, argument: object = None) -> list[Any]:
        """Return the answers of all running workers. Raises OperationFailed if one fails, or does not answer in
        time."""
        answers: dict[int, Any] = {}
        failures: list[OperationFailed] = []

        async def ask(worker: Worker) -> None:
            try:
                with trio.fail_after(ANSWER_SECONDS):
                    answers[worker.number] = await worker.ask(what, argument)
            except WorkerGone:
                pass
            except OperationFailed as error:
                failures.append(error)
            except trio.TooSlowError:
                message = f"worker {worker.number} has not answered for {ANSWER_SECONDS:g} s"
                failures.append(fail(FailureCode.UNAVAILABLE, message))

        async with trio.open_nursery() as nursery:
            for worker in self._workers:
                nursery.start_soon(ask, worker)
        if failures:
            raise failures[0]
        return [answers[number] for number in sorted(answers)]

    async def snapshots(self) -> Sequence[bytes]:
        """Return the metrics of each worker."""
        return await self.ask("snapshot")

    async def connections(self) -> list[dict[str, Any]]:
        """Return the open connections of all workers."""
        return list(itertools.chain.from_iterable(await self.ask("connections")))

    async def close_connection(self, number: int) -> bool:
        """Close a connection by its number. Return whether it existed."""
        return any(await self.ask("close", number))

    def set_log_level(self, level: str) -> None:
        """Set the log level of all workers."""
        for worker in self._workers:
            worker.post("level", level)

    async def reload(self, config: Config) -> None:
        """Put a configuration in force in all workers or in none. Raises CannotReload."""
        check_changes(self._config, config)
        if _bound_by(config) != _bound_by(self._config):
            raise CannotReload(
                "listeners: with workers, a listener can be added, removed or moved only by restarting the gateway"
            )
        try:
            await self._put(config)
        except OperationFailed as error:
            try:
                await self._put(self._config)
            except OperationFailed as stuck:
                log.error("reload_rollback_failed", reason=stuck.failure.message)
            raise CannotReload(error.failure.message) from error
        self._config = config

    async def _put(self, config: Config) -> None:
        for worker in self._workers:
            worker.config = config  # before asking, so that a worker started meanwhile has it
        await self.ask("reload", config)


def _bound_by(config: Config) -> dict[str, str]:
    return {label: table.bind for label, table in config.listeners.labelled()}


def _listening(name: str, address: Address, *, first: bool) -> list[socket.socket]:
    """Return listening sockets for each address that the host name resolves to."""
    found: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in dict.fromkeys(
            socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ):
            if address.port and first:  # with SO_REUSEPORT alone another gateway could bind the same port
                _bound(family, kind, protocol, where, shared=False).close()
            found.append(_bound(family, kind, protocol, where, shared=True))
            found[-1].listen(BACKLOG)
    except OSError as error:
        for one in found:
            one.close()
        raise CannotStart(f"{name}: cannot listen on {address}: {listening_reason(name, error)}") from error
    return found


def _bound(family: int, kind: int, protocol: int, where: Any, *, shared: bool) -> socket.socket:
    one = socket.socket(family, kind, protocol)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(where)
    except OSError:
        one.close()
        raise
    return one
