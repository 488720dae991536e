"""A table whose values are structs, as JSON.

Keys are paths, such as `stream/<scope>/<stream>`. A change whose version is outdated fails with TRANSACTION_CONFLICT,
and the client may retry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from penstock.core.back import Back
from penstock.core.internal_names import GATEWAY_TABLES
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.table_operations import NOT_EXISTS, TableItem
from penstock.tables.byte_table import ByteTable

__all__ = ["MOST_BYTES", "Conflict", "Key", "Prefix", "StructTable", "VersionedValue", "batched", "encoded"]

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")

MOST_BYTES: Final = 2 * MIB
"""Most bytes of keys and values in one write: half of what the smallest log of tables takes (4 MiB), and twice what a
value may have."""
_PAGE: Final = 500


class VersionedValue(NamedTuple, Generic[T]):
    """The value of a key, and the version to base a change on; NOT_EXISTS for a key that does not exist."""

    value: T
    version: int


class Prefix(NamedTuple, Generic[T]):
    """All keys that begin with `path`; each holds a `kind`."""

    path: str
    kind: type[T]

    def key(self, name: str) -> Key[T]:
        """Return the key of this name."""
        return Key(self.path + name, self.kind)


class Key(NamedTuple, Generic[T]):
    """The key of one value, which is a `kind`."""

    path: str
    kind: type[T]


class StructTable:
    """A table which no client can use. `owner`: the part of the gateway that it belongs to, its name behind the `#`."""

    def __init__(self, back: Back, owner: str) -> None:
        self._table = ByteTable(back, f"{GATEWAY_TABLES}{owner}")

    async def get(self, key: Key[T]) -> VersionedValue[T] | None:
        """Return the entry of the key, or None if it does not exist."""
        return (await self.get_all([key]))[0]

    async def get_all(self, keys: Sequence[Key[T]]) -> list[VersionedValue[T] | None]:
        """Return the entries of these keys, in order; None for those that do not exist."""
        entries: list[VersionedValue[T] | None] = []
        for batch in batched(keys, lambda key: (1, len(key.path))):
            items = await self._table.entries(*[key.path.encode() for key in batch])
            entries += [
                None if item is None else VersionedValue(_decode(item.value, key.kind), item.version)
                for key, item in zip(batch, items, strict=True)
            ]
        return entries

    async def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Set keys in order, whatever their versions, then remove those of which the value is None.

        More than 500 keys or `MOST_BYTES` take several writes: if one fails, the ones before it stay.
        """
        pairs = [(key, value) for key, value in changes.items() if value is not None]
        for batch in batched(pairs, lambda pair: (1, len(pair[0]) + len(pair[1]))):
            await self._table.put(*batch)
        removed = [key for key, value in changes.items() if value is None]
        for keys in batched(removed, lambda key: (1, len(key))):
            await self._table.remove(*keys)

    async def put(self, key: Key[T], value: T, version: int = NOT_EXISTS) -> VersionedValue[T]:
        """Set a key that has this version, or does not exist. Raises Conflict."""
        versions = await self._table.update(TableItem(key.path.encode(), msgspec.json.encode(value), version))
        if versions is None:
            raise _conflict(key)
        return VersionedValue(value, versions[0])

    async def put_any(self, key: Key[T], value: T) -> None:
        """Set a key, whatever its version."""
        await self.write(encoded({key: value}))

    async def add(self, key: Key[T], value: T) -> bool:
        """Set a key that does not exist. Returns whether it was set."""
        try:
            await self.put(key, value)
        except Conflict:
            return False
        return True

    async def remove(self, key: Key[Any], version: int) -> None:
        """Remove a key that has this version. Raises Conflict."""
        if not await self._table.remove_version(key.path.encode(), version):
            raise _conflict(key)

    async def discard(self, *keys: Key[Any]) -> None:
        """Remove keys, whatever their versions, if they exist."""
        await self.write(encoded(dict.fromkeys(keys)))

    async def discard_all(self, prefix: Prefix[Any]) -> None:
        """Remove all keys that begin with the prefix."""
        await self.discard(*[prefix.key(name) async for name, _ in self.each(prefix)])

    async def change(self, key: Key[T], how: Callable[[T], T]) -> T | None:
        """Replace the key's value with `how(value)`; repeat if another change came between.

        Returns the new value, or None if the key does not exist. `how` may raise.
        """
        while (entry := await self.get(key)) is not None:
            value = how(entry.value)
            with suppress(Conflict):
                return (await self.put(key, value, entry.version)).value
        return None

    async def page(
        self, prefix: Prefix[T], after: str = "", count: int = _PAGE, beginning: str = ""
    ) -> tuple[list[tuple[str, T]], bool]:
        """Return names and values of at most `count` keys after `after` whose names begin with `beginning`, in name
        order, and whether there are more."""
        start = prefix.path + after if after else ""
        items, has_more = await self._table.page(start.encode(), count, (prefix.path + beginning).encode())
        return [(key.decode()[len(prefix.path) :], _decode(value, prefix.kind)) for key, value in items], has_more

    async def each(self, prefix: Prefix[T]) -> AsyncIterator[tuple[str, T]]:
        """Yield names and values of all keys, in name order; keys that are added meanwhile may be among them."""
        after, more = "", True
        while more:
            named, more = await self.page(prefix, after)
            for after, value in named:
                yield after, value


class Conflict(OperationFailed):
    """Raised when another request changed the key in the meantime."""


def encoded(changes: Mapping[Key[Any], msgspec.Struct | None]) -> dict[bytes, bytes | None]:
    """Return keys and values as a table holds them."""
    return {key.path.encode(): None if value is None else msgspec.json.encode(value) for key, value in changes.items()}


def batched(items: Iterable[V], measure: Callable[[V], tuple[int, int]]) -> Iterator[tuple[V, ...]]:
    """Yield the items in tuples of at most 500 keys and `MOST_BYTES`, or of a single item. `measure` returns the keys
    and the bytes of an item."""
    some: list[V] = []
    keys = size = 0
    for item in items:
        more_keys, more = measure(item)
        if some and (keys + more_keys > _PAGE or size + more > MOST_BYTES):
            yield tuple(some)
            some, keys, size = [], 0, 0
        some.append(item)
        keys, size = keys + more_keys, size + more
    if some:
        yield tuple(some)


def _conflict(key: Key[Any]) -> Conflict:
    reason = f"another operation changed {key.path!r} at the same time"
    return Conflict(fail(FailureCode.TRANSACTION_CONFLICT, reason).failure)


def _decode(value: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.DecodeError as error:
        raise fail(FailureCode.STORAGE, f"a table of the gateway has an unreadable entry: {error}") from None
