"""What a front has for its back while a reload may put another in its place."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from penstock.backs.base import AppendSession, Back, ReadSession
from penstock.backs.passing import S2SPassage, s2s_passage
from penstock.routing.permissions import Permission, require, require_all
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["Facing"]

R = TypeVar("R")


class Facing:
    """See `Back`. Each operation and each session goes to what `inner` is when it begins, and stays there."""

    def __init__(self, inner: Back) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Back.capabilities`."""
        return self.inner.capabilities

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        """See `Back.perform`."""
        return self.inner.perform(operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`."""
        return self.inner.append_session(stream, create_config, create_if_missing=create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        return self.inner.read_session(read)

    def s2s_passage(self, stream: StreamRef) -> S2SPassage | None:
        """See `penstock.backs.passing.PassesS2S`."""
        return s2s_passage(self.inner, stream)

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        """See `penstock.routing.permissions.Restricts`."""
        require(self.inner, stream, needs)

    def require_all(self, basin: str, prefix: str) -> None:
        """See `penstock.routing.permissions.Restricts`."""
        require_all(self.inner, basin, prefix)
