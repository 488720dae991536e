"""Streams that are divided into partitions: stream `NAME`, or the streams `NAME/0`, `NAME/1` and so on.

Some listeners show both shapes to their clients as one object, `NAME`. Beside each other one would hide the other's
records, so in a basin that such a listener serves (`Back.declare_partitioned`) a stream cannot be created while the
other shape exists. A back that creates streams itself decides that atomically with the creation.
"""

from __future__ import annotations

from typing import Final

from penstock.model.records import StreamRef

__all__ = ["PartitionedNames", "divided_by", "shape_conflict"]

_MAX_DIGITS: Final = 6


def divided_by(name: str) -> str | None:
    """Return the name of the stream that a stream of this name is a partition of; None if it has no number, which has
    up to 6 digits and no zero before them."""
    whole, _, number = name.rpartition("/")
    is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    return whole if whole and is_number and (number == "0" or number[0] != "0") else None


class PartitionedNames:
    """The names that partitioned streams may have: a basin, and the prefix of all their names."""

    def __init__(self) -> None:
        self._prefixes: dict[str, set[str]] = {}

    def declare(self, basin: str, prefix: str) -> bool:
        """Add a basin and a prefix. Return False if they were declared before."""
        prefixes = self._prefixes.setdefault(basin, set())
        is_new = prefix not in prefixes
        prefixes.add(prefix)
        return is_new

    def whole(self, stream: StreamRef) -> str | None:
        """Return the name of the undivided stream that a partition excludes; None if the stream is no partition."""
        name = divided_by(stream.stream) if stream.basin in self._prefixes else None
        return name if name is not None and self.may_be_divided(StreamRef(stream.basin, name)) else None

    def may_be_divided(self, stream: StreamRef) -> bool:
        """Return whether partitions of a stream of this name would exclude it."""
        name = stream.stream
        return any(
            name.startswith(prefix) and len(name) > len(prefix) and "/" not in name[len(prefix) :]
            for prefix in self._prefixes.get(stream.basin, ())
        )


def shape_conflict(stream: StreamRef, existing: str) -> str:
    """Return the message of the error that refuses to create `stream` beside its other shape, stream `existing`. It has
    no other name than that of `stream`, which routes replace by the client's."""
    if existing.startswith(stream.stream):
        reason = f"it is divided into partitions, and partition {existing.rpartition('/')[2]} exists"
    else:
        reason = "it is a partition's name, and the stream before the number exists without partitions"
    return f"stream {stream.stream!r} in basin {stream.basin!r} cannot be created: {reason}"
