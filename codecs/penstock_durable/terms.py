"""The terms of the clients of Durable Streams: URLs, and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.model.failures import OperationFailed
from penstock.model.operations import Located
from penstock.model.records import StreamRef
from penstock.protocols.terms import Terms
from penstock_durable.codec import spell_offset
from penstock_durable.names import DurableNames

__all__ = ["DurableTerms"]


class DurableTerms(Terms):
    """The terms of a listener's clients. `names`: as configured."""

    def __init__(self, names: DurableNames) -> None:
        self._names = names

    def to_stream(self, name: str) -> StreamRef:
        """Return the stream whose URL ends with `name`, decoded."""
        return self._names.named(name)

    def name_of(self, stream: StreamRef) -> str:
        """Return the path of a stream's URL."""
        return self._names.path_of(stream)

    def hints(self, stream: StreamRef, located: Located) -> Mapping[str, dict[str, Any]]:
        """Return the URL's path, and the offset to read from."""
        try:
            path = self.name_of(stream)
        except OperationFailed:
            return {}
        return {"durable": {"path": path, "offset": spell_offset(located.seq_num)}}
