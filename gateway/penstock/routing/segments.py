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
`scope/stream/0` and `scope/stream` mean `scope/stream/0.#epoch.0`, and `stream` that of the listener's basin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_codecs.model import StreamRef

__all__ = ["INTERNAL_BASIN", "SegmentName", "SegmentNames"]

INTERNAL_BASIN: Final = "_pravega"
"""Holds what clients of other protocols are not to see; its name is none that they can say, and it is not listed."""


@dataclass(frozen=True, slots=True)
class SegmentName:
    """A segment's name, taken apart. `suffix`: "" or what follows, as `#transaction.<32 hex>`."""

    scope: str
    stream: str
    number: int = 0
    epoch: int = 0
    suffix: str = ""

    @classmethod
    def parse(cls, name: str, default_scope: str) -> SegmentName:
        """From any of the spellings above. Raises NOT_REPRESENTABLE."""

    @classmethod
    def of_id(cls, scope: str, stream: str, segment_id: int) -> SegmentName:
        """The controller's number of a segment: the epoch in the upper 32 bits, the number in the lower."""

    @property
    def id(self) -> int:
        """See `of_id`."""

    def __str__(self) -> str:
        """The long spelling."""


@dataclass(frozen=True, slots=True)
class SegmentNames:
    """The mapping. `basin` takes the streams of scopes that are no basin's name. Raises ValueError for a bad one."""

    basin: str = "penstock"

    def to_stream(self, segment: str | SegmentName) -> StreamRef:
        """The stream that a segment is. Raises NOT_REPRESENTABLE."""

    def from_stream(self, stream: StreamRef) -> SegmentName:
        """The segment that a stream is. Raises NOT_REPRESENTABLE where segment clients have no name for it."""

    def basin_of(self, scope: str) -> tuple[str, str]:
        """The basin that holds a scope's public streams, and what their names there begin with ("" or `scope/`).

        Raises NOT_REPRESENTABLE for what is no scope's name.
        """
