"""Appends records to a stream as they arrive on an input."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Final

import msgspec
import trio

from penstock.app.streams.formats import BadInput, NewRecord, RecordParser
from penstock.core.back import AppendSession, Back
from penstock.model.failures import OperationFailed
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS
from penstock.model.operations import Append, Appended
from penstock.model.records import Headers, StreamPosition, StreamRef, metered_size

__all__ = ["AppendSettings", "AppendSummary", "append_input", "divided"]

_BATCH_BYTES: Final = MAX_BATCH_BYTES // 2
"""Metered bytes of a batch; the rest of what servers allow is for envelopes."""


class AppendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an append.

    `headers`: added to each record. `timestamps`: whether the server is given those of the input. `match_seq_num`: the
    sequence number that the first record must get, so that no other writer's record comes before or between; None: any.
    `fencing_token`: the stream's; None: unchecked.
    """

    headers: Headers = ()
    timestamps: bool = True
    match_seq_num: int | None = None
    fencing_token: str | None = None


class AppendSummary(msgspec.Struct):
    """The acknowledged records: `count` of them, from `start` up to `end`."""

    count: int = 0
    start: StreamPosition | None = None
    end: StreamPosition | None = None
    on_progress: Callable[[Appended], object] = lambda _appended: None

    def add(self, appended: Appended) -> None:
        """Count a batch's acknowledgement."""
        self.count += appended.end.seq_num - appended.start.seq_num
        self.start = self.start or appended.start
        self.end = appended.end
        self.on_progress(appended)


async def append_input(
    back: Back,
    stream: StreamRef,
    pieces: AsyncGenerator[bytes, None],
    parser: RecordParser,
    settings: AppendSettings,
    summary: AppendSummary,
) -> None:
    """Append the records of an input. The records that a piece completes are one batch, or several if they are many, so
    those that a person types are appended at once.

    Raises BadInput when the records before the wrong one have been acknowledged, and OperationFailed. `summary` counts
    what was acknowledged in any case.
    """
    failure: BadInput | OperationFailed | None = None

    async def send(session: AppendSession) -> None:
        nonlocal failure
        expected = settings.match_seq_num
        try:
            async with aclosing(_batches(pieces, parser)) as batches:
                async for batch in batches:
                    await session.send(_append(stream, batch, settings, expected))
                    expected = None if expected is None else expected + len(batch)
        except BadInput as error:
            failure = error
        session.close()

    async with back.append_session(stream) as session, trio.open_nursery() as nursery:
        nursery.start_soon(send, session)
        try:
            while acknowledged := await session.receive():
                for appended in acknowledged:
                    summary.add(appended)
        except OperationFailed as error:  # raised again outside of the nursery, which would wrap it in a group
            failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _batches(pieces: AsyncGenerator[bytes, None], parser: RecordParser) -> AsyncGenerator[list[NewRecord], None]:
    async with aclosing(pieces):
        async for piece in pieces:
            for batch in divided(parser.receive(piece)):
                yield batch
    for batch in divided(parser.end()):
        yield batch


def divided(records: Iterable[NewRecord]) -> Iterator[list[NewRecord]]:
    """Divide records into batches that any server takes. Raises BadInput when those before the wrong one have been
    yielded."""
    batch: list[NewRecord] = []
    size = 0
    wrong: BadInput | None = None
    try:
        for record in records:
            more = metered_size([record.body], {0: record.headers})
            if batch and (len(batch) == MAX_BATCH_RECORDS or size + more > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(record)
            size += more
    except BadInput as error:
        wrong = error
    if batch:
        yield batch
    if wrong is not None:
        raise wrong


def _append(stream: StreamRef, batch: list[NewRecord], settings: AppendSettings, expected: int | None) -> Append:
    bodies = [record.body for record in batch]
    headers = {index: some for index, record in enumerate(batch) if (some := (*record.headers, *settings.headers))}
    timestamps = [record.timestamp for record in batch] if settings.timestamps else []
    return Append(
        stream,
        bodies,
        metered_size(bodies, headers),
        headers,
        timestamps if any(at is not None for at in timestamps) else None,
        match_seq_num=expected,
        fencing_token=settings.fencing_token,
    )
