"""A worker's appends: encoded here, sequenced by the parent.

The worker predicts the outcome of an append from the stream's head as it knows it (`penstock.store.optimistic`). With
one writer per stream, the usual case, the prediction holds. If another process appends to the same stream, it fails:
the worker then sends that stream's appends without prediction until all its own in flight are acknowledged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from penstock.app.workers.calls import STORE_LOST, PendingCalls
from penstock.app.workers.channel import Channel, uncopied
from penstock.app.workers.messages import Acknowledged, Close, HandOver, Open, Reconfigured, SessionOpened
from penstock.core.identity import CLIENT
from penstock.store.admission import ByteBudget
from penstock.store.append_sessions import (
    RECORD_OVERHEAD_BYTES,
    AppendChain,
    KeyedAppend,
    StoreAppend,
    StoreAppendSession,
    append_alone,
)
from penstock.store.committer import Ticket
from penstock.store.optimistic import KnownHead, PreparedAppend, prepare
from penstock.store.settings import Clock
from penstock_codecs.byte_layout import Layout
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure
from penstock_codecs.model import RecordId, StreamPosition, StreamRef
from penstock_codecs.operations import Append, Appended
from penstock_codecs.streams import StreamConfig

__all__ = ["RemoteAppends"]

Work = Append | AppendBytes | KeyedAppend


class _AppendedStream:
    """A stream that this worker appends to. `known` is None while the worker cannot predict the next position."""

    def __init__(self, known: KnownHead) -> None:
        self.known: KnownHead | None = known
        self.config = known.config
        self.sessions = 0
        self.in_flight = 0


class _WorkerSession:
    """One append session of this worker."""

    def __init__(self, number: int, stream: _AppendedStream) -> None:
        self.number = number
        self.stream = stream


class _Sent:
    """An append that was sent to the parent. `wanted`: the predicted sequence number of its first record."""

    __slots__ = ("request", "session", "wanted")

    def __init__(
        self, request: StoreAppend[Work, _WorkerSession], session: _WorkerSession | None, wanted: int | None
    ) -> None:
        self.request = request
        self.session = session
        self.wanted = wanted


class RemoteAppends:
    """Sends appends to the parent, in order. Implements `AppendTarget`."""

    def __init__(
        self, channel: Channel, calls: PendingCalls, clock: Clock, inflight_bytes: int, envelopes: Layout
    ) -> None:
        self.admission = ByteBudget(inflight_bytes)
        self._channel = channel
        self._calls = calls
        self._clock = clock
        self._envelopes = envelopes
        self._streams: dict[int, _AppendedStream] = {}
        self._numbers = count(1)
        self._open: dict[int, _AppendedStream] = {}
        self._sent: dict[int, _Sent] = {}
        self._lost = False

    async def append(self, append: Append | AppendBytes) -> Appended:
        """Append once, outside a session; see `append_alone`."""
        return await append_alone(self, append)

    @asynccontextmanager
    async def session(
        self, ref: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[StoreAppendSession[Work, _WorkerSession]]:
        """Open a session of pipelined appends to one stream; see `Back.append_session`."""
        number, key = next(self._numbers), CLIENT.get().encryption_key
        try:
            opened: SessionOpened = await self._calls.call(
                lambda call: Open(call, number, ref, create_config, create_if_missing, key)
            )
            stream = self._open[number] = self._stream_of(opened)
            try:
                used = None if opened.head.cipher is None else key
                yield StoreAppendSession(self, _WorkerSession(number, stream), used)
            finally:
                del self._open[number]
                stream.sessions -= 1
                if not stream.sessions:
                    self._streams.pop(opened.stream, None)
        finally:
            self._channel.post(Close(number))

    def _stream_of(self, opened: SessionOpened) -> _AppendedStream:
        stream = self._streams.get(opened.stream)
        if stream is None:
            stream = self._streams[opened.stream] = _AppendedStream(KnownHead.of(opened.head, opened.config))
        elif not stream.in_flight:
            stream.config = opened.config
            stream.known = KnownHead.of(opened.head, opened.config)
        stream.sessions += 1
        return stream

    # ---- Appending ----

    def requested(
        self, append: Work, target: _WorkerSession | None, chain: AppendChain, ticket: Ticket[Appended]
    ) -> StoreAppend[Work, _WorkerSession]:
        """See `AppendTarget.requested`."""
        records = append.append if isinstance(append, KeyedAppend) else append
        if isinstance(records, Append):
            size = records.metered + RECORD_OVERHEAD_BYTES * len(records.bodies)
        else:
            size = 2 * len(records.data) + RECORD_OVERHEAD_BYTES
        return StoreAppend(self, append, size, target, chain, ticket)

    def sequence(self, request: StoreAppend[Work, _WorkerSession], work: Work, target: _WorkerSession | None) -> None:
        """Send the append to the parent, which sequences it."""
        call = self._calls.number()
        if self._lost:
            self._failed(_Sent(request, target, None), STORE_LOST)
            return
        prepared = None if target is None else self._prepared(target.stream, work, request.size)
        self._sent[call] = _Sent(request, target, None if prepared is None else prepared.first_seq)
        if target is None:
            self._channel.post(HandOver(call, 0, work))
            return
        target.stream.in_flight += 1
        if prepared is None:
            self._channel.post(HandOver(call, target.number, work))
        else:
            self._channel.post((call, target.number, uncopied(prepared.payload), *prepared[1:]))

    def refuse(self, request: StoreAppend[Work, _WorkerSession], failure: Failure) -> None:
        """See `AppendTarget.refuse`: a worker refuses no append itself."""
        request.ticket.fail(failure)

    def _prepared(self, stream: _AppendedStream, work: Work, size: int) -> PreparedAppend | None:
        if stream.known is None or not isinstance(work, Append):
            stream.known = None
            return None
        decided = prepare(work, stream.known, self._clock(), self._envelopes, size)
        if decided is None:
            stream.known = None  # only the store can tell the outcome
            return None
        prepared, stream.known = decided
        return prepared

    # ---- answers ----

    def reconfigured(self, told: Reconfigured) -> None:
        """Stop predicting until the session's stream is idle: its timestamping rules have changed."""
        stream = self._open.get(told.session)
        if stream is not None:
            stream.config, stream.known = told.config, None

    def acknowledged(self, told: Acknowledged) -> None:
        """Resolve an append that has become durable."""
        call, first_seq, first_ms, next_seq, last_ms, last_id_seq, offset, tail_seq, tail_ms = told
        sent = self._sent.pop(call, None)
        if sent is None:
            return
        request, last_id = sent.request, RecordId(last_ms, last_id_seq)
        if sent.session is not None:
            stream = sent.session.stream
            stream.in_flight -= 1
            if sent.wanted is not None and sent.wanted != first_seq:
                stream.known = None
            if stream.known is None and not stream.in_flight:
                stream.known = KnownHead(next_seq, last_id, offset, stream.config)
        start, end = StreamPosition(first_seq, first_ms), StreamPosition(next_seq, last_ms)
        request.ticket.resolve(Appended(start, end, StreamPosition(tail_seq, tail_ms), last_id, offset))
        self.admission.leave(request.size)

    def failed(self, call: int, failure: Failure) -> bool:
        """Fail an append and all that its session sent after it. Return whether the call was an append."""
        sent = self._sent.pop(call, None)
        if sent is None:
            return False
        session = sent.session
        if session is not None:
            later = [number for number, other in self._sent.items() if other.session is session and number > call]
            for number in later:
                self.admission.leave(self._sent.pop(number).request.size)
            session.stream.in_flight -= 1 + len(later)
            session.stream.known = None
        self._failed(sent, failure)
        return True

    def _failed(self, sent: _Sent, failure: Failure) -> None:
        sent.request.break_chain()
        sent.request.ticket.fail(failure)
        self.admission.leave(sent.request.size)

    def lose(self) -> None:
        """Fail every append in flight, and all later ones: the parent is gone, so whether they are durable is
        unknown."""
        self._lost = True
        while self._sent:
            self.failed(next(iter(self._sent)), STORE_LOST)
