"""A back that counts its operations and sessions in progress, so that it can be closed once there are none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import TypeVar

import trio

from penstock.core.back import AppendSession, Back, ReadSession
from penstock.core.passthrough import RawSession, S2SPassthrough, s2s_passage
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["RefCountedBack"]

R = TypeVar("R")


class RefCountedBack:
    """A back that forwards everything to `inner` and counts what is in progress."""

    def __init__(self, inner: Back) -> None:
        self._inner = inner
        self._quiet = trio.lowlevel.ParkingLot()
        self.under_way = 0
        """Number of operations and sessions in progress."""

    async def quiet(self) -> None:
        """Wait until no operation or session is in progress."""
        while self.under_way:
            await self._quiet.park()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._quiet.unpark_all()

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Back.capabilities`."""
        return self._inner.capabilities

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
        with self._counting():
            return await self._inner.perform(operation)

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        """See `Back.append_session`."""
        with self._counting():
            async with self._inner.append_session(
                stream, create_config, create_if_missing=create_if_missing
            ) as session:
                yield session

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        """See `Back.read_session`."""
        with self._counting():
            async with self._inner.read_session(read) as session:
                yield session

    def s2s_passage(self, stream: StreamRef) -> S2SPassthrough | None:
        """See `penstock.core.passthrough.PassesS2S`."""
        passage = s2s_passage(self._inner, stream)
        return None if passage is None else _Passage(self._counting, passage)


class _Passage:
    def __init__(self, counting: Callable[[], AbstractContextManager[None]], inner: S2SPassthrough) -> None:
        self._counting = counting
        self._inner = inner

    def open(
        self, method: str, query: str, headers: Sequence[tuple[str, str]]
    ) -> AbstractAsyncContextManager[RawSession]:
        return self._open(method, query, headers)

    @asynccontextmanager
    async def _open(self, method: str, query: str, headers: Sequence[tuple[str, str]]) -> AsyncIterator[RawSession]:
        with self._counting():
            async with self._inner.open(method, query, headers) as raw:
                yield raw
