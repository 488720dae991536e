"""Changes of a table through several gateways, and the table that they must make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.table_operations import (
    ANY_VERSION,
    NOT_EXISTS,
    CreateTable,
    ListTable,
    ReadTable,
    RemoveTableKeys,
    TableItem,
    UpdateTable,
    VersionedKey,
)

__all__ = ["STEPS", "Step", "compare", "count_up", "value_of"]

Step = tuple[int, str, list[tuple[bytes, str]]]
"""The gateway, what it does, and the keys with the versions that it expects."""

_TABLE: Final = "#compared"
_KEYS: Final = st.sampled_from([b"", b"a", b"ab", b"b"])
_WISHES: Final = st.sampled_from(["any", "any", "none", "found", "outdated"])
_STEP: Final = st.tuples(
    st.integers(0, 1), st.sampled_from(["put", "put", "remove"]), st.lists(st.tuples(_KEYS, _WISHES), max_size=3)
)
STEPS: Final = st.lists(_STEP, max_size=15)


async def value_of(back: Back, table: str, key: bytes) -> tuple[int, int]:
    """Return the number that a key has, and its version."""
    (item,) = await back.perform(ReadTable(table, (key,)))
    return (0, NOT_EXISTS) if item is None else (int(item.value), item.version)


async def count_up(back: Back, table: str, key: bytes, times: int) -> int:
    """Add 1 to a number so many times, each time if no other gateway did meanwhile; return the conflicts."""
    conflicts = 0
    while times:
        number, version = await value_of(back, table, key)
        try:
            await back.perform(UpdateTable(table, (TableItem(key, b"%d" % (number + 1), version),)))
        except OperationFailed as error:
            assert error.failure.code in (FailureCode.TABLE_KEY_VERSION, FailureCode.TABLE_KEY_NOT_FOUND), error
            conflicts += 1
        else:
            times -= 1
    return conflicts


async def compare(backs: Sequence[Back], history: list[Step]) -> None:
    """Carry out a history through two backs with the same tables; after each step compare with a dict."""
    model: dict[bytes, tuple[bytes, int]] = {}
    await backs[0].perform(CreateTable(_TABLE))
    for number, (which, what, wishes) in enumerate(history):
        wanted = [VersionedKey(key, _expected(model, key, wish)) for key, wish in wishes]
        right = all(version in (ANY_VERSION, model[key][1] if key in model else NOT_EXISTS) for key, version in wanted)
        value = b"%d" % number
        try:
            if what == "put":
                changed = UpdateTable(_TABLE, tuple(TableItem(key, value, version) for key, version in wanted))
                versions = await backs[which].perform(changed)
                model.update({one.key: (value, version) for one, version in zip(wanted, versions, strict=True)})
            else:
                await backs[which].perform(RemoveTableKeys(_TABLE, tuple(wanted)))
                for key, _ in wanted:
                    model.pop(key, None)
        except OperationFailed as error:
            assert error.failure.code in (FailureCode.TABLE_KEY_VERSION, FailureCode.TABLE_KEY_NOT_FOUND)
            assert not right
        else:
            assert right
        expected = [TableItem(key, *model[key]) for key in sorted(model)]
        assert list((await backs[1 - which].perform(ListTable(_TABLE))).items) == expected


def _expected(model: dict[bytes, tuple[bytes, int]], key: bytes, wish: str) -> int:
    found = model[key][1] if key in model else NOT_EXISTS
    return {"any": ANY_VERSION, "none": NOT_EXISTS, "found": found, "outdated": max(found - 1, 0)}[wish]
