"""The S3P front: commands become operations on a back, results become replies (S3P 0.2.0, section 8)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, cast

import structlog
import trio

from penstock.backs.base import Back
from penstock.fronts.draining import Draining
from penstock.fronts.s3p.appending import append_some
from penstock.fronts.s3p.link import Link
from penstock.fronts.s3p.reading import read_records
from penstock.fronts.s3p.settings import S3PSettings
from penstock.limits import current_seat, too_many
from penstock.metrics.clients import count_dropped, count_told
from penstock.policy.loss import take_in
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, RemoteProtocolError
from penstock_codecs.features import Feature
from penstock_codecs.model import metered_size
from penstock_codecs.operations import (
    Append,
    Appended,
    Capability,
    CreateStream,
    DeleteStream,
    FromRecordId,
    Read,
    Trim,
)
from penstock_codecs.s3p import (
    AppendedId,
    AppendRecords,
    Command,
    Create,
    Delete,
    Ok,
    ReadRecords,
    Reply,
    TrimRecords,
    error_reply,
)
from penstock_codecs.s3p.encoding import encode_reply

__all__ = ["S3PFront", "refuse_s3p", "serve_s3p"]

log = structlog.get_logger()

MOST_APPENDS_AT_ONCE: Final = 1024
"""Pipelined APPENDs that are handed to the back together; what they hold is bounded by what was read at once."""


class S3PFront:
    """Serves S3P connections over one back. `dropped` counts what the loss policy has left out since the start."""

    def __init__(self, back: Back, settings: S3PSettings | None = None) -> None:
        """Raises ValueError for a back that does not know S3P's identifiers, without which nothing can be said."""
        if Capability.RECORD_IDS not in back.capabilities:
            raise ValueError("S3P needs a back that keeps record identifiers")
        self.back = back
        self.settings = settings or S3PSettings()
        self.draining = Draining()
        self.dropped: Counter[Feature] = Counter()

    def drain(self) -> None:
        """The gateway is about to stop: commands under way are answered, then connections end. Call within trio."""
        self.draining.begin()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends, and close it. Never raises for what a client or the back does."""
        link = Link(stream, self.settings, self.draining)
        try:
            await _Connection(self, link).run()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            log.debug("connection_lost", reason=type(error).__name__)
        except Exception:
            log.exception("connection_failed")
        finally:
            link.forget()
            await trio.aclose_forcefully(stream)


async def refuse_s3p(stream: trio.abc.Stream, limit: str) -> None:
    """Tell a client that there is no room for it."""
    failure = Failure(FailureCode.LIMIT_EXCEEDED, f"{limit} is reached, try again later")
    await stream.send_all(encode_reply(error_reply(failure)))
    await stream.aclose()


async def serve_s3p(stream: trio.abc.Stream, back: Back, settings: S3PSettings | None = None) -> None:
    """Serve one connection that belongs to no front; see `S3PFront`."""
    await S3PFront(back, settings).serve(stream)


class _Connection:
    """One client: its commands one after the other."""

    def __init__(self, front: S3PFront, link: Link) -> None:
        self._front = front
        self._back = front.back
        self._settings = front.settings
        self._link = link
        self._seat = current_seat()

    async def run(self) -> None:
        """From the first command to the end of the connection."""
        try:
            while (command := await self._link.next_command()) is not None:
                if wait := self._seat.request():
                    await self._link.say(_refusal(too_many(wait).failure))
                elif isinstance(command, AppendRecords):
                    await self._append(command)
                else:
                    await self._link.say(await self._reply(command))
        except RemoteProtocolError as error:
            if error.failure.code is not FailureCode.CLIENT_HANGUP:
                log.info("protocol_error", code=error.failure.code.value, reason=error.failure.message)
                await self._link.say(_refusal(error.failure))
        await self._link.close()

    async def _reply(self, command: Command) -> Reply:
        try:
            reply = await self._carry_out(command)
            self._seat.admit()
            return reply
        except OperationFailed as error:
            if not self._seat.known:
                await self._seat.rest_in_turn()
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
                return await self._read(command)
            case AppendRecords():
                raise AssertionError("appends are run together")
        return Ok()

    async def _read(self, command: ReadRecords) -> Reply:
        await self._seat.answer_room()
        read = Read(
            self._settings.names.to_stream(command.name),
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
        """Run this APPEND and those to the same stream that have been received behind it."""
        pending = deque([self._append_operation(first)])
        while len(pending) < MOST_APPENDS_AT_ONCE and (more := self._link.append_at_hand(first.name)) is not None:
            pending.append(self._append_operation(more))
        while pending:
            for outcome in await self._outcomes(pending):
                pending.popleft()
                await self._link.say(_append_reply(outcome))

    async def _outcomes(self, pending: deque[Append | Failure]) -> Sequence[Appended | Failure]:
        """Of one or more from the front of the queue."""
        if isinstance(pending[0], Failure):
            return [pending[0]]
        self._seat.admit()
        together = list(takewhile(lambda one: isinstance(one, Append), pending))
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
    count_told(failure.code)
    return error_reply(failure)


def _append_reply(outcome: Appended | Failure) -> Reply:
    if isinstance(outcome, Failure):
        return _refusal(outcome)
    assert outcome.last_id is not None, "a back with RECORD_IDS gave none"
    return AppendedId(outcome.last_id)
