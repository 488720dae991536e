"""Building blocks of the configuration's structs: keys with their descriptions, and shared checks."""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from penstock.core.address import Address
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.names import validate_basin_name, validate_stream_name

__all__ = [
    "DEFAULT_BASIN",
    "ONE_OR_MORE",
    "Table",
    "Token",
    "check_address",
    "check_basin",
    "check_server",
    "check_stream",
    "check_tls",
    "has",
    "is_basin_name",
    "key",
]

DEFAULT_BASIN = "penstock"

ONE_OR_MORE = Meta(extra={"one_or_more": True})
"""Marks an array of tables that may also be written as one table: `[listeners.s2]` for `[[listeners.s2]]`."""

Token = Annotated[str, Meta(pattern=r"^[!-~]+\Z")]
"""Visible ASCII without spaces, which every client can send in a header. (`$` would accept a trailing line feed.)"""


def key(
    description: str,
    *,
    least: float | None = None,
    most: float | None = None,
    example: object = None,
    usual: bool = False,
    path: bool = False,
) -> Meta:
    """Return the metadata of a key: its description, the bounds of its value, and an example if it has no default.

    `usual`: the key is mostly given, so a table that is shown as an example has it. `path`: its value names a file or
    directory, see `has`.
    """
    examples = None if example is None else [example]
    extra: dict[str, object] = {"usual": usual, "path": path}
    return Meta(description=description, ge=least, le=most, examples=examples, extra=extra)


def has(hint: object, mark: Literal["usual", "path"]) -> bool:
    """Return whether the key with this type hint has the mark."""
    return any(isinstance(meta, Meta) and (meta.extra or {}).get(mark) for meta in get_args(hint)[1:])


def check_address(name: str, text: str) -> None:
    """Raise ValueError, with the key's name, unless the text is HOST:PORT."""
    try:
        Address.parse(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def check_server(name: str, text: str) -> None:
    """Raise ValueError, with the key's name, unless the text is HOST:PORT of a server that can be connected to."""
    check_address(name, text)
    if Address.parse(text).port == 0:
        raise ValueError(f"{name}: a server cannot listen on port 0, got {text!r}")


def check_basin(name: str, basin: str) -> None:
    """Raise ValueError, with the key's name, unless the text can name a basin."""
    try:
        validate_basin_name(basin, FailureCode.INVALID)
    except OperationFailed as error:
        raise ValueError(f"{name}: {error.failure.message}") from error


def check_stream(name: str, stream: str) -> None:
    """Raise ValueError, with the key's name, unless the text can name a stream."""
    try:
        validate_stream_name(stream, FailureCode.INVALID)
    except OperationFailed as error:
        raise ValueError(f"{name}: {error.failure.message}") from error


def is_basin_name(text: str) -> bool:
    """Return whether the text can name a basin."""
    try:
        validate_basin_name(text, FailureCode.INVALID)
    except OperationFailed:
        return False
    return True


def check_tls(certificate: str | None, key_file: str | None) -> None:
    """Raise ValueError if only one of the two is given."""
    if (certificate is None) != (key_file is None):
        raise ValueError("tls_certificate and tls_key go together: give both or neither")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all tables."""
