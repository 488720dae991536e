"""S2's rules for appends in any encoding.

A batch is checked record by record only if it has headers or breaks a limit (S2 fact sheet, 5.1, 5.3).
"""

from __future__ import annotations

from penstock.model.commands import parse_command
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    MAX_FENCING_TOKEN_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORD_HEADERS,
)
from penstock.model.operations import Append

__all__ = ["validate_append"]


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


def _largest_record(append: Append) -> int:
    sizes = [8 + len(body) for body in append.bodies]
    for index, headers in append.headers.items():
        sizes[index] += sum(2 + len(name) + len(value) for name, value in headers)
    return max(sizes, default=0)


def _invalid(message: str) -> OperationFailed:
    return fail(FailureCode.INVALID, message)
