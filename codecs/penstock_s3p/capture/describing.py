"""Describe S3P commands and replies: kinds, streams, fields."""

from __future__ import annotations

from typing import Any

from penstock.capture.dialogue.clauses import ErrorMeaning
from penstock.capture.dialogue.messages import APPENDED, SeenRecord
from penstock.capture.pcapng import Conversation
from penstock_s3p.capture.clauses import S3P_ERRORS
from penstock_s3p.codec.events import (
    FIRST_ID,
    AppendedId,
    AppendRecords,
    Command,
    Create,
    Delete,
    ErrorReply,
    Ok,
    ReadRecords,
    Records,
    Reply,
    TrimRecords,
)

__all__ = ["REPLY_NAMES", "appended_records", "command_fields", "kind_of", "reply_fields", "reply_kind", "stream_of"]

_WORDS: dict[type, str] = {
    Create: "CREATE",
    AppendRecords: "APPEND",
    ReadRecords: "READ",
    TrimRecords: "TRIM",
    Delete: "DELETE",
}
REPLY_NAMES: dict[type, str] = {Ok: "OK", AppendedId: "ID", Records: "RECORDS"}
"""Names of replies other than errors, which have none in the specification."""
_UNKNOWN = ErrorMeaning("A code that the specification does not have; it leaves codes open.", "S3P 0.2.0, section 9")


def kind_of(command: Command) -> str:
    """Return the command's word."""
    return _WORDS[type(command)]


def reply_kind(reply: Reply) -> str:
    """Return a name for a reply; for errors the code."""
    return reply.code if isinstance(reply, ErrorReply) else REPLY_NAMES[type(reply)]


def stream_of(command: Command) -> str:
    """Return the stream's name as text: bytes that are not UTF-8 become `\\xff`."""
    return command.name.decode("utf-8", "backslashreplace")


def command_fields(command: Command) -> dict[str, Any]:
    """Return a command's fields, with the options given; READ's MIN_ID 0-0 and BLOCK 0 count as not given."""
    fields: dict[str, Any] = {"name": stream_of(command)}
    match command:
        case AppendRecords(bodies=bodies, ms=ms):
            fields |= {"count": len(bodies), "size": sum(map(len, bodies))}
            fields |= {} if ms is None else {"id": ms}
        case ReadRecords(count=count, block_ms=block_ms, min_id=min_id):
            fields |= {} if count is None else {"count": count}
            fields |= {"block": block_ms} if block_ms else {}
            fields |= {"min_id": str(min_id)} if min_id != FIRST_ID else {}
        case TrimRecords(min_id=min_id):
            fields["min_id"] = str(min_id)
        case _:
            pass
    return fields


def reply_fields(reply: Reply) -> dict[str, Any]:
    """Return a reply's fields; for errors also their meaning and clause."""
    match reply:
        case AppendedId(record_id):
            return {"id": str(record_id)}
        case Records(bodies=bodies):
            pairs = reply.pairs()
            ends = {"first_id": str(pairs[0][0]), "last_id": str(pairs[-1][0])} if pairs else {}
            return {"count": len(bodies), "size": sum(map(len, bodies)), **ends}
        case ErrorReply(code, message):
            meaning = S3P_ERRORS.get(code, _UNKNOWN)
            return {"message": message, "fatal": reply.fatal, "meaning": meaning.text, "clause": meaning.clause}
        case _:
            return {}


def appended_records(command: Command, stream: str, time_ns: int, conversation: Conversation) -> list[SeenRecord]:
    """Return the records that a command appends."""
    if not isinstance(command, AppendRecords):
        return []
    return [SeenRecord(APPENDED, stream, body, time_ns=time_ns, conversation=conversation) for body in command.bodies]
