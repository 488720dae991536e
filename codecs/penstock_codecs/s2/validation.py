"""S2's rules for appends in any encoding, and the meaning of its command records.

A batch is checked record by record only if it has headers or breaks a limit (S2 fact sheet, 5.1, 5.3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    MAX_FENCING_TOKEN_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORD_HEADERS,
)
from penstock_codecs.model import Headers, is_command
from penstock_codecs.operations import Append

__all__ = ["FENCE", "TRIM", "Fence", "TrimTo", "parse_command", "trim_points", "validate_append"]

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
    raise _invalid("unknown command")


def trim_points(append: Append) -> list[int]:
    """Return the sequence numbers of the `trim` commands in an append that `validate_append` accepts."""
    commands = (parse_command(headers, append.bodies[index]) for index, headers in append.headers.items())
    return [command.seq_num for command in commands if isinstance(command, TrimTo)]


def validate_append(append: Append) -> None:
    """Check records, batch and fencing token (S2 fact sheet, 5.1, 5.3); `append.metered` is trusted.

    Raises OperationFailed(INVALID). Costs next to nothing for a batch within its limits and without headers.
    """
    for index, headers in append.headers.items():
        if len(headers) > MAX_RECORD_HEADERS:
            raise _invalid(f"record must not have more than {MAX_RECORD_HEADERS} headers")
        for name, _ in headers:
            if not name:
                if len(headers) > 1:
                    raise _invalid("invalid header: empty name")
                parse_command(headers, append.bodies[index])
    if append.metered > MAX_BATCH_BYTES and _largest_record(append) > MAX_RECORD_BYTES:
        raise _invalid("record must have metered size less than 1 MiB")
    if not append.bodies:
        raise _invalid("record batch must not be empty")
    if len(append.bodies) > MAX_BATCH_RECORDS:
        raise _invalid("record batch must not exceed 1000 records")
    if append.metered > MAX_BATCH_BYTES:
        raise _invalid("record batch must not exceed a metered size of 1 MiB")
    if append.fencing_token is not None:
        size = len(append.fencing_token.encode())
        if size > MAX_FENCING_TOKEN_BYTES:
            raise _invalid(f"fencing token has {size} bytes, must be at most {MAX_FENCING_TOKEN_BYTES}")


def _parse_fence(body: bytes) -> Fence:
    if len(body) > MAX_FENCING_TOKEN_BYTES:
        raise _invalid(
            f"invalid `fence` command: token has {len(body)} bytes, must be at most {MAX_FENCING_TOKEN_BYTES}"
        )
    try:
        return Fence(body.decode())
    except UnicodeDecodeError:
        raise _invalid("invalid `fence` command: token is not UTF-8") from None


def _parse_trim(body: bytes) -> TrimTo:
    if len(body) != _TRIM_BYTES:
        raise _invalid(
            f"invalid `trim` command: earliest sequence number to trim to was {len(body)} bytes, must be {_TRIM_BYTES}"
        )
    return TrimTo(int.from_bytes(body, "big"))


def _largest_record(append: Append) -> int:
    sizes = [8 + len(body) for body in append.bodies]
    for index, headers in append.headers.items():
        sizes[index] += sum(2 + len(name) + len(value) for name, value in headers)
    return max(sizes, default=0)


def _invalid(message: str) -> OperationFailed:
    return fail(FailureCode.INVALID, message)
