"""What Pravega's clients keep for themselves: transactions, streams of reader groups, tables. It goes with the stream
that it belongs to where that is in a segment store, which can do it all by itself; else the embedded store has it."""

from __future__ import annotations

from dataclasses import replace

from penstock.routing.segments import SegmentName, SegmentNames
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import StreamRef

__all__ = ["owner_of", "renamed"]


def owner_of(name: str, names: SegmentNames) -> tuple[SegmentName, StreamRef] | None:
    """A segment's or table's name taken apart, and the stream that decides where it goes: itself, as if it were public,
    or what it is a part of. None for what is no segment's name."""
    try:
        parsed = SegmentName.parse(name, names.basin)
        return parsed, _as_public(parsed, names)
    except OperationFailed:
        return None


def renamed(name: SegmentName, there: StreamRef, names: SegmentNames) -> str | None:
    """What `name` is called where its stream is called `there`; None where segments have no such name."""
    for scope in ("", f"{there.basin}/"):
        try:
            found = SegmentName.parse(scope + there.stream, names.basin)
            if _as_public(found, names) == there:
                return str(replace(found, suffix=name.suffix))
        except OperationFailed:
            continue
    return None


def _as_public(name: SegmentName, names: SegmentNames) -> StreamRef:
    basin, prefix = names.basin_of(name.scope)
    place = f"/{name.number}.#epoch.{name.epoch}" if name.id else ""
    return StreamRef(basin, f"{prefix}{name.stream}{place}")
