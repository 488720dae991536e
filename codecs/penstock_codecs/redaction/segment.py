"""The segment protocol of one side, both dialects: delegation tokens are found through the messages' layouts."""

from __future__ import annotations

from typing import Final

from penstock_codecs.limits import SEGMENT_MAX_NAME
from penstock_codecs.redaction.flow import Flow, NotUnderstood, Parser
from penstock_codecs.redaction.secrets import Secrets
from penstock_codecs.segment.layout import HEADER, HEADER_BYTES, TYPE_TABLE, Dialect, Message
from penstock_codecs.segment.released import Hello
from penstock_codecs.segment.wire import NAME_WIRE, Malformed

__all__ = ["messages"]

TOKENS: Final = frozenset({"delegation_token", "token"})
"""Names of fields that are tokens, in every message."""
_HELLO: Final = Hello.type_id.to_bytes(4, "big", signed=True)
_TEXT: Final = 2 + 0xFFFF
_MOST: Final = 4 * 1024 * 1024
"""The longest message that is waited for where the place of its token is not bounded otherwise."""


def _reach(cls: type[Message]) -> int:
    """How many bytes of a body suffice to read its token; 0: it has none."""
    reach = 0
    for field in cls.fields:
        if field.name in TOKENS:
            return reach + _TEXT
        size = field.wire.size
        if size is None:
            size = 2 + SEGMENT_MAX_NAME if field.wire is NAME_WIRE else _MOST
        reach += size
    return 0


_REACH: Final = {(dialect, kind): _reach(cls) for dialect, table in TYPE_TABLE.items() for kind, cls in table.items()}


def messages(flow: Flow, secrets: Secrets) -> Parser:
    """What a side says."""
    yield from flow.need(4)
    dialect = Dialect.RELEASED if flow.peek(4) == _HELLO else Dialect.DRAFT
    while True:
        yield from flow.need(HEADER_BYTES)
        kind, size = HEADER.unpack(flow.peek(HEADER_BYTES))
        cls = TYPE_TABLE[dialect].get(kind)
        if cls is None or size < 0:
            raise NotUnderstood
        reach = _REACH[dialect, kind] if secrets.tokens else 0
        if reach:
            start = min(size, reach)
            yield from flow.need(HEADER_BYTES + start)
            flow.at += HEADER_BYTES
            understood = _blank_token(flow, cls, flow.peek(start))
            flow.at += start
            size -= start
            if not understood:
                yield from flow.blank_next(size, b"*")
                continue
        else:
            flow.at += HEADER_BYTES
        yield from flow.skip(size)


def _blank_token(flow: Flow, cls: type[Message], start: bytes) -> bool:
    """`start`: of the body. Where the fields are not what they should be, all of it is blanked; then False."""
    view, at = memoryview(start), 0
    try:
        for field in cls.fields:
            _, end = field.wire.read(view, at)
            if field.name in TOKENS:
                flow.blank(flow.at + at + 2, flow.at + end)
                return True
            at = end
    except Malformed:
        flow.blank(flow.at, flow.at + len(start))
        return False
    return True
