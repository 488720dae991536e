"""The rules of tables of keys and values that every holder of tables keeps (segment fact sheet, 1.3 and 3.1).

Each check raises OperationFailed with the code that `penstock.model.table_operations` documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_TABLE_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_TABLE_VALUE_BYTES, MIB
from penstock.model.table_operations import (
    ANY_VERSION,
    NOT_EXISTS,
    CreateTable,
    ListTable,
    TableItem,
    UpdateTable,
    VersionedKey,
)

__all__ = [
    "check_count",
    "check_creation",
    "check_delta_start",
    "check_empty",
    "check_length",
    "check_read_size",
    "check_sizes",
    "check_versions",
    "first_listed",
    "listed",
    "page_of",
    "unknown_table",
]

PAGE_BYTES: Final = 1 * MIB
"""Bytes of items at which a page or a delta ends."""
READ_BYTES: Final = 8 * MIB
"""Most bytes of items in one read by keys, whose result cannot be split."""


# ---- changes ---------------------------------------------------------------------------------------------------------


def check_creation(operation: CreateTable) -> None:
    """Check the name and the length of the keys of a new table."""
    try:
        size = len(operation.table.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= MAX_TABLE_NAME_BYTES:
        raise fail(FailureCode.INVALID, f"a table's name must be 1 to {MAX_TABLE_NAME_BYTES} bytes of UTF-8")
    if not 0 <= operation.key_length <= MAX_TABLE_KEY_BYTES:
        raise fail(FailureCode.INVALID, f"the length of a table's keys must be 0 to {MAX_TABLE_KEY_BYTES} bytes")


def check_empty(table: str, entries: int) -> None:
    """Raise TABLE_NOT_EMPTY if there are entries."""
    if entries:
        raise fail(FailureCode.TABLE_NOT_EMPTY, f"table {table!r} has {entries} entries")


def check_sizes(operation: UpdateTable) -> None:
    """Check the sizes of keys and values."""
    for key, value, _ in operation.items:
        for what, size, most in (
            ("key", len(key), MAX_TABLE_KEY_BYTES),
            ("value", len(value), MAX_TABLE_VALUE_BYTES),
        ):
            if size > most:
                raise fail(FailureCode.LIMIT_EXCEEDED, f"the {what} has {size} bytes, at most {most} are allowed")


def check_length(length: int, expected: int | None) -> None:
    """Check that a table has the expected length; None: any."""
    if expected not in (None, length):
        raise fail(FailureCode.OFFSET_MISMATCH, f"the table's length is {length}, not {expected}", offset=length)


def check_versions(versions: Mapping[bytes, int], key_length: int, keys: Iterable[VersionedKey]) -> None:
    """Check each key against the table before the operation, regardless of other keys in the same operation.

    `versions`: those of the keys that exist. `key_length`: that of all keys, 0 if they differ.
    """
    for key, expected in keys:
        if key_length not in (0, len(key)):
            raise fail(FailureCode.INVALID, f"the key has {len(key)} bytes, the keys of this table have {key_length}")
        version = versions.get(key)
        if expected in (ANY_VERSION, NOT_EXISTS if version is None else version):
            continue
        if version is None and not key_length:  # Pravega's tables of keys of one length do not tell
            raise fail(FailureCode.TABLE_KEY_NOT_FOUND, f"there is no key {key!r:.80}", key=key)
        raise fail(
            FailureCode.TABLE_KEY_VERSION,
            f"key {key!r:.80} has {'no version' if version is None else f'version {version}'}, not {expected}",
            key=key,
        )


# ---- reads -----------------------------------------------------------------------------------------------------------


def unknown_table(name: str) -> OperationFailed:
    """Return the error for a table that does not exist."""
    return fail(FailureCode.STREAM_NOT_FOUND, f"there is no table {name!r}")


def check_count(count: int) -> None:
    """Check the count of items that are wanted."""
    if count < 1:
        raise fail(FailureCode.INVALID, f"the count of items must be at least 1, not {count}")


def check_delta_start(position: int, length: int) -> None:
    """Check the position that changes are wanted from."""
    if not 0 <= position <= length:
        raise fail(FailureCode.INVALID, f"position {position} is not in 0 to {length}")


def check_read_size(size: int) -> None:
    """Check the bytes of the items that were asked for by their keys."""
    if size > READ_BYTES:
        raise fail(FailureCode.LIMIT_EXCEEDED, f"the items of these keys exceed {READ_BYTES} bytes: request fewer keys")


def first_listed(operation: ListTable) -> bytes:
    """Return the lowest key that a list may begin with."""
    return max(operation.first or b"", operation.prefix, b"" if operation.after is None else operation.after + b"\0")


def listed(items: Iterable[TableItem], operation: ListTable) -> Iterator[TableItem]:
    """Yield items, which begin at `first_listed`, while the list includes them."""
    for item in items:
        if not item.key.startswith(operation.prefix) or (operation.last is not None and item.key > operation.last):
            return
        yield item


def page_of(items: Iterable[TableItem], count: int) -> tuple[tuple[TableItem, ...], bool]:
    """Return the items that fit into a page, at least one, and whether there are more."""
    page: list[TableItem] = []
    size = 0
    for item in items:
        if len(page) == count or size >= PAGE_BYTES:
            return tuple(page), True
        page.append(item)
        size += len(item.key) + len(item.value)
    return tuple(page), False
