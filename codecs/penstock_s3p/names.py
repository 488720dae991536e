"""The mapping between the protocols' names of streams; docs/names.md explains it.

Every protocol has a mapping of its own between its names and `StreamRef`, so there are as many mappings as protocols. A
mapping is injective and its two directions are exact inverses. A name without a counterpart on the other side is
refused with NOT_REPRESENTABLE, never changed until it fits.

An S3P name is any bytes (S3P 0.2.0, section 6); an S2 stream name is 1 to 512 bytes of UTF-8 without NUL, and not `.`
or `..` (S2 fact sheet, 1.4). So UTF-8 stays as it is, and `%XX` (capital hexadecimal digits) encodes the rest: NUL,
bytes that are not UTF-8, the dots of `.` and `..`, and `%` itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from penstock.model.failures import FailureCode, OperationFailed, fail, printable
from penstock.model.limits import MAX_STREAM_NAME_BYTES
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.records import StreamRef

__all__ = ["BasinInName", "FixedBasin", "S3PNames", "s3p_names"]

NO_COUNTERPART: Final = FailureCode.NOT_REPRESENTABLE
_DOTS: Final = frozenset({b".", b".."})
_TO_ESCAPE: Final = re.compile("[%\0\udc80-\udcff]")
"""`surrogateescape` gives U+DC80 to U+DCFF for the bytes that are not UTF-8."""
_ESCAPE: Final = re.compile(rb"%([0-9A-F]{2})")


class S3PNames(Protocol):
    """A mapping between S3P's stream names and streams."""

    def to_stream(self, name: bytes) -> StreamRef:
        """Return the stream that an S3P client calls `name`. Raises NOT_REPRESENTABLE."""

    def from_stream(self, stream: StreamRef) -> bytes:
        """Return the name of the stream for S3P clients. Raises NOT_REPRESENTABLE if it has none."""


@dataclass(frozen=True, slots=True)
class FixedBasin(S3PNames):
    """The mapping that puts all S3P streams in one basin: the whole S3P name is the stream's name there. Raises
    ValueError for a bad basin."""

    basin: str = "penstock"

    def __post_init__(self) -> None:
        _check_basin(self.basin)

    def to_stream(self, name: bytes) -> StreamRef:
        return StreamRef(self.basin, _escaped(name))

    def from_stream(self, stream: StreamRef) -> bytes:
        if stream.basin != self.basin:
            raise fail(NO_COUNTERPART, f"stream {stream} is not in basin {self.basin}, the only basin for S3P clients")
        return _unescaped(stream.stream)


@dataclass(frozen=True, slots=True)
class BasinInName(S3PNames):
    """The mapping for S3P names of the form `basin/stream`, split at the first slash."""

    def to_stream(self, name: bytes) -> StreamRef:
        basin, slash, stream = name.partition(b"/")
        if not slash:
            raise fail(NO_COUNTERPART, f"stream name {printable(name)} is not of the form basin/stream")
        return StreamRef(validate_basin_name(basin.decode("latin-1"), NO_COUNTERPART), _escaped(stream))

    def from_stream(self, stream: StreamRef) -> bytes:
        basin = validate_basin_name(stream.basin, NO_COUNTERPART)
        return basin.encode("ascii") + b"/" + _unescaped(stream.stream)


def s3p_names(mode: Literal["fixed", "path"] = "fixed", basin: str = "penstock") -> S3PNames:
    """Return the mapping for a configured mode: "fixed" (everything in `basin`) or "path" (`basin/stream`)."""
    return FixedBasin(basin) if mode == "fixed" else BasinInName()


def _check_basin(basin: str) -> None:
    try:
        validate_basin_name(basin, NO_COUNTERPART)
    except OperationFailed as error:
        raise ValueError(f"{basin!r}: {error.failure.message}") from None


def _escaped(name: bytes) -> str:
    if name in _DOTS:
        return "%2E" * len(name)
    escaped = _TO_ESCAPE.sub(_escape, name.decode("utf-8", "surrogateescape"))
    size = len(escaped.encode())
    if size > max(len(name), MAX_STREAM_NAME_BYTES):
        reason = f"the stream name of {len(name)} bytes has bytes that are escaped (%XX): it becomes {size} bytes long"
        raise fail(NO_COUNTERPART, f"{reason}, at most {MAX_STREAM_NAME_BYTES} are allowed")
    return validate_stream_name(escaped, NO_COUNTERPART)


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]) & 0xFF:02X}"


def _unescaped(stream: str) -> bytes:
    try:
        name = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode("ascii")), stream.encode())
        canonical = _escaped(name)
    except UnicodeEncodeError:
        canonical = None
    if canonical != stream:
        raise fail(
            NO_COUNTERPART,
            f"stream {stream} has no S3P name: % must begin an escape (%25 for itself) of a byte that needs one",
        )
    return name
