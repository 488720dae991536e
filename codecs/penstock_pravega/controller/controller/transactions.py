"""Transactions: segments beside a stream's own, whose events become the stream's when the transaction is committed.

Clients write to `<segment>#transaction.<32 hex>` beside each segment of the stream. Committing merges it into its
segment, aborting deletes it. The state is recorded before anything is done, and each step can be repeated, so a commit
that was begun is completed after any interruption.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from penstock.core.clock import Clock
from penstock.core.permissions import ANY_PERMISSION, APPEND
from penstock.model.failures import FailureCode, OperationFailed
from penstock.tables.struct_table import Conflict, Key, Prefix, VersionedValue
from penstock_pravega.controller.controller.catalog import Catalog, CatalogStream
from penstock_pravega.controller.controller.numbers import FirstSegment
from penstock_pravega.controller.controller.problems import ControllerProblem, ControllerRefusal
from penstock_pravega.controller.controller.records import Completed, Transaction, TransactionState
from penstock_pravega.controller.controller.scaling import Scaling
from penstock_pravega.controller.controller.segments import at_once
from penstock_pravega.controller.controller.topology import Segment, covering
from penstock_pravega.controller.controller.watermarks import WriterTimes
from penstock_pravega.segment.names import SegmentName

__all__ = ["COMPLETED_SECONDS", "MAX_LEASE_MS", "TransactionId", "Transactions"]

MAX_LEASE_MS: Final = 600_000
"""Longest lease, as in Pravega; a client that is silent for longer loses its transaction."""
MAX_OPEN_MS: Final = 86_400_000
"""Longest life of a transaction that is extended by pings, as in Pravega."""
MOST_OPEN: Final = 1000
"""Most open transactions of one stream; each has as many segments as the stream."""
COMPLETED_SECONDS: Final = 86_400
"""Seconds for which the outcome of a transaction is kept."""
LISTED: Final = 500
"""Most completed transactions in a listing."""

_ENDS: Final = {
    TransactionState.COMMITTING: TransactionState.COMMITTED,
    TransactionState.ABORTING: TransactionState.ABORTED,
}

_NEVER: Final = frozenset(
    {
        FailureCode.LIMIT_EXCEEDED,
        FailureCode.INVALID,
        FailureCode.NOT_REPRESENTABLE,
        FailureCode.STREAM_SEALED,
        FailureCode.STREAM_NOT_FOUND,
    }
)
"""Failures of a commit that would occur again: if it were left to be retried, its stream could never be sealed."""

log = structlog.get_logger()
_ALL_OPEN: Final = Prefix("open/", Transaction)
_ALL_DONE: Final = Prefix("done/", Completed)


class TransactionId(NamedTuple):
    """A transaction's id: 128 bits. Both halves are positive as signed numbers, which a released client needs.

    The upper 32 bits of `high` are the epoch in which it began: a client that has only the id (getTxn) asks for the
    segments of that epoch.
    """

    high: int
    low: int

    @classmethod
    def new(cls, epoch: int) -> TransactionId:
        """Return a new id, which cannot be guessed."""
        return cls(epoch << 32 | secrets.randbits(32), secrets.randbits(63))

    @classmethod
    def parse(cls, text: str) -> TransactionId:
        """Parse the text that `str` returns."""
        return cls(int(text[:16], 16), int(text[16:], 16))

    def __str__(self) -> str:
        return f"{self.high:016x}{self.low:016x}"


class Transactions:
    """The operations on transactions."""

    def __init__(self, catalog: Catalog, scaling: Scaling, times: WriterTimes, clock: Clock) -> None:
        self._catalog = catalog
        self._table = catalog.table
        self._scaling = scaling
        self._times = times
        self._clock = clock
        self._asked = 0

    async def create(self, scope: str, name: str, lease: int) -> tuple[TransactionId, list[Segment]]:
        """Begin a transaction for `lease` ms. Returns its id, and the stream's segments that its own are named after.

        Raises LEASE_TOO_LARGE, INVALID_CONFIG, STREAM_NOT_FOUND, STREAM_SEALED, TOO_MANY.
        """
        _check_lease(lease)
        self._catalog.segments.require(scope, name, APPEND)
        async with self._catalog.turn(scope, name):
            stream = await self._scaling.finish(await self._catalog.find(scope, name))
            if not stream.record.open:
                raise ControllerRefusal(ControllerProblem.STREAM_SEALED, str(stream))
            if await self._count(_open(scope, name)) >= MOST_OPEN:
                raise ControllerRefusal(ControllerProblem.TOO_MANY, f"{MOST_OPEN} of {stream}")
            transaction, segments, now = TransactionId.new(stream.record.epoch), stream.current, self._clock()
            ids = tuple(segment.id for segment in segments)
            record = Transaction(TransactionState.OPEN, ids, now + lease, now + MAX_OPEN_MS, stream.first)
            await self._table.put(_open(scope, name).key(str(transaction)), record)
            names = [stream.name_of(segment, _suffix(transaction)) for segment in segments]
            await at_once(self._catalog.segments.create, names)
        return transaction, segments

    async def ping(self, scope: str, name: str, transaction: TransactionId, lease: int) -> TransactionState | None:
        """Keep a transaction open for `lease` ms from now. Returns its state, as `state`. Raises as `create`, and
        TOO_OLD."""
        _check_lease(lease)
        self._catalog.segments.require(scope, name, APPEND)

        def extended(record: Transaction) -> Transaction:
            until = self._clock() + lease
            if record.state is not TransactionState.OPEN:
                return record
            if until > record.latest:
                raise ControllerRefusal(ControllerProblem.TOO_OLD, f"{MAX_OPEN_MS} ms are the most")
            return msgspec.structs.replace(record, expires_at=until)

        record = await self._table.change(_open(scope, name).key(str(transaction)), extended)
        return await self.state(scope, name, transaction) if record is None else record.state

    async def state(self, scope: str, name: str, transaction: TransactionId) -> TransactionState | None:
        """Return a transaction's state, or None if it is unknown or forgotten."""
        self._catalog.segments.require(scope, name, ANY_PERMISSION)
        ended = await self._table.get(_done(scope, name).key(str(transaction)))
        if ended is not None:
            return ended.value.state
        entry = await self._table.get(_open(scope, name).key(str(transaction)))
        return None if entry is None else entry.value.state

    async def commit(
        self, scope: str, name: str, transaction: TransactionId, writer: str = "", time: int | None = None
    ) -> None:
        """Commit a transaction, which may be committed already. `time`: all later events of `writer` are not older; it
        is noted with the commit, unless the writer has noted a later one. Raises STREAM_NOT_FOUND,
        TRANSACTION_NOT_FOUND."""
        noted = (writer, time) if writer and time is not None else None
        await self._end(scope, name, transaction, TransactionState.COMMITTING, noted)

    async def abort(self, scope: str, name: str, transaction: TransactionId) -> None:
        """Abort a transaction, which may be aborted already. Raises STREAM_NOT_FOUND, TRANSACTION_NOT_FOUND."""
        await self._end(scope, name, transaction, TransactionState.ABORTING)

    async def completed(self, scope: str, name: str) -> list[tuple[TransactionId, TransactionState]]:
        """Return the newest transactions that have ended, newest first. Raises STREAM_NOT_FOUND."""
        await self._catalog.find(scope, name)
        rows = [(ended.at, text, ended.state) async for text, ended in self._table.each(_done(scope, name))]
        newest = heapq.nlargest(LISTED, rows, key=lambda row: row[:2])
        return [(TransactionId.parse(text), state) for _, text, state in newest]

    async def end_all(self, stream: CatalogStream) -> CatalogStream:
        """Abort open transactions, and finish those that are being committed. The caller has the stream's turn."""
        async for text, _ in self._table.each(_open(stream.scope, stream.name)):
            await self._finish(stream.scope, stream.name, TransactionId.parse(text), TransactionState.ABORTING)
        return await self._catalog.find(stream.scope, stream.name)

    async def forget(self, stream: CatalogStream) -> None:
        """Remove all transactions of a stream that is being deleted. The caller has the stream's turn."""
        async for text, _ in self._table.each(_open(stream.scope, stream.name)):
            await self._finish(stream.scope, stream.name, TransactionId.parse(text), TransactionState.ABORTING)
        async for text, _ in self._table.each(_done(stream.scope, stream.name)):
            await self._table.discard(_done(stream.scope, stream.name).key(text))

    async def sweep(self) -> None:
        """Abort expired transactions, and finish commits and aborts that were begun."""
        due = [
            (record.asked, path)
            async for path, record in self._table.each(_ALL_OPEN)
            if record.state is not TransactionState.OPEN or record.expires_at <= self._clock()
        ]
        for _, path in sorted(due):
            scope, name, text = path.split("/")
            try:
                async with self._catalog.turn(scope, name):
                    await self._finish(scope, name, TransactionId.parse(text), None)
            except OperationFailed as error:
                log.warning("transaction_not_ended", stream=f"{scope}/{name}", transaction=text, error=str(error))

    async def forget_old(self) -> None:
        """Remove the outcomes of transactions that ended more than COMPLETED_SECONDS ago."""
        before = self._clock() - COMPLETED_SECONDS * 1000
        async for path, ended in self._table.each(_ALL_DONE):
            if ended.at <= before:
                await self._table.discard(_ALL_DONE.key(path))

    async def _end(
        self,
        scope: str,
        name: str,
        transaction: TransactionId,
        how: TransactionState,
        noted: tuple[str, int] | None = None,
    ) -> None:
        self._catalog.segments.require(scope, name, APPEND)
        await self._catalog.find(scope, name)
        if how is TransactionState.COMMITTING:  # before the turn, so that whichever task has it now sees it too
            await self._table.change(
                _open(scope, name).key(str(transaction)), lambda record: self._committing(record, noted)
            )
        async with self._catalog.turn(scope, name):
            stream = await self._catalog.find(scope, name)
            if how is TransactionState.COMMITTING:
                if await self._shares(stream, transaction):
                    return
                for other in await self._to_commit(stream):
                    await self._finish(scope, name, other, how)
            ended = await self._finish(scope, name, transaction, how)
        if ended is not _ENDS[how]:
            word = "is not known" if ended is None else f"was {ended.value}"
            raise ControllerRefusal(ControllerProblem.TRANSACTION_NOT_FOUND, f"{transaction} of {scope}/{name} {word}")

    def _committing(self, record: Transaction, noted: tuple[str, int] | None) -> Transaction:
        """Return a transaction's record, marked for commit after all those before."""
        if record.state is not TransactionState.OPEN:
            return record
        self._asked = max(self._asked + 1, self._clock() * 1000)
        return msgspec.structs.replace(record, state=TransactionState.COMMITTING, asked=self._asked, noted=noted)

    async def _shares(self, stream: CatalogStream, transaction: TransactionId) -> bool:
        """Return whether a commit must wait for others: its segments must be recreated (see `_merge`), and other
        transactions that need the same segments are still open. If none of those is committed, `sweep` carries it
        out."""
        entry = await self._table.get(_open(stream.scope, stream.name).key(str(transaction)))
        if entry is None or entry.value.state is not TransactionState.COMMITTING:
            return False
        of_before = [segment for segment in stream.record.segments if segment.id in entry.value.segments]
        if all(covering(stream.current, stream_segment.keys) for stream_segment in of_before):
            return False
        return any(
            [
                other.state is TransactionState.OPEN and other.segments == entry.value.segments
                async for _, other in self._table.each(_open(stream.scope, stream.name))
            ]
        )

    async def _to_commit(self, stream: CatalogStream, segments: tuple[int, ...] | None = None) -> list[TransactionId]:
        """Return the stream's transactions that are marked for commit, in order; `segments`: only those beside
        these."""
        committing = [
            (record.asked, TransactionId.parse(text))
            async for text, record in self._table.each(_open(stream.scope, stream.name))
            if record.state is TransactionState.COMMITTING and segments in (None, record.segments)
        ]
        return [transaction for _, transaction in sorted(committing)]

    async def _finish(
        self, scope: str, name: str, transaction: TransactionId, how: TransactionState | None
    ) -> TransactionState | None:
        """End a transaction as its record says, if its end was begun; otherwise as `how` says, or if that is None abort
        it if it has expired.

        Returns its outcome, or None if it is unknown or still open. The caller has the stream's turn.
        """
        key, done = _open(scope, name).key(str(transaction)), _done(scope, name).key(str(transaction))
        entry = await self._table.get(key)
        if entry is None:
            ended = await self._table.get(done)
            return None if ended is None else ended.value.state
        if entry.value.state is TransactionState.OPEN:
            if how is None and entry.value.expires_at > self._clock():
                return None
            try:
                entry = await self._begin(key, entry, how or TransactionState.ABORTING)
            except Conflict:  # it was extended, or marked for commit: that needs no turn
                return await self._finish(scope, name, transaction, how)
        if entry.value.state is TransactionState.COMMITTING:
            reason = await self._commit(scope, name, transaction, entry.value)
            if reason is not None:
                log.warning(
                    "transaction_aborted", stream=f"{scope}/{name}", transaction=str(transaction), reason=reason
                )
                entry = await self._begin(key, entry, TransactionState.ABORTING)
        if entry.value.state is TransactionState.ABORTING:
            first = FirstSegment(entry.value.first)
            names = [first.stored(SegmentName.of_id(scope, name, segment)) for segment in entry.value.segments]
            ours = [replace(segment_name, suffix=_suffix(transaction)) for segment_name in names]
            await at_once(self._catalog.segments.delete, ours)
        end = _ENDS[entry.value.state]
        await self._table.add(done, Completed(end, self._clock()))
        await self._table.discard(key)
        return end

    async def _commit(self, scope: str, name: str, transaction: TransactionId, record: Transaction) -> str | None:
        """Commit. Returns the reason if that can never succeed, otherwise None."""
        stream = await self._catalog.look_up(scope, name)
        if stream is None or stream.record.sealed:
            return "the stream was sealed or deleted"
        try:
            await self._merge(stream, transaction, record)
        except OperationFailed as error:
            if error.failure.code not in _NEVER:
                raise
            return error.failure.message
        if record.noted is not None:
            await self._note(scope, name, *record.noted)
        return None

    async def _note(self, scope: str, name: str, writer: str, time: int) -> None:
        """Note the time of a commit. The tails of the stream are at or after the writer's position, also where an
        interrupted commit is resumed. A time that cannot be noted fails no commit, as in Pravega."""
        stream = await self._catalog.find(scope, name)
        infos = [(segment.id, await self._catalog.segments.info(stream.name_of(segment))) for segment in stream.current]
        cut = {segment_id: info.length for segment_id, info in infos if info is not None}
        try:
            await self._times.note(scope, name, writer, time, cut)
        except ControllerRefusal as error:
            log.info("time_not_noted", stream=str(stream), writer=writer, reason=error.failure.message)

    async def _begin(
        self, key: Key[Transaction], entry: VersionedValue[Transaction], state: TransactionState
    ) -> VersionedValue[Transaction]:
        return await self._table.put(key, msgspec.structs.replace(entry.value, state=state), entry.version)

    async def _merge(self, stream: CatalogStream, transaction: TransactionId, record: Transaction) -> None:
        """Append the events that are still in the transaction's segments to the stream's.

        If its segments have been replaced by smaller ones since, they are recreated for the time of the commit: only
        clients know which event has which key, so the events cannot be divided. Readers wait at each such change, so
        all transactions that are marked for commit to the same segments share it. Raises LIMIT_EXCEEDED if a merge is
        more than the back takes at once: the largest is tried first, so then nothing was merged.
        """
        stream = await self._scaling.finish(stream)
        waiting = await self._waiting(stream, transaction, record)
        if all(covering(stream.current, parent.keys) for parent in waiting):
            await self._append(stream, transaction, waiting)
            return
        ranges, failed = [segment.keys for segment in stream.current], None
        of_before = [stream.segment(segment_id).keys for segment_id in record.segments]
        stream = await self._scaling.replace(stream, [segment.id for segment in stream.current], of_before)
        for segment_id in await self._to_commit(stream, record.segments):
            try:
                await self._append(stream, segment_id, await self._waiting(stream, segment_id, record))
            except OperationFailed as error:
                failed = (
                    error if segment_id == transaction else failed
                )  # others fail when they are committed themselves
        await self._scaling.replace(stream, [segment.id for segment in stream.current], ranges)
        if failed is not None:
            raise failed

    async def _append(self, stream: CatalogStream, transaction: TransactionId, waiting: Mapping[Segment, int]) -> None:
        """Append a transaction's segments, with these sizes in bytes, to those of the stream that have their keys."""
        merges = [
            (target, [parent for parent in waiting if target.keys.contains(parent.keys)]) for target in stream.current
        ]
        merges = [(target, sources) for target, sources in merges if sources]
        for target, _ in merges:
            await self._require_open(stream.name_of(target))
        for target, sources in sorted(merges, key=lambda merge: -sum(waiting[source] for source in merge[1])):
            names = [stream.name_of(source, _suffix(transaction)) for source in sources]
            await self._catalog.segments.merge(stream.name_of(target), names)

    async def _waiting(
        self, stream: CatalogStream, transaction: TransactionId, record: Transaction
    ) -> dict[Segment, int]:
        """Return the stream's segments beside which a transaction has events, and their number of bytes."""
        parents = [stream.segment(segment) for segment in record.segments]
        sizes = {parent: await self._events_in(stream, parent, transaction) for parent in parents}
        return {parent: size for parent, size in sizes.items() if size}

    async def _require_open(self, name: SegmentName) -> None:
        """Raise STREAM_SEALED if a segment of an open stream has been sealed or deleted by itself."""
        info = await self._catalog.segments.info(name)
        if info is None or info.sealed:
            raise ControllerRefusal(ControllerProblem.STREAM_SEALED, f"segment {name} takes no events any more")

    async def _events_in(self, stream: CatalogStream, parent: Segment, transaction: TransactionId) -> int:
        """Return the number of bytes to merge; a segment without any is deleted instead."""
        name = stream.name_of(parent, _suffix(transaction))
        info = await self._catalog.segments.info(name)
        if info is not None and info.length == 0:
            await self._catalog.segments.delete(name)
        return 0 if info is None else info.length

    async def _count(self, prefix: Prefix[Transaction]) -> int:
        return len([text async for text, _ in self._table.each(prefix)])


def _open(scope: str, name: str) -> Prefix[Transaction]:
    return Prefix(f"{_ALL_OPEN.path}{scope}/{name}/", Transaction)


def _done(scope: str, name: str) -> Prefix[Completed]:
    return Prefix(f"{_ALL_DONE.path}{scope}/{name}/", Completed)


def _suffix(transaction: TransactionId) -> str:
    return f"#transaction.{transaction}"


def _check_lease(lease: int) -> None:
    if lease < 1:
        raise ControllerRefusal(ControllerProblem.INVALID_CONFIG, f"a lease of {lease} ms")
    if lease > MAX_LEASE_MS:
        raise ControllerRefusal(ControllerProblem.LEASE_TOO_LARGE, f"{lease} ms, at most {MAX_LEASE_MS}")
