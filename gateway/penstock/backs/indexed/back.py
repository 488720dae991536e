"""A back of records over a native server, with a position index for each stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import trio

from penstock.backs.base import AppendSession, Back, ReadSession
from penstock.backs.indexed.settings import IndexedSettings
from penstock.backs.native import Native
from penstock.clock import Clock, wall_clock
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["IndexedBack", "open_indexed"]

R = TypeVar("R")


class IndexedBack:
    """See `Back`. Made by `open_indexed`."""

    def __init__(
        self, native: Native, name: str, state: Back, settings: IndexedSettings, clock: Clock, nursery: trio.Nursery
    ) -> None:
        self._native = native

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Back.capabilities`."""
        raise NotImplementedError

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
        raise NotImplementedError

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`."""
        raise NotImplementedError

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        raise NotImplementedError


@asynccontextmanager
async def open_indexed(
    native: Native, name: str, state: Back, settings: IndexedSettings | None = None, clock: Clock = wall_clock
) -> AsyncIterator[IndexedBack]:
    """A back until the block ends. `name`: the back's, under which `state`, the embedded store, keeps the indexes."""
    async with trio.open_nursery() as nursery:
        yield IndexedBack(native, name, state, settings or IndexedSettings(), clock, nursery)
        nursery.cancel_scope.cancel()
