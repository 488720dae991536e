"""A gateway without routes: what its clients use is noted and measured here, as by the router elsewhere."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from penstock.backs.base import AppendSession, Back, ReadSession
from penstock.backs.passing import S2SPassage, s2s_passage
from penstock.identity import CLIENT
from penstock.metrics.metered import metered_appends, metered_operation, metered_reads
from penstock.metrics.meters import meter
from penstock.recorder.tap import note_use
from penstock.routing.internal import owner_of
from penstock.routing.segments import INTERNAL_BASIN, SegmentNames
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["Noting"]

R = TypeVar("R")


class Noting:
    """A back as the clients of one listener see it; all is handed on as it is. See `Back`. `names`: how they name
    segments."""

    def __init__(self, inner: Back, names: SegmentNames, called: str = "") -> None:
        """`called`: the back's name, for what is measured."""
        self.inner = inner
        self._names = names
        self._called = called

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Back.capabilities`."""
        return self.inner.capabilities

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        """See `Back.perform`."""
        stream = getattr(operation, "stream", None) or getattr(operation, "target", None)
        if stream is not None:
            self._note(stream)
        elif (table := getattr(operation, "table", None)) is not None:
            self._note_owner(table)
        return metered_operation(meter("", self._called), operation, self.inner.perform(operation))

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`."""
        self._note(stream)
        entering = self.inner.append_session(stream, create_config, create_if_missing=create_if_missing)
        return metered_appends(meter("", self._called), entering)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        self._note(read.stream)
        return metered_reads(meter("", self._called), self.inner.read_session(read))

    def s2s_passage(self, stream: StreamRef) -> S2SPassage | None:
        """See `penstock.backs.passing.PassesS2S`."""
        return s2s_passage(self.inner, stream)

    def _note(self, stream: StreamRef) -> None:
        if stream.basin == INTERNAL_BASIN:
            self._note_owner(stream.stream)
        else:
            note_use("", stream, CLIENT.get().identity)

    def _note_owner(self, name: str) -> None:
        """What Pravega's clients keep for themselves belongs to a stream."""
        owned = owner_of(name, self._names)
        if owned is not None:
            note_use("", owned[1], CLIENT.get().identity)
