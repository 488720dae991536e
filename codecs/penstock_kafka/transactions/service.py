"""The transactions of one listener: their states, their batches and offsets, and the tasks that end them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import structlog
import trio

from penstock.core.back import Back
from penstock.core.clock import Clock, wall_clock
from penstock.core.identity import CLIENT, Client
from penstock.model.failures import OperationFailed
from penstock.model.limits import MAX_TABLE_VALUE_BYTES
from penstock.tables.struct_table import Prefix, StructTable
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import KafkaBatch, read_batches
from penstock_kafka.codec.carrying import parts_of
from penstock_kafka.groups.offsets import CommittedOffset, GroupPartition
from penstock_kafka.groups.service import GroupService
from penstock_kafka.sequences import BatchPlace, KafkaRefusal
from penstock_kafka.transactions.delivery import check_takes_records, deliver, is_final
from penstock_kafka.transactions.limits import TransactionLimits
from penstock_kafka.transactions.pending import MOST_BATCH, TransactionBatches
from penstock_kafka.transactions.records import (
    TRANSACTION_TRANSITIONS,
    PendingOffset,
    TransactionRecord,
    TxnPartition,
    TxnState,
)
from penstock_kafka.transactions.state import PendingPlace, ProducerState

__all__ = ["TransactionService", "TransactionalProducer"]

log = structlog.get_logger()

_S = TxnState
_TRANSACTIONS: Final = Prefix("transaction/", TransactionRecord)
_LAST_EPOCH: Final = (1 << 15) - 2
_AGAIN_SECONDS: Final = 1.0
_FORGET_SECONDS: Final = 600.0


class TransactionalProducer(NamedTuple):
    """A producer as its requests name it."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionService:
    """The transactions of one listener. `limits` returns the bounds, which a reload may change.

    Methods return error codes unless they say what they raise.
    """

    def __init__(
        self,
        back: Back,
        table: StructTable,
        groups: GroupService,
        *,
        limits: Callable[[], TransactionLimits] = TransactionLimits,
        clock: Clock = wall_clock,
    ) -> None:
        self._back = back
        self._table = table
        self._groups = groups
        self._pending = TransactionBatches(table, groups.journal)
        self._limits = limits
        self._clock = clock
        self._producers: dict[str, ProducerState] = {}
        self._nursery: trio.Nursery | None = None

    # ---- life --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load the transactions, finish those that are decided, and abort those whose time is over, until cancelled.
        The groups must be running."""
        async with trio.open_nursery() as nursery:
            await self._load()
            self._nursery = nursery
            for name, producer in self._producers.items():
                if producer.record.state.prepared:
                    nursery.start_soon(self._finish, name, producer)
            forget_at = trio.current_time() + _FORGET_SECONDS
            while True:
                await trio.sleep(_AGAIN_SECONDS)
                await self.abort_overdue()
                if trio.current_time() >= forget_at:
                    forget_at += _FORGET_SECONDS
                    await self._forget_old()

    async def _load(self) -> None:
        while True:
            try:
                self._producers = {
                    name: ProducerState(record) async for name, record in self._table.each(_TRANSACTIONS)
                }
                for producer in self._producers.values():
                    if producer.record.state is _S.ONGOING:
                        await self._restore(producer)
                    elif not producer.record.state.prepared:
                        await self._pending.forget(producer.transaction)
                return
            except OperationFailed as error:
                log.warning("transactions_not_loaded", reason=str(error.failure))
                await trio.sleep(_AGAIN_SECONDS)

    async def _restore(self, producer: ProducerState) -> None:
        """Learn from its pending batches how far an open transaction has come."""
        for partition in producer.record.partitions:
            place = producer.places[GroupPartition(partition.topic, partition.partition)] = PendingPlace()
            async for data in self._pending.each(producer.transaction, partition.topic, partition.partition):
                producer.size += len(data)
                for batch in read_batches(data, max_bytes=MOST_BATCH):
                    spot = place.sequence.place(batch)
                    if not isinstance(spot, BatchPlace):
                        place.sequence.position = spot[0] + len(batch) - 1
                        place.sequence.stored(batch, BatchPlace(place.records))
                        place.records += len(batch)
                place.batches += 1

    async def abort_overdue(self) -> None:
        """Abort the transactions that have been open for too long, and fence their producers."""
        now = self._clock()
        for name, producer in list(self._producers.items()):
            record = producer.record
            if record.state is _S.ONGOING and record.begun_at + record.timeout_ms <= now:
                async with producer.turn:
                    if producer.record == record:
                        log.info("transaction_timed_out", transactional_id=name)
                        await self._decide(name, producer, _S.PREPARE_ABORT, bump=True)

    async def _forget_old(self) -> None:
        before = self._clock() - round(self._limits().retention * 1000)
        for name, producer in list(self._producers.items()):
            record = producer.record
            idle = record.state is not _S.ONGOING and not record.state.prepared
            if idle and record.changed_at <= before and not producer.turn.locked():
                del self._producers[name]
                try:
                    await self._groups.journal.change({_TRANSACTIONS.key(name): None}).durable()
                except OperationFailed:
                    self._producers.setdefault(name, producer)

    # ---- requests ----------------------------------------------------------------------------------------------------

    @property
    def loaded(self) -> bool:
        """True once the transactions have been loaded."""
        return self._nursery is not None

    def record(self, transactional_id: str) -> TransactionRecord | None:
        """Return the record of a transactional id, None if it is not in use."""
        producer = self._producers.get(transactional_id)
        return None if producer is None else producer.record

    def transactional_ids(self) -> list[str]:
        """Return the transactional ids in use."""
        return list(self._producers)

    async def begin(
        self, transactional_id: str, timeout_ms: int, client_producer: tuple[int, int], new_id: int
    ) -> tuple[KafkaError, int, int]:
        """Return an error, or the id and the epoch of a producer, which fences all earlier ones of its transactional
        id; an open transaction is aborted first. `client_producer`: id and epoch that the producer has, -1 for none.
        `new_id`: the id that it gets if it needs one."""
        if not self.loaded:
            return KafkaError.COORDINATOR_LOAD_IN_PROGRESS, -1, -1
        if not 0 < timeout_ms <= self._limits().max_timeout * 1000:
            return KafkaError.INVALID_TRANSACTION_TIMEOUT, -1, -1
        producer, owner = self._producers.get(transactional_id), CLIENT.get().principal
        if producer is None:
            if len(self._producers) >= self._limits().max_producers:
                return KafkaError.POLICY_VIOLATION, -1, -1
            record = TransactionRecord(producer_id=new_id, epoch=-1, timeout_ms=timeout_ms, owner=owner)
            producer = ProducerState(record)
            self._producers[transactional_id] = producer
        async with producer.turn:
            record = producer.record
            known = client_producer[0] == record.producer_id and client_producer[1] in (
                record.epoch,
                record.previous_epoch,
            )
            if client_producer[0] >= 0 and record.epoch >= 0 and not known:
                return KafkaError.PRODUCER_FENCED, -1, -1
            if record.state is _S.ONGOING:
                error = await self._decide(transactional_id, producer, _S.PREPARE_ABORT, bump=True)
                if error:
                    return error, -1, -1
            if not await self._executed(producer):
                return KafkaError.CONCURRENT_TRANSACTIONS, -1, -1
            record = producer.record
            worn = record.epoch >= _LAST_EPOCH
            error = await self._save(
                transactional_id,
                producer,
                producer_id=new_id if worn else record.producer_id,
                epoch=0 if worn else record.epoch + 1,
                previous_epoch=client_producer[1] if client_producer[0] == record.producer_id and not worn else -1,
                timeout_ms=timeout_ms,
                serial=0 if worn else record.serial,
                state=_S.EMPTY,
                lost=False,
                owner=owner,
            )
            producer.places.clear()
            return error, producer.record.producer_id, producer.record.epoch

    async def add_partitions(self, who: TransactionalProducer, partitions: Sequence[TxnPartition]) -> KafkaError:
        """Add partitions to a transaction; begin one if none is open."""
        return await self._add(who, partitions=tuple(partitions))

    def refuse_partitions(self, who: TransactionalProducer) -> None:
        """Remember that partitions of a transaction were refused: the producer aborts it, even if none is open."""
        if not self._refused(who):
            producer = self._producers[who.transactional_id]
            producer.refused = producer.record.state is not _S.ONGOING

    async def add_group(self, who: TransactionalProducer, group: str) -> KafkaError:
        """Let a transaction commit offsets of a group; begin one if none is open."""
        return await self._add(who, groups=(group,))

    async def _add(self, who: TransactionalProducer, **more: tuple[Any, ...]) -> KafkaError:
        error = self._refused(who)
        if error:
            return error
        producer = self._producers[who.transactional_id]
        async with producer.turn:
            if error := self._refused(who):
                return error
            record = producer.record
            if record.state.prepared:
                return KafkaError.CONCURRENT_TRANSACTIONS
            producer.refused = False
            changes: dict[str, Any] = {}
            if record.state is not _S.ONGOING:
                producer.size, producer.ending = 0, False
                for place in producer.places.values():
                    place.batches = place.records = place.delivered = 0
                changes = {"state": _S.ONGOING, "serial": record.serial + 1, "begun_at": self._clock()}
                changes |= {"partitions": (), "groups": (), "offsets": (), "lost": False}
                changes |= {"identity": CLIENT.get().identity}
                record = msgspec.structs.replace(record, **changes)
            for name, values in more.items():
                had = getattr(record, name)
                changes[name] = had + tuple(one for one in values if one not in had)
            unchanged = all(getattr(producer.record, name) == value for name, value in changes.items())
            return KafkaError.NONE if unchanged else await self._save(who.transactional_id, producer, **changes)

    async def commit_offsets(
        self, who: TransactionalProducer, group: str, offsets: Mapping[GroupPartition, CommittedOffset]
    ) -> KafkaError:
        """Commit offsets of a group with the transaction."""
        if error := self._refused(who):
            return error
        producer = self._producers[who.transactional_id]
        async with producer.turn:
            if error := self._refused(who):
                return error
            record = producer.record
            if record.state is not _S.ONGOING or group not in record.groups:
                return KafkaError.CONCURRENT_TRANSACTIONS if record.state.prepared else KafkaError.INVALID_TXN_STATE
            pending = {(pending_offset.group, pending_offset.of): pending_offset for pending_offset in record.offsets}
            pending |= {(group, of): PendingOffset(group, *of, offset) for of, offset in offsets.items()}
            return await self._save(who.transactional_id, producer, offsets=tuple(pending.values()))

    async def end(self, who: TransactionalProducer, *, commit: bool) -> KafkaError:
        """Commit or abort the open transaction. NONE: that is done, and committed records are in their streams.

        UNKNOWN_PRODUCER_ID, after which Kafka's clients abort the transaction and can begin another one: a stream does
        not take the records, so the transaction is not committed. CONCURRENT_TRANSACTIONS: decided, but a stream cannot
        be reached.
        """
        if error := self._refused(who):
            return error
        producer = self._producers[who.transactional_id]
        async with producer.turn:
            if error := self._refused(who):
                return error
            state, wanted = producer.record.state, _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT
            if state is _S.ONGOING:
                if commit and await self._would_be_lost(producer):
                    return KafkaError.UNKNOWN_PRODUCER_ID
                if error := await self._decide(who.transactional_id, producer, wanted):
                    return error
            elif producer.refused and not commit:
                return KafkaError.NONE
            elif state not in (wanted, TRANSACTION_TRANSITIONS[wanted]) and not producer.record.lost:
                return KafkaError.INVALID_TXN_STATE
            if not await self._executed(producer):
                return KafkaError.CONCURRENT_TRANSACTIONS
            return KafkaError.UNKNOWN_PRODUCER_ID if commit and producer.record.lost else KafkaError.NONE

    def unstable(self, group: str) -> set[GroupPartition]:
        """Return the partitions for which open transactions commit offsets of a group."""
        return {
            offset.of
            for producer in self._producers.values()
            if producer.record.state is _S.ONGOING or producer.record.state.prepared
            for offset in producer.record.offsets
            if offset.group == group
        }

    def _refused(self, who: TransactionalProducer) -> KafkaError:
        if not self.loaded:
            return KafkaError.COORDINATOR_LOAD_IN_PROGRESS
        producer = self._producers.get(who.transactional_id)
        if producer is None or producer.record.producer_id != who.producer_id:
            return KafkaError.INVALID_PRODUCER_ID_MAPPING
        return KafkaError.NONE if producer.record.epoch == who.epoch else KafkaError.PRODUCER_FENCED

    # ---- batches -----------------------------------------------------------------------------------------------------

    async def append(self, transactional_id: str, partition: GroupPartition, batch: KafkaBatch, data: bytes) -> int:
        """Store a batch until the transaction ends, durably. Return how many records of the transaction the partition
        has before it. Raises KafkaRefusal and OperationFailed."""
        parts_of(batch)  # what streams cannot carry is refused here, and not by the commit
        if error := self._refused(TransactionalProducer(transactional_id, batch.producer_id, batch.producer_epoch)):
            fenced = error is KafkaError.PRODUCER_FENCED
            raise KafkaRefusal(KafkaError.INVALID_PRODUCER_EPOCH if fenced else error, "the producer is not known")
        producer = self._producers[transactional_id]
        added = any(
            (txn_partition.topic, txn_partition.partition) == partition for txn_partition in producer.record.partitions
        )
        if producer.record.state is not _S.ONGOING or producer.ending or not added:
            raise KafkaRefusal(KafkaError.INVALID_TXN_STATE, "the partition is not in an open transaction")
        if producer.size + len(data) > self._limits().max_bytes:
            raise KafkaRefusal(
                KafkaError.POLICY_VIOLATION, f"a transaction has at most {self._limits().max_bytes} bytes"
            )
        place = producer.places.setdefault(partition, PendingPlace())
        async with producer.write(), place.turn:
            spot = place.sequence.place(batch)
            if isinstance(spot, BatchPlace):
                return spot.offset
            await self._pending.add(producer.transaction, *partition, place.batches, data)
            before = place.records
            place.sequence.position = spot[0] + len(batch) - 1
            place.sequence.stored(batch, BatchPlace(before))
            place.batches += 1
            place.records += len(batch)
            producer.size += len(data)
            return before

    # ---- the end of a transaction ------------------------------------------------------------------------------------

    async def _decide(self, name: str, producer: ProducerState, state: TxnState, *, bump: bool = False) -> KafkaError:
        """Decide durably how a transaction ends, and begin to execute it. `bump`: fence its producer."""
        assert self._nursery is not None, "nothing is asked before the transactions are loaded"
        producer.ending = True
        async with producer.idle:
            while producer.writing:
                await producer.idle.wait()
        record = producer.record
        changes = {"epoch": record.epoch + 1, "previous_epoch": record.epoch} if bump else {}
        error = await self._save(name, producer, state=state, **changes)
        if error:
            producer.ending = False
            return error
        producer.done = trio.Event()
        self._nursery.start_soon(self._finish, name, producer)
        return KafkaError.NONE

    async def _would_be_lost(self, producer: ProducerState) -> bool:
        """Return whether a stream of the open transaction takes no records any more."""
        client = CLIENT.set(Client(identity=producer.record.identity, gateway=True))
        try:
            for partition in producer.record.partitions:
                with trio.move_on_after(self._limits().patience):
                    await check_takes_records(self._back, partition.ref)
        except OperationFailed as error:
            return is_final(error.failure)
        finally:
            CLIENT.reset(client)
        return False

    async def _executed(self, producer: ProducerState) -> bool:
        with trio.move_on_after(self._limits().patience):
            await producer.done.wait()
        return producer.done.is_set()

    async def _finish(self, name: str, producer: ProducerState) -> None:
        """Execute a decision, and repeat it until it succeeds."""
        CLIENT.set(Client(identity=producer.record.identity, gateway=True))
        while True:
            try:
                lost = False
                if producer.record.state is _S.PREPARE_COMMIT:
                    for partition in producer.record.partitions:
                        lost |= not await deliver(self._back, self._pending, producer, partition)
                await self._complete(name, producer, lost=lost)
                await self._pending.forget(producer.transaction)
                break
            except OperationFailed as error:
                log.warning("transaction_not_ended", transactional_id=name, reason=str(error.failure))
                await trio.sleep(_AGAIN_SECONDS)
        producer.done.set()

    async def _complete(self, name: str, producer: ProducerState, *, lost: bool) -> None:
        """Store that a decision is executed, together with the offsets that it commits, unless records are `lost`.
        Raises OperationFailed."""
        record = producer.record
        if not record.state.prepared:
            return
        changes: dict[Any, msgspec.Struct | None] = {}
        if record.state is _S.PREPARE_COMMIT and not lost:
            for offset in record.offsets:
                changes |= self._groups.offset_changes(offset.group, {offset.of: offset.offset})
        state = _S.COMPLETE_ABORT if lost else TRANSACTION_TRANSITIONS[record.state]
        done = self._changed(producer, state=state, lost=lost)
        await self._groups.journal.change({**changes, _TRANSACTIONS.key(name): done}).durable()
        producer.record = done

    def _changed(self, producer: ProducerState, **changes: Any) -> TransactionRecord:
        return msgspec.structs.replace(producer.record, changed_at=self._clock(), **changes)

    async def _save(self, name: str, producer: ProducerState, **changes: Any) -> KafkaError:
        """Change a producer's record durably."""
        record = self._changed(producer, **changes)
        if len(msgspec.json.encode(record)) > MAX_TABLE_VALUE_BYTES:
            return KafkaError.POLICY_VIOLATION
        try:
            await self._groups.journal.change({_TRANSACTIONS.key(name): record}).durable()
        except OperationFailed:
            return KafkaError.COORDINATOR_NOT_AVAILABLE
        producer.record = record
        return KafkaError.NONE
