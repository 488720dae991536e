"""The target of a command as the only back of a router, with its routes.

Commands that end at once open it, so nothing else of a gateway is imported: no other protocol's clients, no listeners,
no configuration, and the embedded store only if the back keeps something there.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import msgspec
import trio

from penstock.core.back import AppendSession, Back, ReadSession
from penstock.core.config_fields import DEFAULT_BASIN
from penstock.core.errors import out_of_groups
from penstock.core.matching import Match, StreamPattern
from penstock.model.operations import Capability, Operation, Read
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.protocols.back_opening import BackContext
from penstock.protocols.servers import Server
from penstock.protocols.tables import BackTable, NumberedBackTable
from penstock.routing.rewriting import Rewriting
from penstock.routing.route import Route
from penstock.routing.router import Router
from penstock.routing.target import TargetHolder

__all__ = ["TARGET_BACK", "TargetOptions", "back_table", "loss_keys", "open_target_back", "raising_outside", "renamed"]

R = TypeVar("R")
T = TypeVar("T")

TARGET_BACK: Final = "target"
"""Name of the only back, which messages about the server contain."""
_LOSS_KEYS: Final = ("headers", "empty_body", "command_records")


class TargetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a target beside its URL.

    `token`: the bearer token to present. `tls_ca`: PEM file of the authorities of its certificate; None: the
    system's. `tls_certificate`, `tls_key`: PEM files of a client certificate; None: none is presented. `loss`: one of
    LOSS_WORDS for all that cannot be carried; None: each protocol's default, which mostly refuses. `basin`: of recorded
    clients whose names have none. `renames`: globs over names of streams with their names on the
    target, as `stream` and `to_stream` of a route that matches by glob; the first match counts.
    """

    token: str | None = None
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    loss: str | None = None
    basin: str = DEFAULT_BASIN
    renames: tuple[tuple[str, str], ...] = ()


def open_target_back(target: Server, options: TargetOptions) -> AbstractAsyncContextManager[Back]:
    """Open the target as a back until the block ends, for operations on records. Connections are made when they are
    needed.

    Entering raises CannotStart for files that cannot be used, ValueError for renames that make no route.
    """
    return raising_outside(_back(target, options))


@asynccontextmanager
async def raising_outside(opened: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Open; raise an exception of the block outside of the nurseries, which would wrap it in a group."""
    failure: Exception | None = None
    async with opened as value:
        try:
            yield value
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


@asynccontextmanager
async def _back(target: Server, options: TargetOptions) -> AsyncIterator[Back]:
    rewritings = [
        Rewriting.compile(StreamPattern.compile(Match.GLOB, None, pattern), to_basin, to_stream)
        for pattern, to_basin, to_stream in renamed(target, options)
    ]
    table = back_table(target, options)
    with out_of_groups():
        async with trio.open_nursery() as nursery:
            store = _TemporaryStore(nursery)
            context = BackContext(embedded=store, records_only=True)
            async with target.kind.back.open_checked(context, TARGET_BACK, table) as opened:
                holder = TargetHolder(opened)
                routes = [Route(TARGET_BACK, rewriting, holder) for rewriting in rewritings]
                yield Router(routes, store).for_listener("")
            store.close()


class _TemporaryStore(Back):
    """The embedded store in a temporary directory. The first operation opens it; it is deleted when it closes."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._opening = trio.Lock()
        self._closed = trio.Event()
        self._back: Back | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(Capability)

    async def perform(self, operation: Operation[R]) -> R:
        return await (await self._opened()).perform(operation)

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        back = await self._opened()
        async with back.append_session(stream, create_config, create_if_missing=create_if_missing) as session:
            yield session

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        async with (await self._opened()).read_session(read) as session:
            yield session

    def close(self) -> None:
        """Close the store if it is open."""
        self._closed.set()

    async def _opened(self) -> Back:
        async with self._opening:
            if self._back is None:
                self._back = await self._nursery.start(self._hold)
            return self._back

    async def _hold(self, *, task_status: trio.TaskStatus[Back]) -> None:
        from penstock.backends.embedded import open_embedded
        from penstock.store.settings import StoreSettings

        with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
            async with open_embedded(StoreSettings(directory=Path(directory))) as back:
                task_status.started(back)
                await self._closed.wait()


def renamed(target: Server, options: TargetOptions) -> Iterator[tuple[str | None, str | None, str | None]]:
    """Yield the target's routes in order: the glob of names of streams, `to_basin` and `to_stream`, each as the keys of
    a route."""
    for pattern, stream in (*options.renames, ("**", "{stream}")):
        basin, to_stream = target.kind.named(target, stream)
        everything = pattern == "**" and to_stream == "{stream}"
        yield None if everything else pattern, basin, None if everything else to_stream


def loss_keys(table: type[msgspec.Struct], word: str | None) -> dict[str, Any]:
    """Return the key `loss` of a table, with `word` for each loss that allows it; nothing if it has no such key."""
    kind = None if word is None else get_type_hints(table).get("loss")
    if kind is None:
        return {}
    from penstock.wire.toml.hints import choices

    hints = get_type_hints(kind, include_extras=True)
    return {"loss": {key: word for key in _LOSS_KEYS if word in choices(hints[key])}}


def back_table(target: Server, options: TargetOptions) -> BackTable:
    """Return the table of the back that reaches the target."""
    kind, back = target.kind, target.kind.back.table
    table: dict[str, Any] = {"tls": target.tls, **kind.settings(target), **loss_keys(back, options.loss)}
    if target.tls:
        table |= {key: getattr(options, key) for key in ("tls_ca", "tls_certificate", "tls_key")}
    if issubclass(back, NumberedBackTable):
        table["create_streams"] = True
    if options.token is not None and kind.takes_token:
        table |= {"credentials": "static", "token": options.token}
    made: BackTable = msgspec.convert({"kind": kind.back.kind, **table}, back)
    return made
