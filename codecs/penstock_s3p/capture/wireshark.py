"""S3P in Wireshark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.capture.dialogue.messages import Message
from penstock.capture.wireshark.fields import FieldKind, Shown, WiresharkProtocol
from penstock.model.records import RecordId
from penstock_s3p.capture.describing import kind_of, stream_of
from penstock_s3p.codec.events import (
    FIRST_ID,
    AppendedId,
    AppendRecords,
    Command,
    ErrorReply,
    Ok,
    ReadRecords,
    Records,
    Reply,
    TrimRecords,
)

__all__ = ["PROTOCOL"]


def _id_kinds(name: str) -> dict[str, FieldKind]:
    return {name: FieldKind.STRING, f"{name}.ms": FieldKind.UINT, f"{name}.seq": FieldKind.UINT}


_KINDS: Final = {
    **dict.fromkeys(("command", "reply", "name", "error.code", "error.message"), FieldKind.STRING),
    **dict.fromkeys(("append", "error"), FieldKind.NONE),
    **dict.fromkeys(("append.ms", "count", "block", "records", "records.bytes", "record.length"), FieldKind.UINT),
    "error.fatal": FieldKind.BOOL,
    "record": FieldKind.BYTES,
    **_id_kinds("id"),
    **_id_kinds("min_id"),
    **_id_kinds("record.id"),
}


def _describe(message: Message) -> list[Shown]:
    event = message.event
    return _reply(event) if isinstance(event, Reply) else _command(event)


def _command(command: Command) -> list[Shown]:
    fields = [Shown("command", kind_of(command)), Shown("name", stream_of(command))]
    match command:
        case AppendRecords(bodies=bodies, ms=ms):
            fields += [] if ms is None else [Shown("append", None, [Shown("ms", ms)])]
            fields += [_count(bodies), *(Shown("record", body, [_length(body)]) for body in bodies)]
        case ReadRecords(count=count, block_ms=block_ms, min_id=min_id):
            fields += [] if count is None else [Shown("count", count)]
            fields += [Shown("block", block_ms)] if block_ms else []
            fields += [] if min_id == FIRST_ID else [_id("min_id", min_id)]
        case TrimRecords(min_id=min_id):
            fields.append(_id("min_id", min_id))
        case _:
            pass
    return fields


def _reply(reply: Reply) -> list[Shown]:
    match reply:
        case Ok():
            return [Shown("reply", "ok")]
        case AppendedId(record_id):
            return [Shown("reply", "id"), _id("id", record_id)]
        case Records(bodies=bodies):
            records = (
                Shown("record", body, [_id("id", record_id), _length(body)]) for record_id, body in reply.pairs()
            )
            return [Shown("reply", "records"), _count(bodies), *records]
        case ErrorReply(code, text):
            parts = [Shown("code", code), *([Shown("message", text)] if text else ()), Shown("fatal", reply.fatal)]
            return [Shown("reply", "error"), Shown("error", None, parts)]


def _count(bodies: Sequence[bytes]) -> Shown:
    return Shown("records", len(bodies), [Shown("bytes", _size(bodies))])


def _size(bodies: Iterable[bytes]) -> int:
    return sum(map(len, bodies))


def _length(body: bytes) -> Shown:
    return Shown("length", len(body))


def _id(name: str, record_id: RecordId) -> Shown:
    return Shown(name, str(record_id), [Shown("ms", record_id.ms), Shown("seq", record_id.seq)])


PROTOCOL: Final = WiresharkProtocol(
    title="S3P", column="S3P", kinds=_KINDS, layers=frozenset({"s3p"}), describe=_describe
)
