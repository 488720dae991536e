"""Segment stores as they are: operations on bytes and on tables."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from penstock.backs.base import AppendSession
from penstock.backs.segment.settings import SegmentBackSettings
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation
from penstock_codecs.streams import StreamConfig

__all__ = ["SegmentDirect"]

R = TypeVar("R")


class SegmentDirect:
    """What a segment front needs of a `Back`: all operations on bytes and tables, and sessions of `AppendBytes`.

    A client's own writer and position are the server's, too. In `Appended` only `offset` means anything: a segment
    store knows no sequence numbers, so the positions are all zero.
    """

    def __init__(self, settings: SegmentBackSettings) -> None:
        self._settings = settings

    @property
    def capabilities(self) -> frozenset[Capability]:
        """BYTES, and TABLES but for the draft."""
        raise NotImplementedError

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`; NOT_IMPLEMENTED for operations on records."""
        raise NotImplementedError

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`. Entering asks nothing of the server: the first append does."""
        raise NotImplementedError
