"""What the structs of the configuration are made of: keys with their explanations, and the checks they share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.config.address import Address
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.s2.names import validate_basin_name

__all__ = [
    "DEFAULT_BASIN",
    "ONE_OR_MORE",
    "Table",
    "Token",
    "check_address",
    "check_basin",
    "check_server",
    "check_tls",
    "key",
]

DEFAULT_BASIN = "penstock"

ONE_OR_MORE = Meta(extra={"one_or_more": True})
"""Of an array of tables: one table may stand there instead, `[listeners.s2]` for `[[listeners.s2]]`."""

Token = Annotated[str, Meta(pattern=r"^[!-~]+\Z")]
"""Visible ASCII without spaces, which is what every client can put into a header. (`$` would let a line feed pass.)"""


def key(
    description: str,
    *,
    least: float | None = None,
    most: float | None = None,
    example: object = None,
    usual: bool = False,
) -> Meta:
    """What a key means, the bounds of its value, and an example where it has no default. `usual`: it is mostly given,
    so a table that is shown as an example has it."""
    examples = None if example is None else [example]
    return Meta(description=description, ge=least, le=most, examples=examples, extra={"usual": True} if usual else None)


def check_address(name: str, text: str) -> None:
    """Raises ValueError, with the key's name, for what is not HOST:PORT."""
    try:
        Address.parse(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def check_server(name: str, text: str) -> None:
    """Raises ValueError, with the key's name, for what is not HOST:PORT of a server that can be connected to."""
    check_address(name, text)
    if Address.parse(text).port == 0:
        raise ValueError(f"{name}: nobody listens on port 0, got {text!r}")


def check_basin(name: str, basin: str) -> None:
    """Raises ValueError, with the key's name, for what cannot name a basin."""
    try:
        validate_basin_name(basin, FailureCode.INVALID)
    except OperationFailed as error:
        raise ValueError(f"{name}: {error.failure.message}") from error


def check_tls(certificate: str | None, key_file: str | None) -> None:
    """Raises ValueError where one is given without the other."""
    if (certificate is None) != (key_file is None):
        raise ValueError("tls_certificate and tls_key go together: give both or neither")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all tables."""
