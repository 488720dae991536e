"""The open backs, which come and go with reloads; a task of its own holds each open."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_type_hints

import msgspec
import structlog
import trio
from msgspec.structs import replace

from penstock.app.config import BackTable, kind_of_back
from penstock.backends.counted import RefCountedBack
from penstock.core.back import Back
from penstock.core.config_fields import has
from penstock.model.byte_layout import Layout
from penstock.net.upstream import Watch
from penstock.protocols.back_opening import BackContext
from penstock.protocols.plugin import back_kinds
from penstock.routing.target import Target

__all__ = ["OpenBack", "OpenBacks", "config_digest_of", "open_backs"]

log = structlog.get_logger()


class OpenBack(msgspec.Struct, eq=False):
    """An open back. `target`: the target of routes. `config_digest`: of the configuration that it was opened with."""

    target: Target
    config_digest: bytes
    _counted: RefCountedBack
    _close: trio.Event = msgspec.field(default_factory=trio.Event)
    _at_once: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)

    def retire(self) -> None:
        """Close it as soon as no operation is in flight on it."""
        log.info("back_retired", back=self.target.name, under_way=self._counted.under_way)
        self._close.set()

    def close(self) -> None:
        """Close it now."""
        self._at_once.cancel()

    async def over(self) -> None:
        """Wait until it is to be closed."""
        with self._at_once:
            await self._close.wait()
            await self._counted.quiet()


class OpenBacks:
    """Opens backs and keeps track of them."""

    def __init__(self, nursery: trio.Nursery, embedded: Back, internal: Back, watch: Watch) -> None:
        self._nursery = nursery
        self._embedded = embedded
        self._internal = internal
        self._watch = watch
        self._open: set[OpenBack] = set()

    async def open(self, name: str, table: BackTable, envelopes: Layout) -> OpenBack:
        """Open a back. `envelopes`: as in `BackContext`. Raises CannotStart for files that cannot be used."""
        back: OpenBack = await self._nursery.start(self._hold, name, table, envelopes)
        return back

    async def _hold(
        self, name: str, table: BackTable, envelopes: Layout, *, task_status: trio.TaskStatus[OpenBack]
    ) -> None:
        config_digest = config_digest_of(table, envelopes)
        context = BackContext(embedded=self._embedded, internal=self._internal, envelopes=envelopes, watch=self._watch)
        kind = back_kinds()[kind_of_back(table)]
        async with kind.open_checked(context, name, table) as target:
            counted = RefCountedBack(target.back)
            back = OpenBack(replace(target, back=counted), config_digest, counted)
            self._open.add(back)
            try:
                task_status.started(back)
                await back.over()
            finally:
                self._open.discard(back)
        log.debug("back_closed", back=name)

    def close(self) -> None:
        """Close all backs now."""
        for back in self._open:
            back.close()


@asynccontextmanager
async def open_backs(embedded: Back, internal: Back, watch: Watch) -> AsyncIterator[OpenBacks]:
    """Close the backs that were opened in the block when it ends. `watch` is called with each connection to a
    server; `embedded` and `internal`: as in `BackContext`."""
    async with trio.open_nursery() as nursery:
        backs = OpenBacks(nursery, embedded, internal, watch)
        yield backs
        backs.close()


def config_digest_of(table: BackTable, envelopes: Layout) -> bytes:
    """Return a digest of everything that a back is opened with, including the content of its files. Equal digests mean
    that the back need not be reopened."""
    digest = hashlib.sha256(msgspec.json.encode([msgspec.to_builtins(table), envelopes.value]))
    for key, hint in get_type_hints(type(table), include_extras=True).items():
        path = getattr(table, key) if has(hint, "path") else None
        if path is not None:
            digest.update(_content(Path(path)))
    return digest.digest()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # opening the back reports the error
