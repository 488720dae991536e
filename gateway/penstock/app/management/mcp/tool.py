"""Parts of all tools: definitions with JSON schemas, checked arguments, failures, and bounds on results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from penstock.app.management.command import CommandFailed
from penstock.model.failures import OperationFailed
from penstock.model.limits import KIB

__all__ = ["Arguments", "Cursor", "Limit", "PageResult", "Pager", "Tool", "ToolFailed"]

MOST_BYTES: Final = 128 * KIB
"""About the most JSON that one result holds."""
_MOST_TEXT: Final = 2000
_MOST_ITEMS: Final = 100
_MOST_CURSOR: Final = 9
"""Most digits of a cursor."""

A = TypeVar("A", bound="Arguments")

Limit = Annotated[int, Meta(ge=1, le=200, description="Most items to return.")]
Cursor = Annotated[
    Annotated[str, Meta(max_length=80)] | None, Meta(description="next_cursor of the previous answer, to go on there.")
]


class ToolFailed(Exception):
    """A call failed, for a reason that its caller can do something about."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a tool; those of subclasses have defaults, except for the required ones."""


class PageResult(msgspec.Struct, kw_only=True, omit_defaults=False):
    """A part of a list."""

    next_cursor: Annotated[str | None, Meta(description="The cursor for the next part; null at the end.")] = None


class Tool(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """A tool. `arguments`, `result`: structs, of which its schemas are made. `run`: carries out a call; the flag is
    whether its client may change something; raises ToolFailed, and OperationFailed. `read_only`: it changes nothing.
    `open_world`: it may connect to servers that the call names."""

    name: str
    title: str
    description: str
    arguments: type[A]
    result: type[msgspec.Struct]
    run: Callable[[A, bool], Awaitable[msgspec.Struct]]
    read_only: bool = True
    open_world: bool = False

    def definition(self) -> dict[str, Any]:
        """Return the tool as clients list it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": _schema(self.arguments),
            "outputSchema": _schema(self.result),
            "annotations": {
                "readOnlyHint": self.read_only,
                "destructiveHint": False,
                "idempotentHint": self.read_only,
                "openWorldHint": self.open_world,
            },
        }

    async def call(self, arguments: dict[str, Any], may_change: bool) -> dict[str, Any]:
        """Carry out a call, and return `content`, `structuredContent` and `isError`."""
        try:
            if not (self.read_only or may_change):
                raise ToolFailed(f"{self.name} changes something, and this token permits only looking")
            result = msgspec.to_builtins(await self.run(self._checked(arguments), may_change))
        except (ToolFailed, CommandFailed) as error:
            return _said(str(error), failed=True)
        except OperationFailed as error:
            return _said(error.failure.message, failed=True)
        return _said(msgspec.json.encode(result).decode(), failed=False) | {"structuredContent": result}

    def _checked(self, arguments: dict[str, Any]) -> A:
        try:
            return msgspec.convert(arguments, self.arguments)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"arguments: {error}") from None


class Pager:
    """Takes the items of a list, one after the other, and keeps those of the page that a call asks for."""

    def __init__(self, cursor: str | None, limit: int) -> None:
        """`cursor`: of the previous page; None for the first one. Raises ToolFailed for one of another tool."""
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MOST_CURSOR):
            raise ToolFailed(f"cursor: {cursor!r:.40} is not one of this tool's")
        self._start = int(cursor or 0)
        self._limit = limit
        self._seen = 0
        self._bytes = 0
        self.items: list[Any] = []
        self.next_cursor: str | None = None

    def skip(self) -> bool:
        """Return whether the next item is before the page; it is then passed over."""
        skipped = self._seen < self._start
        self._seen += skipped
        return skipped

    def take(self, item: Any) -> bool:
        """Take an item; its long texts and lists are cut. Returns False, with `next_cursor` set, if the page is
        full."""
        if len(self.items) == self._limit or self._bytes > MOST_BYTES:
            self.next_cursor = str(self._seen)
            return False
        self._seen += 1
        self.items.append(bounded(item))
        self._bytes += len(msgspec.json.encode(self.items[-1]))
        return True

    def take_all(self, items: Iterable[Any]) -> None:
        """Take items until the page is full."""
        for item in items:
            if not (self.skip() or self.take(item)):
                return


def bounded(value: Any) -> Any:
    """Return a JSON value with its long texts and lists cut; each cut says how much is missing."""
    if isinstance(value, str):
        return value if len(value) <= _MOST_TEXT else f"{value[:_MOST_TEXT]}… ({len(value)} characters)"
    if isinstance(value, list):
        more = [f"… ({len(value)} items)"] if len(value) > _MOST_ITEMS else []
        return [*map(bounded, value[:_MOST_ITEMS]), *more]
    if isinstance(value, dict):
        return {name: bounded(each) for name, each in value.items()}
    return value


def _said(text: str, *, failed: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def _schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct, with those that it uses in `$defs`."""
    _, components = msgspec.json.schema_components((struct,), ref_template="#/$defs/{name}")
    schema = {
        name: value for name, value in components.pop(struct.__name__).items() if name not in ("title", "description")
    }
    return schema | ({"$defs": components} if components else {})
