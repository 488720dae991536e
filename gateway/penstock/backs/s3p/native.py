"""An S3P server in its own terms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from penstock.backs.delivery import Delivery
from penstock.backs.native import Bounds, NativeAck, NativeAppendSession, Scanned
from penstock.backs.s3p.settings import S3PBackSettings
from penstock.backs.upstream import Upstream
from penstock.positions.marks import Mark
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Capability, ListStreams, Page
from penstock_codecs.streams import StreamInfo

__all__ = ["S3PNative", "open_s3p"]


class S3PNative:
    """See `penstock.backs.native.Native`. Made by `open_s3p`."""

    def __init__(self, upstream: Upstream, settings: S3PBackSettings) -> None:
        self._upstream = upstream
        self._settings = settings

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Native.capabilities`."""
        raise NotImplementedError

    @property
    def delivery(self) -> Delivery:
        """See `Native.delivery`."""
        return self._settings.delivery

    async def bounds(self, stream: StreamRef) -> Bounds:
        """See `Native.bounds`."""
        raise NotImplementedError

    async def scan(self, stream: StreamRef, start: Mark, *, max_records: int, max_bytes: int, wait: float) -> Scanned:
        """See `Native.scan`."""
        raise NotImplementedError

    def append_session(self, stream: StreamRef) -> AbstractAsyncContextManager[NativeAppendSession]:
        """See `Native.append_session`."""
        raise NotImplementedError

    async def append_at(self, stream: StreamRef, append: Append, at: Mark) -> NativeAck:
        """See `Native.append_at`."""
        raise NotImplementedError

    async def trim(self, stream: StreamRef, first_kept: Mark) -> None:
        """See `Native.trim`."""
        raise NotImplementedError

    async def create(self, stream: StreamRef) -> bool:
        """See `Native.create`."""
        raise NotImplementedError

    async def delete(self, stream: StreamRef) -> None:
        """See `Native.delete`."""
        raise NotImplementedError

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """See `Native.list_streams`."""
        raise NotImplementedError


@asynccontextmanager
async def open_s3p(upstream: Upstream, settings: S3PBackSettings | None = None) -> AsyncIterator[S3PNative]:
    """The server until the block ends, and its connections with it. Nothing is dialled before it is needed."""
    yield S3PNative(upstream, settings or S3PBackSettings())
