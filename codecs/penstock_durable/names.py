"""The mapping between URLs of Durable Streams and streams; docs/names.md explains it.

The path of a stream's URL is a prefix and the stream's name, percent-encoded; slashes may stay as they are. The mapping
is one to one on decoded names.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from penstock.model.failures import FailureCode, fail
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.records import StreamRef
from penstock_durable.config import DurableBackTable, DurableListener

__all__ = ["DurableNames", "names_of"]


_CONTROL: Final = "__ds"
"""The first label of paths that the protocol reserves for its extensions, such as subscriptions."""


class DurableNames(msgspec.Struct, frozen=True):
    """The mapping of a listener. `prefix` begins and ends with a slash. `basin`: that of all streams; None: the first
    label behind the prefix is the basin."""

    prefix: str
    basin: str | None

    def to_stream(self, path: str) -> StreamRef:
        """Return the stream of a URL's path. Raises STREAM_NOT_FOUND for a path without the prefix, BAD_PATH."""
        if not path.startswith(self.prefix) or path == self.prefix:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"{path!r:.80} is no stream: they are under {self.prefix}")
        try:
            name = unquote_to_bytes(path[len(self.prefix) :]).decode()
        except UnicodeDecodeError:
            raise fail(FailureCode.BAD_PATH, f"{path!r:.80} is not UTF-8") from None
        return self.named(name)

    def named(self, name: str) -> StreamRef:
        """Return the stream with this decoded name. Raises BAD_PATH."""
        if name.split("/", 1)[0] == _CONTROL:
            raise fail(FailureCode.BAD_PATH, f"{name!r:.80} is no stream: Durable Streams reserves {_CONTROL}/")
        basin, stream = self.basin, name
        if basin is None:
            space, _, stream = name.partition("/")
            basin = validate_basin_name(space, FailureCode.BAD_PATH)
        return StreamRef(basin, validate_stream_name(stream, FailureCode.BAD_PATH))

    def path_of(self, stream: StreamRef) -> str:
        """Return the path of a stream. Raises NOT_REPRESENTABLE for one of another basin than the listener's, and for a
        reserved path."""
        if self.basin not in (None, stream.basin):
            reason = f"stream {stream} is not in basin {self.basin}, the only basin of this listener"
            raise fail(FailureCode.NOT_REPRESENTABLE, reason)
        name = stream.stream if self.basin is not None else f"{stream.basin}/{stream.stream}"
        if name.split("/", 1)[0] == _CONTROL:
            raise fail(FailureCode.NOT_REPRESENTABLE, f"stream {stream}: Durable Streams reserves {_CONTROL}/")
        return self.prefix + quote(name)


def names_of(table: DurableListener | DurableBackTable) -> DurableNames:
    """Return the mapping between URLs and streams."""
    return DurableNames(table.path, table.basin if table.names == "fixed" else None)
