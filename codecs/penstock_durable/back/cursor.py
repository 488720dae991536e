"""A read of one stream's content, which keeps its place on the server.

It asks for what there is (catch-up), and at the tail waits by long polls. An answer may be as large as the whole
stream, so a part of it may be left unread until the reader goes on. Only the end of an answer has an offset.
"""

from __future__ import annotations

import math
import sys
from contextlib import AsyncExitStack

import trio

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.net.http.client.connection import HttpStream
from penstock.net.upstream import broke
from penstock.wire.http import ResponseHead
from penstock_durable.back.offsets import KnownOffset
from penstock_durable.back.requests import DurableRequests
from penstock_durable.back.streams import ServerStream
from penstock_durable.codec import BEGINNING, LiveMode, PositionAnswer, TakenRecords

__all__ = ["ContentCursor"]


class ContentCursor:
    """A read from a known offset on. After an exception it must be closed and not be used again.

    `position`: that of the next record. `offset`: where the last answer ended, or `start`. `at_tail`: the server said
    that there was no more. `closed`: the stream is closed, and its content read to its end. With `notes`, the stream's
    table of offsets learns where answers end.
    """

    def __init__(
        self,
        requests: DurableRequests,
        stream: ServerStream,
        start: KnownOffset,
        poll_seconds: float,
        *,
        notes: bool = True,
    ) -> None:
        self.stream = stream
        self.position = start.position
        self.offset = start.offset
        self.at_tail = False
        self.closed = False
        self._requests = requests
        self._reader = stream.content.reader()
        self._poll_seconds = poll_seconds
        self._notes = notes
        self._opened: HttpStream | None = None
        self._exchange = AsyncExitStack()
        self._answer: PositionAnswer | None = None
        self._polls_until = 0.0  # when a long poll is given up
        self._cursor: str | None = None

    async def close(self) -> None:
        """Give up the answer that is unread."""
        self._opened = self._answer = None
        with trio.CancelScope(shield=True):  # nothing is waited for
            await self._exchange.aclose()

    async def skip_to(self, position: int) -> None:
        """Skip records up to a position. Raises STREAM_NOT_FOUND if the stream ends before: it is another one."""
        caught_up = False
        while self.position < position:
            with self._requests.checked():
                skipped = self._reader.skip(position - self.position)
            self.position += skipped
            if not skipped:
                if caught_up:
                    raise self.is_another(f"had content up to {position} and ends at {self.position}")
                caught_up = await self._more(0.0)

    async def take(self, max_records: int, max_bytes: int, wait: float) -> TakenRecords:
        """Return the next records; if there are none, wait up to `wait` seconds for the first."""
        until = trio.current_time() + wait
        earlier = self._answer is not None  # what the server said in it of the tail may be old
        while True:
            with self._requests.checked():
                taken = self._reader.take(max_records, max_bytes)
            self.position += sum(taken.lengths)
            if taken.bodies:
                if self._is_read and not self._reader.buffered:
                    await self._end_answer()
                return taken
            caught_up = await self._more(max(until - trio.current_time(), 0.0))
            if caught_up and earlier and not self.closed:
                earlier = False
                continue
            if caught_up and (self.closed or until <= trio.current_time()):
                if self.closed and self._reader.buffered:
                    raise broke(
                        self._requests.upstream, f"stream {self.stream.ref} is closed, and ends within a record"
                    )
                return taken

    async def skip_answer(self, most: int) -> list[bytes] | None:
        """Ask for an answer and skip its records. Returns its body in pieces, or None if it has more than `most` bytes.

        Only for a cursor that is not used otherwise.
        """
        await self._ask(None)
        pieces: list[bytes] = []
        while piece := await self._receive():
            pieces.append(piece)
            most -= len(piece)
            if most < 0:
                return None
            with self._requests.checked():
                self.position += self._reader.skip(sys.maxsize)
        await self._end_answer()
        return pieces

    async def _more(self, wait: float) -> bool:
        """Receive more; at the tail, wait up to `wait` seconds. Returns whether the server says that there is none."""
        if self._opened is not None and self._answer is None and not wait:
            await self.close()  # a long poll, for which there is no time now
        if self._opened is None:
            await self._ask(LiveMode.LONG_POLL if self.at_tail and wait else None)
        if self._answer is None and not await self._wait_for_answer(wait):
            return True
        return not await self._receive() and await self._end_answer()

    async def _receive(self) -> bytes:
        """Receive a piece of the answer; b"" at its end."""
        assert self._opened is not None, "asked"
        with trio.move_on_after(self._opened.request_seconds) as scope:
            piece = await self._opened.receive()
        if scope.cancelled_caught:
            raise self._opened.late(self._opened.request_seconds, "content")
        with self._requests.checked():
            self._reader.receive(piece)
        return piece

    async def _ask(self, live: LiveMode | None) -> None:
        """Send a GET; the head of the answer to a long poll is not awaited."""
        await self._note()
        reading = self._requests.read(self.stream.ref, self.offset, live, self._cursor if live is not None else None)
        self._opened = await self._exchange.enter_async_context(reading)
        if live is None:
            await self._accept(await self._opened.receive_head())
        else:
            self._polls_until = trio.current_time() + self._poll_seconds

    async def _wait_for_answer(self, wait: float) -> bool:
        """Wait for the answer to a long poll, up to `wait` seconds. Returns whether it came."""
        assert self._opened is not None, "asked"
        with trio.move_on_after(wait) as scope:
            scope.deadline = min(scope.deadline, self._polls_until)
            head = await self._opened.receive_head(math.inf)
        if not scope.cancelled_caught:
            await self._accept(head)
            return True
        if trio.current_time() >= self._polls_until:
            await self.close()
        return False

    async def _accept(self, head: ResponseHead) -> None:
        assert self._opened is not None, "asked"
        response = await self._requests.answer_of(self._opened, head)
        if response.content_type not in (None, self.stream.content_type):
            raise self.is_another(f"had content type {self.stream.content_type}, and now has {response.content_type}")
        self._answer = response

    async def _end_answer(self) -> bool:
        """Take the position behind an answer that was read. Returns whether it is the tail."""
        response = self._answer
        assert response is not None, "read"
        with self._requests.checked():
            self._reader.end_response()
        await self.close()
        if response.next_offset == self.offset and not response.up_to_date:
            reason = (
                f"its answer neither goes beyond offset {self.offset} of stream {self.stream.ref} nor is up to date"
            )
            raise broke(self._requests.upstream, reason)
        self.offset, self._cursor = response.next_offset, response.cursor
        self.at_tail, self.closed = response.up_to_date, response.closed
        await self._note()
        return self.at_tail

    @property
    def is_caught_up(self) -> bool:
        """True if the last answer ended at the tail, and all its records were taken."""
        return self.at_tail and self._opened is None and not self._reader.buffered

    @property
    def buffered(self) -> int:
        """Bytes received that no `take` has returned; of a record that the answer began, after `skip_answer`."""
        return self._reader.buffered

    def is_another(self, reason: str) -> OperationFailed:
        """Return the error for a stream that cannot be the one that was read before."""
        where = self._requests.upstream.where
        return fail(FailureCode.STREAM_NOT_FOUND, f"{where}: stream {self.stream.ref} {reason}: it is another stream")

    @property
    def _is_read(self) -> bool:
        opened = self._opened
        return self._answer is not None and opened is not None and opened.inbox.ended and not opened.inbox.unread

    async def _note(self) -> None:
        """Note the offset of the position where an answer ended, unless records before it are still to be taken."""
        if self._notes and not self._reader.buffered and self.offset != BEGINNING:
            await self.stream.offsets.note(self.position, self.offset)
