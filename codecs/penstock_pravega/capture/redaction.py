"""The segment protocol of one side, both dialects: secrets are found through the messages' layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from penstock.capture.pcapng import Sender
from penstock.capture.redaction.contents import Gathered, Searched, feed
from penstock.capture.redaction.flow import Flow, NotUnderstood, Parser, Redaction
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.text import Edit, Span, WithheldEdit, changed, stars
from penstock.model.limits import MIB
from penstock_pravega.capture.dialect_detection import HELLO, smallest
from penstock_pravega.codec import draft, released
from penstock_pravega.codec.layout import HEADER, HEADER_BYTES, TYPE_TABLE, Dialect, Direction, SegmentMessage, spans
from penstock_pravega.codec.limits import SEGMENT_MAX_EVENT, SEGMENT_MAX_LENGTH, SEGMENT_MAX_NAME, SEGMENT_VERSIONS
from penstock_pravega.codec.wire import NAME_WIRE, MalformedValue, decode_text, encode_text

__all__ = ["REDACTION"]

_TEXT: Final = 2 + 0xFFFF
_MOST: Final = SEGMENT_MAX_EVENT + MIB
"""The longest message that is waited for, or block with its end; longer ones are blanked."""
_MOST_SEGMENTS: Final = 1000
_ENOUGH: Final = 3
"""Consecutive messages that rule out chance."""
_READS: Final = (released.SegmentRead, draft.SegmentRead)
_TOKENS: Final = frozenset({"delegation_token", "token"})
"""Names of fields that are tokens, in every message."""
_WITH_EVENTS: Final = frozenset({*_READS, released.AppendBlockEnd, released.ConditionalBlockEnd})
"""Messages whose field `data` holds events one after the other."""
_BLOCK_DATA: Final = sum(field.wire.size or 0 for field in released.AppendBlock.fields)
"""Bytes of an AppendBlock before its data."""


def _spans(cls: type[SegmentMessage], body: bytes) -> dict[str, tuple[Any, int, int]]:
    """Return value, start and end of each field of a body. Raises MalformedValue."""
    fields = spans(cls, memoryview(body), SEGMENT_VERSIONS[0])
    return {name: (value, start, end) for name, value, start, end in fields}


def _token_edits(cls: type[SegmentMessage], start: bytes) -> list[Edit]:
    """Return the edit of a message's token, given the bytes behind its header as far as `_REACH`. Raises
    MalformedValue."""
    for name, _, at, end in spans(cls, memoryview(start), SEGMENT_VERSIONS[0]):
        if name in _TOKENS:
            return [Edit(at + 2, stars(end - at - 2))]
    return []


def _body_edits(cls: type[SegmentMessage], body: bytes, leaves: Leaves) -> list[Edit]:
    """Return the edits of the bytes behind a header. A list that holds a secret is blanked by its values, and encoded
    again. Raises MalformedValue, and ValueError for a text that becomes none."""
    if not leaves.may_be_in(body):
        return _token_edits(cls, body) if leaves.tokens and _REACH[cls] else []
    edits: list[Edit] = []
    end = 0
    for (name, wire, _, _), (_, value, start, end) in zip(
        cls.fields, spans(cls, memoryview(body), SEGMENT_VERSIONS[0]), strict=True
    ):
        if name in _TOKENS and leaves.tokens:
            edits.append(Edit(start + 2, stars(end - start - 2)))
        elif isinstance(value, str):
            edits += leaves.leaf(body[start + 2 : end], start + 2, text=True)
        elif wire.size is None:  # it is not a number
            runs = name == "data" and cls in _WITH_EVENTS
            blanked = changed(value, _event_leaves(value, leaves)) if runs else _blanked(value, leaves)
            if blanked != value:
                again: list[bytes] = []
                wire.write(blanked, again)
                edits.append(Edit(start, b"".join(again)))
                if len(edits[-1].data) != end - start:
                    raise MalformedValue(f"{cls.__name__}.{name} is not spelled as it is encoded", start)
    return edits + leaves.leaf(body[end:], end)  # fields of a later version


def _blanked(value: Any, leaves: Leaves) -> Any:
    """Return a field's value with its secrets blanked."""
    if isinstance(value, bytes):
        return changed(value, leaves.leaf(value))
    if isinstance(value, str):
        text = encode_text(value)
        return decode_text(changed(text, leaves.leaf(text, text=True)))
    if isinstance(value, tuple):
        return tuple([_blanked(element, leaves) for element in value])
    if isinstance(value, Struct):
        return type(value)(*(_blanked(getattr(value, name), leaves) for name in value.__struct_fields__))
    return value


def _events_in(data: bytes) -> tuple[list[Span], int]:
    """Return the payloads of the whole events that begin at the first byte, and the place where the next event, or
    anything else, begins."""
    event_spans, at = [], 0
    while at + HEADER_BYTES <= len(data):
        kind, size = HEADER.unpack_from(data, at)
        if kind != 0 or size < 0 or at + HEADER_BYTES + size > len(data):
            break
        event_spans.append((at + HEADER_BYTES, at + HEADER_BYTES + size))
        at += HEADER_BYTES + size
    return event_spans, at


def _event_leaves(data: bytes, leaves: Leaves, base: int = 0) -> list[Edit]:
    """Return the edits of events, or of bytes that are not events."""
    if not leaves.may_be_in(data):
        return []
    events, end = _events_in(data)
    edits = [edit for start, stop in events for edit in leaves.leaf(data[start:stop], base + start)]
    start = end + HEADER_BYTES if data[end : end + 4] == bytes(4) else end  # the header of an event that is cut
    return edits + leaves.leaf(data[start:], base + start)


def _append_edits(block: bytes, whole: int, rest: bytes, leaves: Leaves) -> tuple[list[Edit], list[Edit]]:
    """Return the edits of an AppendBlock's data, and of its end's data. `whole`: size_of_whole_events.

    The last event may begin in the block, behind a PartialEvent's header, and continue in its end.
    """
    if not 0 <= whole <= len(block):
        raise MalformedValue("", 0)
    start = whole
    if len(block) - whole >= HEADER_BYTES:
        kind, _ = HEADER.unpack_from(block, whole)
        if kind == released.Padding.type_id:
            return _event_leaves(block[:whole], leaves), _event_leaves(rest, leaves)
        start += HEADER_BYTES if kind == released.PartialEvent.type_id else 0
    stored = block[:whole] + block[start:] + rest
    first: list[Edit] = []
    last: list[Edit] = []
    in_block = whole + len(block) - start
    for at, data in _event_leaves(stored, leaves):
        for out, low, high, shift in (
            (first, 0, whole, 0),
            (first, whole, in_block, start - whole),
            (last, in_block, len(stored), -in_block),
        ):
            begin, end = max(at, low), min(at + len(data), high)
            if begin < end:
                out.append(Edit(begin + shift, data[begin - at : end - at]))
    return first, last


def _reach(cls: type[SegmentMessage]) -> int:
    """Return how many bytes of a body suffice to read its token, or 0 if it has none."""
    reach = 0
    for field in cls.fields:
        if field.name in _TOKENS:
            return reach + _TEXT
        size = field.wire.size
        if size is None:
            size = 2 + SEGMENT_MAX_NAME if field.wire is NAME_WIRE else _MOST
        reach += size
    return 0


_REACH: Final = {cls: _reach(cls) for table in TYPE_TABLE.values() for cls in table.values()}


class _Run(Gathered):
    """Bytes of a segment from several replies, whose last event continues in the next one."""

    def __init__(self, flow: Flow, leaves: Leaves, start: int) -> None:
        super().__init__(flow)
        self._leaves = leaves
        self.position = start
        """Offset in the segment at which the next reply continues."""

    def read(self) -> None:
        if not self.unit[:4].strip(b"\0") and len(self.unit) < HEADER_BYTES + int.from_bytes(self.unit[4:8], "big"):
            if len(self.unit) > _MOST:
                self.finish()
            return  # for the event's end
        data = bytes(self.unit)
        _, size = _events_in(data)
        self.done(size, _event_leaves(data[:size], self._leaves))
        if self.unit[:4].strip(b"\0") or len(self.unit) > _MOST:
            self.finish()  # no event begins here

    def finish(self) -> None:
        self.done(len(self.unit), _event_leaves(bytes(self.unit), self._leaves))

    def cut(self) -> None:
        self.end()


class _Parts(Gathered):
    """A message carried in Partials."""

    def __init__(self, flow: Flow, leaves: Leaves, tables: dict[int, type[SegmentMessage]]) -> None:
        super().__init__(flow)
        self._leaves = leaves
        self._tables = tables
        self._passes = False  # there is nothing secret in it

    def read(self) -> None:
        if len(self.unit) > _MOST:
            self.abandon()
        elif not self._leaves.any and len(self.unit) >= HEADER_BYTES and not self._passes:
            cls = self._class()
            if cls is not None:
                self._passes = not _REACH[cls]
            elif self._leaves.tokens and self._flow.sender is Sender.CLIENT:
                self.abandon()  # it may have a token
            else:
                self._passes = True
        if self._passes:
            self.done(len(self.unit), [])

    def _class(self) -> type[SegmentMessage] | None:
        return self._tables.get(HEADER.unpack_from(self.unit)[0]) if len(self.unit) >= HEADER_BYTES else None

    def finish(self) -> None:
        if self._passes:
            return
        cls, body = self._class(), bytes(self.unit[HEADER_BYTES:])
        if cls is None and self._leaves.tokens and self._flow.sender is Sender.CLIENT:
            self.abandon()
            return
        if cls is None:
            self.done(len(self.unit), self._leaves.leaf(bytes(self.unit)))
            return
        edits = _edits_or_stars(cls, body, self._leaves)
        self.done(len(self.unit), [edit.shifted(HEADER_BYTES) for edit in edits])


def _edits_or_stars(cls: type[SegmentMessage], body: bytes, leaves: Leaves) -> list[Edit]:
    """Return the edits of a body; all of it is blanked if its fields are malformed."""
    try:
        return _body_edits(cls, body, leaves)
    except (MalformedValue, ValueError):
        return [WithheldEdit.of(len(body))]


class _Side:
    """One direction of a connection. `dialect`: None to detect it from the first message."""

    def __init__(self, flow: Flow, leaves: Leaves, dialect: Dialect | None = None) -> None:
        self._flow = flow
        self._leaves = leaves
        self._known = dialect is not None
        self._tables = TYPE_TABLE[dialect or Dialect.DRAFT]
        self._runs: dict[str, _Run] = {}
        self._parts: _Parts | None = None

    def parse(self) -> Parser:
        """Parse this side."""
        flow = self._flow
        yield from flow.need(4)
        if not self._known and flow.peek(4) == HELLO:
            self._tables = TYPE_TABLE[Dialect.RELEASED]
        while True:
            yield from flow.need(HEADER_BYTES)
            cls, size = self._head(flow.peek(HEADER_BYTES))
            if cls is None:
                yield from self._unknown(size)
            elif cls is draft.Partial:
                yield from self._partial(size)
            elif self._leaves.any:
                yield from self._whole(cls, size)
            else:
                yield from self._token(cls, size)

    def _head(self, head: bytes) -> tuple[type[SegmentMessage] | None, int]:
        kind, size = HEADER.unpack(head)
        if not 0 <= size <= SEGMENT_MAX_LENGTH:
            raise NotUnderstood
        return self._tables.get(kind), size

    def _unknown(self, size: int) -> Parser:
        """Read a message of unknown type, which may hold a token if a client sent it."""
        flow = self._flow
        flow.at += HEADER_BYTES
        if self._leaves.tokens and flow.sender is Sender.CLIENT:
            yield from flow.withhold_next(size)
            return
        content = Searched(flow, self._leaves.patterns)
        yield from feed(flow, size, content)
        content.end()

    # ---- tokens only ---------------------------------------------------------------------------------------------

    def _token(self, cls: type[SegmentMessage], size: int) -> Parser:
        """Read a message only up to its token."""
        flow = self._flow
        reach = min(size, _REACH[cls]) if self._leaves.tokens else 0
        if reach:
            yield from flow.need(HEADER_BYTES + reach)
        flow.at += HEADER_BYTES
        if reach:
            try:
                self._write(_token_edits(cls, flow.peek(reach)))
            except MalformedValue:
                yield from flow.withhold_next(size)
                return
        yield from flow.skip(size)

    # ---- everything ----------------------------------------------------------------------------------------------

    def _whole(self, cls: type[SegmentMessage], size: int) -> Parser:
        flow = self._flow
        if size > _MOST:
            flow.at += HEADER_BYTES
            yield from flow.withhold_next(size)
            return
        yield from flow.need(HEADER_BYTES + size)
        body = flow.peek(HEADER_BYTES + size)[HEADER_BYTES:]
        if cls is released.AppendBlock:
            yield from self._append(body)
            return
        flow.at += HEADER_BYTES
        if cls in _READS and self._read(cls, body):
            return
        self._write(_edits_or_stars(cls, body, self._leaves))
        flow.at += size

    def _write(self, edits: Sequence[Edit], shift: int = 0) -> None:
        for edit in edits:
            self._flow.apply(edit.shifted(self._flow.at + shift))

    def _append(self, block: bytes) -> Parser:
        """Read an AppendBlock together with its end, in which its last event continues (segment fact sheet, 1.4)."""
        flow = self._flow
        behind = HEADER_BYTES + len(block)
        yield from flow.need(behind + HEADER_BYTES)
        cls, size = self._head(flow.peek(behind + HEADER_BYTES)[behind:])
        data = block[_BLOCK_DATA:]
        if cls is released.AppendBlockEnd and behind + size <= _MOST:
            behind += HEADER_BYTES
            yield from flow.need(behind + size)
            try:
                fields = _spans(cls, flow.peek(behind + size)[behind:])
                rest, _, end = fields["data"]
                first, last = _append_edits(data, fields["size_of_whole_events"][0], rest, self._leaves)
            except MalformedValue:
                first, last = [WithheldEdit.of(len(data))], [WithheldEdit.of(size)]
                rest, end = b"", 0
            self._write(first, HEADER_BYTES + _BLOCK_DATA)
            self._write(last, behind + end - len(rest))
            flow.at += behind + size
            return
        self._write(_event_leaves(data, self._leaves), HEADER_BYTES + _BLOCK_DATA)
        flow.at += behind

    def _read(self, cls: type[SegmentMessage], body: bytes) -> bool:
        """Read bytes of a segment, which may continue an event of the reply before. Return False if its fields are
        malformed."""
        flow = self._flow
        try:
            fields = _spans(cls, body)
        except MalformedValue:
            return False
        name, _, end = fields["segment"]
        offset, (data, _, high) = fields["offset"][0], fields["data"]
        at_tail = fields["flags"][0].at_tail if cls is draft.SegmentRead else fields["at_tail"][0]
        self._write(self._leaves.leaf(body[2:end], 2, text=True))
        run = self._runs.get(name)
        if run is None or run.blind or run.position != offset:
            if run is not None:
                run.end()
            run = self._runs[name] = _Run(flow, self._leaves, offset)
        run.take(data, flow.at + high - len(data))
        run.position += len(data)
        if at_tail:
            self._runs.pop(name).end()
        elif len(self._runs) > _MOST_SEGMENTS:
            self._runs.pop(next(iter(self._runs))).end()
        flow.at += len(body)
        return True

    def _partial(self, size: int) -> Parser:
        """Read a piece of a message (the draft's)."""
        flow = self._flow
        yield from flow.need(HEADER_BYTES + min(size, 1))
        part = flow.peek(HEADER_BYTES + 1)[HEADER_BYTES:]
        flow.at += HEADER_BYTES + len(part)
        if self._parts is None or part == bytes((draft.PartialKind.BEGIN,)):
            if self._parts is not None:
                self._parts.abandon()
            self._parts = _Parts(flow, self._leaves, self._tables)
        yield from feed(flow, size - len(part), self._parts)
        if part == bytes((draft.PartialKind.END,)):
            self._parts.end()
            self._parts = None


def _dialect_of(data: bytes, sender: Sender) -> Dialect | None:
    """Return the dialect of the messages that these bytes are, complete up to the end, or several; None if they are
    not."""
    wanted = Direction.REQUEST if sender is Sender.CLIENT else Direction.REPLY
    for dialect, table in TYPE_TABLE.items():
        at = count = 0
        while at + HEADER_BYTES <= len(data):
            kind, size = HEADER.unpack_from(data, at)
            cls = table.get(kind)
            if cls is None or cls.direction not in (wanted, Direction.BOTH) or not smallest(cls) <= size <= _MOST:
                break
            at += HEADER_BYTES + size
            count += at <= len(data)
        if count and (at == len(data) or count >= _ENOUGH):
            return dialect
    return None


def _begins(_sender: Sender, first: bytes, configured: bool) -> bool:
    return first == b"\xff" or (configured and first == b"\0")


def _joins(flow: Flow, leaves: Leaves, start: bytes) -> Parser | None:
    dialect = _dialect_of(start, flow.sender)
    return None if dialect is None else _Side(flow, leaves, dialect).parse()


REDACTION: Final = Redaction(lambda flow, leaves: _Side(flow, leaves).parse(), _begins, _joins)
