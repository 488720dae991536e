"""Trimming: asked for as an operation, or by a command record that a client appends (S2 fact sheet, 5.3)."""

from __future__ import annotations

from penstock.backs.indexed.history import Cursor, cursor_at, cursor_to
from penstock.backs.indexed.state import StreamState
from penstock.positions.marks import Mark
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.operations import Append, Appended, FromRecordId, FromSeqNum, FromTimestamp
from penstock_codecs.s2.validation import TrimTo, parse_command

__all__ = ["carry_out_commands", "check_commands", "trim"]


async def trim(stream: StreamState, start: FromSeqNum | FromRecordId | FromTimestamp) -> Mark:
    """Remove the records before the first one at or after `start`; never beyond the tail. Gives the first one that is
    kept. Raises OperationFailed."""
    return await _trim_to(stream, await cursor_to(stream, start))


async def _trim_to(stream: StreamState, cursor: Cursor) -> Mark:
    kept = max(cursor.at, stream.index.first)
    # First the index: nobody is given what may be gone, and where the stream begins is known with its number.
    await stream.index.trimmed(kept)
    await stream.native.trim(stream.ref, kept)
    return kept


def check_commands(append: Append) -> None:
    """Raises INVALID for a command that is none."""
    for index, headers in append.headers.items():
        parse_command(headers, append.bodies[index])


async def carry_out_commands(stream: StreamState, append: Append, appended: Appended) -> None:
    """Do what the command records of an append say, which is there. A fence holds nothing back: the server has no
    tokens. Raises UNAVAILABLE where one could not be carried out: who appended it must not take it for not appended."""
    for index, headers in sorted(append.headers.items()):
        command = parse_command(headers, append.bodies[index])
        if isinstance(command, TrimTo):
            kept = FromSeqNum(min(command.seq_num, appended.start.seq_num + index + 1))
            try:
                await _trim_to(stream, await cursor_at(stream, kept))  # it has a number, so nothing is looked for
            except OperationFailed as error:
                why = error.failure.message
                message = f"a trim command was appended to stream {stream.ref}, but could not be carried out: {why}"
                raise fail(FailureCode.UNAVAILABLE, message) from None
