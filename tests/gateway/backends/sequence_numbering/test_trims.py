"""Trims of a numbered stream while another client reads it."""

from __future__ import annotations

from typing import Any

from support.native import FakeNative, MemoryTables
from support.store import NOW, STREAM, Wall, appending, records

from penstock.backends.sequence_numbering import open_indexed
from penstock.model.operations import FromSeqNum, Trim
from penstock.model.table_operations import ReadTable


class Trimming(MemoryTables):
    """Tables that carry out `then` when they are first asked for one key after it was set."""

    then: Any = None

    async def perform(self, operation: Any) -> Any:
        found = await super().perform(operation)
        if self.then is not None and isinstance(operation, ReadTable) and len(operation.keys) == 1:
            then, self.then = self.then, None
            await then()
        return found


async def test_a_trim_while_a_read_looks_up_timestamps_changes_none(
    segment: FakeNative, autojump_clock: object
) -> None:
    """Before, records behind a page of marks were told with the timestamp of an earlier one."""
    wall, tables = Wall(), Trimming()
    stamps = list(range(NOW - 900, NOW))
    async with open_indexed(segment, "fake", tables, clock=wall) as back:
        await back.perform(appending(*(b"%d" % stamp for stamp in stamps), timestamps=stamps))
    async with open_indexed(segment, "fake", tables, clock=wall) as back:

        async def trim() -> None:
            await back.perform(Trim(STREAM, FromSeqNum(600)))

        async def arm(*args: Any, **options: Any) -> Any:
            found = await scan(*args, **options)
            if len(found.bodies) == 900:
                tables.then = trim
                segment.scan = scan  # type: ignore[method-assign]
            return found

        scan = segment.scan
        segment.scan = arm  # type: ignore[method-assign]
        found = await records(back, FromSeqNum(0), wait=0)
        assert all(record.body == b"%d" % record.timestamp for record in found)
        assert [record.seq_num for record in found][-300:] == list(range(600, 900))
