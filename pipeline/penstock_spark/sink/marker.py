"""The header `penstock-sink`, by which a task finds the records stored by its earlier attempts.

Its value is text, separated by blanks: sink, batch, partition, number of the first row, number after the last row,
digest of all rows of this task and stream up to there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.records import Header, Headers
from penstock_spark.sink.digest import RowDigest

__all__ = ["MARKER", "Marker", "find_marker", "marker_header", "marker_room"]

MARKER: Final = b"penstock-sink"
"""The header's name."""


class Marker(NamedTuple):
    """An append of the rows from `first` up to `end`; `digest` is that of all rows up to `end`."""

    first: int
    end: int
    digest: str


def marker_header(owner: bytes, marker: Marker) -> Header:
    """Return the marker of an append. `owner`: sink, batch and partition, as in `Identity.owner`."""
    return Header(MARKER, b"%s %d %d %s" % (owner, *marker[:2], marker.digest.encode()))


def marker_room(owner: bytes) -> int:
    """Return the maximum size of a marker in metered bytes (S2 fact sheet, 5.1)."""
    longest = Marker(2**63, 2**63, RowDigest().text())
    header = marker_header(owner, longest)
    return 2 + len(header.name) + len(header.value)


def find_marker(owner: bytes, headers: Headers) -> Marker | None:
    """Return the owner's marker in a record's headers; None if there is none."""
    for name, value in reversed(headers):
        if name == MARKER and value.startswith(owner + b" "):
            words = value[len(owner) + 1 :].split(b" ")
            if len(words) == 3 and words[0].isdigit() and words[1].isdigit():
                return Marker(int(words[0]), int(words[1]), words[2].decode("ascii", "replace"))
    return None
