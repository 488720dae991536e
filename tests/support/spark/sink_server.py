"""Streams in memory for the sink's tests: a seed chooses when the server acts, and which faults occur.

Tasks and drivers run as threads, of which one runs at a time: at each call of the server the world chooses the next. So
a seed determines the whole run, and every interleaving may occur. Appends arrive later, perhaps after their sender has
died; a session whose append was refused takes no more, as S2S wants it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.records import Columns, Headers, RecordBatch, StreamPosition
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.patience import Patience

LOST = Failure(FailureCode.UNAVAILABLE, "the connection broke")


class Killed(BaseException):
    """A process dies."""


class NoPauses(Patience):
    """Tries at once, a few times."""

    def __init__(self, tries: int = 8) -> None:
        super().__init__(Endpoint("nowhere", 1))
        self.tries = tries

    def wait(self, error: OperationFailed) -> None:
        self.tries -= 1
        if not error.failure.retryable or self.tries < 0:
            raise error


@dataclass
class Stored:
    """A stream."""

    records: list[tuple[Headers, bytes]] = field(default_factory=list)
    first: int = 0


class Runner:
    """A thread that waits for its turn at each step."""

    def __init__(self, world: World, action: Callable[[], Any]) -> None:
        self.world, self.action = world, action
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.result: Any = None
        self.error: BaseException | None = None
        self.over = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.turn.acquire()
        try:
            self.result = self.action()
        except BaseException as error:
            self.error = error
        self.over = True
        self.back.release()

    def step(self) -> None:
        """Let it go on until its next step."""
        self.world.current = self
        self.turn.release()
        self.back.acquire()
        self.world.current = None
        if self.over:
            self.thread.join()

    def pause(self) -> None:
        """Called by the thread itself."""
        self.back.release()
        self.turn.acquire()


class World:
    """Streams, the network, and who runs."""

    def __init__(self, random: Random, faults: float = 0.0, deaths: float = 0.0) -> None:
        self.random, self.faults, self.deaths = random, faults, deaths
        self.streams: dict[str, Stored] = {}
        self.runners: list[Runner] = []
        self.ended: list[Runner] = []
        self.sessions: list[Session] = []
        self.current: Runner | None = None
        self.foreign = 0.0
        self.creates = True
        self.targets: list[str] = []
        self.left = {"deaths": 12, "faults": 40, "foreign": 60}
        """So often each goes wrong at most, so that every story has an end."""

    def start(self, action: Callable[[], Any]) -> Runner:
        """Begin an action, which runs when it is chosen."""
        runner = Runner(self, action)
        self.runners.append(runner)
        return runner

    def tick(self) -> None:
        """One thing happens."""
        self.ended += [one for one in self.runners if one.over]
        self.runners = [one for one in self.runners if not one.over]
        self.sessions = [one for one in self.sessions if one.pending]
        if self.happens("foreign", self.foreign):
            self.store(self.random.choice(self.targets), [b"foreign"], {})
        choices = [*(one.step for one in self.runners), *(one.arrive for one in self.sessions)]
        if choices:
            self.random.choice(choices)()

    def until(self, done: Callable[[], bool]) -> None:
        """Let things happen until then."""
        for _ in range(100_000):
            if done():
                return
            self.tick()
        raise AssertionError("nothing gets on")

    def settle(self) -> None:
        """Let everything happen that still can."""
        self.until(lambda: not any(not one.over for one in self.runners) and not any(s.pending for s in self.sessions))

    def call(self) -> Callable[[], None]:
        """Begin a call of the server. The result is to be called when the call is done, and may lose the answer."""
        runner = self.current
        if runner is not None:
            runner.pause()
        self._may_break()
        return self._may_break

    def happens(self, what: str, probability: float) -> bool:
        """Return whether a fault happens now."""
        if self.left[what] == 0 or self.random.random() >= probability:
            return False
        self.left[what] -= 1
        return True

    def _may_break(self) -> None:
        if self.happens("deaths", self.deaths):
            raise Killed
        if self.happens("faults", self.faults):
            raise OperationFailed(LOST)

    def stream(self, name: str) -> Stored:
        if name not in self.streams:
            raise fail(FailureCode.STREAM_NOT_FOUND, f"{name} is not there")
        return self.streams[name]

    def store(self, name: str, bodies: Sequence[bytes], headers: Mapping[int, Headers]) -> int:
        """Append; the number after the last one. Streams come into being when they are appended to."""
        stream = self.streams.setdefault(name, Stored())
        stream.records += [(headers.get(index, ()), body) for index, body in enumerate(bodies)]
        return len(stream.records)


class Session:
    """An append session, as the network and the server see it."""

    def __init__(self, world: World, stream: str) -> None:
        self.world, self.stream = world, stream
        self.pending: deque[tuple[Sequence[bytes], Mapping[int, Headers], int | None]] = deque()
        self.acknowledged, self.end = 0, 0
        self.failure: Failure | None = None

    def arrive(self) -> None:
        """Deliver the oldest pending append to the server, or break the connection."""
        bodies, headers, expected = self.pending.popleft()
        have = self.world.streams.get(self.stream)
        if have is None and not self.world.creates:
            self.failure = Failure(FailureCode.STREAM_NOT_FOUND, "no such stream")
        tail = len(have.records) if have else 0
        if self.failure is not None:
            pass
        elif self.world.happens("faults", self.world.faults):
            self.failure = LOST
        elif expected is not None and expected != tail:
            self.failure = Failure(FailureCode.SEQ_NUM_MISMATCH, "other", {"seq_num_mismatch": tail})
        if self.failure is not None:
            self.pending.clear()
            return
        self.end = self.world.store(self.stream, bodies, headers)
        self.acknowledged += 1


class FakeAppender:
    """`clients.appending.Appender`."""

    def __init__(self, world: World, session: Session) -> None:
        self._world, self._session = world, session
        self._sent = 0
        self.acknowledged = 0

    def append(self, bodies: Any, headers: Any, timestamps: Any, expected: int | None) -> None:
        self._world.call()
        self._hear()
        self._session.pending.append((list(bodies), dict(headers), expected))
        self._world.sessions.append(self._session)
        self._sent += 1

    def flush(self) -> StreamPosition | None:
        while True:
            self._world.call()
            self._hear()
            if self.acknowledged == self._sent:
                return StreamPosition(self._session.end, 0) if self._sent else None
            if self._world.current is None:
                self._session.arrive()

    def close(self) -> None:
        if self._world.random.random() < 0.5:  # else what is under way may still arrive
            self._session.pending.clear()

    def _hear(self) -> None:
        self.acknowledged = self._session.acknowledged
        if self._session.failure is not None:
            raise OperationFailed(self._session.failure)


class FakeClient:
    """`clients.client.StreamClient`, as far as the sink needs it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def create(self, stream: str, *, endless: bool = False) -> bool:
        done = self._world.call()
        there = stream in self._world.streams
        self._world.streams.setdefault(stream, Stored())
        done()
        return not there

    def delete(self, stream: str) -> None:
        done = self._world.call()
        self._world.streams.pop(stream, None)
        done()

    def first(self, stream: str) -> int:
        self._world.call()
        return self._world.stream(stream).first

    def tail(self, stream: str) -> int:
        self._world.call()
        return len(self._world.stream(stream).records)

    def trim(self, stream: str, first: int) -> None:
        done = self._world.call()
        found = self._world.stream(stream)
        found.first = max(found.first, first)
        done()

    def read(self, stream: str, start: int, end: int) -> Iterator[RecordBatch]:
        at = start
        while at < end:
            self._world.call()
            found = self._world.stream(stream)
            if at < found.first:
                raise fail(FailureCode.RANGE_NOT_SATISFIABLE, "trimmed", first=found.first)
            stop = min(end, at + self._world.random.randint(1, 20))
            some = found.records[at:stop]
            headers = {index: one[0] for index, one in enumerate(some) if one[0]}
            columns = Columns(range(at, stop), [0] * (stop - at), [one[1] for one in some], headers)
            yield RecordBatch(columns)
            at = stop

    def appender(self, stream: str) -> FakeAppender:
        return FakeAppender(self._world, Session(self._world, stream))

    def close(self) -> None:
        pass
