"""Bases of tests' own backs."""

from __future__ import annotations

from typing import Any

from penstock.core.back import Back, BackWrapper
from penstock.model.operations import Capability, Read
from penstock.model.records import StreamRef

__all__ = ["DecodedBack", "PartialBack", "SmallBatches"]


class PartialBack(Back):
    """A back that has only what a test needs; anything else fails the test."""

    capabilities: frozenset[Capability] = frozenset()

    async def perform(self, operation: Any) -> Any:
        raise AssertionError(operation)

    def append_session(self, stream: StreamRef, create_config: object = None, *, create_if_missing: bool = True) -> Any:
        raise AssertionError(stream)

    def read_session(self, read: Read) -> Any:
        raise AssertionError(read)


class SmallBatches(BackWrapper):
    """A back that takes batches of at most 1,000 records, as servers do."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._inner.capabilities - {Capability.LARGE_BATCHES}


class DecodedBack(BackWrapper):
    """A wrapper that no session passes undecoded."""

    def passthrough(self, protocol: str, stream: StreamRef) -> None:
        return None
