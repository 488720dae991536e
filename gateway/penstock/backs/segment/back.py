"""A back of segment stores, while it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from penstock.backs.segment.direct import SegmentDirect
from penstock.backs.segment.native import SegmentNative
from penstock.backs.segment.settings import SegmentBackSettings
from penstock.backs.upstream import UpstreamSettings

__all__ = ["Dial", "SegmentBack", "open_segment"]

Dial = Callable[[UpstreamSettings], Awaitable[trio.abc.Stream]]
"""Connects to a server. Raises OperationFailed(HOT_SERVER)."""


@dataclass(frozen=True, slots=True)
class SegmentBack:
    """Two views of the same stores: records in native terms, and bytes and tables as they are."""

    native: SegmentNative
    direct: SegmentDirect


@asynccontextmanager
async def open_segment(settings: SegmentBackSettings) -> AsyncIterator[SegmentBack]:
    """The back until the block ends, and its connections with it. Nothing is dialled before it is needed."""
    async with trio.open_nursery() as nursery:
        yield SegmentBack(SegmentNative(settings), SegmentDirect(settings))
        nursery.cancel_scope.cancel()
