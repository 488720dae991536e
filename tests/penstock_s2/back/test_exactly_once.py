"""Appends over connections that break anywhere: acknowledged records are there exactly once, in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.s2.model import Wire, model_server
from support.store import STREAM, appending

from penstock.core.back import AppendSession
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Append, Appended
from penstock.net.http.client import HttpVersion
from penstock_s2.back.back import S2Back

FOREIGN = b"foreign"
_NOTHING_DONE = {FailureCode.HOT_SERVER, FailureCode.UNAVAILABLE, FailureCode.UPSTREAM_TIMEOUT}


def body_of(index: int, size: int) -> bytes:
    return b"%d:" % index + b"x" * size


async def append_all(back: S2Back, appends: list[Append]) -> tuple[list[Appended], Failure | None]:
    """Through one session; the acknowledgements, and the failure that ended it."""
    acks: list[Appended] = []

    async def send(session: AppendSession) -> None:
        for append in appends:
            await session.send(append)
        session.close()

    try:
        async with back.append_session(STREAM) as session, trio.open_nursery() as nursery:
            nursery.start_soon(send, session)
            failure = None
            try:
                while some := await session.receive():
                    acks += some
            except OperationFailed as error:
                failure = error.failure
            nursery.cancel_scope.cancel()
    except OperationFailed as error:
        return acks, error.failure
    return acks, failure


def run(test: Callable[..., object], *args: object) -> None:
    """With virtual time: Hypothesis runs many in one test."""
    trio.run(test, *args, clock=trio.testing.MockClock(autojump_threshold=0))


wires = st.builds(
    Wire,
    up=st.none() | st.integers(0, 3000),
    down=st.none() | st.integers(0, 1500),
    silent=st.booleans(),
)


@dataclass(frozen=True)
class Load:
    """Appends, and the faults that happen meanwhile.

    `own`: batches for which the client gives a sequence number, the right one as far as it knows. `foreign`: appends
    before which another client appends too. `delays`: of appends, in s.
    """

    version: HttpVersion
    sizes: list[list[int]]
    own: frozenset[int]
    wires: list[Wire]
    foreign: frozenset[int]
    delays: list[float]


loads = st.builds(
    Load,
    version=st.sampled_from([HttpVersion.H1, HttpVersion.H2]),
    sizes=st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4), min_size=1, max_size=12),
    own=st.frozensets(st.integers(0, 11), max_size=3),
    wires=st.lists(wires, max_size=8),
    foreign=st.frozensets(st.integers(0, 14), max_size=3),
    delays=st.lists(st.sampled_from([0.0, 0.5, 4.0, 12.0]), max_size=12),
)


@given(load=loads)
def test_each_record_is_there_once_and_in_order(load: Load) -> None:
    run(_once_and_in_order, load)


async def _once_and_in_order(load: Load) -> None:
    async with model_server() as server:
        stream = server.back.make(STREAM)
        applied = itertools.count()

        def before_append() -> None:
            if next(applied) in load.foreign:
                server.back.append(appending(FOREIGN))

        server.back.before_append = before_append
        server.back.delays = iter(load.delays)
        server.wires = iter(load.wires)
        numbers = itertools.count()
        left = [[body_of(next(numbers), size) for size in some] for some in load.sizes]
        own = set(load.own)
        wanted: list[bytes] = []
        async with server.opened(
            http=load.version, recover_seconds=1000.0, upstream={"breaker_failures": 1000}
        ) as back:
            while left:
                position = stream.head.next_seq
                appends = []
                for index, some in enumerate(left):
                    match = position if len(wanted) + index in own else None
                    appends.append(appending(*some, match=match))
                    position += len(some)
                acks, failure = await append_all(back, appends)
                for some, ack in zip(left, acks, strict=False):
                    stored = stream.records[ack.start.seq_num : ack.end.seq_num]
                    assert [record.body for record in stored] == some
                    assert (stored[0].timestamp, stored[-1].timestamp) == (ack.start.timestamp, ack.end.timestamp)
                    wanted += some
                del left[: len(acks)]
                own = set() if failure else own
                # A connection that could not be had at all, or a number that a foreign client has taken.
                expected = {FailureCode.SEQ_NUM_MISMATCH} if failure and not failure.retryable else _NOTHING_DONE
                assert failure is None or failure.code in expected, failure
    assert [record.body for record in stream.records if record.body != FOREIGN] == wanted
