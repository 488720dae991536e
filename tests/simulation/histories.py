"""Clients of a few logs: they call at random, by dice, and write down what they called and which answers they got."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import trio
from simulation.checker import COMMAND, EMPTY, Call, Done, Log, Lost, Refused, View, outcomes
from support.store import appending, fence, trim_record

from penstock.core.back import AppendSession, Back, Following
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, Merge, Seal
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    Append,
    Appended,
    CheckTail,
    CreateStream,
    EnsureBasin,
    EnsureStream,
    FromSeqNum,
    ListStreams,
    Read,
    Trim,
)
from penstock.model.records import Record, StreamRef, is_command

__all__ = [
    "BASIN",
    "DIRECT",
    "FAILED",
    "LOGS",
    "MOST_CLIENTS",
    "STUCK_SECONDS",
    "Client",
    "Follower",
    "Histories",
    "Stuck",
    "Talks",
    "content",
    "prepare",
    "read_all",
]

BASIN: Final = "simulated"
LOGS: Final = tuple(StreamRef(BASIN, name) for name in ("alpha", "beta"))
STUCK_SECONDS: Final = 90.0
"""Virtual seconds after which a call has no answer any more, or a follower is not woken. Nothing takes that long."""
AGAIN_SECONDS: Final = 0.1
MOST_CLIENTS: Final = 5
_REASONS: Final = {
    FailureCode.STREAM_SEALED: "sealed",
    FailureCode.FENCING_TOKEN_MISMATCH: "token",
    FailureCode.SEQ_NUM_MISMATCH: "match",
    FailureCode.OFFSET_MISMATCH: "match",
}
_SEALED: Final = "is sealed"
FAILED: Final = Refused("failed")
"""The answer of a store that cannot write: the call was not done, but the next start may do it."""
_NO_ANSWER: Final = frozenset({FailureCode.STORAGE, FailureCode.SERVER_DRAINING})
_LOST: Final = frozenset({FailureCode.UNAVAILABLE, FailureCode.HOT_SERVER, FailureCode.UPSTREAM_TIMEOUT})


class Stuck(AssertionError):
    """A call without an answer, or a follower that is never woken."""


@dataclass(frozen=True)
class Talks:
    """The way in which a client talks to the gateway: its calls with their weights."""

    name: str
    weights: Mapping[str, float]


DIRECT: Final = Talks(
    "direct",
    {"append": 8, "bytes": 4, "session": 4, "fence": 1, "trim": 2, "tail": 3, "read": 3, "merge": 2, "seal": 0.15},
)


def content(record: Record) -> bytes:
    """Return the body of a record as the model has it."""
    return COMMAND + record.body if is_command(record.headers) else record.body


class Place(NamedTuple):
    """A record's body and timestamp, which never change; None as long as only clients of event times saw it."""

    body: bytes
    timestamp: int | None


@dataclass
class _Open:
    """A call that is under way."""

    stream: StreamRef
    call: Call


@dataclass
class Histories:
    """All that clients saw of the logs since the first start."""

    now: Callable[[], float]
    trace: Callable[[str], object] = lambda _line: None
    logs: dict[StreamRef, frozenset[Log]] = field(default_factory=lambda: dict.fromkeys(LOGS, frozenset({EMPTY})))
    places: dict[StreamRef, dict[int, Place]] = field(default_factory=lambda: {log: {} for log in LOGS})
    identifiers: dict[StreamRef, dict[Any, bytes]] = field(default_factory=lambda: {log: {} for log in LOGS})
    """Bodies by identifiers of other protocols, which never change either."""
    calls: dict[StreamRef, list[Call]] = field(default_factory=lambda: {log: [] for log in LOGS})
    under_way: dict[int, _Open] = field(default_factory=dict)
    transactions: dict[str, tuple[StreamRef, tuple[bytes, ...]]] = field(default_factory=dict)
    checked: int = 0
    """Calls that were checked."""
    answered: int = 0
    _ticks: itertools.count[int] = field(default_factory=itertools.count)

    def begin(self, stream: StreamRef, call: Call) -> int:
        """Write down a call that begins; return its number."""
        number = next(self._ticks)
        self.under_way[number] = _Open(stream, replace(call, begun=number))
        return number

    def end(self, number: int, answer: Any) -> Call:
        """Write down the answer."""
        ended = self.under_way.pop(number)
        call = replace(ended.call, ended=next(self._ticks), answer=answer)
        self.calls[ended.stream].append(call)
        self.trace(f"{self.now():.6f} {ended.stream.stream} {call}")
        return call

    def drop(self, number: int) -> None:
        """Forget a call that was never made."""
        del self.under_way[number]

    def saw(self, stream: StreamRef, records: Sequence[Record], client: str, *, event_times: bool = False) -> None:
        """Check records against what others saw at their places, ever.

        `event_times`: this client sees the time that the record's producer gave it, not the stream's.
        """
        places = self.places[stream]
        for record in records:
            seen = Place(content(record), None if event_times else record.timestamp)
            before = places.get(record.seq_num, seen)
            if seen.timestamp is None:
                seen = seen._replace(timestamp=before.timestamp)
            elif before.timestamp is None:
                before = before._replace(timestamp=seen.timestamp)
            assert before == seen, f"{client}: {stream} at {record.seq_num} was {before}, and is {seen}"
            places[record.seq_num] = before

    def identified(self, stream: StreamRef, identifier: Any, body: bytes, client: str) -> None:
        """Check a record against what others saw under its identifier, ever."""
        found = self.identifiers[stream].setdefault(identifier, body)
        assert found == body, f"{client}: {identifier} of {stream} was {found!r}, and is {body!r}"

    async def check(self, back: Back, *, may_be_done: bool) -> None:
        """Check the calls since the last check against the logs as they are now, where no client is at work.

        `may_be_done`: the process was started again after it failed or the disk did, so that calls answered with that
        failure may have been done: what a failed write left in the log is read at the start.
        """
        for number in list(self.under_way):
            self.end(number, Lost)
        for stream in LOGS:
            tail = (await back.perform(CheckTail(stream))).seq_num
            records = await read_all(back, stream)
            self.saw(stream, records, "the check")
            seen = max(self.places[stream], default=-1)
            assert tail > seen, f"{stream}: record {seen} was seen, and the tail is {tail}"
            first = records[0].seq_num if records else tail
            assert [record.seq_num for record in records] == list(range(first, tail)), "gaps"
            calls = []
            for call in self.calls[stream]:
                if call.answer != FAILED:
                    calls.append(call)
                elif may_be_done:
                    calls.append(replace(call, answer=Lost))
            last = Call(
                "read", next(self._ticks), next(self._ticks), tuple((one.seq_num, content(one)) for one in records)
            )
            self.checked += len(calls)
            bodies = {number: place.body for number, place in self.places[stream].items()}
            self.logs[stream] = outcomes(calls, self.logs[stream], last, seen=bodies, tail=tail)
            known = set(bodies.values())
            # The end of a transaction may be decided, and carried out in a later life.
            late = [call for call in calls if call.did == "commit" and call.answer is Lost]
            self.calls[stream] = [call for call in late if not known & set(call.bodies)]
            if not self.transactions:
                continue
            there = set(map(content, records))
            left = {info.name for info in (await back.perform(ListStreams(BASIN, prefix="tx-"))).items}
            for name, (target, bodies) in self.transactions.items():
                if target == stream and there & set(bodies):
                    assert name not in left, f"{name} was merged, and is still there"


async def read_all(back: Back, stream: StreamRef) -> list[Record]:
    """Return all records of a log, up to its tail."""
    found: list[Record] = []
    async with back.read_session(Read(stream, FromSeqNum(0), clamp=True, wait=0)) as session:
        while (batch := await session.next()) is not None:
            if not isinstance(batch, Following):
                found += batch.records()
    return found


async def prepare(back: Back) -> None:
    """Create the logs if they are not there."""
    await back.perform(EnsureBasin(BASIN))
    for stream in LOGS:
        await back.perform(EnsureStream(stream))


class Client:
    """A client that calls a number of times, one call after the other, but for its sessions."""

    view: View = "records"
    event_times = False
    """True if it sees the times that producers gave their records."""

    def __init__(self, name: str, talks: Talks, back: Any, histories: Histories, dice: random.Random) -> None:
        """`back`: a `Back`, or what a subclass calls instead."""
        self.name = name
        self._talks = talks
        self._back = back
        self._histories = histories
        self._dice = dice
        self._numbers = itertools.count()
        self._tails = dict.fromkeys(LOGS, 0)
        self._tokens = dict.fromkeys(LOGS, "")
        self._calls = {
            "append": self._append,
            "bytes": self._append_bytes,
            "session": self._session,
            "fence": self._fence,
            "trim": self._trim,
            "command": self._trim_by_command,
            "tail": self._tail,
            "read": self._read,
            "merge": self._merge,
            "seal": self._seal,
        }

    async def run(self, calls: int) -> None:
        """Make this many calls."""
        kinds, weights = zip(*self._talks.weights.items(), strict=True)
        for _ in range(calls):
            await trio.sleep(self._dice.choice((0, 0, 0.001, 0.01)))
            stream = self._dice.choice(LOGS)
            (kind,) = self._dice.choices(kinds, weights)
            with trio.move_on_after(STUCK_SECONDS) as patience:
                await self._calls[kind](stream)
            if patience.cancelled_caught:
                raise Stuck(f"{self.name}: {kind} has no answer")

    @asynccontextmanager
    async def _calling(self, stream: StreamRef, call: Call) -> AsyncIterator[list[Any]]:
        """Write a call down, and the answer that the block appends to the list, or its failure."""
        number = self._histories.begin(stream, replace(call, client=self.name, view=self.view))
        answer: list[Any] = []
        try:
            yield answer
        except OperationFailed as error:
            self._histories.end(number, self._refusal(error))
        else:
            self._histories.end(number, answer[0])
            self._histories.answered += 1

    def _refusal(self, error: OperationFailed) -> Any:
        code = error.failure.code
        if code in _NO_ANSWER:
            return FAILED
        if code in _LOST:
            return Lost
        if _SEALED in error.failure.message:  # S2 and S3P have no code for it
            return Refused("sealed")
        if code not in _REASONS:
            raise error
        return Refused(_REASONS[code])

    def _bodies(self) -> tuple[bytes, ...]:
        """Return new bodies, which are JSON: some protocols keep records apart by it."""
        count = self._dice.choice((1, 1, 2, 3))
        filler = b"." * self._dice.choice((0, 10, 600, 9000))
        return tuple(b'"%b %d %b"' % (self.name.encode(), next(self._numbers), filler) for _ in range(count))

    # ---- what protocols do in different ways ---------------------------------------------------------------------

    def _new_append(self, stream: StreamRef) -> Call:
        chance = self._dice.random()
        match = self._tails[stream] if chance < 0.3 else None
        token = self._tokens[stream] if 0.2 < chance < 0.4 else None
        return Call("append", 0, 0, Lost, self._bodies(), match, token, client=self.name, view=self.view)

    def _message(self, stream: StreamRef, call: Call) -> Append | AppendBytes:
        return appending(*call.bodies, stream=stream, match=call.match, token=call.token)

    def _appended(self, stream: StreamRef, call: Call, appended: Any) -> Any:
        """Return the answer in the words of the checker."""
        assert isinstance(appended, Appended) and call.bodies
        self._tails[stream] = appended.tail.seq_num
        return appended.start.seq_num

    async def _all(self, stream: StreamRef) -> tuple[Any, ...]:
        """Read all from the first record on, as far as it goes, and return the answer."""
        records = await read_all(self._back, stream)
        self._histories.saw(stream, records, self.name, event_times=self.event_times)
        return tuple((record.seq_num, content(record)) for record in records)

    # ---- calls ---------------------------------------------------------------------------------------------------

    async def _append(self, stream: StreamRef) -> None:
        call = self._new_append(stream)
        async with self._calling(stream, call) as answer:
            done = await self._back.perform(self._message(stream, call))
            answer.append(self._appended(stream, call, done))

    async def _append_bytes(self, stream: StreamRef) -> None:
        call = Call("append", 0, 0, Lost, self._bodies())
        async with self._calling(stream, call) as answer:
            done = await self._back.perform(AppendBytes(stream, join_events(call.bodies)))
            answer.append(self._appended(stream, call, done))

    async def _session(self, stream: StreamRef) -> None:
        """Several appends in flight."""
        sent: list[tuple[int, Call]] = []
        try:
            async with self._back.append_session(stream) as session, trio.open_nursery() as nursery:
                nursery.start_soon(self._acknowledgements, stream, session, sent)
                for _ in range(self._dice.randint(2, 5)):
                    call = self._new_append(stream)
                    sent.append((self._histories.begin(stream, call), call))
                    try:
                        await session.send(self._message(stream, call))
                    except OperationFailed:  # the other task gets the reason too
                        break
                    await trio.sleep(self._dice.choice((0, 0, 0.002)))
                session.close()
        except OperationFailed as error:
            self._refusal(error)

    async def _acknowledgements(self, stream: StreamRef, session: AppendSession, sent: list[tuple[int, Call]]) -> None:
        try:
            while acknowledged := await session.receive():
                for one in acknowledged:
                    number, call = sent.pop(0)
                    self._histories.end(number, self._appended(stream, call, one))
                    self._histories.answered += 1
        except OperationFailed as error:
            answer = self._refusal(error)
            # The first that is not acknowledged is the one that failed; those after it were not done, unless the
            # process ends. Protocols of bodies do not promise that.
            rest = FAILED if isinstance(answer, Refused) and self.view == "records" else Lost
            for index, (number, _) in enumerate(sent):
                self._histories.end(number, rest if index else answer)
            sent.clear()

    async def _fence(self, stream: StreamRef) -> None:
        new = f"{self.name} {next(self._numbers)}"[:36]
        call = Call("fence", 0, 0, Lost, (COMMAND + new.encode(),), new_token=new)
        async with self._calling(stream, call) as answer:
            done = await self._back.perform(fence(new.encode(), stream=stream))
            self._tokens[stream] = new
            answer.append(self._appended(stream, call, done))

    def _to(self, stream: StreamRef) -> int:
        return max(self._tails[stream] - self._dice.randint(0, 12), 0)

    async def _trim(self, stream: StreamRef) -> None:
        to = self._to(stream)
        async with self._calling(stream, Call("trim", 0, 0, Lost, to=to)) as answer:
            answer.append((await self._back.perform(Trim(stream, FromSeqNum(to)))).seq_num)

    async def _trim_by_command(self, stream: StreamRef) -> None:
        """Append the command. No two clients append the same: see docs/guarantees.md, of lost acknowledgements."""
        to = self._to(stream)
        to += int(self.name.rpartition(".")[2]) - to % MOST_CLIENTS
        token = self._tokens[stream] if self._dice.random() < 0.2 else None
        call = Call("trim", 0, 0, Lost, (COMMAND + to.to_bytes(8, "big"),), token=token, to=to)
        async with self._calling(stream, call) as answer:
            command = trim_record(to, stream=stream, token=token)
            answer.append(self._appended(stream, call, await self._back.perform(command)))

    async def _tail(self, stream: StreamRef) -> None:
        async with self._calling(stream, Call("tail", 0, 0, Lost)) as answer:
            self._tails[stream] = (await self._back.perform(CheckTail(stream))).seq_num
            answer.append(self._tails[stream])

    async def _read(self, stream: StreamRef) -> None:
        number = self._histories.begin(stream, Call("read", 0, 0, Lost, client=self.name, view=self.view))
        try:
            found = await self._all(stream)
        except OperationFailed as error:
            self._refusal(error)
            self._histories.drop(number)
            return
        self._histories.end(number, found)
        self._histories.answered += 1

    async def _seal(self, stream: StreamRef) -> None:
        async with self._calling(stream, Call("seal", 0, 0, Lost)) as answer:
            await self._back.perform(Seal(stream))
            answer.append(None)

    async def _merge(self, stream: StreamRef) -> None:
        """A transaction: a stream of its own, appended to another one at once."""
        name = f"tx-{self.name}-{next(self._numbers)}"
        bodies = self._bodies()
        source = StreamRef(BASIN, name)
        try:
            await self._back.perform(CreateStream(source))
            for body in bodies:
                await self._back.perform(AppendBytes(source, join_events([body])))
        except OperationFailed as error:
            self._refusal(error)
            return
        self._histories.transactions[name] = (stream, bodies)
        async with self._calling(stream, Call("merge", 0, 0, Lost, bodies)) as answer:
            await self._back.perform(Merge(stream, (source,)))
            answer.append(Done)


class Follower:
    """A reader of one log that follows its tail."""

    event_times = False
    """True if it sees the times that producers gave their records."""

    def __init__(self, name: str, stream: StreamRef, back: Any, histories: Histories) -> None:
        self.name = name
        self.stream = stream
        self.next = 0
        self._back = back
        self._histories = histories
        self._seen: set[Any] = set()
        self._moved = trio.Event()

    async def run(self) -> None:
        """Read until cancelled, and go on where the store could not read."""
        while True:
            try:
                await self._read()
            except OperationFailed as error:
                failure = error.failure
                # Segment clients learn of it by a text alone.
                assert failure.code in _NO_ANSWER | _LOST or "the store could not read" in failure.message, error
            await trio.sleep(AGAIN_SECONDS)

    async def _read(self) -> None:
        async with self._back.read_session(Read(self.stream, FromSeqNum(self.next), clamp=True)) as session:
            while (batch := await session.next()) is not None:
                if isinstance(batch, Following) or not (records := list(batch.records())):
                    continue
                assert records[0].seq_num >= self.next, f"{self.name}: {records[0].seq_num} after {self.next}"
                self._histories.saw(self.stream, records, self.name, event_times=self.event_times)
                self._seen.update(record.seq_num for record in records)
                self._at(records[-1].seq_num + 1)

    def _at(self, number: int) -> None:
        self.next = number
        self._moved.set()
        self._moved = trio.Event()

    async def reach(self, there: Sequence[Record]) -> None:
        """Wait until the last of these records is read, and see that all were. Raises Stuck."""
        await self._reach([record.seq_num for record in there])

    async def _reach(self, there: Sequence[Any]) -> None:
        with trio.move_on_after(STUCK_SECONDS):
            while there[-1] not in self._seen:
                await self._moved.wait()
        if there[-1] not in self._seen:
            raise Stuck(f"{self.name} of {self.stream} has not read its last, {there[-1]!r:.60}, and is not woken")
        missed = [one for one in there if one not in self._seen]
        assert not missed, f"{self.name} of {self.stream} has missed {missed!r:.200}"
