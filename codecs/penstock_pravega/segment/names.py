"""The mapping between segments' names and streams; docs/names.md explains it.

A Pravega stream is one or more segments, and each segment is a stream of ours. Names (segment fact sheet, 3.1):

| segment | basin, stream |
|---|---|
| `scope/stream/0.#epoch.0`, the scope a basin's name | `scope`, `stream` |
| `scope/stream/N.#epoch.E`, the scope a basin's name | `scope`, `stream/N.#epoch.E` |
| `scope/stream/0.#epoch.0`, any other scope | the listener's basin, `scope/stream` |
| `scope/stream/N.#epoch.E`, any other scope | the listener's basin, `scope/stream/N.#epoch.E` |
| a transaction's, a transient one, or of a stream whose name begins with `_` | `INTERNAL_BASIN`, the whole name |

These are one to one. Short names that clients without a controller use mean the same as a long one:
`scope/stream/N` means `scope/stream/N.#epoch.0`, `scope/stream` that with N = 0, and `stream` that of the listener's
basin. A name without a counterpart is refused with NOT_REPRESENTABLE, never changed until it fits.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.records import StreamRef

__all__ = ["MARK_PREFIX", "SegmentName", "SegmentNames", "has_number"]

MARK_PREFIX: Final = "_MARK"
"""`_MARK<stream>` holds the watermarks of a stream; readers of the Java client ask for it."""

_NO_COUNTERPART: Final = FailureCode.NOT_REPRESENTABLE
_MOST: Final = 2**31 - 1
"""Largest number and epoch: 32 bits with a sign in the real clients."""
_MAX_PART: Final = 255
"""Longest scope and longest stream name, in bytes (segment fact sheet, 1.1)."""
_PART: Final = re.compile(r"[A-Za-z0-9._-]+")
_DOTS: Final = frozenset({".", ".."})
_SUFFIX: Final = re.compile(r"(#transaction\.[0-9a-f]{32})?(#transient\.[0-9a-f]{1,32})?")
_SEGMENT: Final = re.compile(
    r"(?:(?P<scope>[^/#]*)/)?(?P<stream>[^/#]*)"
    r"(?:/(?P<number>0|[1-9][0-9]{0,9})(?:\.#epoch\.(?P<epoch>0|[1-9][0-9]{0,9}))?)?(?P<suffix>#.*)?"
)


class SegmentName(msgspec.Struct, frozen=True):
    """The parts of a segment's name. `suffix`: "" or the rest, such as `#transaction.<32 hex>`.

    Raises NOT_REPRESENTABLE for parts that make no segment's name.
    """

    scope: str
    stream: str
    number: int = 0
    epoch: int = 0
    suffix: str = ""

    def __post_init__(self) -> None:
        _check_part("scope", self.scope)
        _check_part("stream", self.stream)
        for what, value in (("number", self.number), ("epoch", self.epoch)):
            if not 0 <= value <= _MOST:
                raise fail(_NO_COUNTERPART, f"a segment's {what} is 0 to {_MOST}, not {value}")
        if not _SUFFIX.fullmatch(self.suffix):
            raise fail(
                _NO_COUNTERPART,
                f"expected #transaction or #transient, not {self.suffix!r:.80}",
            )

    @classmethod
    def parse(cls, name: str, default_scope: str) -> SegmentName:
        """Parse any of the spellings above. Raises NOT_REPRESENTABLE."""
        match = _SEGMENT.fullmatch(name)
        if match is None or (match["scope"] is None and match["number"] is not None):
            raise fail(_NO_COUNTERPART, f"{name!r:.80} is not a segment's name: scope/stream/NUMBER.#epoch.EPOCH")
        scope = default_scope if match["scope"] is None else match["scope"]
        number, epoch = int(match["number"] or 0), int(match["epoch"] or 0)
        return cls(scope, match["stream"], number, epoch, match["suffix"] or "")

    @classmethod
    def of_id(cls, scope: str, stream: str, segment_id: int) -> SegmentName:
        """Build from the controller's id of a segment: the epoch in the upper 32 bits, the number in the lower.

        Raises NOT_REPRESENTABLE.
        """
        return cls(scope, stream, segment_id & 0xFFFF_FFFF, segment_id >> 32)

    @property
    def id(self) -> int:
        """The controller's id of the segment, see `of_id`."""
        return self.epoch << 32 | self.number

    def __str__(self) -> str:
        """Return the long spelling."""
        return f"{self.scope}/{self.stream}/{self.number}.#epoch.{self.epoch}{self.suffix}"


class SegmentNames(msgspec.Struct, frozen=True):
    """The mapping, and the `InternalNames` of segments and tables. `basin` holds the streams of scopes whose names are
    not basin names. Raises ValueError for a bad `basin`."""

    basin: str = "penstock"

    def __post_init__(self) -> None:
        if not _is_basin(self.basin):
            raise ValueError(f"{self.basin!r} is not a basin's name")

    def to_stream(self, segment: str | SegmentName) -> StreamRef:
        """Return the stream of a segment. Raises NOT_REPRESENTABLE."""
        name = segment if isinstance(segment, SegmentName) else SegmentName.parse(segment, self.basin)
        if name.suffix or name.stream.startswith("_"):
            return StreamRef(INTERNAL_BASIN, str(name))
        public = self._public(name)
        validate_stream_name(public.stream, _NO_COUNTERPART)
        return public

    def from_stream(self, stream: StreamRef) -> SegmentName:
        """Return the segment of a stream. Raises NOT_REPRESENTABLE if segment clients have no name for it."""
        for scope in ("", f"{stream.basin}/"):
            try:
                name = SegmentName.parse(scope + stream.stream, self.basin)
                if self.to_stream(name) == stream:
                    return name
            except OperationFailed:
                continue
        raise fail(_NO_COUNTERPART, f"segment clients have no name for stream {stream}")

    def basin_of(self, scope: str) -> tuple[str, str]:
        """Return the basin that holds a scope's public streams, and the beginning of their names there ("" or
        `scope/`).

        Raises NOT_REPRESENTABLE if `scope` is not a scope's name.
        """
        _check_part("scope", scope)
        return (scope, "") if _is_basin(scope) else (self.basin, f"{scope}/")

    def owner_of(self, name: str) -> StreamRef | None:
        """Return the stream that a segment or table is a part of: a transaction's target, a watermark segment's stream;
        for others the stream that it would be if it were public. Returns None if `name` is not a segment's name."""
        try:
            segment = SegmentName.parse(name, self.basin)
            return self._public(replace(segment, stream=segment.stream[len(_mark(segment)) :]))
        except OperationFailed:
            return None

    def name_beside(self, owner: StreamRef, name: str) -> str | None:
        """Return the name of a segment or table where its owner is called `owner`, None if no segment has that name."""
        segment = SegmentName.parse(name, self.basin)
        for scope in ("", f"{owner.basin}/"):
            try:
                parsed = SegmentName.parse(scope + owner.stream, self.basin)
                if self._public(parsed) == owner:
                    return str(replace(parsed, stream=_mark(segment) + parsed.stream, suffix=segment.suffix))
            except OperationFailed:
                continue
        return None

    def _public(self, name: SegmentName) -> StreamRef:
        """Return the stream of a segment without its suffix, as if it were public."""
        basin, prefix = self.basin_of(name.scope)
        number = f"/{name.number}.#epoch.{name.epoch}" if name.id else ""
        return StreamRef(basin, f"{prefix}{name.stream}{number}")


def has_number(name: str) -> bool:
    """Return whether a segment's name includes its number in the stream."""
    match = _SEGMENT.fullmatch(name)
    return match is not None and match["number"] is not None


def _mark(name: SegmentName) -> str:
    """Return the prefix that makes this the watermark stream of another stream, "" for other segments."""
    return MARK_PREFIX if name.stream.startswith(MARK_PREFIX) and name.stream != MARK_PREFIX else ""


def _check_part(what: str, name: str) -> None:
    if not _PART.fullmatch(name) or name in _DOTS or len(name) > _MAX_PART:
        raise fail(
            _NO_COUNTERPART,
            f"a {what}'s name is 1 to {_MAX_PART} of A-Z, a-z, 0-9, '.', '_' and '-', and not . or ..: {name!r:.80}",
        )


def _is_basin(name: str) -> bool:
    try:
        validate_basin_name(name, _NO_COUNTERPART)
    except OperationFailed:
        return False
    return True
