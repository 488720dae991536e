"""The position index of a stream on another server.

It is kept in a table of the gateway's state, one item per mark, and in memory while the stream is in use: every 256th
mark all the time, the marks between them on demand. The position of a record in an index never changes, even after a
restart: sequence numbers and timestamps that clients were given stay valid.

If several gateways have the state, each may add to the index. An addition is made on the condition that the index is as
its gateway knows it. What others have added is taken over whenever the index is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from penstock.backends.logged_tables import LoggedTables
from penstock.backends.positions.columns import MarkColumns, Sought
from penstock.backends.positions.table import Ends, IndexTable, Kept, NewMarks, index_name
from penstock.core.back import Back
from penstock.core.marks import START, Mark
from penstock.model.failures import OperationFailed
from penstock.model.operations import FromSeqNum

__all__ = ["Outrun", "PositionIndex", "index_name", "open_index"]

PAGE_MARKS: Final = 256
"""Number of marks from one that is always in memory to the next."""
CACHED_PAGES: Final = 16
"""Most pages of marks that one index keeps in memory besides the newest: 8 KiB each."""


class Outrun(Exception):
    """Another gateway has changed the index: what was decided by it must be decided again."""


class PositionIndex:
    """The marks of one stream, oldest first, and its known first record and end. Made by `open_index`.

    The caller of `add` decides how dense marks are. Records are found by reading from the mark before them, so there is
    a mark at least every 1000 records or 1 MiB. If the server has no timestamps, there is also one wherever the
    timestamp changes: records between two marks have the earlier one's timestamp, and places that count up from its
    place.
    """

    def __init__(self, table: IndexTable, kept: Kept | None, coarse: MarkColumns, newest: MarkColumns) -> None:
        self._table = table
        self._kept = kept
        self._ends = Ends(START, START) if kept is None else kept.ends
        self._coarse = coarse
        self._newest = newest  # the last mark of `coarse`, and the marks after it
        self._pages: OrderedDict[int, MarkColumns] = OrderedDict()  # by sequence number of their first mark
        self._writing = trio.Lock()
        self._gone = False
        self._seen = -1  # batches of shared state that were read when it was last taken over

    @property
    def end(self) -> Mark:
        """The position after the last known record, from which reading goes on. Durable."""
        self.look()
        return self._ends.end

    @property
    def first(self) -> Mark:
        """The position of the first record known to be kept; the records before it were trimmed."""
        self.look()
        return self._ends.first

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last known record, in ms; 0 if there is none."""
        return self.end.timestamp

    @property
    def last_mark(self) -> Mark | None:
        """The newest mark, or None."""
        self.look()
        return self._newest[-1] if self._newest else None

    @property
    def shared(self) -> LoggedTables | None:
        """The state, if other gateways may have it too."""
        return self._table.shared

    @property
    def gone(self) -> bool:
        """True if another gateway has deleted the index, with its stream."""
        self.look()
        return self._gone

    def is_later_than(self, other: PositionIndex) -> bool:
        """Return whether it was made after the other one of the same name, in shared state, was deleted."""
        mine, its = self._kept, other._kept
        return self.shared is not None and mine is not None and its is not None and mine.generation > its.generation > 0

    @property
    def version(self) -> int:
        """A number that is another one whenever another gateway may have changed the index."""
        self.look()
        return -1 if self._kept is None else self._kept.version

    # ---- other gateways ------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Take over what other gateways had added before the call. Raises OperationFailed if the state cannot be
        read."""
        if self._table.shared is not None:
            await self._table.kept()
            self.look()

    def look(self) -> None:
        """Take over what other gateways have added, as far as the state was read."""
        shared = self._table.shared
        if shared is None or shared.batches_read == self._seen or not shared.loaded:
            return
        self._seen = shared.batches_read
        kept, known = self._table.seen(), self._kept
        if kept == known or self._gone:
            return
        if kept is None or (known is not None and kept.generation != known.generation != 0):
            self._clear()
            self._gone = True
            return
        self._kept = kept
        begun = self._table.seen_first_marks(self._coarse[-1].seq_num if self._coarse else -1)
        for mark in begun:
            self._coarse.append(mark)
        if begun:
            self._newest = MarkColumns(begun[-1:])  # what is known of the page before may not be all of it
        for mark in self._table.seen_marks(self._newest[-1].seq_num) if self._newest else ():
            self._newest.append(mark)
        self._set_ends(kept.ends)

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
        marks = [await self.before(FromSeqNum(seq_num))]
        begin: int | None = seq_num
        while begin is not None and self._coarse:
            at = max(self._coarse.before(FromSeqNum(begin)), 0)  # again for each page: a trim drops the first ones
            if self._coarse[at].seq_num >= end:
                break
            begin = self._coarse[at + 1].seq_num if at + 1 < len(self._coarse) else None
            page = await self._page(at)
            behind = range(page.before(FromSeqNum(marks[-1].seq_num)) + 1, page.before(FromSeqNum(end - 1)) + 1)
            marks += [page[index] for index in behind]
        return marks

    async def behind(self, seq_num: int) -> Mark | None:
        """Return the first mark after a sequence number, or None. Raises OperationFailed(STORAGE)."""
        if not self._coarse:
            return None
        at = max(self._coarse.before(FromSeqNum(seq_num)), 0)
        following = self._coarse[at + 1] if at + 1 < len(self._coarse) else None
        page = await self._page(at)
        index = page.before(FromSeqNum(seq_num)) + 1
        return page[index] if index < len(page) else following

    def _at_least(self, mark: Mark) -> Mark:
        return max(mark, self._ends.first)

    async def _page(self, at: int) -> MarkColumns:
        """Return the page that begins with the coarse mark at this index: that mark, and those up to the next one."""
        if at == len(self._coarse) - 1:
            return self._newest
        begin, end = self._coarse[at], self._coarse[at + 1]
        page = self._pages.pop(begin.seq_num, None)
        if page is None:
            page = await self._table.page(begin, end.seq_num, PAGE_MARKS)
        self._keep(page)
        return page

    def _keep(self, page: MarkColumns) -> None:
        self._pages[page[0].seq_num] = page
        while len(self._pages) > CACHED_PAGES:
            self._pages.popitem(last=False)

    # ---- telling -------------------------------------------------------------------------------------------------

    async def add(self, end: Mark, *marks: Mark, version: int | None = None) -> None:
        """Set the end of the stream and add marks, oldest first. They are durable and visible on return.

        Marks and ends that are not beyond the known ones are ignored, so adding twice changes nothing. A cancelled
        addition is durable as a whole or not at all. `version`: the one by which they were decided; None: any. Raises
        OperationFailed(STORAGE), STREAM_NOT_FOUND if another gateway has deleted the stream, or Outrun if one has
        changed the index.
        """
        async with self._writing:
            self._check(version)
            last = self.last_mark
            known = -1 if last is None else last.seq_num
            new = [mark for mark in marks if mark.seq_num > known]
            await self._write(self._ends._replace(end=max(self._ends.end, end)), new)

    def _check(self, version: int | None) -> None:
        if self.gone:
            raise self._table.deleted()
        if self._table.shared is not None and version not in (None, self.version):
            raise Outrun

    async def _write(self, ends: Ends, marks: Sequence[Mark] = ()) -> None:
        before = len(self._newest)
        pages = [self._newest.behind(0)] if before else []
        for mark in marks:
            if not pages or len(pages[-1]) >= PAGE_MARKS:
                pages.append(MarkColumns())
            pages[-1].append(mark)
        full, begun = pages[:-1], pages[1:] if before else pages
        new = NewMarks(full, begun, list(pages[-1].behind(before if not begun else 1)) if pages else ())
        with trio.CancelScope(shield=True):  # memory must show what is being written
            if not await self._table.write(ends, new, self._kept):
                raise Outrun
            for page in full:
                self._keep(page)
            if self._table.shared is None:
                for page in begun:
                    self._coarse.append(page[0])
                self._newest = pages[-1] if pages else self._newest
                self._set_ends(ends)
            self.look()
        if full:
            with suppress(OperationFailed):  # what is left there is removed with the next page
                await self._table.remove_before(pages[-1][0].seq_num, 0, self._kept)

    def _set_ends(self, ends: Ends) -> None:
        if ends.first > self._ends.first:
            gone = max(self._coarse.before(FromSeqNum(ends.first.seq_num)), 0)
            for index in range(gone):
                self._pages.pop(self._coarse[index].seq_num, None)
            self._coarse.drop(gone)
        self._ends = ends

    async def trimmed(self, first_kept: Mark, version: int | None = None) -> None:
        """Set the first record of the stream: those before it are gone, or are about to be. Durable on return.

        Does nothing if the stream begins at or after it already. `version`: see `add`, whose errors are raised.
        """
        async with self._writing:
            if first_kept <= self.first:
                return
            while first_kept > self.first:
                self._check(version)
                with suppress(Outrun):
                    await self._write(Ends(max(self._ends.end, first_kept), first_kept))
        oldest = self._coarse[0].seq_num if self._coarse else 0
        await self._table.remove_before(first_kept.seq_num, oldest, self._kept)

    async def forget(self) -> None:
        """Delete the index of a deleted stream, as it was when it was last asked; the next one of that name starts
        afresh. Raises OperationFailed(STORAGE).
        """
        async with self._writing:
            with trio.CancelScope(shield=True):
                if self._table.shared is None or (not self._gone and self._kept is not None):
                    await self._table.delete(self._kept)
                self._clear()
                self._gone = self._table.shared is not None

    def _clear(self) -> None:
        self._kept, self._ends = None, Ends(START, START)
        self._coarse, self._newest = MarkColumns(), MarkColumns()
        self._pages.clear()


async def open_index(state: Back, name: str) -> PositionIndex:
    """Open the index that `state` keeps under this name (see `index_name`); it may be empty.

    Open only one index per name at a time in an embedded store: two do not see each other's additions. Raises
    OperationFailed(STORAGE).
    """
    table = IndexTable(state, name)
    kept = await table.kept()
    if kept is None or table.shared is not None:
        index = PositionIndex(table, None, MarkColumns(), MarkColumns())
        index.look()
        return index
    coarse = MarkColumns(await table.coarse())
    newest = MarkColumns()
    if coarse:
        newest = MarkColumns([coarse[-1], *await table.newest(coarse[-1].seq_num)])
    return PositionIndex(table, kept, coarse, newest)
