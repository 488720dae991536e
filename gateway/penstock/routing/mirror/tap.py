"""The primary as a route's back, which reports changed streams to the mirror."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from penstock.core.back import AppendSession, AppendSessionWrapper, Back, BackWrapper
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_operations import AppendBytes, Merge, Seal
from penstock.model.operations import Append, Appended, CreateStream, EnsureStream, Operation
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.routing.mirror.attributes import Attributes

__all__ = ["ReportingBack"]

R = TypeVar("R")
Touched = Callable[[StreamRef, int | None, bool], None]
"""Takes the stream, its next sequence number (None if unknown), and whether a client has changed it as bytes."""
_BY_BYTES: Final = (AppendBytes, Merge, Seal)
_CHANGES: Final = (Append, AppendBytes, Seal, CreateStream, EnsureStream)


class ReportingBack(BackWrapper):
    """A `Back` that reports changes. `touched` is called for every stream that may have new records or was sealed; it
    must not block. `attributes` records the attributes that operations name.

    Internal streams are not reported, nor are transactions until they are committed.
    """

    def __init__(self, back: Back, touched: Touched, attributes: Attributes) -> None:
        super().__init__(back)
        self._touched = touched
        self._attributes = attributes

    async def perform(self, operation: Operation[R]) -> R:
        self._attributes.saw(operation)
        stream = _changed_by(operation)
        if stream is None:
            return await self._inner.perform(operation)
        tail: int | None = None
        try:
            result = await self._inner.perform(operation)
            if isinstance(result, Appended):
                tail = result.tail.seq_num
            return result
        finally:  # also after failure or cancellation: records may have been appended nevertheless
            self._touched(stream, tail, isinstance(operation, _BY_BYTES))

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        opened = self._inner.append_session(stream, create_config, create_if_missing=create_if_missing)
        if stream.basin == INTERNAL_BASIN:
            async with opened as session:
                yield session
            return
        try:
            async with opened as session:
                yield _TappedSession(session, stream, self._touched, self._attributes)
        finally:
            self._touched(stream, None, False)

    def passthrough(self, protocol: str, stream: StreamRef) -> None:
        """Return None: the tap needs the acknowledgements."""


def _changed_by(operation: Operation[R]) -> StreamRef | None:
    stream = None
    if isinstance(operation, _CHANGES):
        stream = operation.stream
    elif isinstance(operation, Merge):
        stream = operation.target
    return None if stream is None or stream.basin == INTERNAL_BASIN else stream


class _TappedSession(AppendSessionWrapper):
    def __init__(self, session: AppendSession, stream: StreamRef, touched: Touched, attributes: Attributes) -> None:
        super().__init__(session)
        self._stream = stream
        self._touched = touched
        self._attributes = attributes
        self._by_bytes = False

    async def send(self, append: Append | AppendBytes) -> None:
        if isinstance(append, AppendBytes):
            self._by_bytes = True
            self._attributes.saw(append)
        await self._inner.send(append)

    async def receive(self) -> list[Appended]:
        acknowledged = await self._inner.receive()
        if acknowledged:
            self._touched(self._stream, acknowledged[-1].tail.seq_num, self._by_bytes)
        return acknowledged
