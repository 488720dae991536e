"""Trimming, as an operation or by a command record that a client appends (S2 fact sheet, 5.3)."""

from __future__ import annotations

from penstock.backends.sequence_numbering.history import ScanStart, cursor_at, cursor_to
from penstock.backends.sequence_numbering.state import IndexedStream
from penstock.core.marks import Mark
from penstock.model.commands import TrimTo, parse_command
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended, Capability, FromRecordId, FromSeqNum, FromTimestamp

__all__ = ["carry_out_commands", "check_commands", "trim"]


async def trim(stream: IndexedStream, start: FromSeqNum | FromRecordId | FromTimestamp) -> Mark:
    """Remove the records before the first one at or after `start`, never beyond the tail; return the first one kept.

    If the server has no trims, the records stay there, and are hidden from clients of this gateway.

    Raises OperationFailed.
    """
    return await _trim_to(stream, await cursor_to(stream, start))


async def _trim_to(stream: IndexedStream, cursor: ScanStart) -> Mark:
    kept = max(cursor.at, stream.index.first)
    # The index first: then no read is given records that may be gone, and the number of the first record is known.
    await stream.index.trimmed(kept)
    if Capability.TRIM in stream.native.capabilities:
        await stream.native.trim(stream.ref, kept)
    return kept


def check_commands(append: Append) -> None:
    """Check the command records of an append. Raises INVALID for a malformed one."""
    for index, headers in append.headers.items():
        parse_command(headers, append.bodies[index])


async def carry_out_commands(stream: IndexedStream, append: Append, appended: Appended) -> None:
    """Carry out the command records of an acknowledged append. A fence has no effect: the server has no tokens.

    Raises UNAVAILABLE if one cannot be executed, an error that does not deny that the record was appended.
    """
    for index, headers in sorted(append.headers.items()):
        command = parse_command(headers, append.bodies[index])
        if isinstance(command, TrimTo):
            kept = FromSeqNum(min(command.seq_num, appended.start.seq_num + index + 1))
            try:
                await _trim_to(stream, await cursor_at(stream, kept))  # the record has a number, so no scan is needed
            except OperationFailed as error:
                reason = error.failure.message
                message = f"a trim command was appended to stream {stream.ref}, but could not be executed: {reason}"
                raise fail(FailureCode.UNAVAILABLE, message) from None
