"""Append sessions of one stream, over its writer."""

from __future__ import annotations

from collections import deque

import trio

from penstock.core.native import NativeAck, NativeAppendSession
from penstock.protocols.durable.back.writer import AppendOwner, DurableWriter, QueuedAppend
from penstock_codecs.failures import OperationFailed
from penstock_codecs.operations import Append

__all__ = ["DurableAppendSession"]


class DurableAppendSession(NativeAppendSession):
    """One session; several share the writer. An acknowledgement does not tell where the records are: the protocol has
    no positions that can be computed with, and other clients may append before and after."""

    def __init__(self, writer: DurableWriter) -> None:
        self._writer = writer
        self._owner = AppendOwner()
        self._sent: deque[QueuedAppend] = deque()
        self._closed = False
        self._changed = trio.lowlevel.ParkingLot()

    async def send(self, append: Append) -> None:
        self._sent.append(await self._writer.submit(append, self._owner))
        self._changed.unpark_all()

    def close(self) -> None:
        self._closed = True
        self._changed.unpark_all()

    async def receive(self) -> list[NativeAck]:
        while not self._sent:
            if self._closed:
                await trio.lowlevel.checkpoint()
                return []
            await self._changed.park()
        await self._sent[0].over.wait()
        acks: list[NativeAck] = []
        while self._sent and self._sent[0].over.is_set():
            if (failure := self._sent[0].failure) is not None:
                if acks:
                    break
                raise OperationFailed(failure)
            acks.append(NativeAck(self._sent.popleft().count))
        return acks
