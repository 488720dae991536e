"""A back that records and measures its use, for gateways without routes; with routes the router does that."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from penstock.core.back import AppendSession, Back, BackWrapper, ReadSession
from penstock.core.identity import CLIENT
from penstock.core.internal_names import INTERNAL_BASIN, InternalNames
from penstock.model.operations import Operation, Read
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.observe.metrics.metered import metered_appends, metered_operation, metered_reads
from penstock.observe.metrics.meters import meter
from penstock.observe.taps.tap import note_use

__all__ = ["ObservedBack"]

R = TypeVar("R")


class ObservedBack(BackWrapper):
    """A `Back` for one listener's clients that hands everything on unchanged. `names`: their names of internal
    streams, None if they have none."""

    def __init__(self, inner: Back, names: InternalNames | None, called: str = "") -> None:
        """`called`: the back's name in metrics."""
        super().__init__(inner)
        self._names = names
        self._called = called

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        stream = operation.about
        if stream is not None:
            self._note(stream)
        elif (table := getattr(operation, "table", None)) is not None:
            self._note_owner(table)
        return metered_operation(meter("", self._called), operation, self._inner.perform(operation))

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        self._note(stream)
        entering = self._inner.append_session(stream, create_config, create_if_missing=create_if_missing)
        return metered_appends(meter("", self._called), entering)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        self._note(read.stream)
        return metered_reads(meter("", self._called), self._inner.read_session(read))

    def passthrough(self, protocol: str, stream: StreamRef) -> None:
        """Return None: the use of a stream is recorded and measured where its records are."""

    def _note(self, stream: StreamRef) -> None:
        if stream.basin == INTERNAL_BASIN:
            self._note_owner(stream.stream)
        else:
            note_use("", stream, CLIENT.get().identity)

    def _note_owner(self, name: str) -> None:
        """Record the use of an internal stream or table as a use of the stream that it belongs to."""
        owner = None if self._names is None else self._names.owner_of(name)
        if owner is not None:
            note_use("", owner, CLIENT.get().identity)
