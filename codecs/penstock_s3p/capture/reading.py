"""Read commands and replies of S3P in recorded bytes with the codec's own parsers."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, NoReturn

from penstock.capture.dialogue.sides import PlacedEvent, UnreadableBytes
from penstock.model.limits import MIB
from penstock.wire.codec import Pull
from penstock_s3p.capture.clauses import s3p_clause
from penstock_s3p.codec.commands import parse_commands
from penstock_s3p.codec.errors import S3PFault
from penstock_s3p.codec.events import Command, Reply
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.codec.replies import parse_replies
from penstock_s3p.codec.source import InputBuffer

__all__ = ["NO_COUNT", "S3PReader", "command_begins", "command_reader", "pinpoint", "reply_begins", "reply_reader"]

NO_COUNT: Final = 0
"""The COUNT of a READ that gave none."""
LIMITS: Final = S3PLimits(
    max_name_bytes=64 * 1024,
    max_records_per_append=100_000,
    max_record_bytes=64 * MIB,
    max_append_bytes=64 * MIB,
    default_count=NO_COUNT,
    max_count=100_000,
    max_block_ms=2**63 - 1,
    max_option_pairs=1024,
    max_option_bytes=64 * 1024,
)
"""Limits that bound memory here. A server enforces its own limits, by ERR_LIMITS."""
MAX_REPLY: Final = 64 * MIB
ENOUGH: Final = 64
"""Bytes that always suffice to tell whether a message begins."""
LOOKED_AT: Final = 4096
"""Bytes of a chunk that are parsed to tell whether it begins with a message."""

_Parser = Generator[Command | Reply | Pull, None, NoReturn]
_Parse = Callable[[InputBuffer], _Parser]
_WORD: Final = re.compile(rb"\*0*[34]\r\n\$0*[456]\r\n(?:CREATE|APPEND|READ|TRIM|DELETE)\r\n", re.IGNORECASE)
_LONG_REPLY: Final = re.compile(rb"-[A-Z][A-Z0-9_]* |\*[0-9]+\r\n\$[0-9]{1,2}\r\n[0-9]+-[0-9]+\r\n")


class S3PReader:
    """Reader of one side's bytes from an offset on."""

    def __init__(self, parse: _Parse, offset: int) -> None:
        self._source = InputBuffer()
        self._parser = parse(self._source)
        self._offset = offset
        self._starved = True
        self.begun = offset
        """Offset of the current message."""

    def receive(self, data: bytes) -> None:
        """Take the bytes that follow."""
        self._source.receive(data)

    def next(self) -> PlacedEvent | None:
        """Return the next command or reply. Raises Unreadable, which is final."""
        while not self._starved or self._source.refill():
            try:
                event = next(self._parser)
            except S3PFault as fault:
                raise UnreadableBytes(fault.message, s3p_clause(fault.message), self._offset + fault.at) from None
            self._starved = isinstance(event, Pull)
            if not self._starved:
                start, self.begun = self.begun, self._offset + self._source.position
                return PlacedEvent(event, start, self.begun)
        return None


def _commands(source: InputBuffer) -> _Parser:
    return parse_commands(source, LIMITS)


def _replies(source: InputBuffer) -> _Parser:
    return parse_replies(source, LIMITS, MAX_REPLY)


command_reader: Final = partial(S3PReader, _commands)
"""Reads the client's side from an offset on."""
reply_reader: Final = partial(S3PReader, _replies)
"""Reads the server's side from an offset on."""


def command_begins(data: bytes) -> bool | None:
    """Return whether these bytes begin with a command, as far as they show; None: too few bytes."""
    return _begins(_commands, _WORD, data)


def reply_begins(data: bytes) -> bool | None:
    """Return whether these bytes begin with a reply, as far as they show; None: too few bytes."""
    return _begins(_replies, _LONG_REPLY, data)


def _begins(parse: _Parse, beginning: re.Pattern[bytes], data: bytes) -> bool | None:
    """Return whether a message begins here; the bytes behind it must fit, too, since an identifier inside a READ reply
    looks like the reply to an APPEND."""
    reader = S3PReader(parse, 0)
    reader.receive(data[:LOOKED_AT])
    try:
        whole = 0
        while reader.next() is not None:
            whole += 1
    except UnreadableBytes:
        return False
    if whole or beginning.match(data):
        return True
    return None if len(data) < ENOUGH else False


def pinpoint(head: bytes) -> UnreadableBytes | None:
    """Return the fault that a server with the usual limits finds in a command that begins with these bytes, or None.

    `at` counts from their first.
    """
    reader = S3PReader(lambda source: parse_commands(source, S3PLimits()), 0)
    reader.receive(head)
    try:
        reader.next()
    except UnreadableBytes as fault:
        return fault
    return None
