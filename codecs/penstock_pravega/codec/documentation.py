"""The tables in docs/protocols/segment.md: `python -m penstock_pravega.codec.documentation` prints them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock_pravega.codec import draft_order, released_order
from penstock_pravega.codec.layout import TYPE_TABLE, Dialect, Direction, Field, SegmentMessage
from penstock_pravega.codec.limits import SEGMENT_MAX_ITEMS, SEGMENT_MAX_NAME, SegmentLimits

__all__ = ["limits_table", "message_table", "order_table"]

_DIRECTIONS: Final = {
    Direction.REQUEST: "C",
    Direction.REPLY: "S",
    Direction.BOTH: "C, S",
    Direction.INNER: "in blocks",
}


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def message_table(dialect: Dialect) -> str:
    """Return a Markdown table of a dialect's messages, by type id."""
    rows = [
        (cls.type_id, cls.__name__, _DIRECTIONS[cls.direction], (_fields(cls.fields) or "none") + _older(cls))
        for _, cls in sorted(TYPE_TABLE[dialect].items())
    ]
    return _table(("type", "message", "from", "fields, in order"), rows)


def _older(cls: type[SegmentMessage]) -> str:
    return "" if cls.older is None else f"; before wire version {cls.older.before}: {', '.join(cls.older.order)}"


def _fields(fields: tuple[Field, ...]) -> str:
    """Return the fields as text, optional ones in brackets at the end, as in the fact sheet."""
    shown = [f"{field.wire.name} {field.name}" for field in fields]
    firm = sum(not field.tail for field in fields)
    parts = shown[:firm] + ([f"[{', '.join(shown[firm:])}]"] if firm < len(shown) else [])
    return ", ".join(parts)


def order_table(dialect: Dialect) -> str:
    """Return a Markdown table of the legal order of requests."""
    rows: list[tuple[object, ...]]
    if dialect is Dialect.RELEASED:
        rows = [(at.value, _name(k), row.next.value, row.clause) for (at, k), row in released_order.TRANSITIONS.items()]
    else:
        rows = [(at.value, _name(k), row.next.value, row.clause) for (at, k), row in draft_order.TRANSITIONS.items()]
    return _table(("where", "what", "then", "clause"), rows)


def _name(kind: released_order.ReleasedKind | draft_order.DraftKind) -> str:
    return kind.name.replace("_", " ").lower()


def limits_table() -> str:
    """Return a Markdown table of the default limits."""
    limits = SegmentLimits()
    rows = [
        ("bytes of a message after its header, also if it is sent in Partials", limits.max_message_bytes),
        ("bytes of a released append: two of the largest events", limits.max_append_bytes),
        ("bytes of a segment's name", SEGMENT_MAX_NAME),
        ("items of a list in a message", SEGMENT_MAX_ITEMS),
        ("writers set up on one connection", limits.max_writers),
    ]
    return _table(("limit", "at most"), rows)


if __name__ == "__main__":
    print(f"{limits_table()}\n")
    for one in Dialect:
        print(f"### {one.value.title()}\n\n{order_table(one)}\n\n{message_table(one)}\n")
