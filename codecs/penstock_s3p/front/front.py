"""S3P front: commands become operations on a back, results become replies (S3P 0.2.0, section 8).

APPEND: pipelined commands share a group commit and still behave as if run one by one.

READ: a back's batches become one reply (S3P 0.2.0, section 8.3).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import takewhile
from typing import Final, cast

import msgspec
import structlog
import trio
from msgspec.structs import replace

from penstock.core.back import AppendSession, Back, Following, ReadSession
from penstock.model.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError, fail
from penstock.model.features import Feature
from penstock.model.operations import (
    Append,
    Appended,
    Capability,
    CreateStream,
    DeleteStream,
    FromRecordId,
    Read,
    Trim,
)
from penstock.model.records import U64_MAX, RecordBatch, RecordId, StreamRef, metered_size
from penstock.net.draining import Draining
from penstock.net.limits.limiter import too_many
from penstock.observe.metrics.clients import count_dropped, count_error
from penstock.routing.loss.loss import LossPolicy, LossRefusal, carry, take_in
from penstock_s3p.codec import (
    AppendedId,
    AppendRecords,
    Command,
    Create,
    Delete,
    Ok,
    ReadRecords,
    Records,
    Reply,
    TrimRecords,
    error_reply,
)
from penstock_s3p.codec.encoding import encode_reply
from penstock_s3p.front.link import S3PLink
from penstock_s3p.front.settings import S3PSettings

__all__ = ["S3PFront", "WaitForNext", "append_some", "read_records", "refuse_s3p", "serve_s3p"]

log = structlog.get_logger()

WaitForNext = Callable[[ReadSession, float], Awaitable[RecordBatch | Following | None]]
"""`session.next()` until a trio time. None at that time, at the end, or once the reply is no longer wanted."""
MOST_AT_ONCE: Final = 1000
_NOTHING_THERE = frozenset({FailureCode.RANGE_NOT_SATISFIABLE})
_GONE = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND, FailureCode.STREAM_DELETION_PENDING})
MOST_APPENDS_AT_ONCE: Final = 1024
"""Most pipelined APPENDs that are passed to the back together; their bytes are bounded by the size of one read."""


async def append_some(back: Back, appends: Sequence[Append]) -> list[Appended | Failure]:
    """Perform appends to one stream; return the outcomes of the first ones, up to and including the first failure.

    Appends behind a failure have not been applied, as `AppendSession` guarantees: the caller passes them again. So each
    append sees the effects of those before it, and one's failure does not affect the next.
    """
    if len(appends) == 1:
        try:
            return [await back.perform(appends[0])]
        except OperationFailed as error:
            return [error.failure]
    session = back.append_session(appends[0].stream, create_if_missing=False)
    outcomes: list[Appended | Failure] = []
    try:
        await _through(session, appends, outcomes)
    except OperationFailed as error:
        outcomes.append(error.failure)
    return outcomes


async def _through(
    entering: AbstractAsyncContextManager[AppendSession],
    appends: Sequence[Append],
    outcomes: list[Appended | Failure],
) -> None:
    failed: OperationFailed | None = None
    async with entering as session, trio.open_nursery() as nursery:
        nursery.start_soon(_send, session, appends)
        try:
            while len(outcomes) < len(appends):
                outcomes += await session.receive()
        except OperationFailed as error:
            failed = error
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed


async def _send(session: AppendSession, appends: Sequence[Append]) -> None:
    for append in appends:
        await session.send(append)
    session.close()


class _Found(msgspec.Struct):
    """Result of one READ so far; `seen` counts the records read, delivered or not."""

    timestamps: list[int] = msgspec.field(default_factory=list)
    seqs: list[int] = msgspec.field(default_factory=list)
    bodies: list[bytes] = msgspec.field(default_factory=list)
    seen: int = 0
    last: RecordId | None = None
    refusal: LossRefusal | None = None
    dropped: Counter[Feature] = msgspec.field(default_factory=Counter)

    def add(self, batch: RecordBatch, policy: LossPolicy) -> None:
        """Add the deliverable records of a batch."""
        carried = carry(batch, policy)
        self.timestamps += carried.timestamps
        self.seqs += carried.seqs
        self.bodies += carried.bodies
        self.dropped += carried.dropped
        self.refusal = carried.refusal
        self.seen += batch.count
        self.last = carried.last

    @property
    def settled(self) -> bool:
        """True once the client can be answered without waiting for more."""
        return bool(self.bodies) or self.refusal is not None


async def read_records(
    back: Back, read: Read, policy: LossPolicy, wait_for_next: WaitForNext
) -> tuple[Records, Counter[Feature]]:
    """Return up to `read.count` records, and counts of what the policy dropped before them.

    Existing records are returned at once; if there are none, wait up to `read.wait` seconds for the first. Records that
    the policy drops neither end a wait nor count as an answer: reading continues behind them.

    Raises NOT_REPRESENTABLE if the policy refuses the first deliverable record, and whatever the back raises, except if
    the stream is deleted during the wait: then no records are returned.
    """
    deadline = trio.current_time() + read.wait if read.wait else -math.inf
    most = read.count or MOST_AT_ONCE
    records_read = _Found()
    while True:
        seen = records_read.seen
        await _read_on(back, read, policy, wait_for_next, deadline, records_read, most)
        if records_read.settled or records_read.seen == seen or records_read.last is None:
            break
        # Everything up to the count or bytes was dropped. Search for more behind it, in large steps.
        wait = max(0.0, deadline - trio.current_time()) if read.wait else 0.0
        read = replace(read, start=FromRecordId(_after(records_read.last)), count=max(most, MOST_AT_ONCE), wait=wait)
    if records_read.refusal is not None and not records_read.bodies:
        record_id, feature = records_read.refusal
        raise fail(
            FailureCode.NOT_REPRESENTABLE,
            f"record {record_id} of stream {read.stream} {feature.value}, which S3P cannot carry; "
            f"read from MIN_ID {_after(record_id)} to skip it",
        )
    return Records(
        records_read.timestamps[:most], records_read.seqs[:most], records_read.bodies[:most]
    ), records_read.dropped


async def _read_on(
    back: Back,
    read: Read,
    policy: LossPolicy,
    wait_for_next: WaitForNext,
    deadline: float,
    records_read: _Found,
    most: int,
) -> None:
    """Run one read session until it ends, the answer is complete, or time is up."""
    waiting = False
    try:
        async with back.read_session(read) as session:
            while records_read.refusal is None and len(records_read.bodies) < most:
                got = await (wait_for_next(session, deadline) if waiting else session.next())
                if got is None or (isinstance(got, Following) and records_read.settled):
                    return
                if isinstance(got, Following):
                    waiting = True
                    continue
                records_read.add(got, policy)
                if waiting and records_read.settled:
                    return
    except OperationFailed as error:
        code = error.failure.code
        if not (code in _NOTHING_THERE or (waiting and code in _GONE)):
            raise


def _after(record_id: RecordId) -> RecordId:
    """Return the next larger identifier."""
    if record_id.seq < U64_MAX:
        return RecordId(record_id.ms, record_id.seq + 1)
    return RecordId(record_id.ms + 1, 0)


class S3PFront:
    """Front that serves S3P connections over one back.

    `dropped` counts by feature what the loss policy has dropped since the start.
    """

    def __init__(self, back: Back, settings: S3PSettings | None = None) -> None:
        """Raise ValueError for a back without record identifiers, which S3P needs."""
        if Capability.RECORD_IDS not in back.capabilities:
            raise ValueError("S3P needs a back that keeps record identifiers")
        self.back = back
        self.settings = settings or S3PSettings()
        self.draining = Draining()
        self.dropped: Counter[Feature] = Counter()

    def drain(self) -> None:
        """Begin to shut down: finish the commands in progress, then end the connections. Must be called within trio."""
        self.draining.begin()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends, and close it. Never raises for errors of a client or the back."""
        link = S3PLink(stream, self.settings, self.draining)
        try:
            await _Connection(self, link).run()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            log.debug("connection_lost", reason=type(error).__name__)
        except Exception:
            log.exception("connection_failed")
        finally:
            await link.cut()


async def refuse_s3p(stream: trio.abc.Stream, limit: str) -> None:
    """Refuse a connection because `limit` is reached, and close it."""
    failure = Failure(FailureCode.LIMIT_EXCEEDED, f"{limit} is reached, try again later")
    await stream.send_all(encode_reply(error_reply(failure)))
    await stream.aclose()


async def serve_s3p(stream: trio.abc.Stream, back: Back, settings: S3PSettings | None = None) -> None:
    """Serve one connection with a front of its own; see `S3PFront`."""
    await S3PFront(back, settings).serve(stream)


class _Connection:
    """Connection of one client, whose commands are run in order."""

    __slots__ = ("_back", "_front", "_link", "_quota", "_settings")

    def __init__(self, front: S3PFront, link: S3PLink) -> None:
        self._front = front
        self._back = front.back
        self._settings = front.settings
        self._link = link
        self._quota = link.quota

    async def run(self) -> None:
        """Serve commands until the connection ends."""
        try:
            while (command := await self._link.next_command()) is not None:
                if wait := self._quota.request():
                    await self._link.send(_refusal(too_many(wait).failure))
                elif isinstance(command, AppendRecords):
                    await self._append(command)
                else:
                    await self._link.send(await self._reply(command))
        except RemoteProtocolError as error:
            if error.failure.code is not FailureCode.CLIENT_HANGUP:
                log.info("protocol_error", code=error.failure.code.value, reason=error.failure.message)
                await self._link.send(_refusal(error.failure))
        await self._link.close()

    async def _reply(self, command: Command) -> Reply:
        try:
            reply = await self._carry_out(command)
            self._quota.admit()
            return reply
        except OperationFailed as error:
            if not self._quota.authenticated:
                await self._quota.rest_in_turn()
            return _refusal(error.failure)

    async def _carry_out(self, command: Command) -> Reply:
        stream = self._settings.names.to_stream(command.name)
        match command:
            case Create():
                await self._back.perform(CreateStream(stream, self._settings.create_config))
            case Delete():
                await self._back.perform(DeleteStream(stream))
            case TrimRecords():
                await self._back.perform(Trim(stream, FromRecordId(command.min_id)))
            case ReadRecords():
                return await self._read(command, stream)
            case AppendRecords():
                raise AssertionError("appends are run together")
        return Ok()

    async def _read(self, command: ReadRecords, stream: StreamRef) -> Reply:
        await self._quota.answer_room()
        read = Read(
            stream,
            FromRecordId(command.min_id),
            count=command.count,
            max_bytes=self._settings.max_read_bytes,
            wait=command.block_ms / 1000,
            create_if_missing=False,
        )
        records, dropped = await read_records(self._back, read, self._settings.loss, self._link.wait_for_next)
        if dropped:
            self._front.dropped += dropped
            count_dropped(dropped)
            log.info(
                "records_dropped", stream=str(read.stream), **{kind.name.lower(): n for kind, n in dropped.items()}
            )
        return records

    # ---- appends -------------------------------------------------------------------------------------------------

    async def _append(self, first: AppendRecords) -> None:
        """Run this APPEND together with those to the same stream that have been received behind it."""
        pending = deque([self._append_operation(first)])
        while len(pending) < MOST_APPENDS_AT_ONCE and (more := self._link.append_at_hand(first.name)) is not None:
            pending.append(self._append_operation(more))
        while pending:
            for outcome in await self._outcomes(pending):
                pending.popleft()
                await self._link.send(_append_reply(outcome))

    async def _outcomes(self, pending: deque[Append | Failure]) -> Sequence[Appended | Failure]:
        """Return the outcomes of one or more appends from the front of the queue."""
        if isinstance(pending[0], Failure):
            return [pending[0]]
        self._quota.admit()
        together = list(takewhile(lambda operation: isinstance(operation, Append), pending))
        return await append_some(self._back, cast("list[Append]", together))

    def _append_operation(self, command: AppendRecords) -> Append | Failure:
        try:
            stream = self._settings.names.to_stream(command.name)
            bodies, headers = take_in(command.bodies, self._settings.loss)
        except OperationFailed as error:
            return error.failure
        return Append(
            stream,
            bodies,
            metered_size(bodies, headers),
            headers=headers,
            exact_timestamp=command.ms,
            create_if_missing=False,
        )


def _refusal(failure: Failure) -> Reply:
    count_error(failure.code)
    return error_reply(failure)


def _append_reply(outcome: Appended | Failure) -> Reply:
    if isinstance(outcome, Failure):
        return _refusal(outcome)
    if outcome.last_id is None:
        what = f"records {outcome.start.seq_num} to {outcome.end.seq_num - 1}"
        reason = f"{what} are stored, but the server was lost before it told their identifiers"
        return _refusal(Failure(FailureCode.UNAVAILABLE, reason))
    return AppendedId(outcome.last_id)
