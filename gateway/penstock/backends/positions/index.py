"""The position index of a stream on another server.

It is kept in a table of the embedded store, one item per mark, and in memory while the stream is in use: every 256th
mark all the time, the marks between them on demand. The position of a record in an index never changes, even after a
restart: sequence numbers and timestamps that clients were given stay valid.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import trio

from penstock.backends.positions.columns import MarkColumns, Sought
from penstock.backends.positions.table import Ends, IndexTable, index_name
from penstock.core.back import Back
from penstock.core.marks import START, Mark
from penstock_codecs.failures import OperationFailed
from penstock_codecs.operations import FromSeqNum

__all__ = ["PositionIndex", "index_name", "open_index"]

PAGE_MARKS: Final = 256
"""Number of marks from one that is always in memory to the next."""
CACHED_PAGES: Final = 16
"""Most pages of marks that one index keeps in memory besides the newest: 8 KiB each."""


class PositionIndex:
    """The marks of one stream, oldest first, and its known first record and end. Made by `open_index`.

    The caller of `add` decides how dense marks are. Records are found by reading from the mark before them, so there is
    a mark at least every 1000 records or 1 MiB. If the server has no timestamps, there is also one wherever the
    timestamp changes: records between two marks have the earlier one's timestamp, and places that count up from its
    place.
    """

    def __init__(self, table: IndexTable, ends: Ends, coarse: MarkColumns, newest: MarkColumns) -> None:
        self._table = table
        self._ends = ends
        self._coarse = coarse
        self._newest = newest  # the last mark of `coarse`, and the marks after it
        self._pages: OrderedDict[int, MarkColumns] = OrderedDict()  # by sequence number of their first mark
        self._waiting: list[_Addition] = []
        self._writing = trio.Lock()

    @property
    def end(self) -> Mark:
        """The position after the last known record, from which reading goes on. Durable."""
        return self._ends.end

    @property
    def first(self) -> Mark:
        """The position of the first record known to be kept; the records before it were trimmed."""
        return self._ends.first

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last known record, in ms; 0 if there is none."""
        return self._ends.end.timestamp

    @property
    def last_mark(self) -> Mark | None:
        """The newest mark, or None."""
        return self._newest[-1] if self._newest else None

    # ---- asking --------------------------------------------------------------------------------------------------

    async def before(self, start: Sought) -> Mark:
        """Return the last mark from which reading on finds the first record at or after `start`, or else `first`.

        For a byte offset it is the last mark with a smaller offset, since records without bytes may share theirs.
        Raises OperationFailed(STORAGE).
        """
        at = self._coarse.before(start)
        if at < 0:
            oldest = self._coarse[0] if self._coarse else START
            return self._at_least(oldest) if oldest.seq_num <= self._ends.first.seq_num else self._ends.first
        page = await self._page(at)
        return self._at_least(page[max(page.before(start), 0)])

    async def between(self, seq_num: int, end: int) -> list[Mark]:
        """Return the marks for the records from `seq_num` up to `end`: the last one at or before `seq_num`, and those
        after it. Raises OperationFailed(STORAGE)."""
        found = [await self.before(FromSeqNum(seq_num))]
        at = max(self._coarse.before(FromSeqNum(seq_num)), 0)
        while at < len(self._coarse) and self._coarse[at].seq_num < end:
            page = await self._page(at)
            behind = range(page.before(FromSeqNum(found[-1].seq_num)) + 1, page.before(FromSeqNum(end - 1)) + 1)
            found += [page[index] for index in behind]
            at += 1
        return found

    async def behind(self, seq_num: int) -> Mark | None:
        """Return the first mark after a sequence number, or None. Raises OperationFailed(STORAGE)."""
        at = max(self._coarse.before(FromSeqNum(seq_num)), 0)
        while at < len(self._coarse):
            page = await self._page(at)
            index = page.before(FromSeqNum(seq_num)) + 1
            if index < len(page):
                return page[index]
            at += 1
        return None

    def _at_least(self, mark: Mark) -> Mark:
        return max(mark, self._ends.first)

    async def _page(self, at: int) -> MarkColumns:
        """Return the page that begins with the coarse mark at this index: that mark, and those up to the next one."""
        if at == len(self._coarse) - 1:
            return self._newest
        begin, end = self._coarse[at], self._coarse[at + 1]
        page = self._pages.pop(begin.seq_num, None)
        if page is None:
            page = MarkColumns([begin, *await self._table.marks(begin.seq_num, end.seq_num)])
        self._keep(page)
        return page

    def _keep(self, page: MarkColumns) -> None:
        self._pages[page[0].seq_num] = page
        while len(self._pages) > CACHED_PAGES:
            self._pages.popitem(last=False)

    # ---- telling -------------------------------------------------------------------------------------------------

    async def add(self, end: Mark, *marks: Mark) -> None:
        """Set the end of the stream and add marks, oldest first. They are durable and visible on return.

        Marks and ends that are not beyond the known ones are ignored, so adding twice changes nothing. Additions at the
        same time are written together. A cancelled addition is durable as a whole or not at all. Raises
        OperationFailed(STORAGE).
        """
        addition = _Addition(end, marks)
        self._waiting.append(addition)
        try:
            async with self._writing:
                if not addition.settled:
                    await self._write_waiting()
        except trio.Cancelled:
            if addition in self._waiting:
                self._waiting.remove(addition)
            raise
        if addition.failed is not None:
            raise OperationFailed(addition.failed.failure)

    async def _write_waiting(self) -> None:
        together, self._waiting = self._waiting, []
        last = self.last_mark
        known = -1 if last is None else last.seq_num
        new: list[Mark] = []
        end = self._ends.end
        for addition in together:
            end = max(end, addition.end)
            for mark in addition.marks:
                if mark.seq_num > known:
                    new.append(mark)
                    known = mark.seq_num
        ends = self._ends._replace(end=end)
        size = len(self._newest) or PAGE_MARKS
        coarse = [mark for index, mark in enumerate(new) if (size + index) % PAGE_MARKS == 0]
        try:
            with trio.CancelScope(shield=True):  # memory must show what is being written
                await self._table.write(ends, new, {mark.seq_num for mark in coarse})
                self._ends = ends
                self._show(new, coarse)
        except OperationFailed as error:
            for addition in together:
                addition.failed = error
        finally:
            for addition in together:
                addition.settled = True

    def _show(self, new: Iterable[Mark], coarse: Iterable[Mark]) -> None:
        begins = {mark.seq_num for mark in coarse}
        for mark in new:
            if mark.seq_num in begins:
                if self._newest:
                    self._keep(self._newest)
                self._newest = MarkColumns()
                self._coarse.append(mark)
            self._newest.append(mark)

    async def trimmed(self, first_kept: Mark) -> None:
        """Set the first record of the stream: those before it are gone, or are about to be. Durable on return.

        Does nothing if the stream begins at or after it already. Raises OperationFailed(STORAGE).
        """
        async with self._writing:
            if first_kept <= self._ends.first:
                return
            with trio.CancelScope(shield=True):
                ends = Ends(max(self._ends.end, first_kept), first_kept)
                await self._table.write(ends, (), frozenset())
                self._ends = ends
                gone = max(self._coarse.before(FromSeqNum(first_kept.seq_num)), 0)
                for index in range(gone):
                    self._pages.pop(self._coarse[index].seq_num, None)
                self._coarse.drop(gone)
        await self._table.remove_before(first_kept.seq_num, self._coarse[0].seq_num if self._coarse else 0)

    async def forget(self) -> None:
        """Delete the index of a deleted stream; the next one of that name starts afresh.

        Raises OperationFailed(STORAGE).
        """
        async with self._writing:
            with trio.CancelScope(shield=True):
                await self._table.delete()
                self._ends = Ends(START, START)
                self._coarse, self._newest = MarkColumns(), MarkColumns()
                self._pages.clear()


class _Addition:
    """Marks and an end that wait to be written, and the outcome."""

    __slots__ = ("end", "failed", "marks", "settled")

    def __init__(self, end: Mark, marks: tuple[Mark, ...]) -> None:
        self.end = end
        self.marks = marks
        self.settled = False
        self.failed: OperationFailed | None = None


async def open_index(state: Back, name: str) -> PositionIndex:
    """Open the index that `state`, the embedded store, keeps under this name (see `index_name`); it may be empty.

    Open only one index per name at a time: two do not see each other's additions. Raises OperationFailed(STORAGE).
    """
    table = IndexTable(state, name)
    ends = await table.ends()
    if ends is None:
        return PositionIndex(table, Ends(START, START), MarkColumns(), MarkColumns())
    coarse = MarkColumns(await table.coarse())
    newest = MarkColumns()
    if coarse:
        newest = MarkColumns([coarse[-1], *await table.marks(coarse[-1].seq_num, None)])
    return PositionIndex(table, ends, coarse, newest)
