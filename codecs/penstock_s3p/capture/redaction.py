"""S3P of one side (S3P 0.2.0, section 4): bulk strings are searched, the lines around them stay."""

from __future__ import annotations

import re
from typing import Final

from penstock.capture.pcapng import Sender
from penstock.capture.redaction.flow import FOR_EVER, Flow, NotUnderstood, Parser, Redaction
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.units import MOST

__all__ = ["REDACTION"]

_LINE: Final = re.compile(rb"([*$:+-])([^\r\n]*)\r?\n")
_MOST_LINE: Final = 16 * 1024
_CRLF: Final = 2


def _begins(sender: Sender, first: bytes, configured: bool) -> bool:
    """A client that is known to speak S3P may send anything that a server may."""
    return first in (b"*" if sender is Sender.CLIENT and not configured else b"*+-$:")


def _joins(flow: Flow, leaves: Leaves, start: bytes) -> Parser | None:
    """Read on if there is one complete line."""
    return _items(flow, leaves) if _LINE.match(start) else None


def _items(flow: Flow, leaves: Leaves) -> Parser:
    """Parse one side. S3P has no tokens, so with the default rules everything passes uninspected where it is the
    configured protocol. Elsewhere it may be a broken head of HTTP that begins like S3P."""
    configured = flow.conversation.protocol == "s3p"
    if configured and not leaves.any:
        yield from flow.skip(FOR_EVER)
    while True:
        line = yield from flow.line(_MOST_LINE)
        match = _LINE.fullmatch(line)
        if match is None:
            raise NotUnderstood
        kind, value = match.groups()
        if kind in b"$*:":
            if not re.fullmatch(rb"-?[0-9]{1,20}", value):
                raise NotUnderstood
        elif b":" in value and not configured:
            raise NotUnderstood  # it may be a header
        else:
            for start, data in leaves.leaf(value, flow.at + 1, text=True):
                flow.write(start, data)
        flow.at += len(line)
        if kind == b"$" and not value.startswith(b"-"):
            yield from _bulk(flow, leaves, int(value))


def _bulk(flow: Flow, leaves: Leaves, size: int) -> Parser:
    """Read the bytes of a bulk string and its line end."""
    if size > MOST:
        yield from flow.withhold_next(size)
        size = 0
    yield from flow.need(size + _CRLF)
    data = flow.peek(size + _CRLF)
    for start, blank in leaves.leaf(data[:size], flow.at):
        flow.write(start, blank)
    flow.at += size
    if data[size:] != b"\r\n":
        raise NotUnderstood
    flow.at += _CRLF


REDACTION: Final = Redaction(_items, _begins, _joins)
