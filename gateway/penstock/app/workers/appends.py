"""A worker's appends: encoded here, sequenced by the parent.

The worker predicts the outcome of an append from the stream's head as it knows it (`penstock.store.optimistic`). With
one writer per stream, the usual case, the prediction holds. If another process appends to the same stream, it fails:
the worker then sends that stream's appends without prediction until all its own in flight are acknowledged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from penstock.app.workers.calls import LOST, Calls
from penstock.app.workers.channel import Channel, uncopied
from penstock.app.workers.messages import Acknowledged, Close, HandOver, Open, Opened, Reconfigured
from penstock.store.admission import Admission
from penstock.store.append_sessions import RECORD_BYTES, Chain, Request, StoreAppendSession, append_alone
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

Work = Append | AppendBytes


class _AppendedStream:
    """A stream that this worker appends to. `known` is None while the worker cannot predict the next position."""

    def __init__(self, known: KnownHead) -> None:
        self.known: KnownHead | None = known
        self.config = known.config
        self.sessions = 0
        self.in_flight = 0


class _WorkerSession:
    """One append session of this worker."""

    def __init__(self, number: int, place: _AppendedStream) -> None:
        self.number = number
        self.place = place


class _Sent:
    """An append that was sent to the parent. `wanted`: the predicted sequence number of its first record."""

    __slots__ = ("lane", "request", "wanted")

    def __init__(self, request: Request[Work, _WorkerSession], lane: _WorkerSession | None, wanted: int | None) -> None:
        self.request = request
        self.lane = lane
        self.wanted = wanted


class RemoteAppends:
    """Sends appends to the parent, in order. Implements `Appending`."""

    def __init__(self, channel: Channel, calls: Calls, clock: Clock, inflight_bytes: int, envelopes: Layout) -> None:
        self.admission = Admission(inflight_bytes)
        self._channel = channel
        self._calls = calls
        self._clock = clock
        self._envelopes = envelopes
        self._places: dict[int, _AppendedStream] = {}
        self._lanes = count(1)
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
        number = next(self._lanes)
        try:
            opened: Opened = await self._calls.call(
                lambda call: Open(call, number, ref, create_config, create_if_missing)
            )
            place = self._open[number] = self._place(opened)
            try:
                yield StoreAppendSession(self, _WorkerSession(number, place))
            finally:
                del self._open[number]
                place.sessions -= 1
                if not place.sessions:
                    self._places.pop(opened.stream, None)
        finally:
            self._channel.post(Close(number))

    def _place(self, opened: Opened) -> _AppendedStream:
        place = self._places.get(opened.stream)
        if place is None:
            place = self._places[opened.stream] = _AppendedStream(KnownHead.of(opened.head, opened.config))
        elif not place.in_flight:
            place.config = opened.config
            place.known = KnownHead.of(opened.head, opened.config)
        place.sessions += 1
        return place

    # ---- Appending ----

    def requested(
        self, append: Append | AppendBytes, place: _WorkerSession | None, chain: Chain, ticket: Ticket[Appended]
    ) -> Request[Work, _WorkerSession]:
        """See `Appending.requested`."""
        if isinstance(append, Append):
            size = append.metered + RECORD_BYTES * len(append.bodies)
        else:
            size = 2 * len(append.data) + RECORD_BYTES
        return Request(self, append, size, place, chain, ticket)

    def sequence(self, request: Request[Work, _WorkerSession], work: Work, place: _WorkerSession | None) -> None:
        """Send the append to the parent, which sequences it."""
        call = self._calls.number()
        if self._lost:
            self._failed(_Sent(request, place, None), LOST)
            return
        prepared = None if place is None else self._prepared(place.place, work, request.size)
        self._sent[call] = _Sent(request, place, None if prepared is None else prepared.first_seq)
        if place is None:
            self._channel.post(HandOver(call, 0, work))
            return
        place.place.in_flight += 1
        if prepared is None:
            self._channel.post(HandOver(call, place.number, work))
        else:
            self._channel.post((call, place.number, uncopied(prepared.payload), *prepared[1:]))

    def refuse(self, request: Request[Work, _WorkerSession], failure: Failure) -> None:
        """See `Appending.refuse`: a worker refuses no append itself."""
        request.ticket.fail(failure)

    def _prepared(self, place: _AppendedStream, work: Work, size: int) -> PreparedAppend | None:
        if place.known is None or not isinstance(work, Append):
            place.known = None
            return None
        decided = prepare(work, place.known, self._clock(), self._envelopes, size)
        if decided is None:
            place.known = None  # only the store can tell the outcome
            return None
        prepared, place.known = decided
        return prepared

    # ---- answers ----

    def reconfigured(self, told: Reconfigured) -> None:
        """Stop predicting until the session's stream is idle: its timestamping rules have changed."""
        place = self._open.get(told.lane)
        if place is not None:
            place.config, place.known = told.config, None

    def acknowledged(self, told: Acknowledged) -> None:
        """Resolve an append that has become durable."""
        call, first_seq, first_ms, next_seq, last_ms, last_id_seq, offset, tail_seq, tail_ms = told
        sent = self._sent.pop(call, None)
        if sent is None:
            return
        request, last_id = sent.request, RecordId(last_ms, last_id_seq)
        if sent.lane is not None:
            place = sent.lane.place
            place.in_flight -= 1
            if sent.wanted is not None and sent.wanted != first_seq:
                place.known = None
            if place.known is None and not place.in_flight:
                place.known = KnownHead(next_seq, last_id, offset, place.config)
        start, end = StreamPosition(first_seq, first_ms), StreamPosition(next_seq, last_ms)
        request.ticket.resolve(Appended(start, end, StreamPosition(tail_seq, tail_ms), last_id, offset))
        self.admission.leave(request.size)

    def failed(self, call: int, failure: Failure) -> bool:
        """Fail an append and all that its session sent after it. Return whether the call was an append."""
        sent = self._sent.pop(call, None)
        if sent is None:
            return False
        lane = sent.lane
        if lane is not None:
            later = [number for number, other in self._sent.items() if other.lane is lane and number > call]
            for number in later:
                self.admission.leave(self._sent.pop(number).request.size)
            lane.place.in_flight -= 1 + len(later)
            lane.place.known = None
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
            self.failed(next(iter(self._sent)), LOST)
