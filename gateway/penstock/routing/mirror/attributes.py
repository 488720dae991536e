"""Attributes of streams, including writers' positions, which a cut-over copies along with the records.

Backs cannot list attributes, so the known ones are those that clients named since the gateway started. A writer asks
for its position before it appends, so all active writers are among them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from penstock.core.back import Back
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    AppendAs,
    AppendBytes,
    Attribute,
    GetAttribute,
    Merge,
    UpdateAttribute,
)
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.records import StreamRef

__all__ = ["Attributes"]

MOST: Final = 100_000
"""Most attributes that are remembered, about 300 bytes each; beyond that the least recently named are forgotten."""


class Attributes:
    """The attributes that clients of one route have named."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._named: OrderedDict[tuple[StreamRef, Attribute], None] = OrderedDict()

    def saw(self, operation: object) -> None:
        """Remember the attributes that a client's operation names."""
        match operation:
            case AppendAs(stream=stream, writer=writer):
                self._name(stream, writer.writer)
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
        """Copy the values from the primary to the secondary, the most recently named first. Appends to `failures` the
        message of each failed copy."""
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
