"""Sessions through a route: they rewrite names, check permissions, and end when a cut-over swaps the target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Final

from msgspec.structs import replace

from penstock.core.back import AppendSession, AppendSessionWrapper, Following, ReadSession, ReadSessionWrapper
from penstock.core.passthrough import HeaderList, Passthrough, RawSession
from penstock.core.permissions import Permission
from penstock.model.byte_operations import AppendBytes
from penstock.model.failures import OperationFailed
from penstock.model.operations import Append, Appended, Read
from penstock.model.records import RecordBatch, StreamRef
from penstock.model.streams import StreamConfig
from penstock.observe.metrics.metered import metered_passage
from penstock.routing.route import Decision
from penstock.wire.http import Buffer, FramePieces

__all__ = ["RoutedPassthrough", "append_session", "in_clients_words", "read_session"]


_READ: Final = frozenset({Permission.READ})
_APPEND: Final = frozenset({Permission.APPEND})


@contextmanager
def in_clients_words(decision: Decision) -> Iterator[None]:
    """Replace the stream's name on the back by the client's in messages of failures, as far as the gateway's own backs
    word them."""
    try:
        yield
    except OperationFailed as error:
        if decision.there == decision.asked:
            raise
        message = error.failure.message
        for spelled in (str, _apart):
            message = message.replace(spelled(decision.there), spelled(decision.asked))
        raise OperationFailed(replace(error.failure, message=message)) from error.__cause__


def _apart(stream: StreamRef) -> str:
    return f"stream {stream.stream!r} in basin {stream.basin!r}"


class _Appends(AppendSessionWrapper):
    """An `AppendSession` through a route. Each batch counts as a change of the target until it is acknowledged.
    `generation`: the holder's when `inner` was opened."""

    def __init__(self, inner: AppendSession, decision: Decision, generation: int) -> None:
        super().__init__(inner)
        self._decision = decision
        self._holder = decision.holder
        self._generation = generation
        self._unacknowledged = 0
        self._moved = False
        self._refused: OperationFailed | None = None

    async def send(self, append: Append | AppendBytes) -> None:
        if self._refused is not None or not self._allowed(append):
            return
        if self._holder.held:
            await self._holder.admitted()
        if self._moved or self._generation != self._holder.generation:
            self._moved = True
            self._inner.close()
            return
        self._holder.begin()
        self._unacknowledged += 1  # it may be acknowledged before `send` returns
        try:
            with in_clients_words(self._decision):
                await self._inner.send(self._renamed(append))
        except BaseException:
            self.settle(1)
            raise

    def _allowed(self, append: Append | AppendBytes) -> bool:
        """Return whether a batch is allowed. One that is not ends the session, as a failed batch does."""
        try:
            self._decision.check_append(append)
        except OperationFailed as error:
            self._refused = error
            self._inner.close()
            return False
        return True

    def _renamed(self, append: Append | AppendBytes) -> Append | AppendBytes:
        there = self._decision.there
        return append if append.stream == there else replace(append, stream=there)

    async def receive(self) -> list[Appended]:
        with in_clients_words(self._decision):
            acknowledged = await self._inner.receive()
        self.settle(len(acknowledged))
        if not acknowledged and self._refused is not None:
            raise self._refused
        if not acknowledged and self._moved:
            raise self._holder.moved()
        return acknowledged

    def settle(self, count: int | None = None) -> None:
        """Count this many batches as no longer in flight; None: all of them."""
        done = self._unacknowledged if count is None else min(count, self._unacknowledged)
        self._unacknowledged -= done
        self._holder.end(done)


@asynccontextmanager
async def append_session(
    decision: Decision, create_config: StreamConfig | None, create_if_missing: bool
) -> AsyncIterator[AppendSession]:
    """See `Back.append_session`."""
    decision.check(_APPEND)
    await decision.holder.admitted()
    back, generation = decision.holder.target.back, decision.holder.generation
    create = create_if_missing and decision.creates
    session = None
    try:
        with in_clients_words(decision):
            async with back.append_session(decision.there, create_config, create_if_missing=create) as inner:
                session = _Appends(inner, decision, generation)
                yield session
    finally:
        if session is not None:
            session.settle()  # only after it has ended: until then batches may be applied


class _Reads(ReadSessionWrapper):
    """A `ReadSession` through a route."""

    def __init__(self, inner: ReadSession, decision: Decision, generation: int) -> None:
        super().__init__(inner)
        self._decision = decision
        self._generation = generation

    async def next(self) -> RecordBatch | Following | None:
        with in_clients_words(self._decision), self._decision.holder.interrupted(self._generation):
            return await self._inner.next()
        raise AssertionError("the block returns or raises")

    def ready(self) -> RecordBatch | None:
        return self._inner.ready() if self._decision.holder.generation == self._generation else None


@asynccontextmanager
async def read_session(decision: Decision, read: Read) -> AsyncIterator[ReadSession]:
    """See `Back.read_session`."""
    decision.check(_READ)
    create = read.create_if_missing and decision.creates_by_reading
    if read.stream != decision.there or create != read.create_if_missing:
        read = replace(read, stream=decision.there, create_if_missing=create)
    generation = decision.holder.generation
    with in_clients_words(decision):
        async with decision.holder.target.back.read_session(read) as inner:
            yield _Reads(inner, decision, generation)


# ---- passthrough sessions ------------------------------------------------------------------------------------


class RoutedPassthrough(Passthrough):
    """The passthrough of a stream's sessions to its target."""

    def __init__(self, decision: Decision, inner: Passthrough) -> None:
        self._decision = decision
        self._inner = inner

    def open(self, method: str, query: str, headers: HeaderList) -> AbstractAsyncContextManager[RawSession]:
        changes = method == "POST"
        return metered_passage(self._decision.meter, self._open(method, query, headers, changes), appends=changes)

    @asynccontextmanager
    async def _open(self, method: str, query: str, headers: HeaderList, changes: bool) -> AsyncIterator[RawSession]:
        """Open a session. A cut-over ends it like a lost server: only the client knows which batches are not
        acknowledged."""
        holder = self._decision.holder
        await holder.admitted()
        generation = holder.generation
        async with self._inner.open(method, query, headers) as raw:
            yield _Raw(raw, self._decision, generation, changes=changes)


class _Raw:
    """A `RawSession` through a route."""

    def __init__(self, inner: RawSession, decision: Decision, generation: int, *, changes: bool) -> None:
        self._inner = inner
        self._holder = decision.holder
        self._generation = generation
        self._changes = changes
        self.finish, self.receive_head, self.count_batches = inner.finish, inner.receive_head, inner.count_batches

    async def send(self, pieces: FramePieces) -> None:
        if self._changes and self._holder.held:
            await self._holder.admitted()
        with self._holder.interrupted(self._generation):
            await self._inner.send(pieces)

    async def receive_pieces(self, least: int) -> Sequence[Buffer]:
        with self._holder.interrupted(self._generation):
            return await self._inner.receive_pieces(least)
        raise AssertionError("the block returns or raises")
