"""The terms of the segment protocol's clients: names of segments, and byte offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.model.operations import Located
from penstock.model.records import StreamRef
from penstock.protocols.terms import Terms
from penstock_pravega.segment.names import SegmentNames

__all__ = ["SegmentTerms"]


class SegmentTerms(Terms):
    """The terms of a segment listener's clients. `names`: as configured."""

    reads_bytes = True

    def __init__(self, names: SegmentNames) -> None:
        self._names = self.internal_names = names

    def to_stream(self, name: str) -> StreamRef:
        """Return the stream that its clients call `name`."""
        return self._names.to_stream(name)

    def name_of(self, stream: StreamRef) -> str:
        """Return its clients' name of a stream."""
        return str(self._names.from_stream(stream))

    def hints(self, stream: StreamRef, located: Located) -> Mapping[str, dict[str, Any]]:
        """Return the segment and the byte offset to read from."""
        if located.offset is None or not self.can_name(stream):
            return {}
        return {"segment": {"segment": self.name_of(stream), "offset": located.offset}}
