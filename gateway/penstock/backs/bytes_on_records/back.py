"""A back of records that does byte operations as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import trio

from penstock.backs.base import AppendSession, Back, ReadSession
from penstock.backs.bytes_on_records.settings import BytesSettings
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["BytesOnRecords", "SourceBacks", "open_bytes_on_records"]

R = TypeVar("R")


class SourceBacks(Protocol):
    """Where the sources of merges are: a router may have sent them elsewhere than their target."""

    def back_of(self, stream: StreamRef) -> Back | None:
        """The back that has this stream, with its name there in what it is asked; None: the target's."""


class BytesOnRecords:
    """See the module. Made by `open_bytes_on_records`."""

    def __init__(self, records: Back, name: str, state: Back, settings: BytesSettings, nursery: trio.Nursery) -> None:
        self._records = records
        self._name = name
        self._state = state
        self._settings = settings
        self._nursery = nursery

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Those of the back of records, and BYTES."""
        return self._records.capabilities | {Capability.BYTES}

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
        return await self._records.perform(operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`."""
        return self._records.append_session(stream, create_config, create_if_missing=create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        return self._records.read_session(read)


@asynccontextmanager
async def open_bytes_on_records(
    records: Back, name: str, state: Back, settings: BytesSettings | None = None, sources: SourceBacks | None = None
) -> AsyncIterator[BytesOnRecords]:
    """Byte operations over `records`, until the block ends.

    `name`: the back's, part of the names of the tables that `state` keeps for it: what is known of streams as bytes
    is found again under the same name. `state`: the embedded store. `sources`: where the sources of merges are, None:
    all at this back.
    """
    async with trio.open_nursery() as nursery:
        yield BytesOnRecords(records, name, state, settings or BytesSettings(), nursery)
        nursery.cancel_scope.cancel()
