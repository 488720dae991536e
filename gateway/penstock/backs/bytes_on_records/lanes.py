"""The way of bytes to the back: the appends of all segment clients to one stream, one after the other.

One append session at the back for all of them, so that their order is known, and nothing of one gets into the middle
of another's; where the back is shown another token for the next client, that session ends, and one of its own begins.
Intents are made durable for whatever has come meanwhile, then all of it is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable

import trio

from penstock.backs.base import AppendSession, Back
from penstock.backs.bytes_on_records.counting import Counter, Replaced
from penstock.backs.bytes_on_records.decisions import Decisions
from penstock.backs.bytes_on_records.intents import Found, Group
from penstock.backs.bytes_on_records.offsets import Place
from penstock.backs.bytes_on_records.requests import Request, appended
from penstock.backs.bytes_on_records.resolving import resolve
from penstock.backs.bytes_on_records.settings import BytesSettings
from penstock.backs.bytes_on_records.streams import Stream, unknown
from penstock.backs.bytes_on_records.writers import GROUP_INTENTS
from penstock.backs.credentials import token_shown
from penstock.identity import CLIENT
from penstock_codecs.failures import Failure, FailureCode, OperationFailed
from penstock_codecs.operations import Append, Appended

__all__ = ["Lane"]


class Lane:
    """See the module. `run` is a task of the back's."""

    def __init__(self, stream: Stream, records: Back, counter: Counter, settings: BytesSettings) -> None:
        self._stream = stream
        self._records = records
        self._counter = counter
        self._settings = settings
        self._decisions = Decisions(stream, records, counter)
        self._queue: deque[Request] = deque()
        self._accepted: deque[Request] = deque()  # decided, or about to be, and not settled
        self._size = 0
        self._room = trio.lowlevel.ParkingLot()
        self._turns = trio.StrictFIFOLock()
        self._work = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()
        self._at = Place(0, 0)  # behind the last batch that was acknowledged
        self._broken: Failure | None = None
        self._token: str | None = None  # that the session is opened with
        self.ended = False

    @property
    def last(self) -> Request | None:
        """The request that will be settled last, of those that were handed over; None: all are settled."""
        return next((some[-1] for some in (self._queue, self._accepted) if some), None)

    @property
    def large(self) -> Request | None:
        """An append of several batches that is on its way: nothing must get into the middle of it."""
        return next((request for request in self._accepted if len(request.batches) > 1), None)

    async def room(self, request: Request) -> None:
        """Wait until `submit` may be called; a large one is not overtaken by small ones."""
        async with self._turns:
            while self._size and self._size + request.size > self._settings.append_inflight_bytes and not self.ended:
                await self._room.park()

    def submit(self, request: Request) -> None:
        """Hand over an append: it has its place now. What comes before a seal is appended before that.

        Raises OperationFailed(PERMISSION_DENIED) where the back has no token for the client."""
        request.token = token_shown(self._records)
        if self._stream.sealing:
            request.fail(Failure(FailureCode.STREAM_SEALED, f"stream {self._stream.ref} is sealed"))
            return
        self._size += request.size
        self._queue.append(request)
        self._work.unpark_all()

    def withdraw(self, request: Request) -> None:
        """Take an append back, unless it is too late."""
        if request in self._queue:
            self._queue.remove(request)
            self._leave(request)

    async def run(self) -> None:
        """Carry out what is handed over, until there was nothing to do for a while."""
        try:
            while self._queue or await self._has_work():
                try:
                    await self._run_session()
                except OperationFailed as error:
                    await self._failed(error.failure)
                except Replaced:
                    await self._failed(unknown(self._stream.ref).failure)
        finally:
            self.ended = True
            if self._stream.lane is self:
                self._stream.lane = None
            self._room.unpark_all()

    async def _has_work(self) -> bool:
        with trio.move_on_after(self._settings.idle_seconds):
            while not self._queue:
                await self._work.park()
        return bool(self._queue)

    # ---- to the back ---------------------------------------------------------------------------------------------

    async def _run_session(self) -> None:
        if not self._queue:  # it was withdrawn
            return
        CLIENT.set(self._queue[0].client)
        self._token = self._queue[0].token
        await resolve(self._stream, self._counter)
        self._at, self._broken = self._stream.offsets.end, None
        async with self._records.append_session(self._stream.ref, create_if_missing=False) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive, session, nursery.cancel_scope)
                await self._send(session, nursery.cancel_scope)
            if self._broken is not None:
                raise OperationFailed(self._broken)

    async def _send(self, session: AppendSession, scope: trio.CancelScope) -> None:
        try:
            while (self._queue or await self._has_work()) and self._is_next_of_same():
                alone = self._decisions.is_alone(self._queue[0])
                if alone:
                    await self._settled()
                group = await self._next_alone() if alone else await self._next_group()
                intents = [intent for request in group if (intent := request.intent) is not None]
                if intents:
                    await _apart(self._stream.writers.intend(self._at, intents))
                for request in group:
                    await self._hand_over(session, request)
                if alone:
                    await self._settled()
            session.close()
        except OperationFailed as error:
            self._break(error.failure, scope)

    async def _next_group(self) -> list[Request]:
        """Requests that are accepted, in order, to be sent together."""
        group: list[Request] = []
        while len(group) < GROUP_INTENTS and self._is_next_of_same() and not self._decisions.is_alone(self._queue[0]):
            request = self._queue.popleft()
            self._accepted.append(request)
            if await self._accept(request):
                group.append(request)
        return group

    def _is_next_of_same(self) -> bool:
        """Whether there is a next request, and the session is for its client too."""
        return bool(self._queue) and self._queue[0].token == self._token

    async def _next_alone(self) -> list[Request]:
        if not self._is_next_of_same():  # it was withdrawn
            return []
        request = self._queue.popleft()
        self._accepted.append(request)
        return [request] if await self._accept(request) else []

    async def _accept(self, request: Request) -> bool:
        """Decide about a request; whether it is to be sent."""
        failure = request.chain.failure
        try:
            done = None if failure else await self._decisions.decide(request)
        except OperationFailed as error:
            failure = error.failure
        except Replaced:
            failure = unknown(self._stream.ref).failure
        if failure is None and done is None:
            return True
        self._accepted.remove(request)
        self._end(request, failure or done)
        return False

    async def _hand_over(self, session: AppendSession, request: Request) -> None:
        stream, match = self._stream.ref, request.match_seq_num
        for bodies, headers, metered, _ in request.batches:
            await session.send(Append(stream, bodies, metered, headers, match_seq_num=match, create_if_missing=False))
            match = None if match is None else match + len(bodies)

    def _break(self, failure: Failure, scope: trio.CancelScope) -> None:
        """The session has failed."""
        self._broken = self._broken or failure
        scope.cancel()

    # ---- from the back -------------------------------------------------------------------------------------------

    async def _receive(self, session: AppendSession, scope: trio.CancelScope) -> None:
        try:
            while acknowledged := await session.receive():
                for ack in acknowledged:
                    await _apart(self._acknowledge(ack))
        except OperationFailed as error:
            self._break(error.failure, scope)
        except Replaced:
            self._break(unknown(self._stream.ref).failure, scope)

    async def _acknowledge(self, ack: Appended) -> None:
        request = self._accepted[0]
        length = request.batches[len(request.found)].print.length
        start = ack.start.seq_num
        begin = await self._counter.place_of(self._stream, start, self._at)
        end = Place(ack.end.seq_num, begin.offset + length)
        if self._stream.offsets.end.seq_num == start:
            self._stream.offsets.advance(end)
        self._at = end
        if request.match_seq_num is not None:
            self._stream.writers.late = None  # it cannot come any more
        request.found.append(Found(ack.start, ack.end, begin.offset, end.offset))
        if len(request.found) == len(request.batches):
            self._accepted.popleft()
            self._confirm(request, end)
            first = request.found[0].start
            self._end(request, Appended(first, ack.end, ack.tail, ack.last_id, end.offset))

    def _confirm(self, request: Request, end: Place) -> None:
        if (writer := request.append.writer) is not None:
            self._stream.writers.confirm(writer.writer, writer.position, end, request.skipped)
        self._decisions.settled(request)

    async def _failed(self, failure: Failure) -> None:
        """The session is over. Of what was sent find out what the back has; the rest of it has failed."""
        accepted = [request for request in self._accepted if request.decided]
        self._queue.extendleft([request for request in self._accepted if not request.decided])  # one at most
        self._accepted.clear()
        if not accepted:
            while self._is_next_of_same():
                self._end(self._queue.popleft(), failure)
            return
        for request in accepted:
            self._decisions.settled(request)
        if failure.code is FailureCode.SEQ_NUM_MISMATCH and accepted[0].match_seq_num is not None:
            self._outrun(accepted[0])
            return
        await self._look(accepted, failure)
        for request in accepted:
            if request.found and len(request.found) == len(request.batches):
                self._end(request, appended(request.found, request.found[-1].end))
            else:
                self._end(request, failure)

    def _outrun(self, request: Request) -> None:
        """Somebody else was faster: the condition of a request, which was alone, is to be looked at anew."""
        writers, writer = self._stream.writers, request.append.writer
        found, request.found, request.decided = request.found, [], False
        if found and writer is not None:
            writers.keep_partial(writer.writer, (*writers.partial.get(writer.writer, ()), *found))
        writers.give_up()
        if found and request.append.match_offset is not None:
            message = f"a part of it is there, and then somebody else appended to stream {self._stream.ref}"
            self._end(request, Failure(FailureCode.UNAVAILABLE, message))
            return
        self._queue.appendleft(request)

    async def _look(self, accepted: list[Request], failure: Failure) -> None:
        """See which batches of writers the back has."""
        writers = self._stream.writers
        tracked = {request: intent for request in accepted if (intent := request.intent) is not None}
        for request, intent in tracked.items():
            if request.found and intent.writer is not None:
                writers.keep_partial(intent.writer, (*writers.partial.get(intent.writer, ()), *request.found))
        if not failure.side_effect_possible:
            writers.give_up()
            return
        writers.unresolved = Group(0, self._at, list(tracked.values()))
        try:
            resolved = await resolve(self._stream, self._counter)
        except (OperationFailed, Replaced):
            return  # it stays unresolved, and the next one that asks looks again
        for request, found in zip(tracked, resolved, strict=True):
            request.found += found

    # ---- ends ----------------------------------------------------------------------------------------------------

    async def _settled(self) -> None:
        """Wait until all that was accepted is settled."""
        while self._accepted:
            await self._drained.park()

    def _end(self, request: Request, outcome: Appended | Failure | None) -> None:
        self._leave(request)
        if isinstance(outcome, Appended):
            request.succeed(outcome)
        elif outcome is not None:
            request.fail(outcome)
        if not self._accepted:
            self._drained.unpark_all()

    def _leave(self, request: Request) -> None:
        self._size -= request.size
        self._room.unpark_all()


async def _apart(doing: Awaitable[None]) -> None:
    """Do what is beside the session. If it fails that says nothing of what was sent, which may be applied all the
    same."""
    try:
        await doing
    except OperationFailed as error:
        if error.failure.side_effect_possible:
            raise
        raise OperationFailed(Failure(FailureCode.UNAVAILABLE, error.failure.message)) from None
