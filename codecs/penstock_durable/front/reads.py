"""GET: catch-up reads and long polls (protocol, 5.5 and 5.6). Event streams are in `live`."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from penstock.core.back import Back, Following
from penstock.core.clock import Clock
from penstock.core.rereading import BatchExtent, read_again
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CheckTail, FromSeqNum, Locate, Read
from penstock.model.records import RecordBatch
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock.net.http.exchange import Exchange, Refetch
from penstock_durable.codec import (
    MOST_AHEAD,
    LiveMode,
    ReadRequest,
    Sentinel,
    is_json,
    join_messages,
    next_cursor,
    spell_offset,
)
from penstock_durable.front.carrying import take
from penstock_durable.front.catalog import DurableCatalog, KnownStream
from penstock_durable.front.settings import DurableSettings

__all__ = ["ReadAnswer", "Reads", "check_kept", "cursor_of", "position_headers", "read_from", "tail_of"]


_TOLD_SECONDS: Final = 1.0
"""Time within which a read that follows its stream says where it begins."""


class ReadAnswer(NamedTuple):
    """A whole answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    refetch: Refetch | None = None


class _Found(NamedTuple):
    """The records of a read. `next_seq`: the first that is not among them. `tail`: the stream's, as known then.
    `extents`: the batches that they are from."""

    bodies: list[bytes]
    next_seq: int
    tail: int
    extents: list[BatchExtent]


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

    async def read(
        self, stream: KnownStream, request: ReadRequest, seen: Sequence[str], exchange: Exchange
    ) -> ReadAnswer:
        """Return what there is from an offset on; a long poll waits for it. `seen`: the entity tags of the client's
        `if-none-match`, of which `*` matches all.

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
        content = await self._found(stream, request, start, waits, exchange)
        if waits and not content.bodies:
            stream = await self._catalog.find(stream.ref)  # it may have been closed meanwhile, after an append
            if stream.closed:
                content = await self._found(stream, request, start, 0.0, exchange)
        caught_up = content.next_seq >= content.tail
        headers = position_headers(stream, content.next_seq, caught_up=caught_up)
        if polls and not (stream.closed and caught_up):
            headers.append(("stream-cursor", str(cursor_of(request, self._clock()))))
        if polls and caught_up and not content.bodies:
            return ReadAnswer(204, [*headers, ("cache-control", "no-store")])
        end = ":closed" if stream.closed and caught_up else ""
        tag = f'"{stream.info.incarnation or "0"}:{start}:{content.next_seq}{end}"'
        kept_by = "public" if self._settings.shared else "private"
        headers += [("etag", tag), ("cache-control", f"{kept_by}, max-age=60, stale-while-revalidate=300")]
        if tag in {etag.removeprefix("W/") for etag in seen} or "*" in seen:
            return ReadAnswer(304, headers)
        headers.insert(0, ("content-type", stream.meta.content_type))
        refetch = partial(self._joined_again, stream, start, content.extents) if content.extents else None
        return ReadAnswer(200, headers, _joined(stream, content.bodies), refetch)

    async def _joined_again(self, stream: KnownStream, start: int, extents: list[BatchExtent]) -> list[bytes]:
        """Return the body of an answer again, in one piece."""
        batches = await read_again(self._back, read_from(stream, start, max_bytes=None, wait=None), extents)
        messages, loss = is_json(stream.meta.content_type), self._settings.loss
        return [
            _joined(
                stream,
                [body for batch in batches for body in take(batch, stream.ref, loss, messages=messages).bodies],
            )
        ]

    async def _start(self, stream: KnownStream, request: ReadRequest) -> int:
        if request.start is Sentinel.NOW:
            return await tail_of(self._back, stream)
        return request.start if isinstance(request.start, int) else 0

    async def _found(
        self, stream: KnownStream, request: ReadRequest, start: int, waits: float, exchange: Exchange
    ) -> _Found:
        """Read up to the tail or the bound; if there is nothing, wait so many seconds for the first record.

        The tail of a read without records is where it was then, though there may be more by now: an answer goes on or
        is up to date.
        """
        content = await self._read_once(stream, request, start, waits, waits, exchange)
        return (
            content
            or await self._read_once(stream, request, start, waits, _TOLD_SECONDS, exchange)
            or _Found([], start, start, [])
        )

    async def _read_once(
        self, stream: KnownStream, request: ReadRequest, start: int, waits: float, follows: float, exchange: Exchange
    ) -> _Found | None:
        """As `_found`. `follows`: seconds for which the read follows the stream. None if all records from the start on
        are gone, and a read that does not follow has no way to tell where the stream goes on."""
        messages, refusal = is_json(stream.meta.content_type), None
        bodies: list[bytes] = []
        extents: list[BatchExtent] = []
        next_seq, at_tail = start, False
        last: RecordBatch | None = None
        read = read_from(stream, start, max_bytes=self._settings.max_read_bytes, wait=follows)
        try:
            async with self._back.read_session(read) as session:
                with self._catalog.gate(stream.ref).watched(waits or math.inf), self._draining.interrupts() as drained:
                    while refusal is None and (event := await session.next()) is not None:
                        if isinstance(event, Following):
                            await check_kept(self._back, stream, request, next_seq, event.tail.seq_num)
                            next_seq, at_tail = max(event.tail.seq_num, next_seq), True
                            if bodies or not waits:
                                break
                            await exchange.room(False)
                            continue
                        await check_kept(self._back, stream, request, next_seq, event.first_seq_num)
                        last = event
                        extents.append(BatchExtent.of(event))
                        some, next_seq, refusal = take(event, stream.ref, self._settings.loss, messages=messages)
                        bodies += some
                        if waits and not session.behind():
                            break
                if drained.cancelled_caught and not bodies:
                    raise OperationFailed(SHUTTING_DOWN)
                if last is None and not at_tail and session.tail().seq_num > start:
                    return None
                tail = next_seq if last is None else max(session.tail().seq_num, next_seq)
            if last is not None and last.tail is None:  # the bound ended the read while it was catching up
                tail = max(await tail_of(self._back, stream), next_seq)
            elif next_seq < tail and refusal is None:  # perhaps no record is left before the tail
                behind = await self._back.perform(Locate(stream.ref, FromSeqNum(next_seq)))
                if behind.at_tail:
                    next_seq = tail = max(behind.seq_num, next_seq)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
                raise
            tail = next_seq = error.failure.details["tail"]["seq_num"]  # type: ignore[index]
            if start > tail:
                raise fail(FailureCode.INVALID, f"offset {spell_offset(start)} is beyond the end") from None
            await check_kept(self._back, stream, request, start, tail)
        if refusal is not None and not bodies and next_seq == start:
            raise refusal
        return _Found(bodies, next_seq, tail if refusal is None else next_seq + 1, extents)


async def tail_of(back: Back, stream: KnownStream) -> int:
    """Return the sequence number of the next record of a stream."""
    return (await back.perform(CheckTail(stream.ref, create_if_missing=False))).seq_num


def read_from(stream: KnownStream, start: int, *, max_bytes: int | None, wait: float | None) -> Read:
    """Return the read of a stream from a sequence number on."""
    return Read(stream.ref, FromSeqNum(start), max_bytes=max_bytes, wait=wait, create_if_missing=False)


async def check_kept(back: Back, stream: KnownStream, request: ReadRequest, start: int, first_found: int) -> None:
    """Raise OFFSET_TRUNCATED if what was found does not begin at the sequence number where the client has come to, and
    records between them may be gone. A client that asked for the beginning begins with what is left.

    Sequence numbers may have gaps: some backs have numbers that no record has.
    """
    if first_found <= start or not isinstance(request.start, int):
        return
    first = (await back.perform(Locate(stream.ref, FromSeqNum(0)))).before_gap
    if first > start:
        raise fail(FailureCode.OFFSET_TRUNCATED, f"the data before offset {spell_offset(first)} is gone")


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
