"""Capture files wherever Arrow's file systems reach: found by path, directory or glob, and opened as plain bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, cast
from urllib.parse import unquote

import pyarrow.fs
import zstandard

from penstock_codecs.limits import MIB

__all__ = ["PIECE_BYTES", "Gone", "NothingThere", "Place", "Unreadable", "find", "opened", "plain_name"]

PIECE_BYTES: Final = 1 * MIB
"""So much is read at once."""
MAX_ZSTD_WINDOW: Final = 128 * MIB
"""Largest window of a compressed file, which is held in memory; what `zstd --long` takes."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ENDINGS: Final = (".pcapng", ".pcapng.zst", ".pcap", ".pcap.zst")
_LOCAL: Final = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+://")
_GLOB: Final = re.compile(r"[*?\[]")


class Unreadable(Exception):
    """There is no such capture, or it is none; the text says which and why."""


class NothingThere(Unreadable):
    """A directory without captures, or a glob that nothing matches: there may be some later."""


class Gone(Unreadable):
    """A file that was found and is not there any more: recorders delete the oldest."""


class Place(NamedTuple):
    """One file. `size`: in bytes, as it lies there; `modified_ns`: since 1970, 0 where nobody knows."""

    system: Any
    path: str
    size: int
    modified_ns: int

    @property
    def local(self) -> bool:
        """It lies in a mounted file system, so that locks can be asked for."""
        return isinstance(self.system, pyarrow.fs.LocalFileSystem)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.path if self.local else f"{self.system.type_name}://{self.path}"


def plain_name(path: str) -> str:
    """A path as it was before its file was compressed: by this it is known for good."""
    return path.removesuffix(".zst")


def find(paths: Sequence[str]) -> list[Place]:
    """The captures that paths mean, each once: files, directories (without those below), globs; on the local file
    system, or with a URI anywhere else. Raises Unreadable where there is nothing such."""
    found = {place.path: place for path in paths for place in _captures(path)}
    return list(found.values())


def _captures(path: str) -> list[Place]:
    system, inside = _resolved(path)
    try:
        (info,) = system.get_file_info([inside])
        if info.type == pyarrow.fs.FileType.File:
            return [_place(system, info)]
        if info.type == pyarrow.fs.FileType.Directory:
            places = _directory(system, inside)
            what = f"no captures ({', '.join(f'*{ending}' for ending in _ENDINGS[:2])}) are in this directory"
        elif _GLOB.search(inside):
            places = _matching(system, inside)
            what = "nothing matches this glob"
        else:
            raise Unreadable(f"{path}: there is no such file")
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise Unreadable(f"{path}: a name that is not UTF-8 stands there: {error}") from error
    if not places:
        raise NothingThere(f"{path}: {what}")
    return places


def _resolved(path: str) -> tuple[Any, str]:
    """Where a path is, and its name there."""
    local = _LOCAL.fullmatch(path)
    if local is None and _SCHEME.match(path):
        try:
            system, inside = pyarrow.fs.FileSystem.from_uri(path)
        except (OSError, ValueError, NotImplementedError) as error:
            raise Unreadable(f"{path}: {error}") from error
        return system, inside
    return pyarrow.fs.LocalFileSystem(), str(Path(unquote(local[1]) if local else path).absolute())


def _directory(system: Any, inside: str) -> list[Place]:
    """The captures of a directory, in the order of their names. While a file is being compressed, and after a crash
    amid that, both are there: the plain one counts."""
    infos = system.get_file_info(pyarrow.fs.FileSelector(inside))
    files = [info for info in infos if info.type == pyarrow.fs.FileType.File and not info.base_name.startswith(".")]
    plain = {info.path for info in files}
    wanted = [
        info
        for info in files
        if info.base_name.endswith(_ENDINGS) and (info.extension != "zst" or plain_name(info.path) not in plain)
    ]
    return [_place(system, info) for info in sorted(wanted, key=lambda info: str(info.base_name))]


def _matching(system: Any, pattern: str) -> list[Place]:
    """Files, and captures of directories, whose path matches part by part."""
    parts = pattern.split("/")
    fixed = next(index for index, part in enumerate(parts) if _GLOB.search(part))
    base = "/".join(parts[:fixed]) or "/"
    selector = pyarrow.fs.FileSelector(base, allow_not_found=True, recursive=len(parts) - fixed > 1)
    places: list[Place] = []
    for info in sorted(system.get_file_info(selector), key=lambda info: str(info.path)):
        found = info.path.split("/")
        if len(found) != len(parts) or not all(map(fnmatchcase, found, parts)):
            continue
        if info.type == pyarrow.fs.FileType.Directory:
            places += _directory(system, info.path)
        elif info.type == pyarrow.fs.FileType.File and not info.base_name.startswith("."):
            places.append(_place(system, info))
    return places


def _place(system: Any, info: Any) -> Place:
    return Place(system, info.path, info.size or 0, info.mtime_ns or 0)


# ---- bytes -------------------------------------------------------------------------------------------------------


class Source(Protocol):
    """A file's plain bytes."""

    def read(self, size: int, /) -> bytes:
        """Up to so many; none: it has ended. Raises OSError and zstandard.ZstdError."""


@contextmanager
def opened(place: Place) -> Iterator[Source]:
    """The plain bytes of a file, also where it was compressed since it was found. Raises Unreadable."""
    with closing(_stream(place)) as stream:
        try:
            first = stream.read(len(_ZSTD_MAGIC))
        except OSError as error:
            raise Unreadable(f"{place}: {error.strerror or error}") from error
        source = _Ahead(stream, first)
        if first != _ZSTD_MAGIC:
            yield source
            return
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
        yield _Decompressed(decompressor.stream_reader(cast(BinaryIO, source), read_across_frames=True))


def _stream(place: Place) -> Any:
    for path in (place.path, f"{plain_name(place.path)}.zst"):
        try:
            return place.system.open_input_stream(path, compression=None)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Unreadable(f"{place}: {error.strerror or error}") from error
    raise Gone(f"{place}: it was deleted meanwhile")


class _Ahead:
    """A file whose first bytes were looked at."""

    def __init__(self, stream: Any, ahead: bytes) -> None:
        self._stream = stream
        self._ahead = ahead

    def read(self, size: int, /) -> bytes:
        """Up to so many bytes."""
        ahead, self._ahead = self._ahead[:size], self._ahead[size:]
        return ahead or bytes(self._stream.read(size))


class _Decompressed:
    """What a compressed file holds, as far as it has come: what stands before damage is not lost with it."""

    def __init__(self, reader: zstandard.ZstdDecompressionReader) -> None:
        self.read = reader.read1
