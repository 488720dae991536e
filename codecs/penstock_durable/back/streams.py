"""The streams of a server, as far as the gateway knows them: their content, offsets, and writers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

import msgspec
import trio

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import StreamRef
from penstock.net.upstream import broke
from penstock_durable.back.offsets import KnownOffsets, OffsetTable
from penstock_durable.back.requests import DurableRequests
from penstock_durable.back.settings import DurableBackSettings
from penstock_durable.back.writer import DurableWriter
from penstock_durable.codec import PositionAnswer, StreamContent, content_of

__all__ = ["ServerStream", "ServerStreams"]

_GONE: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.OFFSET_TRUNCATED})
"""Failures with which HEAD is answered for a stream that does not exist, or was deleted and has forks (410)."""


class ServerStream(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One stream. `content_type`: its essence. `offsets`: the server's, for positions in `content`. `writer`: makes
    all appends of this gateway."""

    ref: StreamRef
    content_type: str
    content: StreamContent
    offsets: KnownOffsets
    writer: DurableWriter


class ServerStreams:
    """The streams of one server. Those unused for longest are forgotten beyond `known_streams`; their offsets are in
    the table. `nursery`: for their writers."""

    def __init__(
        self, requests: DurableRequests, table: OffsetTable, settings: DurableBackSettings, nursery: trio.Nursery
    ) -> None:
        self._requests = requests
        self._table = table
        self._settings = settings
        self._nursery = nursery
        self._known: OrderedDict[StreamRef, ServerStream] = OrderedDict()
        self._used: WeakValueDictionary[StreamRef, ServerStream] = WeakValueDictionary()  # known ones too: each is one

    async def find(self, ref: StreamRef) -> ServerStream:
        """Return a stream. Raises STREAM_NOT_FOUND; NOT_REPRESENTABLE for content without boundaries of records."""
        stream = self._known.get(ref)
        if stream is None:
            return (await self.look(ref))[0]
        self._known.move_to_end(ref)
        return stream

    def comparable(self, ref: StreamRef, body: bytes) -> bytes:
        """See `penstock.core.native.Native.comparable`."""
        stream = self._known.get(ref)
        return body if stream is None else stream.content.comparable(body)

    async def look(self, ref: StreamRef) -> tuple[ServerStream, PositionAnswer]:
        """Return a stream, and what the server says of its tail. Forgets an earlier stream of that name."""
        stream = self._used.get(ref)
        newest = None if stream is None else stream.offsets.newest  # others may note more meanwhile
        try:
            response = await self._requests.head(ref)
        except OperationFailed as error:
            if error.failure.code in _GONE:
                await self.forget(ref)
                raise fail(FailureCode.STREAM_NOT_FOUND, f"stream {ref} does not exist") from None
            raise
        if response.content_type is None:
            raise broke(self._requests.upstream, f"stream {ref} has no content type")
        if stream is None:
            stream = await self._open(ref, response.content_type)
        newest = newest or stream.offsets.newest
        went_back = newest.position and response.next_offset < newest.offset  # offsets are ordered as text
        if went_back or stream.content_type != response.content_type:
            await self.forget(ref)
            stream = await self._open(ref, response.content_type)
        self._keep(stream)
        return stream, response

    async def _open(self, ref: StreamRef, content_type: str) -> ServerStream:
        if (content := content_of(content_type)) is None:
            raise fail(
                FailureCode.NOT_REPRESENTABLE,
                f"stream {ref} has content type {content_type}: bytes without boundaries of records, which the gateway "
                "leaves to clients of its server. It uses streams of JSON, and those that gateways create",
            )
        offsets = await self._table.open(ref, content.step)
        stream = self._used.get(ref)  # another task may have opened it meanwhile
        if stream is None:
            writer = DurableWriter(self._requests, ref, content_type, content, self._settings, self._nursery)
            stream = self._used[ref] = ServerStream(ref, content_type, content, offsets, writer)
        return stream

    def _keep(self, server_stream: ServerStream) -> None:
        if self._used.get(server_stream.ref) is not server_stream:  # it was forgotten meanwhile
            return
        self._known[server_stream.ref] = server_stream
        self._known.move_to_end(server_stream.ref)
        idle = (
            known for known, stream in self._known.items() if not stream.writer.busy and stream is not server_stream
        )
        if len(self._known) > self._settings.known_streams and (oldest := next(idle, None)) is not None:
            del self._known[oldest]

    async def created(self, ref: StreamRef, beginning: str) -> None:
        """Note that a stream was created, and begins at this offset."""
        await self.forget(ref)
        offsets = await self._table.open(ref, 1)
        await offsets.note(0, beginning)

    async def forget(self, ref: StreamRef) -> None:
        """Forget a stream that is gone."""
        self._known.pop(ref, None)
        self._used.pop(ref, None)
        await self._table.forget(ref)
