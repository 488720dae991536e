"""Command records: records that fence or trim their stream (S2 fact sheet, 5.3)."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.failures import FailureCode, fail
from penstock.model.limits import MAX_FENCING_TOKEN_BYTES
from penstock.model.operations import Append
from penstock.model.records import Headers, is_command

__all__ = ["FENCE", "TRIM", "Fence", "TrimTo", "parse_command", "trim_points"]

FENCE: Final = b"fence"
TRIM: Final = b"trim"
_TRIM_BYTES: Final = 8


class Fence(NamedTuple):
    """Command `fence`: later appends that carry a token must carry this one; "" clears it."""

    token: str


class TrimTo(NamedTuple):
    """Command `trim`: the earliest sequence number to keep."""

    seq_num: int


def parse_command(headers: Headers, body: bytes) -> Fence | TrimTo | None:
    """Return the command that a record is, or None for an ordinary record (S2 fact sheet, 5.3).

    Raises OperationFailed(INVALID) for an unknown command and for a payload that its command does not accept.
    """
    if not is_command(headers):
        return None
    operation = headers[0].value
    if operation == FENCE:
        return _parse_fence(body)
    if operation == TRIM:
        return _parse_trim(body)
    raise fail(FailureCode.INVALID, "unknown command")


def trim_points(append: Append) -> list[int]:
    """Return the sequence numbers of the `trim` commands in an append. Raises OperationFailed(INVALID)."""
    commands = (parse_command(headers, append.bodies[index]) for index, headers in append.headers.items())
    return [command.seq_num for command in commands if isinstance(command, TrimTo)]


def _parse_fence(body: bytes) -> Fence:
    if len(body) > MAX_FENCING_TOKEN_BYTES:
        raise fail(
            FailureCode.INVALID,
            f"invalid `fence` command: token has {len(body)} bytes, must be at most {MAX_FENCING_TOKEN_BYTES}",
        )
    try:
        return Fence(body.decode())
    except UnicodeDecodeError:
        raise fail(FailureCode.INVALID, "invalid `fence` command: token is not UTF-8") from None


def _parse_trim(body: bytes) -> TrimTo:
    if len(body) != _TRIM_BYTES:
        raise fail(
            FailureCode.INVALID,
            f"invalid `trim` command: earliest sequence number to trim to was {len(body)} bytes, must be {_TRIM_BYTES}",
        )
    return TrimTo(int.from_bytes(body, "big"))
