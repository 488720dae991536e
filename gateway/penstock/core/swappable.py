"""The back of a front, which a reload can replace."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from penstock.core.back import AppendSession, Back, ReadSession
from penstock.core.passthrough import S2SPassthrough, s2s_passage
from penstock.core.permissions import Permission, require, require_all, require_some
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["SwappableBack"]

R = TypeVar("R")


class SwappableBack:
    """A `Back` that can be replaced: each operation and each session uses the `inner` at its beginning, until it
    ends."""

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

    def s2s_passage(self, stream: StreamRef) -> S2SPassthrough | None:
        """See `penstock.core.passthrough.PassesS2S`."""
        return s2s_passage(self.inner, stream)

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        """See `penstock.core.permissions.Restricts`."""
        require(self.inner, stream, needs)

    def require_some(self, basin: str, prefix: str, needs: frozenset[Permission]) -> None:
        """See `penstock.core.permissions.Restricts`."""
        require_some(self.inner, basin, prefix, needs)

    def require_all(self, basin: str, prefix: str) -> None:
        """See `penstock.core.permissions.Restricts`."""
        require_all(self.inner, basin, prefix)
