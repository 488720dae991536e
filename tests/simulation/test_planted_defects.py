"""Defects that are planted in the store and the fronts must be found: a simulation that misses them proves nothing.

Each test runs seeds until one fails, and checks that it fails for the right reason.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from simulation import simulation
from simulation.checker import NotLinearizable
from simulation.disk import Fates
from simulation.fronts import FRONTS
from simulation.histories import Stuck
from simulation.simulation import NO_FAULTS, Simulation

from penstock.core.back import AppendSession, AppendSessionWrapper, Back, BackWrapper
from penstock.core.errors import CannotStart
from penstock.model.byte_operations import AppendBytes, WriterPosition
from penstock.model.failures import OperationFailed
from penstock.model.operations import Append, Appended, CheckTail
from penstock.model.records import RecordBatch, StreamPosition, StreamRef
from penstock.net.http.following import FollowingSession
from penstock.store import checkpointer, committer, payload_files, schema, store
from penstock.store.append_changes import BatchesChange
from penstock.store.schema import FILE_NAME
from penstock_durable.front.appends import Appends
from penstock_kafka.codec.batches import KafkaBatch
from penstock_kafka.codec.carrying import RecordsPart
from penstock_kafka.front import producers
from penstock_kafka.sequences import ProducerSequence
from penstock_kafka.transactions.records import TxnState
from penstock_kafka.transactions.service import TransactionService
from penstock_pravega.segment.front.writers import ClientWriter
from penstock_s2.front.sessions import S2SSessions
from penstock_s3p.front import front as s3p_front

SEEDS = 1000


def first_failure(fates: Fates = NO_FAULTS, *, fronts: bool = False) -> BaseException:
    """Return the error of the first seed that fails, of the store alone or of the gateway with its fronts."""
    for seed in range(SEEDS):
        try:
            Simulation(seed, fates, fronts=fronts).run()
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            return error
        except Exception as error:
            return error
    raise AssertionError(f"none of {SEEDS} seeds found it")


def connecting(synchronous: str, *, after: int = 0) -> Any:
    """Return a function that connects as the store does, the first `after` times, and then with this setting."""
    connected = iter(range(1_000_000))

    def connect_writer(directory: Path) -> sqlite3.Connection:
        db = schema.connect_writer(directory)
        if next(connected) % 2 >= after:  # each start makes two: of commits, and of checkpoints
            db.execute(f"PRAGMA synchronous={synchronous}")
        return db

    return connect_writer


def test_an_acknowledgement_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "connect_writer", connecting("NORMAL"))
    error = first_failure()
    assert isinstance(error, NotLinearizable) or "was seen, and the tail is" in str(error), error


def test_a_log_that_restarts_before_the_file_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "connect_writer", connecting("OFF", after=1))
    monkeypatch.setattr(checkpointer, "sync", lambda _file: None)
    assert isinstance(first_failure(), AssertionError | OperationFailed | CannotStart)


def test_a_row_ahead_of_its_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file of payloads that is not synced before the transaction of the row."""
    monkeypatch.setattr(payload_files, "sync", lambda _file: None)
    assert isinstance(first_failure(), AssertionError | OperationFailed)


def test_a_file_of_payloads_whose_name_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_files, "sync_directory", lambda _directory: None)
    assert isinstance(first_failure(), AssertionError | OperationFailed | CannotStart)


def test_a_reader_that_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchesChange, "publish", lambda _change: None)
    error = first_failure()
    assert isinstance(error, Stuck), error


@pytest.mark.slow
def test_a_tail_ahead_of_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = BatchesChange.__init__

    def begin_ahead(change: BatchesChange, caches: Any, stream: Any, sequenced: Any, *more: Any) -> None:
        begin(change, caches, stream, sequenced, *more)
        stream.durable = sequenced.head

    monkeypatch.setattr(BatchesChange, "__init__", begin_ahead)
    error = first_failure()
    assert isinstance(error, NotLinearizable) or "was seen, and the tail is" in str(error), error


@pytest.mark.long
def test_a_log_that_restarts_after_a_failed_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sync of what a checkpoint moved as far as a reader lets it: SQLite does not sync it then."""
    for module in (checkpointer, committer):
        monkeypatch.setattr(module, "is_failed_sync", lambda _error: False)
    error = first_failure(Fates(sync_fails=0.5, fails=FILE_NAME))
    assert isinstance(error, AssertionError | OperationFailed | CannotStart), error


class Hasty(AppendSessionWrapper):
    """Acknowledges each append when it is handed over, at the place that it gets if nothing else is appended."""

    def __init__(self, inner: AppendSession, back: Back) -> None:
        super().__init__(inner)
        self._back = back
        self._next = 0
        self._telling, self._told = trio.open_memory_channel[Appended](100)

    async def send(self, append: Append | AppendBytes) -> None:
        assert isinstance(append, Append)
        tail = await self._back.perform(CheckTail(append.stream))
        start = max(tail.seq_num, self._next)
        self._next = start + len(append.bodies)
        end = tail._replace(seq_num=self._next)
        await self._inner.send(append)
        self._telling.send_nowait(Appended(tail._replace(seq_num=start), end, end))

    def close(self) -> None:
        self._inner.close()
        self._telling.close()

    async def receive(self) -> list[Appended]:
        try:
            return [await self._told.receive()]
        except trio.EndOfChannel:
            return []


def test_an_s2_front_acknowledges_before_the_back_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    class HastyBack(BackWrapper):
        @asynccontextmanager
        async def append_session(self, *given: Any, **options: Any) -> AsyncIterator[AppendSession]:
            async with super().append_session(*given, **options) as session:
                yield Hasty(session, self)

        def passthrough(self, *_given: Any) -> None:
            return None

    begin = S2SSessions.__init__
    monkeypatch.setattr(S2SSessions, "__init__", lambda self, back, *more: begin(self, HastyBack(back), *more))
    error = first_failure(fronts=True)
    assert isinstance(error, NotLinearizable), error


@pytest.mark.slow
def test_an_s2_follower_misses_the_batch_that_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    following = FollowingSession.next
    at_tail: dict[FollowingSession, bool] = {}

    async def missing(session: FollowingSession) -> Any:
        event = await following(session)
        reached = isinstance(event, StreamPosition)
        if at_tail.get(session) and isinstance(event, RecordBatch):
            event = await following(session)
        at_tail[session] = reached
        return event

    monkeypatch.setattr(FollowingSession, "next", missing)
    error = first_failure(fronts=True)
    assert isinstance(error, AssertionError | OperationFailed), error


def test_s3p_answers_in_the_wrong_order(monkeypatch: pytest.MonkeyPatch) -> None:
    append_some = s3p_front.append_some

    async def backwards(back: Back, appends: Sequence[Append]) -> Any:
        return list(reversed(await append_some(back, appends)))

    monkeypatch.setattr(s3p_front, "append_some", backwards)
    error = first_failure(fronts=True)
    assert isinstance(error, AssertionError | OperationFailed), error


@pytest.mark.slow
def test_a_segment_front_forgets_the_positions_of_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a client that connects again appends what was stored before."""
    monkeypatch.setattr(ClientWriter, "_position", lambda _writer, _sent: None)
    error = first_failure(fronts=True)
    assert isinstance(error, AssertionError | OperationFailed), error


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let clients talk to these fronts alone, and to the store."""
    monkeypatch.setattr(simulation, "FRONTS", [front for front in FRONTS if front.talks.name in names])


def test_kafka_acknowledges_a_batch_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hasty(back: Back, stream: StreamRef, part: RecordsPart, writer: WriterPosition) -> Appended:
        async def store_it() -> None:
            with suppress(OperationFailed):
                await append_as(back, stream, part, writer)

        tail = await back.perform(CheckTail(stream))
        end = tail._replace(seq_num=tail.seq_num + len(part.bodies))
        trio.lowlevel.spawn_system_task(store_it)
        return Appended(tail, end, end)

    append_as = producers.append_as
    monkeypatch.setattr(producers, "append_as", hasty)
    only(monkeypatch, "kafka")
    error = first_failure(fronts=True)
    assert isinstance(error, NotLinearizable), error


@pytest.mark.slow
def test_kafka_stores_a_repeated_batch_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def place(sequence: ProducerSequence, batch: KafkaBatch) -> tuple[int, int]:
        return max(sequence.position + 1, batch.base_sequence), 0

    monkeypatch.setattr(ProducerSequence, "place", place)
    only(monkeypatch, "kafka")
    error = first_failure(fronts=True)
    assert isinstance(error, AssertionError), error


@pytest.mark.slow
def test_kafka_shows_the_records_of_an_aborted_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = TransactionService._decide

    async def commits(service: TransactionService, name: str, producer: Any, _state: TxnState, **options: Any) -> Any:
        return await decide(service, name, producer, TxnState.PREPARE_COMMIT, **options)

    monkeypatch.setattr(TransactionService, "_decide", commits)
    only(monkeypatch, "kafka")
    error = first_failure(fronts=True)
    assert isinstance(error, NotLinearizable), error


@pytest.mark.slow
def test_durable_streams_stores_what_a_producer_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    async def plain(appends: Appends, stream: Any, request: Any, _producer: Any, bodies: list[bytes]) -> Any:
        return await appends._plain(stream, request, bodies)

    monkeypatch.setattr(Appends, "_produced", plain)
    only(monkeypatch, "durable")
    error = first_failure(fronts=True)
    assert isinstance(error, AssertionError), error
