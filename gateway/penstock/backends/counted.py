"""A back that counts its operations and sessions in progress, so that it can be closed once there are none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import TypeVar

import trio

from penstock.core.back import AppendSession, Back, BackWrapper, ReadSession
from penstock.core.passthrough import HeaderList, Passthrough, RawSession
from penstock.model.operations import Operation, Read
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig

__all__ = ["RefCountedBack"]

R = TypeVar("R")


class RefCountedBack(BackWrapper):
    """A back that forwards everything to `inner` and counts what is in progress, passthrough sessions too."""

    def __init__(self, inner: Back) -> None:
        super().__init__(inner)
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

    async def perform(self, operation: Operation[R]) -> R:
        with self._counting():
            return await self._inner.perform(operation)

    @asynccontextmanager
    async def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AsyncIterator[AppendSession]:
        with self._counting():
            async with self._inner.append_session(
                stream, create_config, create_if_missing=create_if_missing
            ) as session:
                yield session

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        with self._counting():
            async with self._inner.read_session(read) as session:
                yield session

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        inner = self._inner.passthrough(protocol, stream)
        return None if inner is None else _Passthrough(self._counting, inner)


class _Passthrough(Passthrough):
    def __init__(self, counting: Callable[[], AbstractContextManager[None]], inner: Passthrough) -> None:
        self._counting = counting
        self._inner = inner

    @asynccontextmanager
    async def open(self, method: str, query: str, headers: HeaderList) -> AsyncIterator[RawSession]:
        with self._counting():
            async with self._inner.open(method, query, headers) as raw:
                yield raw
