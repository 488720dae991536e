"""A server that knows bytes and tables itself, and whose records are numbered beside it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from penstock.backs.base import AppendSession, Back, ReadSession
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["Combined"]

R = TypeVar("R")


class Combined:
    """See `Back`: byte and table operations go to `direct`, the rest to `records`."""

    def __init__(self, records: Back, direct: Back) -> None:
        self._records = records
        self._direct = direct

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Those of both."""
        return self._records.capabilities | self._direct.capabilities

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
        return await self._records.perform(operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`. What is sent first decides: bytes or records."""
        return self._records.append_session(stream, create_config, create_if_missing=create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        return self._records.read_session(read)
