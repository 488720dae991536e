"""Parse replies for clients (S3P 0.2.0, sections 3, 4, 8 and 9), in the order of the bytes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator
from typing import Final, NoReturn

from penstock.model.failures import printable
from penstock.model.records import RecordId
from penstock.wire.codec import NEED_DATA, Pull
from penstock_s3p.codec.events import AppendedId, ErrorReply, Ok, Records, Reply
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.codec.source import InputBuffer

__all__ = ["MAX_ERROR_LINE", "parse_replies"]

MAX_ERROR_LINE: Final = 4096
"""Longest simple string or error line with its CRLF, in bytes; the specification sets none."""
MAX_ID: Final = 41
"""Longest identifier, in bytes: two numbers of twenty digits and a hyphen."""

_IDS: Final = re.compile(rb"(?:[0-9]{1,19}-[0-9]{1,19},)*")  # nineteen digits always fit into 64 bits
_ERROR: Final = re.compile(rb"-([A-Z0-9_]+)(?: ([\x20-\x7e]*))?")


def parse_replies(
    source: InputBuffer, limits: S3PLimits, max_reply_bytes: int
) -> Generator[Reply | Pull, None, NoReturn]:
    """Yield replies for ever; the identifiers and records of one READ reply have at most `max_reply_bytes` together."""
    while True:
        source.begin_message()
        while (kind := source.peek()) is None:
            yield NEED_DATA
        if kind == b"*":
            yield (yield from _found(source, limits, max_reply_bytes))
        elif kind == b"$":
            while (text := source.bulk(MAX_ID, "identifier")) is None:
                yield NEED_DATA
            yield AppendedId(_one_id(source, text))
        elif kind in b"+-":
            while (line := source.line(MAX_ERROR_LINE, "reply line")) is None:
                yield NEED_DATA
            yield _line(source, line)
        else:
            raise source.bad_format(f"expected a reply (one of + - $ *), got '{printable(kind)}'")


def _line(source: InputBuffer, line: bytes) -> Reply:
    if line == b"+OK":
        return Ok()
    match = _ERROR.fullmatch(line)
    if match is None:
        raise source.bad_format(f"'{printable(line)}' is neither +OK nor an error of printable ASCII")
    return ErrorReply(match[1].decode("ascii"), (match[2] or b"").decode("ascii"))


def _found(source: InputBuffer, limits: S3PLimits, max_reply_bytes: int) -> Generator[Pull, None, Records]:
    while (elements := source.array("a READ reply")) is None:
        yield NEED_DATA
    if elements % 2:
        raise source.bad_format(f"a READ reply is pairs of identifier and record, not {elements} elements")
    if elements > 2 * limits.max_count:
        raise source.over_limit(f"{elements // 2} records exceed the limit of {limits.max_count} per READ")
    items: list[bytes] = []
    largest = max(limits.max_record_bytes, MAX_ID)
    while not source.bulks(items, elements, largest, max_reply_bytes, "element"):
        yield NEED_DATA
    return Records(*_columns(source, items[::2]), items[1::2])


def _columns(source: InputBuffer, ids: list[bytes]) -> tuple[list[int], list[int]]:
    """Return the identifiers' timestamps and places within them: parsed at once if all are regular, else one by one."""
    joined = b",".join([*ids, b""])
    numbers: list[int] = []
    if _IDS.fullmatch(joined):
        numbers = list(map(int, joined.replace(b",", b"-").split(b"-")[:-1]))
    if len(numbers) != 2 * len(ids):
        numbers = [number for text in ids for number in _one_id(source, text)]
    timestamps, seqs = numbers[0::2], numbers[1::2]
    for before, after in itertools.pairwise(zip(timestamps, seqs, strict=True)):
        if before >= after:
            raise source.bad_message(f"identifier {RecordId(*after)} follows {RecordId(*before)}: not increasing")
    return timestamps, seqs


def _one_id(source: InputBuffer, text: bytes) -> RecordId:
    record_id = RecordId.parse(text)
    if record_id is None:
        raise source.bad_message(f"'{printable(text)}' is not an identifier")
    return record_id
