"""The primary as a route's back, which reports changed streams to the mirror."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

from penstock.core.back import AppendSession, Back, ReadSession
from penstock.core.segment_names import INTERNAL_BASIN
from penstock.routing.mirror.attributes import Attributes
from penstock_codecs.byte_operations import AppendBytes, Merge, Seal
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Appended, Capability, CreateStream, EnsureStream, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["Tap"]

R = TypeVar("R")
Touched = Callable[[StreamRef, int | None, bool], None]
"""Takes the stream, its next sequence number (None if unknown), and whether a segment client has changed it."""
_BY_BYTES: Final = (AppendBytes, Merge, Seal)
_CHANGES: Final = (Append, AppendBytes, Seal, CreateStream, EnsureStream)


class Tap:
    """A `Back` that reports changes. `touched` is called for every stream that may have new records or was sealed; it
    must not block. `attributes` records the attributes that operations name.

    Internal segments are not reported, nor are transactions until they are committed. No session is passed through
    undecoded (`penstock.core.passthrough`), since the tap needs the acknowledgements.
    """

    def __init__(self, back: Back, touched: Touched, attributes: Attributes) -> None:
        self._back = back
        self._touched = touched
        self._attributes = attributes

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The primary's capabilities."""
        return self._back.capabilities

    async def perform(self, operation: Operation[R]) -> R:
        """Carry out one operation; see `Back.perform`."""
        self._attributes.saw(operation)
        stream = _changed_by(operation)
        if stream is None:
            return await self._back.perform(operation)
        tail: int | None = None
        try:
            result = await self._back.perform(operation)
            if isinstance(result, Appended):
                tail = result.tail.seq_num
            return result
        finally:  # also after failure or cancellation: records may have been appended all the same
            self._touched(stream, tail, isinstance(operation, _BY_BYTES))

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        """See `Back.append_session`."""
        opened = self._back.append_session(stream, create_config, create_if_missing=create_if_missing)
        if stream.basin == INTERNAL_BASIN:
            async with opened as session:
                yield session
            return
        try:
            async with opened as session:
                yield _TappedSession(session, stream, self._touched, self._attributes)
        finally:
            self._touched(stream, None, False)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        return self._back.read_session(read)


def _changed_by(operation: Operation[R]) -> StreamRef | None:
    stream = None
    if isinstance(operation, _CHANGES):
        stream = operation.stream
    elif isinstance(operation, Merge):
        stream = operation.target
    return None if stream is None or stream.basin == INTERNAL_BASIN else stream


class _TappedSession:
    def __init__(self, session: AppendSession, stream: StreamRef, touched: Touched, attributes: Attributes) -> None:
        self._session = session
        self._stream = stream
        self._touched = touched
        self._attributes = attributes
        self._by_bytes = False

    async def send(self, append: Append | AppendBytes) -> None:
        if isinstance(append, AppendBytes):
            self._by_bytes = True
            self._attributes.saw(append)
        await self._session.send(append)

    def close(self) -> None:
        self._session.close()

    async def receive(self) -> list[Appended]:
        acknowledged = await self._session.receive()
        if acknowledged:
            self._touched(self._stream, acknowledged[-1].tail.seq_num, self._by_bytes)
        return acknowledged
