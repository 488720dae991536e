"""Helpers that build S3P conversations, for tests of the dialogue."""

from __future__ import annotations

from typing import Any

from support.captures.dialogues import CLIENT, SERVER, Said, conversation, messages

from penstock.capture.dialogue import Message
from penstock.model.records import RecordId
from penstock_s3p.capture.conversation import S3PDialogue
from penstock_s3p.codec import (
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
from penstock_s3p.codec.encoding import encode_command, encode_reply

__all__ = ["MS", "STORY", "command", "raw", "reply", "told"]

MS = 1_700_000_000_000


def command(*commands: Command) -> tuple[Any, bytes]:
    return CLIENT, b"".join(piece for each in commands for piece in encode_command(each))


def reply(*replies: Reply) -> tuple[Any, bytes]:
    return SERVER, b"".join(map(encode_reply, replies))


def raw(text: str) -> tuple[Any, bytes]:
    return CLIENT, text.encode("latin-1")


STORY: Said = [
    command(Create(b"orders")),
    reply(Ok()),
    command(AppendRecords(b"orders", [b"hello", b"\r\n$5\r\n\0\xff"], MS), AppendRecords(b"orders", [b"x" * 300])),
    reply(AppendedId(RecordId(MS, 1)), AppendedId(RecordId(MS, 2))),
    command(ReadRecords(b"orders", 10, 250, RecordId(MS, 1)), Create(b"orders")),
    reply(Records.of([(RecordId(MS, 1), b"\r\n$5\r\n\0\xff"), (RecordId(MS, 2), b"x" * 300)])),
    reply(ErrorReply("ERR_STREAM_EXISTS", "stream orders already exists")),
    command(AppendRecords(b"none\xff", [b"lost"]), TrimRecords(b"orders", RecordId(MS, 1)), ReadRecords(b"orders")),
    reply(ErrorReply("ERR_UNKNOWN_STREAM", "stream none does not exist"), Ok(), Records.of([])),
    command(Delete(b"orders")),
    reply(Ok()),
]


def told(said: Said) -> list[Message]:
    return messages(S3PDialogue, conversation("s3p"), said)
