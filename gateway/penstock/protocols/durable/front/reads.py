"""GET: catch-up reads and long polls (protocol, 5.5 and 5.6). Event streams are in `live`."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from penstock.core.back import Back, Following
from penstock.core.clock import Clock
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock.net.http.exchange import Exchange
from penstock.protocols.durable.front.carrying import take
from penstock.protocols.durable.front.catalog import DurableCatalog, KnownStream
from penstock.protocols.durable.front.settings import DurableSettings
from penstock_codecs.durable import (
    MOST_AHEAD,
    LiveMode,
    ReadRequest,
    Sentinel,
    is_json,
    join_messages,
    next_cursor,
    spell_offset,
)
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import RecordBatch
from penstock_codecs.operations import CheckTail, FromSeqNum, Read

__all__ = ["ReadAnswer", "Reads", "check_kept", "cursor_of", "position_headers", "read_from", "tail_of"]


class ReadAnswer(NamedTuple):
    """A whole answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""


class _Found(NamedTuple):
    """The records of a read. `next_seq`: the first that is not among them. `tail`: the stream's, as known then."""

    bodies: list[bytes]
    next_seq: int
    tail: int


class Reads:
    """Reads of streams, each with one answer."""

    def __init__(
        self, back: Back, catalog: DurableCatalog, settings: DurableSettings, draining: Draining, clock: Clock
    ) -> None:
        self._back = back
        self._catalog = catalog
        self._settings = settings
        self._draining = draining
        self._clock = clock

    async def read(self, stream: KnownStream, request: ReadRequest, seen: str | None, exchange: Exchange) -> ReadAnswer:
        """Return what there is from an offset on; a long poll waits for it. `seen`: the client's `if-none-match`.

        Raises OFFSET_TRUNCATED for an offset whose data is gone, INVALID for one beyond the tail, NOT_REPRESENTABLE if
        the record there cannot be read.
        """
        polls = request.live is LiveMode.LONG_POLL
        if request.start is Sentinel.NOW and not polls:
            headers = position_headers(stream, await tail_of(self._back, stream), caught_up=True)
            typed = ("content-type", stream.meta.content_type)
            return ReadAnswer(200, [typed, ("cache-control", "no-store"), *headers], _joined(stream, []))
        start = await self._start(stream, request)
        await exchange.room()
        waits = self._settings.long_poll_seconds if polls and not stream.closed else 0.0
        found = await self._found(stream, request, start, waits, exchange)
        if waits and not found.bodies:
            stream = await self._catalog.find(stream.ref)  # it may have been closed meanwhile, after an append
            if stream.closed:
                found = found._replace(tail=await tail_of(self._back, stream))
        caught_up = found.next_seq >= found.tail
        headers = position_headers(stream, found.next_seq, caught_up=caught_up)
        if polls and not (stream.closed and caught_up):
            headers.append(("stream-cursor", str(cursor_of(request, self._clock()))))
        if polls and caught_up and not found.bodies:
            return ReadAnswer(204, [*headers, ("cache-control", "no-store")])
        end = ":closed" if stream.closed and caught_up else ""
        tag = f'"{stream.info.incarnation or "0"}:{start}:{found.next_seq}{end}"'
        kept_by = "public" if self._settings.shared else "private"
        headers += [("etag", tag), ("cache-control", f"{kept_by}, max-age=60, stale-while-revalidate=300")]
        if seen is not None and tag in {one.strip().removeprefix("W/") for one in seen.split(",")}:
            return ReadAnswer(304, headers)
        return ReadAnswer(200, [("content-type", stream.meta.content_type), *headers], _joined(stream, found.bodies))

    async def _start(self, stream: KnownStream, request: ReadRequest) -> int:
        if request.start is Sentinel.NOW:
            return await tail_of(self._back, stream)
        return request.start if isinstance(request.start, int) else 0

    async def _found(
        self, stream: KnownStream, request: ReadRequest, start: int, waits: float, exchange: Exchange
    ) -> _Found:
        """Read up to the tail or the bound; if there is nothing, wait so many seconds for the first record."""
        messages, refusal = is_json(stream.meta.content_type), None
        bodies: list[bytes] = []
        next_seq = start
        last: RecordBatch | None = None
        read = read_from(stream, start, max_bytes=self._settings.max_read_bytes, wait=waits)
        try:
            async with self._back.read_session(read) as session:
                with self._catalog.gate(stream.ref).watched(waits or math.inf), self._draining.interrupts() as drained:
                    while refusal is None and (event := await session.next()) is not None:
                        if isinstance(event, Following):
                            if bodies or not waits:
                                break
                            await exchange.room(False)
                            continue
                        last = event
                        check_kept(request, next_seq, event)
                        some, next_seq, refusal = take(event, stream.ref, self._settings.loss, messages=messages)
                        bodies += some
                        if waits and not session.behind():
                            break
                if drained.cancelled_caught and not bodies and waits:
                    raise OperationFailed(SHUTTING_DOWN)
                tail = max(session.tail().seq_num, next_seq)
            if last is not None and last.tail is None:  # the bound ended the read while it was catching up
                tail = max(await tail_of(self._back, stream), next_seq)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                raise
            if start > await tail_of(self._back, stream):
                raise fail(FailureCode.INVALID, f"offset {spell_offset(start)} is beyond the end") from None
            tail = start  # when it was read: there may be more by now
        if refusal is not None and not bodies and next_seq == start:
            raise refusal
        return _Found(bodies, next_seq, tail if refusal is None else next_seq + 1)


async def tail_of(back: Back, stream: KnownStream) -> int:
    """Return the sequence number of the next record of a stream."""
    return (await back.perform(CheckTail(stream.ref, create_if_missing=False))).seq_num


def read_from(stream: KnownStream, start: int, *, max_bytes: int | None, wait: float | None) -> Read:
    """Return the read of a stream from a sequence number on."""
    return Read(stream.ref, FromSeqNum(start), max_bytes=max_bytes, wait=wait, create_if_missing=False)


def check_kept(request: ReadRequest, start: int, batch: RecordBatch) -> None:
    """Raise OFFSET_TRUNCATED if a batch does not begin at the sequence number where the client has come to; a client
    that asked for the beginning begins with what is left."""
    if batch.first_seq_num > start and isinstance(request.start, int):
        first = spell_offset(batch.first_seq_num)
        raise fail(FailureCode.OFFSET_TRUNCATED, f"the data before offset {first} is gone")


def cursor_of(request: ReadRequest, now: int) -> int:
    """Return the cursor of an answer; `now` in Unix ms."""
    return next_cursor(now / 1000, request.cursor, random.randint(1, MOST_AHEAD))


def position_headers(stream: KnownStream, next_seq: int, *, caught_up: bool) -> list[tuple[str, str]]:
    """Return the headers for the position behind an answer."""
    headers = [("stream-next-offset", spell_offset(next_seq))]
    if caught_up:
        headers.append(("stream-up-to-date", "true"))
        if stream.closed:
            headers.append(("stream-closed", "true"))
    return headers


def _joined(stream: KnownStream, bodies: list[bytes]) -> bytes:
    return join_messages(bodies) if is_json(stream.meta.content_type) else b"".join(bodies)
