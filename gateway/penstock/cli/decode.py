"""`penstock decode`: read bytes or hex, detect the dialect, and list the messages field by field."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import click

from penstock.wire.codec import installed_codecs
from penstock.wire.listing import Listing, Undecodable, farthest

__all__ = ["decode_command"]

_LISTINGS: Final[dict[str, Listing]] = {
    name: plugin.listing() for name, plugin in installed_codecs().items() if plugin.listing is not None
}
_DIALECTS_BY_PROTOCOL: Final = "; ".join(
    f"{name}: {' or '.join(listing.dialects)}" for name, listing in _LISTINGS.items() if len(listing.dialects) > 1
)
_DIALECTS: Final = sorted({dialect for listing in _LISTINGS.values() for dialect in listing.dialects})
_COMMENT: Final = re.compile(rb"#[^\n]*")
_HEX: Final = re.compile(rb"[0-9a-fA-F\s]*")


@click.command("decode")
@click.option("--protocol", type=click.Choice(list(_LISTINGS)), required=True, help="Protocol of the bytes.")
@click.option(
    "--side",
    type=click.Choice(["auto", "client", "server"]),
    default="auto",
    show_default=True,
    help="Sender of the bytes.",
)
@click.option(
    "--dialect",
    type=click.Choice(["auto", *_DIALECTS]),
    default="auto",
    show_default=True,
    help=f"{_DIALECTS_BY_PROTOCOL}.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "hex", "binary"]),
    default="auto",
    show_default=True,
    help="Hex may contain white space, and comments from # to the end of the line.",
)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True, dir_okay=False))
def decode_command(protocol: str, side: str, dialect: str, form: str, file: Path) -> None:
    """List the messages in FILE (- for standard input), field by field, each with its offset in bytes.

    The bytes are those of one direction of a connection, starting at the beginning of a message. If they become
    undecodable, the messages before are listed, then the error and its offset; the exit code is 1.
    """
    listing = _LISTINGS[protocol]
    if dialect not in ("auto", *listing.dialects):
        raise click.BadParameter(f"{protocol} has {' and '.join(listing.dialects)}", param_hint="--dialect")
    data = unhexed(_read(file), form)
    reading = farthest(listing.readings(side, dialect), data)
    try:
        for line in reading(data):
            click.echo(line)
    except Undecodable as error:
        raise click.ClickException(str(error)) from error


def _read(file: Path) -> bytes:
    if file == Path("-"):
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise click.FileError(str(file), error.strerror) from error


def unhexed(data: bytes, form: str) -> bytes:
    """Return the bytes of hex digits, or the data itself if it is binary. "auto" decodes data that consists of hex
    digits.

    Raises ClickException for invalid hex.
    """
    if form == "binary":
        return data
    digits = _COMMENT.sub(b"", data)
    match = _HEX.match(digits)
    wrong = 0 if match is None else match.end()
    if wrong < len(digits):
        if form == "auto":
            return data
        line = digits.count(b"\n", 0, wrong) + 1
        raise click.ClickException(f"line {line}: {digits[wrong : wrong + 1]!r} is not a hex digit")
    packed = b"".join(digits.split())
    if len(packed) % 2:
        raise click.ClickException(f"an odd number of hex digits: {len(packed)}")
    return bytes.fromhex(packed.decode("ascii"))
