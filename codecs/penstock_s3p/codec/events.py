"""The messages of an S3P conversation: five commands and four replies (S3P 0.2.0, sections 8 and 9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from penstock.model.records import RecordId

__all__ = [
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
    "TrimRecords",
    "reply_type",
]

FIRST_ID: Final = RecordId(0, 0)
FATAL_CODES: Final = frozenset({"ERR_BAD_FORMAT", "ERR_LIMITS"})


class Create(Struct):
    """`CREATE` (8.1): create a stream. Names are any bytes."""

    name: bytes


class AppendRecords(Struct):
    """`APPEND` (8.2): at least one record, none of them empty; `ms` is option ID, the timestamp of all of them."""

    name: bytes
    bodies: list[bytes]
    ms: int | None = None


class ReadRecords(Struct):
    """`READ` (8.3): at most `count` records from `min_id` on, waiting up to `block_ms` ms for the first.

    A server's codec fills in its own default if the client gave no COUNT; a client that leaves `count` None sends none.
    """

    name: bytes
    count: int | None = None
    block_ms: int = 0
    min_id: RecordId = FIRST_ID


class TrimRecords(Struct):
    """`TRIM` (8.4): remove the records before `min_id`."""

    name: bytes
    min_id: RecordId


class Delete(Struct):
    """`DELETE` (8.5): remove the stream and its records."""

    name: bytes


Command = Create | AppendRecords | ReadRecords | TrimRecords | Delete


class Ok(Struct):
    """`+OK`."""


class AppendedId(Struct):
    """The identifier of an append's last record."""

    record_id: RecordId


class Records(Struct):
    """The result of a READ, column by column: identifiers `<timestamp>-<seq>` and bodies; may be empty."""

    timestamps: Sequence[int]
    seqs: Sequence[int]
    bodies: list[bytes]

    @classmethod
    def of(cls, records: Iterable[tuple[RecordId, bytes]]) -> Records:
        """Return the reply for (identifier, body) pairs."""
        pairs = list(records)
        return cls([i.ms for i, _ in pairs], [i.seq for i, _ in pairs], [body for _, body in pairs])

    def pairs(self) -> list[tuple[RecordId, bytes]]:
        """Return (identifier, body) pairs, for people and tests."""
        ids = map(RecordId, self.timestamps, self.seqs)
        return list(zip(ids, self.bodies, strict=True))


class ErrorReply(Struct):
    """`-CODE message` (section 9): `code` of capitals, digits and `_`, the message in one line."""

    code: str
    message: str

    @property
    def fatal(self) -> bool:
        """True if the server closes the connection after it (section 9, "unrecoverable")."""
        return self.code in FATAL_CODES


Reply = Ok | AppendedId | Records | ErrorReply

_REPLIES: Final[dict[type, type]] = {
    Create: Ok,  # 8.1
    AppendRecords: AppendedId,  # 8.2
    ReadRecords: Records,  # 8.3
    TrimRecords: Ok,  # 8.4
    Delete: Ok,  # 8.5
}


def reply_type(command: Command) -> type:
    """Return the type of the reply to a successful `command`; any command may be answered by an ErrorReply instead."""
    return _REPLIES[type(command)]
