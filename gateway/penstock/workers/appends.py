"""A worker's appends on their way to the parent: encoded here, decided there.

An append is decided here too, on the head as this worker knows it (`penstock.store.foreseen`). With one writer per
stream, the usual case, that is how it will be. Where another process appends to the same stream it is not: then the
appends of that stream go as they are, until everything of this worker that is on its way has been acknowledged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from penstock.store.admission import Admission
from penstock.store.append_sessions import RECORD_BYTES, Chain, Request, StoreAppendSession, append_alone
from penstock.store.committer import Ticket
from penstock.store.foreseen import Foreseen, Known, foresee
from penstock.store.settings import Clock
from penstock.workers.calls import LOST, Calls
from penstock.workers.channel import Channel, uncopied
from penstock.workers.messages import Acknowledged, Close, HandOver, Open, Opened, Reconfigured
from penstock_codecs.byte_layout import Layout
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure
from penstock_codecs.model import RecordId, StreamPosition, StreamRef
from penstock_codecs.operations import Append, Appended
from penstock_codecs.streams import StreamConfig

__all__ = ["RemoteAppends"]

Work = Append | AppendBytes


class _Place:
    """A stream that this worker appends to. `known` is None while it cannot tell what comes next."""

    def __init__(self, known: Known) -> None:
        self.known: Known | None = known
        self.config = known.config
        self.sessions = 0
        self.in_flight = 0


class _Lane:
    """One session's way to the parent."""

    def __init__(self, number: int, place: _Place) -> None:
        self.number = number
        self.place = place


class _Sent:
    """An append that the parent has. `wanted`: the number that its first record was foreseen to get."""

    __slots__ = ("lane", "request", "wanted")

    def __init__(self, request: Request[Work, _Lane], lane: _Lane | None, wanted: int | None) -> None:
        self.request = request
        self.lane = lane
        self.wanted = wanted


class RemoteAppends:
    """Hands appends to the parent, in order. See `Appending`."""

    def __init__(self, channel: Channel, calls: Calls, clock: Clock, inflight_bytes: int, envelopes: Layout) -> None:
        self.admission = Admission(inflight_bytes)
        self._channel = channel
        self._calls = calls
        self._clock = clock
        self._envelopes = envelopes
        self._places: dict[int, _Place] = {}
        self._lanes = count(1)
        self._open: dict[int, _Place] = {}
        self._sent: dict[int, _Sent] = {}
        self._lost = False

    async def append(self, append: Append | AppendBytes) -> Appended:
        """Carry out one append; see `append_alone`."""
        return await append_alone(self, append)

    @asynccontextmanager
    async def session(
        self, ref: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[StoreAppendSession[Work, _Lane]]:
        """Pipelined appends to one stream; see `Back.append_session`."""
        number = next(self._lanes)
        try:
            opened: Opened = await self._calls.call(
                lambda call: Open(call, number, ref, create_config, create_if_missing)
            )
            place = self._open[number] = self._place(opened)
            try:
                yield StoreAppendSession(self, _Lane(number, place))
            finally:
                del self._open[number]
                place.sessions -= 1
                if not place.sessions:
                    self._places.pop(opened.stream, None)
        finally:
            self._channel.post(Close(number))

    def _place(self, opened: Opened) -> _Place:
        place = self._places.get(opened.stream)
        if place is None:
            place = self._places[opened.stream] = _Place(Known.of(opened.head, opened.config))
        elif not place.in_flight:
            place.config = opened.config
            place.known = Known.of(opened.head, opened.config)
        place.sessions += 1
        return place

    # ---- see Appending ----

    def requested(
        self, append: Append | AppendBytes, place: _Lane | None, chain: Chain, ticket: Ticket[Appended]
    ) -> Request[Work, _Lane]:
        """See `Appending.requested`."""
        if isinstance(append, Append):
            size = append.metered + RECORD_BYTES * len(append.bodies)
        else:
            size = 2 * len(append.data) + RECORD_BYTES
        return Request(self, append, size, place, chain, ticket)

    def sequence(self, request: Request[Work, _Lane], work: Work, place: _Lane | None) -> None:
        """Send it to where it is sequenced."""
        call = self._calls.number()
        if self._lost:
            self._failed(_Sent(request, place, None), LOST)
            return
        foreseen = None if place is None else self._foreseen(place.place, work, request.size)
        self._sent[call] = _Sent(request, place, None if foreseen is None else foreseen.first_seq)
        if place is None:
            self._channel.post(HandOver(call, 0, work))
            return
        place.place.in_flight += 1
        if foreseen is None:
            self._channel.post(HandOver(call, place.number, work))
        else:
            self._channel.post((call, place.number, uncopied(foreseen.payload), *foreseen[1:]))

    def refuse(self, request: Request[Work, _Lane], failure: Failure) -> None:
        """See `Appending.refuse`: nothing is ever refused here."""
        request.ticket.fail(failure)

    def _foreseen(self, place: _Place, work: Work, size: int) -> Foreseen | None:
        if place.known is None or not isinstance(work, Append):
            place.known = None
            return None
        decided = foresee(work, place.known, self._clock(), self._envelopes, size)
        if decided is None:
            place.known = None  # what comes of it only the store can tell
            return None
        foreseen, place.known = decided
        return foreseen

    # ---- answers ----

    def reconfigured(self, told: Reconfigured) -> None:
        """Timestamps are given by other rules from now on."""
        place = self._open.get(told.lane)
        if place is not None:
            place.config, place.known = told.config, None

    def acknowledged(self, told: Acknowledged) -> None:
        """One is durable."""
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
                place.known = Known(next_seq, last_id, offset, place.config)
        start, end = StreamPosition(first_seq, first_ms), StreamPosition(next_seq, last_ms)
        request.ticket.resolve(Appended(start, end, StreamPosition(tail_seq, tail_ms), last_id, offset))
        self.admission.leave(request.size)

    def failed(self, call: int, failure: Failure) -> bool:
        """One has failed, and with it all that its session sent later; gives whether the call was an append."""
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
        """The parent has gone: whether what it was sent is durable nobody knows."""
        self._lost = True
        while self._sent:
            self.failed(next(iter(self._sent)), LOST)
