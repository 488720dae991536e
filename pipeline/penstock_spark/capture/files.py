"""Capture files on any file system of Arrow's: find them by path, directory or glob, and open them as plain bytes."""

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

from penstock.model.limits import MIB

__all__ = [
    "PIECE_BYTES",
    "FileInfo",
    "Gone",
    "NothingThere",
    "Unreadable",
    "find_captures",
    "opened_file",
    "plain_name",
]

PIECE_BYTES: Final = 1 * MIB
"""Bytes read at a time."""
MAX_ZSTD_WINDOW: Final = 128 * MIB
"""Largest window of a compressed file, in bytes, as for `zstd --long`; it is held in memory."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ENDINGS: Final = (".pcapng", ".pcapng.zst", ".pcap", ".pcap.zst")
_LOCAL: Final = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+://")
_GLOB: Final = re.compile(r"[*?\[]")


class Unreadable(Exception):
    """The capture does not exist or is not a capture; the text says which file and why."""


class NothingThere(Unreadable):
    """A directory without captures, or a glob without matches: some may come later."""


class Gone(Unreadable):
    """A file that was deleted after it was found: recorders delete the oldest."""


class FileInfo(NamedTuple):
    """One file. `size`: in bytes, before decompression; `modified_ns`: since 1970, 0 if unknown."""

    system: Any
    path: str
    size: int
    modified_ns: int

    @property
    def local(self) -> bool:
        """True if the file is in a mounted file system, where locks can be tested."""
        return isinstance(self.system, pyarrow.fs.LocalFileSystem)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.path if self.local else f"{self.system.type_name}://{self.path}"


def plain_name(path: str) -> str:
    """Return a path without the suffix of compression; it identifies the file before and after that."""
    return path.removesuffix(".zst")


def find_captures(paths: Sequence[str]) -> list[FileInfo]:
    """Return the captures at these paths, each once: files, directories (without subdirectories), globs; local paths,
    or URIs of other file systems. Raises Unreadable if a path has none."""
    by_path = {place.path: place for path in paths for place in _captures(path)}
    return list(by_path.values())


def _captures(path: str) -> list[FileInfo]:
    system, inside = _resolved(path)
    try:
        (info,) = system.get_file_info([inside])
        if info.type == pyarrow.fs.FileType.File:
            return [_place(system, info)]
        if info.type == pyarrow.fs.FileType.Directory:
            places = _directory(system, inside)
            what = f"no captures ({', '.join(f'*{ending}' for ending in _ENDINGS[:2])}) in this directory"
        elif _GLOB.search(inside):
            places = _matching(system, inside)
            what = "no file matches this glob"
        else:
            raise Unreadable(f"{path}: no such file")
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise Unreadable(f"{path}: the directory has a name that is not UTF-8: {error}") from error
    if not places:
        raise NothingThere(f"{path}: {what}")
    return places


def _resolved(path: str) -> tuple[Any, str]:
    """Return the file system of a path, and its path there."""
    local = _LOCAL.fullmatch(path)
    if local is None and _SCHEME.match(path):
        try:
            system, inside = pyarrow.fs.FileSystem.from_uri(path)
        except (OSError, ValueError, NotImplementedError) as error:
            raise Unreadable(f"{path}: {error}") from error
        return system, inside
    return pyarrow.fs.LocalFileSystem(), str(Path(unquote(local[1]) if local else path).absolute())


def _directory(system: Any, inside: str) -> list[FileInfo]:
    """Return the captures of a directory, in the order of their names. While a file is being compressed, and after a
    crash during that, both forms exist: the plain one is returned."""
    infos = system.get_file_info(pyarrow.fs.FileSelector(inside))
    files = [info for info in infos if info.type == pyarrow.fs.FileType.File and not info.base_name.startswith(".")]
    plain = {info.path for info in files}
    wanted = [
        info
        for info in files
        if info.base_name.endswith(_ENDINGS) and (info.extension != "zst" or plain_name(info.path) not in plain)
    ]
    return [_place(system, info) for info in sorted(wanted, key=lambda info: str(info.base_name))]


def _matching(system: Any, pattern: str) -> list[FileInfo]:
    """Return files, and captures of directories, whose paths match part by part."""
    parts = pattern.split("/")
    fixed = next(index for index, part in enumerate(parts) if _GLOB.search(part))
    base = "/".join(parts[:fixed]) or "/"
    selector = pyarrow.fs.FileSelector(base, allow_not_found=True, recursive=len(parts) - fixed > 1)
    places: list[FileInfo] = []
    for info in sorted(system.get_file_info(selector), key=lambda info: str(info.path)):
        path_parts = info.path.split("/")
        if len(path_parts) != len(parts) or not all(map(fnmatchcase, path_parts, parts)):
            continue
        if info.type == pyarrow.fs.FileType.Directory:
            places += _directory(system, info.path)
        elif info.type == pyarrow.fs.FileType.File and not info.base_name.startswith("."):
            places.append(_place(system, info))
    return places


def _place(system: Any, info: Any) -> FileInfo:
    return FileInfo(system, info.path, info.size or 0, info.mtime_ns or 0)


# ---- bytes -------------------------------------------------------------------------------------------------------


class ByteSource(Protocol):
    """A reader of a file's plain bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; empty at the end. Raises OSError and zstandard.ZstdError."""


@contextmanager
def opened_file(place: FileInfo) -> Iterator[ByteSource]:
    """Open a file as plain bytes, even if it was compressed since it was found. Raises Unreadable."""
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


def _stream(place: FileInfo) -> Any:
    for path in (place.path, f"{plain_name(place.path)}.zst"):
        try:
            return place.system.open_input_stream(path, compression=None)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Unreadable(f"{place}: {error.strerror or error}") from error
    raise Gone(f"{place}: the file was deleted meanwhile")


class _Ahead:
    """A file whose first bytes were read already."""

    def __init__(self, stream: Any, ahead: bytes) -> None:
        self._stream = stream
        self._ahead = ahead

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        ahead, self._ahead = self._ahead[:size], self._ahead[size:]
        return ahead or bytes(self._stream.read(size))


class _Decompressed:
    """Reader of a compressed file that returns what was decompressed so far, so that damage loses nothing before it."""

    def __init__(self, reader: zstandard.ZstdDecompressionReader) -> None:
        self.read = reader.read1
