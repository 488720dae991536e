"""Transactions: open, committed, aborted, expired; and what scaling and sealing do to them."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest
import trio
from structlog.testing import capture_logs
from support.controller import SCOPE, SCOPES, RefusedWith, content, event, info, segments, settings, write
from support.store import NOW, Wall

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back, BackWrapper
from penstock.model.byte_operations import GetByteStreamInfo, Merge, Seal
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import DeleteStream, ListStreams, Operation
from penstock.model.records import StreamRef
from penstock.model.table_operations import UpdateTable
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import TransactionState
from penstock_pravega.controller.controller.topology import KeyRange, equal_ranges
from penstock_pravega.controller.controller.transactions import MAX_LEASE_MS, MAX_OPEN_MS, TransactionId

R = TypeVar("R")

both = pytest.mark.parametrize("scope", SCOPES)

LEASE = 30_000
UNKNOWN = TransactionId(1, 2)


def suffix(transaction: TransactionId) -> str:
    return f"#transaction.{transaction}"


async def begin(
    back: Back, controller: Controller, *data: bytes, scope: str = SCOPE, name: str = "stream"
) -> TransactionId:
    """A transaction with these bytes in its segments, in the order of their keys."""
    transaction, ours = await controller.transactions.create(scope, name, LEASE)
    for segment, some in zip(ours, data, strict=True):
        if some:
            await write(back, scope, name, some, segment.id, suffix(transaction))
    return transaction


async def internal(back: Back) -> list[str]:
    """Return the names of the internal streams in the store."""
    return [each.name for each in (await back.perform(ListStreams("_pravega"))).items]


async def state(controller: Controller, transaction: TransactionId, scope: str = SCOPE) -> TransactionState | None:
    return await controller.transactions.state(scope, "stream", transaction)


@pytest.fixture
async def stream(controller: Controller) -> Controller:
    """`tiny/stream` of two segments."""
    await controller.streams.create(SCOPE, "stream", segments(2))
    return controller


@both
async def test_a_commit_appends_what_was_written(back: EmbeddedBack, controller: Controller, scope: str) -> None:
    await controller.streams.create(scope, "stream", segments(2))
    await write(back, scope, "stream", event(b"before"))
    transaction = await begin(back, controller, event(b"one"), event(b"two"), scope=scope)
    assert await state(controller, transaction, scope) is TransactionState.OPEN
    assert await content(back, scope, "stream") == event(b"before")
    await controller.transactions.commit(scope, "stream", transaction)
    assert await content(back, scope, "stream") == event(b"before") + event(b"one")
    assert await content(back, scope, "stream", 1) == event(b"two")
    assert await state(controller, transaction, scope) is TransactionState.COMMITTED
    assert await internal(back) == []


async def test_an_abort_leaves_nothing(back: EmbeddedBack, stream: Controller) -> None:
    transaction = await begin(back, stream, event(b"one"), b"")
    await stream.transactions.abort(SCOPE, "stream", transaction)
    assert await content(back, SCOPE, "stream") == b""
    assert await state(stream, transaction) is TransactionState.ABORTED
    assert await internal(back) == []


async def test_ending_twice_is_ending_once(back: EmbeddedBack, stream: Controller) -> None:
    committed, aborted = await begin(back, stream, event(b"one"), b""), await begin(back, stream, b"", b"")
    for _ in range(2):
        await stream.transactions.commit(SCOPE, "stream", committed)
        await stream.transactions.abort(SCOPE, "stream", aborted)
    assert await content(back, SCOPE, "stream") == event(b"one")
    for wrong, transaction in ((stream.transactions.abort, committed), (stream.transactions.commit, aborted)):
        with RefusedWith(ControllerProblem.TRANSACTION_NOT_FOUND):
            await wrong(SCOPE, "stream", transaction)


async def test_what_is_not_known(stream: Controller) -> None:
    assert await state(stream, UNKNOWN) is None
    assert await stream.transactions.ping(SCOPE, "stream", UNKNOWN, LEASE) is None
    for end in (stream.transactions.commit, stream.transactions.abort):
        with RefusedWith(ControllerProblem.TRANSACTION_NOT_FOUND):
            await end(SCOPE, "stream", UNKNOWN)
        with RefusedWith(ControllerProblem.STREAM_NOT_FOUND):
            await end(SCOPE, "missing", UNKNOWN)
    with RefusedWith(ControllerProblem.STREAM_NOT_FOUND):
        await stream.transactions.create(SCOPE, "missing", LEASE)


async def test_no_more_are_open_than_are_allowed(
    back: EmbeddedBack, stream: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_pravega.controller.controller.transactions.MOST_OPEN", 3)
    first, *_ = [await begin(back, stream, b"", b"") for _ in range(3)]
    with RefusedWith(ControllerProblem.TOO_MANY):
        await begin(back, stream, b"", b"")
    await stream.transactions.abort(SCOPE, "stream", first)
    await begin(back, stream, b"", b"")


async def test_an_identifier_has_the_epoch_in_its_upper_32_bits(back: EmbeddedBack, stream: Controller) -> None:
    """Clients that know the identifier alone find the transaction's segments by it, also after further scales."""
    begun = []
    for _ in range(3):
        transaction, ours = await stream.transactions.create(SCOPE, "stream", LEASE)
        begun.append((transaction, ours))
        await stream.scaling.scale(SCOPE, "stream", [one.id for one in ours], equal_ranges(2))
    assert [transaction.high >> 32 for transaction, _ in begun] == [0, 1, 2]
    for transaction, ours in begun:
        found = await stream.queries.of_epoch(SCOPE, "stream", transaction.high >> 32)
        assert [one.id for one in found] == [one.id for one in ours]


def test_identifiers_are_positive() -> None:
    """A released client would extend the sign (fact sheet 3.1)."""
    for epoch in [0, 1, 2**31 - 1] * 30:
        identifier = TransactionId.new(epoch)
        assert identifier.high >> 32 == epoch
        assert 0 <= identifier.high < 2**63
        assert 0 <= identifier.low < 2**63
        assert TransactionId.parse(str(identifier)) == identifier
        assert len(str(identifier)) == 32


# ---- leases ----


async def test_a_transaction_is_aborted_when_its_lease_is_over(
    back: EmbeddedBack, stream: Controller, wall: Wall
) -> None:
    transaction = await begin(back, stream, event(b"one"), b"")
    wall.now += LEASE - 1
    await stream.transactions.sweep()
    assert await state(stream, transaction) is TransactionState.OPEN
    wall.now += 1
    await stream.transactions.sweep()
    assert await state(stream, transaction) is TransactionState.ABORTED
    assert await internal(back) == []
    with RefusedWith(ControllerProblem.TRANSACTION_NOT_FOUND):
        await stream.transactions.commit(SCOPE, "stream", transaction)


async def test_pings_extend_a_lease(back: EmbeddedBack, stream: Controller, wall: Wall) -> None:
    transaction = await begin(back, stream, b"", b"")
    for _ in range(5):
        wall.now += LEASE - 1
        assert await stream.transactions.ping(SCOPE, "stream", transaction, LEASE) is TransactionState.OPEN
        await stream.transactions.sweep()
    wall.now += LEASE
    await stream.transactions.sweep()
    assert await stream.transactions.ping(SCOPE, "stream", transaction, LEASE) is TransactionState.ABORTED


class Meanwhile(BackWrapper):
    """Makes another request just before the next change of a table."""

    request: Callable[[], Awaitable[object]] | None = None

    async def perform(self, operation: Operation[R]) -> R:
        if isinstance(operation, UpdateTable) and self.request is not None:
            request, self.request = self.request, None
            await request()
        return await self._inner.perform(operation)


@pytest.mark.parametrize("ends", ["commit", "abort"])
async def test_a_transaction_that_is_extended_while_it_ends(
    back: EmbeddedBack, stream: Controller, wall: Wall, ends: str
) -> None:
    transaction = await begin(back, stream, event(b"one"), event(b"two"))
    meanwhile = Meanwhile(back)
    transactions = Controller(meanwhile, settings(), wall).transactions
    meanwhile.request = partial(stream.transactions.ping, SCOPE, "stream", transaction, LEASE)
    await getattr(transactions, ends)(SCOPE, "stream", transaction)
    expected = {"commit": TransactionState.COMMITTED, "abort": TransactionState.ABORTED}[ends]
    assert await state(stream, transaction) is expected


async def test_pings_do_not_extend_it_for_ever(back: EmbeddedBack, stream: Controller, wall: Wall) -> None:
    transaction = await begin(back, stream, b"", b"")
    wall.now = NOW + MAX_OPEN_MS - LEASE
    assert await stream.transactions.ping(SCOPE, "stream", transaction, LEASE) is TransactionState.OPEN
    with RefusedWith(ControllerProblem.TOO_OLD):
        await stream.transactions.ping(SCOPE, "stream", transaction, LEASE + 1)


@pytest.mark.parametrize(
    ("lease", "problem"),
    [
        (0, ControllerProblem.INVALID_CONFIG),
        (-5, ControllerProblem.INVALID_CONFIG),
        (MAX_LEASE_MS + 1, ControllerProblem.LEASE_TOO_LARGE),
    ],
)
async def test_leases_have_bounds(
    back: EmbeddedBack, stream: Controller, lease: int, problem: ControllerProblem
) -> None:
    with RefusedWith(problem):
        await stream.transactions.create(SCOPE, "stream", lease)
    transaction = await begin(back, stream, b"", b"")
    with RefusedWith(problem):
        await stream.transactions.ping(SCOPE, "stream", transaction, lease)


async def test_a_ping_tells_how_a_transaction_ended(back: EmbeddedBack, stream: Controller) -> None:
    transaction = await begin(back, stream, b"", b"")
    await stream.transactions.commit(SCOPE, "stream", transaction)
    assert await stream.transactions.ping(SCOPE, "stream", transaction, LEASE) is TransactionState.COMMITTED


async def test_how_transactions_ended_is_listed_and_forgotten(
    back: EmbeddedBack, stream: Controller, wall: Wall
) -> None:
    committed, aborted = await begin(back, stream, b"", b""), await begin(back, stream, b"", b"")
    await stream.transactions.commit(SCOPE, "stream", committed)
    wall.now += 1000
    await stream.transactions.abort(SCOPE, "stream", aborted)
    assert await stream.transactions.completed(SCOPE, "stream") == [
        (aborted, TransactionState.ABORTED),
        (committed, TransactionState.COMMITTED),
    ]
    wall.now += 86_400_000 - 1000
    await stream.transactions.forget_old()
    assert await stream.transactions.completed(SCOPE, "stream") == [(aborted, TransactionState.ABORTED)]
    assert await state(stream, committed) is None


# ---- what happens to the stream meanwhile ----


async def test_a_commit_after_segments_were_joined(back: EmbeddedBack, stream: Controller) -> None:
    """One segment has the keys of both, so both are appended to it, at once."""
    transaction = await begin(back, stream, event(b"one"), event(b"two"))
    _, [whole] = await stream.scaling.scale(SCOPE, "stream", [0, 1], equal_ranges(1))
    await stream.transactions.commit(SCOPE, "stream", transaction)
    assert await content(back, SCOPE, "stream", whole.id) == event(b"one") + event(b"two")
    assert [segment.id for segment in await stream.queries.current(SCOPE, "stream")] == [whole.id]


async def test_a_commit_after_a_segment_was_split(back: EmbeddedBack, stream: Controller) -> None:
    """Only clients know the keys of events, so the segments of the transaction's epoch are created again for the
    commit.
    """
    transaction = await begin(back, stream, event(b"one"), event(b"two"))
    quarters = [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)]
    _, made = await stream.scaling.scale(SCOPE, "stream", [0], quarters)
    await write(back, SCOPE, "stream", event(b"earlier"), made[0].id)
    await stream.transactions.commit(SCOPE, "stream", transaction)
    first, second = await stream.queries.of_epoch(SCOPE, "stream", 2)
    assert await content(back, SCOPE, "stream", first.id) == event(b"one")
    assert await content(back, SCOPE, "stream", second.id) == event(b"two")
    followed = await stream.queries.following(SCOPE, "stream", made[0].id)
    assert [(segment, [one.id for one in old]) for segment, old in followed] == [(first, [one.id for one in made])]
    current = await stream.queries.current(SCOPE, "stream")
    assert [segment.keys for segment in current] == [*quarters, KeyRange(0.5, 1.0)]
    assert await state(stream, transaction) is TransactionState.COMMITTED


async def test_commits_at_the_same_time_share_the_segments_of_before(back: EmbeddedBack, stream: Controller) -> None:
    """Readers wait at each epoch: for a checkpoint, with the Java client."""
    begun = [await begin(back, stream, event(b"one %d" % number), event(b"two")) for number in range(5)]
    await stream.scaling.scale(SCOPE, "stream", [0], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
    async with trio.open_nursery() as nursery:
        for transaction in begun:
            nursery.start_soon(stream.transactions.commit, SCOPE, "stream", transaction)
    with RefusedWith(ControllerProblem.SEGMENT_NOT_FOUND):
        await stream.queries.of_epoch(SCOPE, "stream", 4)
    first, second = await stream.queries.of_epoch(SCOPE, "stream", 2)
    stored = await content(back, SCOPE, "stream", first.id)
    assert sorted(stored[at : at + 13] for at in range(0, len(stored), 13)) == [event(b"one %d" % n) for n in range(5)]
    assert await content(back, SCOPE, "stream", second.id) == event(b"two") * 5
    assert [await state(stream, transaction) for transaction in begun] == [TransactionState.COMMITTED] * 5
    assert await internal(back) == []


async def test_commits_one_after_the_other_share_the_segments_of_before(back: EmbeddedBack, stream: Controller) -> None:
    """A commit waits while others that need the same are open; all are carried out in the order of commits."""
    begun = [await begin(back, stream, event(b"one %d" % number), b"") for number in range(5)]
    await stream.scaling.scale(SCOPE, "stream", [0], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
    later = await begin(back, stream, b"", event(b"later"), b"")
    order = [3, 1, 4, 0, 2]
    for number in order[:2]:
        await stream.transactions.commit(SCOPE, "stream", begun[number])
        assert await state(stream, begun[number]) is TransactionState.COMMITTING
    await stream.transactions.sweep()
    assert [await state(stream, begun[number]) for number in order[:2]] == [TransactionState.COMMITTED] * 2
    for number in order[2:4]:
        await stream.transactions.commit(SCOPE, "stream", begun[number])
    assert await state(stream, begun[4]) is TransactionState.COMMITTING
    await stream.transactions.commit(SCOPE, "stream", begun[2])
    assert [await state(stream, transaction) for transaction in begun] == [TransactionState.COMMITTED] * 5
    await stream.transactions.commit(SCOPE, "stream", later)
    assert await state(stream, later) is TransactionState.COMMITTED
    stored = b""
    for epoch in (2, 4):
        stored += await content(back, SCOPE, "stream", (await stream.queries.of_epoch(SCOPE, "stream", epoch))[0].id)
    assert stored == b"".join(event(b"one %d" % number) for number in order)
    with RefusedWith(ControllerProblem.SEGMENT_NOT_FOUND):
        await stream.queries.of_epoch(SCOPE, "stream", 6)
    assert await internal(back) == []


async def test_a_commit_without_events_scales_nothing(back: EmbeddedBack, stream: Controller) -> None:
    transaction = await begin(back, stream, b"", event(b"two"))
    await stream.scaling.scale(SCOPE, "stream", [0], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
    before = await stream.queries.current(SCOPE, "stream")
    await stream.transactions.commit(SCOPE, "stream", transaction)
    assert await stream.queries.current(SCOPE, "stream") == before
    assert await content(back, SCOPE, "stream", 1) == event(b"two")


@pytest.mark.parametrize("count", [1, 2])
async def test_sealing_aborts_what_is_open(back: EmbeddedBack, controller: Controller, count: int) -> None:
    await controller.streams.create(SCOPE, "stream", segments(count))
    transaction = await begin(back, controller, *[event(b"one")] * count)
    await controller.streams.seal(SCOPE, "stream")
    assert await state(controller, transaction) is TransactionState.ABORTED
    assert await internal(back) == []
    with RefusedWith(ControllerProblem.STREAM_SEALED):
        await controller.transactions.create(SCOPE, "stream", LEASE)


async def test_a_stream_that_a_segment_client_sealed_takes_no_commit(
    back: EmbeddedBack, controller: Controller
) -> None:
    await controller.streams.create(SCOPE, "stream", segments(1))
    transaction = await begin(back, controller, event(b"one"))
    await back.perform(Seal(StreamRef("penstock", "tiny/stream")))
    with RefusedWith(ControllerProblem.TRANSACTION_NOT_FOUND), capture_logs() as logs:
        await controller.transactions.commit(SCOPE, "stream", transaction)
    assert await state(controller, transaction) is TransactionState.ABORTED
    assert [line["event"] for line in logs] == ["transaction_aborted"]


@pytest.mark.parametrize("ended", [Seal, DeleteStream])
async def test_a_segment_that_takes_no_events_any_more_aborts_a_commit(
    back: EmbeddedBack, stream: Controller, ended: type[Seal] | type[DeleteStream]
) -> None:
    """All of it; and the stream can be sealed and deleted, which would wait for a commit that was begun."""
    transaction = await begin(back, stream, event(b"the largest"), event(b"two"))
    operation: Operation[object] = ended(StreamRef("penstock", "tiny/stream/1.#epoch.0"))
    await back.perform(operation)
    with RefusedWith(ControllerProblem.TRANSACTION_NOT_FOUND), capture_logs() as logs:
        await stream.transactions.commit(SCOPE, "stream", transaction)
    assert await state(stream, transaction) is TransactionState.ABORTED
    assert [line["event"] for line in logs] == ["transaction_aborted"]
    assert await content(back, SCOPE, "stream") == b""
    assert await internal(back) == []
    await stream.streams.seal(SCOPE, "stream")
    await stream.streams.delete(SCOPE, "stream")
    assert not await stream.queries.exists(SCOPE, "stream")


async def test_a_stream_that_another_protocol_deleted_has_no_transactions(
    back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    await controller.streams.create(SCOPE, "stream", segments(1))
    transaction = await begin(back, controller, event(b"one"))
    await back.perform(DeleteStream(StreamRef("penstock", "tiny/stream")))
    with RefusedWith(ControllerProblem.STREAM_NOT_FOUND):
        await controller.transactions.commit(SCOPE, "stream", transaction)
    wall.now += LEASE
    await controller.transactions.sweep()
    assert await internal(back) == []
    assert await state(controller, transaction) is TransactionState.ABORTED


async def test_a_deleted_stream_takes_its_transactions_along(back: EmbeddedBack, stream: Controller) -> None:
    ended = await begin(back, stream, b"", b"")
    await stream.transactions.commit(SCOPE, "stream", ended)
    await begin(back, stream, event(b"one"), b"")
    await stream.streams.seal(SCOPE, "stream")
    await stream.streams.delete(SCOPE, "stream")
    await stream.streams.create(SCOPE, "stream", segments(1))
    assert await stream.transactions.completed(SCOPE, "stream") == []
    assert await state(stream, ended) is None
    assert await internal(back) == []


async def test_more_than_the_store_merges_at_once_is_aborted(back: EmbeddedBack, stream: Controller) -> None:
    """The largest part is merged first, so all or nothing is."""
    limited = LimitedMerges(back, 30)
    controller = Controller(limited, settings(), Wall())
    transaction = await begin(back, controller, event(b"small"), event(b"x" * 30))
    with RefusedWith(ControllerProblem.TRANSACTION_NOT_FOUND):
        await controller.transactions.commit(SCOPE, "stream", transaction)
    assert await content(back, SCOPE, "stream") == await content(back, SCOPE, "stream", 1) == b""
    assert await state(controller, transaction) is TransactionState.ABORTED
    assert await internal(back) == []
    assert await info(back, SCOPE, "stream", 0, suffix(transaction)) is None


class LimitedMerges(BackWrapper):
    """A back that merges at most `most` bytes at once."""

    def __init__(self, back: Back, most: int) -> None:
        super().__init__(back)
        self._most = most

    async def perform(self, operation: Operation[R]) -> R:
        if isinstance(operation, Merge):
            sizes = [(await self._inner.perform(GetByteStreamInfo(source))).length for source in operation.sources]
            if sum(sizes) > self._most:
                raise fail(FailureCode.LIMIT_EXCEEDED, "too much at once")
        return await self._inner.perform(operation)
