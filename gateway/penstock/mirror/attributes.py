"""Attributes of streams, writers' positions among them: at a cut-over they go along with the records.

Nobody can list them, so they are those that clients named since the gateway runs. Whoever appends asks for its position
first, so the writers that are at work are among them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from penstock.backs.base import Back
from penstock.routing.segments import INTERNAL_BASIN
from penstock_codecs.byte_operations import (
    NO_ATTRIBUTE,
    AppendBytes,
    Attribute,
    GetAttribute,
    Merge,
    UpdateAttribute,
)
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import StreamRef

__all__ = ["Attributes"]

MOST: Final = 100_000
"""So many are remembered, about 300 bytes each; beyond that those are forgotten that were not named for longest."""


class Attributes:
    """Of one route; see the module."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._named: OrderedDict[tuple[StreamRef, Attribute], None] = OrderedDict()

    def saw(self, operation: object) -> None:
        """A client asked for this."""
        match operation:
            case AppendBytes(stream=stream, writer=writer) if writer is not None:
                self._name(stream, writer.writer)
            case GetAttribute(stream=stream, attribute=name) | UpdateAttribute(stream=stream, attribute=name):
                self._name(stream, name)
            case Merge(target=stream, updates=updates):
                for update in updates:
                    self._name(stream, update.attribute)

    def _name(self, stream: StreamRef, name: Attribute) -> None:
        if stream.basin == INTERNAL_BASIN:
            return
        self._named[stream, name] = None
        self._named.move_to_end((stream, name))
        if len(self._named) > self._most:
            self._named.popitem(last=False)

    async def carry_over(self, primary: Back, secondary: Back, failures: list[str]) -> None:
        """Give the secondary the values that the primary has, the latest named first; `failures` grows by why one was
        not given."""
        for stream, name in list(reversed(self._named)):
            try:
                await _carry_over(primary, secondary, stream, name)
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                    failures.append(error.failure.message)


async def _carry_over(primary: Back, secondary: Back, stream: StreamRef, name: Attribute) -> None:
    value = await primary.perform(GetAttribute(stream, name))
    if value == NO_ATTRIBUTE:
        return
    there = await secondary.perform(GetAttribute(stream, name))
    if there != value:
        await secondary.perform(UpdateAttribute(stream, name, value, there))
