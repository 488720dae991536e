"""Tables against a model that is a dict, under random histories of changes, reads and restarts."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import trio
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.table_operations import (
    ANY_VERSION,
    NOT_EXISTS,
    CreateTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    TableInfo,
    TableItem,
    UpdateTable,
    VersionedKey,
)

EXAMPLES = examples(share=8, least=5)
"""A history costs 20 to 60 ms."""

TABLE = "table"


@dataclass
class Model:
    """A table, in the simplest way that could be right."""

    items: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    length: int = 0

    def verdict(self, keys: Iterable[VersionedKey], match_length: int | None) -> FailureCode | None:
        if match_length not in (None, self.length):
            return FailureCode.OFFSET_MISMATCH
        for key, expected in keys:
            found = self.items[key][1] if key in self.items else None
            if expected == ANY_VERSION or expected == (NOT_EXISTS if found is None else found):
                continue
            return FailureCode.TABLE_KEY_NOT_FOUND if found is None else FailureCode.TABLE_KEY_VERSION
        return None

    def update(self, items: Iterable[TableItem]) -> tuple[int, ...]:
        versions = []
        for key, value, _ in items:
            self.items[key] = (value, self.length)
            versions.append(self.length)
            self.length += 1
        return tuple(versions)

    def remove(self, keys: Iterable[VersionedKey]) -> None:
        for key, _ in keys:
            if self.items.pop(key, None) is not None:
                self.length += 1

    def item(self, key: bytes) -> TableItem | None:
        return TableItem(key, *self.items[key]) if key in self.items else None

    def listed(self) -> list[TableItem]:
        return [TableItem(key, *self.items[key]) for key in sorted(self.items)]


class Restart:
    pass


KEYS = st.sampled_from([b"", b"a", b"aa", b"ab", b"b", b"\xff", b"\xff\x00"])
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, NOT_EXISTS]) | st.integers(0, 12)
LENGTHS = st.none() | st.none() | st.none() | st.integers(0, 15)
ITEMS = st.builds(TableItem, KEYS, st.binary(max_size=2), VERSIONS)
STEPS = st.one_of(
    st.builds(UpdateTable, st.just(TABLE), st.lists(ITEMS, max_size=4).map(tuple), LENGTHS),
    st.builds(UpdateTable, st.just(TABLE), st.lists(ITEMS, max_size=4).map(tuple), LENGTHS),
    st.builds(
        RemoveTableKeys,
        st.just(TABLE),
        st.lists(st.builds(VersionedKey, KEYS, VERSIONS), max_size=3).map(tuple),
        LENGTHS,
    ),
    st.builds(ReadTable, st.just(TABLE), st.lists(KEYS, max_size=4).map(tuple)),
    st.builds(
        ListTable,
        st.just(TABLE),
        st.none() | KEYS,
        st.none() | KEYS,
        st.none() | KEYS,
        KEYS.map(lambda key: key[:1]),
        st.integers(1, 4),
    ),
    st.builds(ReadTableDelta, st.just(TABLE), st.integers(0, 20), st.integers(1, 4)),
    st.builds(Restart),
)


class History:
    """A table and its model."""

    def __init__(self) -> None:
        self.model = Model()

    async def run(self, directory: Path, history: list[object]) -> None:
        opened = EmbeddedSettings(directory=directory)
        async with open_embedded(opened) as back:
            await back.perform(CreateTable(TABLE))
        rest, more = iter(history), True
        while more:
            async with open_embedded(opened) as back:
                more = await self._until_restart(back, rest)
                await self._check(back)

    async def _until_restart(self, back: Back, rest: Iterator[object]) -> bool:
        for step in rest:
            match step:
                case Restart():
                    return True
                case UpdateTable() | RemoveTableKeys():
                    await self._change(back, step)
                case ReadTable(_, keys):
                    expected = [
                        TableItem(key, *self.model.items[key]) if key in self.model.items else None for key in keys
                    ]
                    assert await back.perform(step) == tuple(expected)
                case ListTable():
                    await self._list(back, step)
                case ReadTableDelta(_, position, count):
                    await self._delta(back, position, count)
        return False

    async def _change(self, back: Back, step: UpdateTable | RemoveTableKeys) -> None:
        if isinstance(step, UpdateTable):
            keys = [VersionedKey(item.key, item.version) for item in step.items]
        else:
            keys = list(step.keys)
        verdict = self.model.verdict(keys, step.match_length)
        try:
            result = await back.perform(step)
        except OperationFailed as error:
            assert error.failure.code is verdict
            return
        assert verdict is None
        if isinstance(step, UpdateTable):
            assert result == self.model.update(step.items)
        else:
            self.model.remove(step.keys)

    async def _list(self, back: Back, step: ListTable) -> None:
        expected = [
            item
            for item in self.model.listed()
            if item.key.startswith(step.prefix)
            and (step.after is None or item.key > step.after)
            and (step.first is None or item.key >= step.first)
            and (step.last is None or item.key <= step.last)
        ]
        page = await back.perform(step)
        assert list(page.items) == expected[: step.count]
        assert page.has_more is (len(expected) > step.count)

    async def _delta(self, back: Back, position: int, count: int) -> None:
        """All of it, in pieces of `count`."""
        if position > self.model.length:
            return
        expected = sorted((item for item in self.model.listed() if item.version >= position), key=lambda item: item[2])
        found: list[TableItem] = []
        reached_end = False
        while not reached_end:
            delta = await back.perform(ReadTableDelta(TABLE, position, count))
            assert 0 < len(delta.items) <= count or delta.reached_end
            found += delta.items
            position, reached_end = delta.next_position, delta.reached_end
        assert found == expected
        assert position == self.model.length

    async def _check(self, back: Back) -> None:
        assert list((await back.perform(ListTable(TABLE))).items) == self.model.listed()
        info = TableInfo(0, self.model.length, len(self.model.items), 0)
        assert await back.perform(GetTableInfo(TABLE)) == info


@EXAMPLES
@given(st.lists(STEPS, max_size=25))
def test_whatever_happens_a_table_says_what_the_model_says(history: list[object]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(History().run, Path(directory), history)
