"""Encode commands and replies (S3P 0.2.0, sections 3, 7 and 8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from penstock.model.failures import LocalProtocolError
from penstock.model.records import U64_MAX, RecordId, long_runs
from penstock_s3p.codec.errors import one_line
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
from penstock_s3p.codec.values import spell_id

__all__ = ["encode_command", "encode_reply"]

MOST_HEADERS: Final = 8192
_ERROR_CODE: Final = re.compile(r"[A-Z0-9_]+")
_DIGITS: Final = [b"%d" % number for number in range(10_000)]


class _Headers(dict[int, bytes]):
    """The bytes before a bulk string, by its length: the CRLF that ends the item before it, and its `$<n>` line.

    With these, and one join, an array of records costs 0.07 us a record instead of 0.5 (100 B, Python 3.11).
    """

    def __missing__(self, length: int) -> bytes:
        if not length:
            raise LocalProtocolError("S3P has no empty bulk strings")
        header = b"\r\n$%d\r\n" % length
        if len(self) < MOST_HEADERS:
            self[length] = header
        return header


_HEADERS: Final = _Headers()


def _array(items: Sequence[bytes]) -> bytes:
    """Return an array of bulk strings, in one copy."""
    parts: list[bytes] = [b""] * (2 * len(items) + 2)
    parts[0] = b"*%d" % len(items)
    parts[1:-1:2] = map(_HEADERS.__getitem__, map(len, items))
    parts[2:-1:2] = items
    parts[-1] = b"\r\n"
    return b"".join(parts)


def _bulk(data: bytes) -> bytes:
    return b"%b%b\r\n" % (_HEADERS[len(data)][2:], data)


def encode_reply(reply: Reply) -> bytes:
    """Return the bytes of a reply. Raises LocalProtocolError for what S3P cannot express, such as an empty record."""
    match reply:
        case Ok():
            return b"+OK\r\n"
        case AppendedId(record_id):
            return _bulk(spell_id(record_id))
        case Records():
            return _records(reply)
        case ErrorReply(code, message):
            if not _ERROR_CODE.fullmatch(code):
                raise LocalProtocolError(f"{code!r} is not an error code")
            return f"-{code} {one_line(message)}\r\n".encode("ascii")


def _records(reply: Records) -> bytes:
    timestamps, count = reply.timestamps, len(reply.bodies)
    if not len(timestamps) == len(reply.seqs) == count:
        raise LocalProtocolError("the columns of a READ reply differ in length")
    runs = long_runs(timestamps)
    if runs is not None and (encoded := _in_runs(reply, runs)) is not None:
        return encoded
    items: list[bytes] = [b""] * (2 * count)
    items[0::2] = map(b"%d-%d".__mod__, zip(reply.timestamps, reply.seqs, strict=True))
    items[1::2] = reply.bodies
    return _array(items)


def _in_runs(reply: Records, runs: list[tuple[int, int]]) -> bytes | None:
    """Encode records with few timestamps: identifiers of one run differ in the digits behind the hyphen alone. Return
    None if those are not consecutive. CPU us a record: 0.08 instead of 0.17."""
    timestamps, seqs, count = reply.timestamps, reply.seqs, len(reply.bodies)
    heads: list[bytes] = []
    digits: list[bytes] = []
    numbers: list[int] = []
    for start, stop in runs:
        first, last = seqs[start], seqs[stop - 1]
        if last >= len(_DIGITS):
            return None
        numbers += range(first, last + 1)
        digits += _DIGITS[first : last + 1]
        beginning = b"%d-" % timestamps[start]
        while first <= last:
            width = len(_DIGITS[first])
            end = min(last + 1, 10**width)
            heads += [b"\r\n$%d\r\n%b" % (len(beginning) + width, beginning)] * (end - first)
            first = end
    if numbers != list(seqs):
        return None
    parts: list[bytes] = [b""] * (4 * count + 2)
    parts[0] = b"*%d" % (2 * count)
    parts[1:-1:4] = heads
    parts[2:-1:4] = digits
    parts[3:-1:4] = map(_HEADERS.__getitem__, map(len, reply.bodies))
    parts[4:-1:4] = reply.bodies
    parts[-1] = b"\r\n"
    return b"".join(parts)


def encode_command(command: Command) -> list[bytes]:
    """Return a command in pieces, with options in the order COUNT, BLOCK, MIN_ID.

    Raises LocalProtocolError for what S3P cannot express.
    """
    match command:
        case Create(name):
            return [_command(b"CREATE", name, [])]
        case Delete(name):
            return [_command(b"DELETE", name, [])]
        case AppendRecords(name, bodies, ms):
            if not bodies:
                raise LocalProtocolError("APPEND needs at least one record")
            options = [] if ms is None else [b"ID", _u64(ms)]
            return [_command(b"APPEND", name, options), _array(bodies)]
        case ReadRecords(name, count, block_ms, min_id):
            options = [] if count is None else [b"COUNT", b"%d" % count]
            options += [b"BLOCK", b"%d" % block_ms] if block_ms else []
            options += [b"MIN_ID", _id(min_id)] if min_id != FIRST_ID else []
            return [_command(b"READ", name, options)]
        case TrimRecords(name, min_id):
            return [_command(b"TRIM", name, [b"MIN_ID", _id(min_id)])]


def _command(word: bytes, name: bytes, options: list[bytes]) -> bytes:
    elements = 4 if word == b"APPEND" else 3
    return b"*%d\r\n%b%b%b" % (elements, _bulk(word), _bulk(name), _array(options))


def _u64(value: int) -> bytes:
    if not 0 <= value <= U64_MAX:
        raise LocalProtocolError(f"{value} is not an unsigned 64-bit integer")
    return b"%d" % value


def _id(record_id: RecordId) -> bytes:
    return b"%b-%b" % (_u64(record_id.ms), _u64(record_id.seq))
