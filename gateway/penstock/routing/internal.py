"""Internal segments and tables of Pravega's clients: transactions, streams of reader groups, tables.

If the stream that one belongs to is in a segment store, which supports all of them, it is kept there too; otherwise it
is kept in the embedded store, or by what stands in for it.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.segment_names import MARK_PREFIX, SegmentName, SegmentNames
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import StreamRef

__all__ = ["owner_of", "renamed"]


def owner_of(name: str, names: SegmentNames) -> tuple[SegmentName, StreamRef] | None:
    """Parse the name of a segment or table, and find the stream that decides its route: itself, as if it were public,
    or the stream that it is a part of. Returns None if `name` is not the name of a segment."""
    try:
        parsed = SegmentName.parse(name, names.basin)
        return parsed, _as_public(replace(parsed, stream=parsed.stream[len(_mark(parsed)) :]), names)
    except OperationFailed:
        return None


def renamed(name: SegmentName, there: StreamRef, names: SegmentNames) -> str | None:
    """Return the name that `name` has on a back where its stream is named `there`, or None if no segment can be named
    so."""
    for scope in ("", f"{there.basin}/"):
        try:
            parsed = SegmentName.parse(scope + there.stream, names.basin)
            if _as_public(parsed, names) == there:
                return str(replace(parsed, stream=_mark(name) + parsed.stream, suffix=name.suffix))
        except OperationFailed:
            continue
    return None


def _mark(name: SegmentName) -> str:
    """Return the prefix that makes this the watermark stream of another stream, "" for other segments."""
    return MARK_PREFIX if name.stream.startswith(MARK_PREFIX) and name.stream != MARK_PREFIX else ""


def _as_public(name: SegmentName, names: SegmentNames) -> StreamRef:
    basin, prefix = names.basin_of(name.scope)
    place = f"/{name.number}.#epoch.{name.epoch}" if name.id else ""
    return StreamRef(basin, f"{prefix}{name.stream}{place}")
