"""Wire types of lists and of their items (segment fact sheet, 1.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from msgspec import Struct

from penstock_pravega.codec.limits import SEGMENT_MAX_ITEMS
from penstock_pravega.codec.wire import (
    BOOL_WIRE,
    BYTES32_WIRE,
    I64_WIRE,
    NAME_WIRE,
    U8_WIRE,
    UUID_WIRE,
    FieldType,
    MalformedValue,
    read_length,
)

__all__ = [
    "AttributeUpdates",
    "ChunkInfo",
    "Chunks",
    "I64s",
    "ItemsWire",
    "ListWire",
    "MergeAttributeUpdate",
    "MergedSegment",
    "MergedSegments",
    "Names",
    "TableEntries",
    "TableEntry",
    "TableKey",
    "TableKeys",
]

T = TypeVar("T")

NO_VERSION: Final = -(1 << 63)
"""An expected version that matches any version of a table key."""


class ListWire(FieldType[tuple[T, ...]]):
    """A list: four bytes of count, then the items, each of them an `item`."""

    __slots__ = ("item",)

    def __init__(self, item: FieldType[T]) -> None:
        super().__init__(f"i32 n, n x ({item.name})")
        self.item = item

    def read(self, body: memoryview, at: int) -> tuple[tuple[T, ...], int]:
        count, end = read_length(body, at, "count")
        if count > SEGMENT_MAX_ITEMS:
            raise MalformedValue(f"a list of {count}, at most {SEGMENT_MAX_ITEMS} are allowed", at)
        items = []
        for _ in range(count):
            item, end = self.item.read(body, end)
            items.append(item)
        return tuple(items), end

    def write(self, value: Sequence[T], out: list[bytes]) -> None:
        if len(value) > SEGMENT_MAX_ITEMS:
            raise ValueError(f"a list of {len(value)}, at most {SEGMENT_MAX_ITEMS} are allowed")
        out.append(len(value).to_bytes(4, "big"))
        for item in value:
            self.item.write(item, out)


class ItemsWire(FieldType[T]):
    """A few values in a row, which are the arguments of a class in that order; `parts` by name."""

    __slots__ = ("_make", "parts")

    def __init__(self, make: Callable[..., T], **parts: FieldType[Any]) -> None:
        super().__init__(", ".join(f"{wire.name} {name}" for name, wire in parts.items()))
        self._make = make
        self.parts = parts

    def read(self, body: memoryview, at: int) -> tuple[T, int]:
        values = []
        for wire in self.parts.values():
            value, at = wire.read(body, at)
            values.append(value)
        return self._make(*values), at

    def write(self, value: T, out: list[bytes]) -> None:
        for name, wire in self.parts.items():
            wire.write(getattr(value, name), out)


class TableKey(Struct, frozen=True):
    """A key of a table segment. `version`: -2**63 for any, -1 for "must not exist", otherwise exactly this version."""

    key: bytes
    version: int = NO_VERSION


class TableEntry(Struct, frozen=True):
    """A key of a table segment with its value."""

    key: TableKey
    value: bytes


class MergeAttributeUpdate(Struct, frozen=True):
    """A change of a segment's attribute that goes with a merge."""

    attribute: UUID
    update_type: int
    new_value: int
    old_value: int


class MergedSegment(Struct, frozen=True):
    """A source segment of a batch, and the target's write offset after it."""

    source: str
    new_target_write_offset: int


class ChunkInfo(Struct, frozen=True):
    """A chunk of a segment in the long-term storage."""

    length_in_metadata: int
    length_in_storage: int
    start_offset: int
    chunk_name: str
    exists_in_storage: bool


class _TableKey(FieldType[TableKey]):
    """Lengths of the whole and of the key, the key, its version. An empty key has no version (1.3, Tables)."""

    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[TableKey, int]:
        total, start = read_length(body, at)
        key, end = BYTES32_WIRE.read(body, start)
        if total != 4 + len(key) + 8:
            raise MalformedValue(f"a key of {len(key)} bytes in {total} bytes, {4 + len(key) + 8} were expected", at)
        if not key:
            return TableKey(key), end
        version, end = I64_WIRE.read(body, end)
        return TableKey(key, version), end

    def write(self, value: TableKey, out: list[bytes]) -> None:
        out.append((4 + len(value.key) + 8).to_bytes(4, "big"))
        BYTES32_WIRE.write(value.key, out)
        if value.key:
            I64_WIRE.write(value.version, out)


class _TableValue(FieldType[bytes]):
    """Lengths of the whole and of the value, the value."""

    __slots__ = ()

    def read(self, body: memoryview, at: int) -> tuple[bytes, int]:
        total, start = read_length(body, at)
        value, end = BYTES32_WIRE.read(body, start)
        if total != 4 + len(value):
            raise MalformedValue(f"a value of {len(value)} bytes in {total} bytes, {4 + len(value)} were expected", at)
        return value, end

    def write(self, value: bytes, out: list[bytes]) -> None:
        out.append((4 + len(value)).to_bytes(4, "big"))
        BYTES32_WIRE.write(value, out)


_KEY: Final = _TableKey("key")
_CHUNK: Final = ItemsWire(
    ChunkInfo,
    length_in_metadata=I64_WIRE,
    length_in_storage=I64_WIRE,
    start_offset=I64_WIRE,
    chunk_name=NAME_WIRE,
    exists_in_storage=BOOL_WIRE,
)

I64s = Annotated[tuple[int, ...], ListWire(I64_WIRE)]
Names = Annotated[tuple[str, ...], ListWire(NAME_WIRE)]
TableKeys = Annotated[tuple[TableKey, ...], ListWire(_KEY)]
TableEntries = Annotated[tuple[TableEntry, ...], ListWire(ItemsWire(TableEntry, key=_KEY, value=_TableValue("value")))]
AttributeUpdates = Annotated[
    tuple[MergeAttributeUpdate, ...],
    ListWire(
        ItemsWire(
            MergeAttributeUpdate, attribute=UUID_WIRE, update_type=U8_WIRE, new_value=I64_WIRE, old_value=I64_WIRE
        )
    ),
]
MergedSegments = Annotated[
    tuple[MergedSegment, ...], ListWire(ItemsWire(MergedSegment, source=NAME_WIRE, new_target_write_offset=I64_WIRE))
]
Chunks = Annotated[tuple[ChunkInfo, ...], ListWire(_CHUNK)]
