"""S3P 0.2.0, both roles (the specification, with the resolutions of the S3P fact sheet, section 3)."""

from __future__ import annotations

from typing import Any, Final

from penstock.model.limits import MIB
from penstock.model.records import RecordId
from penstock.wire.codec import Codec, CodecPlugin, Role
from penstock.wire.listing import Listing
from penstock_s3p.codec.conversation import MAX_REPLY_BYTES, S3PClient, S3PServer
from penstock_s3p.codec.encoding import encode_command, encode_reply
from penstock_s3p.codec.errors import error_reply, failure_of
from penstock_s3p.codec.events import (
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
from penstock_s3p.codec.limits import S3PLimits

__all__ = [
    "MAX_REPLY_BYTES",
    "PLUGIN",
    "AppendRecords",
    "AppendedId",
    "Command",
    "Create",
    "Delete",
    "ErrorReply",
    "Ok",
    "ReadRecords",
    "Records",
    "Reply",
    "S3PClient",
    "S3PLimits",
    "S3PServer",
    "TrimRecords",
    "error_reply",
    "failure_of",
]

DIALECT: Final = "0.2.0"


def _make(role: Role, dialect: str) -> Codec[Any, Any]:
    if dialect != DIALECT:
        raise ValueError(f"S3P has the dialect {DIALECT!r}, not {dialect!r}")
    return S3PServer() if role is Role.SERVER else S3PClient(observer=True)


def _sample(role: Role, _dialect: str) -> bytes:
    """Return a short conversation with every command, or every kind of reply, once."""
    name = b"orders"
    commands: list[Command] = [
        Create(name),
        AppendRecords(name, [b"hello", b"\r\n$5\r\n\x00\xff"], 1_700_000_000_000),
        AppendRecords(name, [b"world"]),
        ReadRecords(name, 10, 250, RecordId(1_700_000_000_000, 1)),
        TrimRecords(name, RecordId(1_700_000_000_000, 1)),
        Delete(name),
    ]
    replies: list[Reply] = [
        Ok(),
        AppendedId(RecordId(1_700_000_000_000, 1)),
        ErrorReply("ERR_UNKNOWN_STREAM", "stream orders does not exist"),
        Records.of([(RecordId(1_700_000_000_000, 1), b"\r\n$5\r\n\x00\xff"), (RecordId(1_700_000_000_001, 0), b"x")]),
        Records.of([]),
        ErrorReply("ERR_BAD_FORMAT", "unknown option MAX_SIZE of CREATE"),
    ]
    if role is Role.CLIENT:
        return b"".join(map(encode_reply, replies))
    return b"".join(piece for command in commands for piece in encode_command(command))


def _listing() -> Listing:
    from penstock_s3p.codec.listing import LISTING  # here, because only `penstock decode` needs it

    return LISTING


PLUGIN: Final = CodecPlugin("s3p", _make, (DIALECT,), _sample, MAX_REPLY_BYTES + MIB, _listing)
