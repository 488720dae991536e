"""Writer of one stream's appends: connects, sends, and recovers from lost connections."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import suppress

import structlog
import trio
from msgspec.structs import replace

from penstock.core.delivery import Delivery
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.net.retries import RetryPolicy, retry_after, tried_again, worth_retrying
from penstock.net.upstream import doubtful
from penstock.wire.compression import Compression
from penstock_s2.back.append_queue import AppendQueue
from penstock_s2.back.calls import S2S, encryption_key
from penstock_s2.back.conversation import Ending, EndingKind, QueueSession
from penstock_s2.back.pending import PendingAppend
from penstock_s2.back.recovery import AppendRecovery
from penstock_s2.back.shared import Shared
from penstock_s2.back.unary import records_path
from penstock_s2.codec.json_config import encode_stream_config

__all__ = ["S2Writer"]

_log = structlog.get_logger()

_OF_ALL = frozenset(
    {
        FailureCode.STREAM_NOT_FOUND,
        FailureCode.BASIN_NOT_FOUND,
        FailureCode.STREAM_DELETION_PENDING,
        FailureCode.BASIN_DELETION_PENDING,
        FailureCode.AUTHN,
        FailureCode.PERMISSION_DENIED,
    }
)
"""Errors that concern the stream or the token, not one append."""
_GONE = _OF_ALL - {FailureCode.AUTHN, FailureCode.PERMISSION_DENIED}
"""Errors after which nothing that was sent exists any more either."""
_CODINGS = {Compression.ZSTD: "zstd", Compression.GZIP: "gzip"}


class _Opening:
    """Waiter for the session to open. `config` is the stream's if opening may create it."""

    def __init__(self, config: StreamConfig | None) -> None:
        self.config = config
        self.over = trio.Event()
        self.failure: Failure | None = None


class S2Writer:
    """Writer of the appends to one stream with one token. `users` counts the tasks that may hand over more."""

    def __init__(self, shared: Shared, stream: StreamRef, on_end: Callable[[], object]) -> None:
        self.queue = AppendQueue(shared, stream)
        self.users = 0
        self._shared = shared
        self._stream = stream
        self._on_end = on_end
        self._recovery = AppendRecovery(shared, self.queue)
        self._openings: list[_Opening] = []
        self._open = False
        self._advised_at = -math.inf
        first, most = shared.settings.backoff_seconds
        self._pauses = RetryPolicy(first_seconds=first, most_seconds=most)
        self._setbacks = 0
        self._give_up_at: float | None = None
        self._acknowledged = 0

    async def ready(self, config: StreamConfig | None) -> None:
        """Wait until the session is open. Raises OperationFailed if it cannot be opened, which is tried once."""
        if self._open:
            await trio.lowlevel.checkpoint()
            return
        opening = _Opening(config)
        self._openings.append(opening)
        self.queue.wake()
        try:
            await opening.over.wait()
        finally:
            with suppress(ValueError):
                self._openings.remove(opening)
        if opening.failure is not None:
            raise OperationFailed(opening.failure)

    async def run(self) -> None:
        """Send appends until none are left and the writer has no users."""
        try:
            while await self._needed():
                await self._once()
        finally:
            self._on_end()

    async def _needed(self) -> bool:
        while not (self.queue.busy or self._openings):
            if not self.users:
                return False
            await self.queue.news()
        return True

    # ---- one connection ------------------------------------------------------------------------------------------

    async def _once(self) -> None:
        try:
            await self._recovery.settle()
            ending = await self._session()
        except OperationFailed as error:
            self._answer_openings(error.failure)
            self._note_progress()
            await self._not_opened(error.failure)
        else:
            await self._ended(ending)

    async def _session(self) -> Ending:
        """Run one session to its end and return how it ended. Raises OperationFailed if it cannot be opened."""
        path = records_path(self._stream)
        async with self._shared.calls.open("POST", path, self._stream.basin, self._headers(), "") as stream:
            head = await stream.receive_head()
            if head.status != 200:
                raise OperationFailed(await self._shared.calls.refusal(stream, head))
            self._shared.calls.check_media(head, S2S)
            self._answer_openings(None)
            self._open = True
            try:
                return await self._talk(QueueSession(stream, self.queue, self._shared, self._heeds_advice()))
            finally:
                self._open = False

    async def _talk(self, conversation: QueueSession) -> Ending:
        ending = await conversation.run()
        if conversation.advised:
            self._advised_at = trio.current_time()
            _log.info("back_reconnect_advised", stream=str(self._stream))
        return ending

    def _heeds_advice(self) -> bool:
        return trio.current_time() >= self._advised_at + self._shared.settings.advised_reconnect_seconds

    def _headers(self) -> list[tuple[str, str]]:
        headers = [("content-type", S2S), ("accept", S2S), *encryption_key()]
        coding = _CODINGS.get(self._shared.settings.compression)
        if coding is not None:
            headers.append(("accept-encoding", coding))
        configs = [opening.config for opening in self._openings] + [
            each.append.create_config for each in self.queue.waiting
        ]
        config = next((each for each in configs if each is not None), None)
        if config is not None:
            headers.append(("s2-stream-config", encode_stream_config(config).decode()))
        return headers

    def _answer_openings(self, failure: Failure | None) -> None:
        openings, self._openings = self._openings, []
        for opening in openings:
            opening.failure = failure
            opening.over.set()

    # ---- failures ------------------------------------------------------------------------------------------------

    async def _not_opened(self, failure: Failure) -> None:
        if not self.queue.busy:
            return
        if not worth_retrying(failure) or failure.code in _OF_ALL:
            self.queue.fail_all(lambda pending: _refused_all(pending, failure))
        elif self._give_up_at is None and not any(each.doubtful for each in self.queue.waiting):
            self.queue.fail_all(lambda _: failure)  # nothing was in flight: clients may retry
        else:
            await self._set_back(failure)

    async def _ended(self, ending: Ending) -> None:
        queue = self.queue
        progress = self._note_progress()
        failure = ending.failure
        if failure is None:
            queue.forget_tail()
            if queue.busy and not progress:
                await self._set_back(self._shared.calls.lost("the server closed the session"))
        elif ending.kind is EndingKind.REFUSED and queue.in_flight and not failure.retryable:
            await self._refused(failure)
        else:
            if ending.kind is EndingKind.REFUSED and not failure.retryable and failure.code not in _OF_ALL:
                failure = self._shared.calls.broke(f"it refused while no append was in flight: {failure.message}")
            self._lost(failure)
            if not worth_retrying(failure):
                queue.fail_all(lambda pending: _refused_all(pending, failure))
            elif queue.busy:
                await self._set_back(failure)

    def _note_progress(self) -> bool:
        """Return whether anything was acknowledged since the last call.

        If so, reset the backoff and the deadline for recovery.
        """
        if self.queue.acknowledged == self._acknowledged:
            return False
        self._acknowledged = self.queue.acknowledged
        self._setbacks, self._give_up_at = 0, None
        return True

    async def _refused(self, failure: Failure) -> None:
        """Handle the server's refusal of the oldest append in flight; it applied none after it."""
        queue = self.queue
        pending = queue.in_flight[0]
        queue.put_back()
        queue.forget_tail()
        own = failure.code is FailureCode.SEQ_NUM_MISMATCH and pending.append.match_seq_num is None
        next_number = failure.details.get("seq_num_mismatch")
        if failure.code in _OF_ALL:
            queue.fail_all(lambda pending: _refused_all(pending, failure))
        elif pending.doubtful:
            pending.refused = failure  # its own earlier application may be the reason
            await self._set_back(failure, pause=False)
        elif not own or not isinstance(next_number, int):
            queue.waiting.popleft()
            queue.fail(pending, failure)
        elif next_number < queue.end:
            message = f"stream {self._stream} was deleted and created again"
            queue.fail_all(lambda _: Failure(FailureCode.STREAM_NOT_FOUND, message))
        else:
            queue.forget_tail(next_number)  # another client appended first
            await self._set_back(failure, pause=False)

    def _lost(self, failure: Failure) -> None:
        """Mark the appends in flight as possibly applied, or fail them if delivery is REFUSE.

        After a failure without side effects they are sent again; EXACTLY_ONCE makes sure in any case that they were not
        applied.
        """
        queue = self.queue
        sent = list(queue.in_flight)
        queue.put_back()
        queue.forget_tail()
        delivery = self._shared.settings.delivery
        if not failure.side_effect_possible and delivery is not Delivery.EXACTLY_ONCE:
            return
        if delivery is Delivery.REFUSE:
            for pending in sent:
                queue.waiting.remove(pending)
                queue.fail(pending, doubtful(failure))
            return
        for pending in sent:
            pending.doubtful = pending.number is not None
            pending.unsure = pending.number is None

    async def _set_back(self, failure: Failure, *, pause: bool = True) -> None:
        """Wait before the next try, or fail all appends once `recover_seconds` have passed."""
        now = trio.current_time()
        if self._give_up_at is None:
            self._give_up_at = now + self._shared.settings.recover_seconds
            _log.info("back_append_interrupted", stream=str(self._stream), reason=failure.message)
        if now >= self._give_up_at:
            self._give_up_at = None
            self.queue.fail_all(lambda pending: _given_up(pending, failure))
            return
        self._setbacks += 1
        tried_again(self._shared.calls.back)
        if pause:
            await trio.sleep(max(self._pauses.pause(self._setbacks, random.random()), retry_after(failure)))


def _given_up(pending: PendingAppend, failure: Failure) -> Failure:
    """Return the failure of an append that is given up.

    UNAVAILABLE if it may have been applied, else HOT_SERVER or the server's own fault.
    """
    if pending.doubtful or pending.unsure:
        return doubtful(replace(failure, message=f"{failure.message}; it may have been applied"))
    if failure.code is FailureCode.UPSTREAM_FAULT or (failure.retryable and not failure.side_effect_possible):
        return failure
    return Failure(FailureCode.HOT_SERVER, failure.message)


def _refused_all(pending: PendingAppend, failure: Failure) -> Failure:
    """Return the failure of an append when the server refuses to continue, which says nothing of earlier tries."""
    return failure if failure.code in _GONE or not (pending.doubtful or pending.unsure) else _given_up(pending, failure)
