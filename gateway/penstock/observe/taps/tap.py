"""Taps: the traffic of one TCP connection, as capture events, for any number of sinks.

A tap sits above TLS and changes nothing: it never waits and never raises. Bytes are reported when they have been read,
and when the kernel has accepted them. Over TLS they are reported just before they are passed to TLS, since the time of
sending is unknown; if the connection then breaks, the last ones may never have been sent. Without sinks a tap costs an
attribute test and two additions for each read or write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

import structlog
from msgspec.structs import replace

from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Joined, Noted, Opened, Sender, Side
from penstock.model.records import StreamRef
from penstock.observe.metrics.families import BACK_NETWORK_BYTES, BACK_OUTFLOW_BYTES, NETWORK_BYTES, OUTFLOW_BYTES
from penstock.observe.metrics.series import Count
from penstock.observe.taps.sink import Sink
from penstock.wire.http import Buffer, Preludes

__all__ = ["CONNECTION", "MOST_USES", "HttpStart", "Tap", "Use", "Watcher", "note_identity", "note_use"]

log = structlog.get_logger()

MOST_USES: Final = 64
"""Most uses of one connection that are remembered, about 250 bytes each."""
_SMALL: Final = 32 * 1024
"""Parts of one write with fewer bytes than this are joined: to redact and write another event costs more than to copy
that many bytes, and HTTP/2 sends frames of 16 KiB."""
CONNECTION: ContextVar[Tap | None] = ContextVar("penstock.connection", default=None)
"""The tap of the client's connection that the current task works for; None while the gateway works for itself."""


class Use(NamedTuple):
    """The purpose of a client's request, in the client's terms. `route`: "" if there are no routes. `stream`: None if
    it concerns no stream, or none is known yet. `identity`: "" if it has none."""

    route: str
    stream: StreamRef | None
    identity: str


class HttpStart(NamedTuple):
    """The state of an HTTP connection. `version`: "1.1" or "2"; `preludes`: see `Preludes`; `sent`: number of bytes
    that we have sent or are sending, without `preludes.unwritten`."""

    version: str
    preludes: Preludes
    sent: int


class Watcher(Protocol):
    """The observer of taps, which decides the sinks of each. No method waits."""

    def used(self, tap: Tap, use: Use) -> None:
        """Handle a use of a connection that is new, as far as uses are remembered."""

    def dropped(self, tap: Tap, sink: Sink, generation: int) -> None:
        """Handle a sink that has dropped a connection; `generation`: of the sink when it last accepted an event."""

    def ended(self, tap: Tap) -> None:
        """Handle the end of a connection, after its sinks."""


class Tap:
    """The tap of one connection. `received` is the data of the peer; the conversation's side says whether that is the
    client."""

    __slots__ = (
        "_begins",
        "_finished",
        "_generations",
        "_notes",
        "_own",
        "_peer",
        "_received",
        "_sent",
        "_watcher",
        "conversation",
        "lost",
        "opened_ns",
        "outflow",
        "over",
        "place",
        "received_bytes",
        "sent_bytes",
        "sinks",
        "uses",
    )

    def __init__(self, conversation: Conversation, watcher: Watcher) -> None:
        self.conversation = conversation
        self.opened_ns = time.time_ns()
        self.received_bytes = 0
        """Bytes that the peer has sent so far."""
        self.sent_bytes = 0
        """Bytes that we have sent so far."""
        self.sinks: tuple[Sink, ...] = ()
        """The sinks that get its events."""
        self.uses: dict[Use, None] = {}
        """Its uses: the first MOST_USES, in order."""
        self.lost = False
        """The connection broke, as far as was noticed."""
        self.over = False
        """`end` has been called."""
        self.place: Callable[[], HttpStart | None] | None = None
        """Returns the state of an HTTP connection, for sinks that join in its middle; None: it is unknown."""
        self._begins: dict[Sink, int] = {}  # offset of ours at which a sink begins, while that is still to come
        self._own = Sender.CLIENT if conversation.side is Side.BACK else Sender.SERVER
        self._peer = self._own.other
        self._finished: tuple[Sender, ...] = ()  # an empty set takes 216 bytes
        self._generations: dict[Sink, int] = {}  # of each sink, when it last accepted an event
        self._notes: tuple[tuple[str, str], ...] = ()  # a dictionary of one takes 200 bytes more
        self._watcher = watcher
        self._received, self._sent = _bytes_of(conversation)
        self.outflow = _outflow_of(conversation)
        """Bytes that wait for peers' sockets, of all connections like this."""

    # ---- traffic -------------------------------------------------------------------------------------------------

    def received(self, data: Buffer) -> None:
        """Report bytes of the peer, which the caller may change afterwards; b"" means that it has finished sending."""
        if not data:
            self._finish(self._peer)
            return
        if self.sinks:
            self._put(Chunk(self.conversation, time.time_ns(), self._peer, self.received_bytes, bytes(data)))
        size = len(data)
        self.received_bytes += size
        self._received.value += size

    def sent(self, parts: Iterable[Buffer], size: int) -> None:
        """Report bytes that we sent: the first `size` of these parts. Parts that are not `bytes` may change
        afterwards."""
        self._sent.value += size
        if not self.sinks or not size:
            self.sent_bytes += size
            return
        now = time.time_ns()
        for data in _chunks(parts, size):
            self._put(Chunk(self.conversation, now, self._own, self.sent_bytes, data))
            self.sent_bytes += len(data)

    def finished(self) -> None:
        """Report that we have finished sending."""
        self._finish(self._own)

    def broken(self) -> None:
        """Report that the connection is lost."""
        self.lost = True
        if len(self._finished) < 2:
            self._finished = tuple(Sender)
            self._put(Closed(self.conversation, time.time_ns(), self._peer, reset=True))

    def end(self) -> None:
        """Report that we close the connection. Later bytes of the peer are not read, so both sides have finished. May
        be called more than once."""
        if self.over:
            return
        self._finish(self._own)
        self._finish(self._peer)
        self.over = True
        self.sinks = ()
        self.place = None
        self._generations.clear()
        self._begins.clear()
        self._watcher.ended(self)

    def _finish(self, sender: Sender) -> None:
        if sender not in self._finished:
            self._finished = (*self._finished, sender)
            self._put(Closed(self.conversation, time.time_ns(), sender))

    # ---- uses ----------------------------------------------------------------------------------------------------

    def use(self, use: Use) -> None:
        """Add a use of the connection. To be called only for one that is not in `uses`."""
        if self.over:
            return
        if len(self.uses) < MOST_USES:
            self.uses[use] = None
            for pair in _pairs(use):
                if pair not in self._notes:
                    self._notes = (*self._notes, pair)
                    self._put(Noted(self.conversation, time.time_ns(), *pair))
        self._watcher.used(self, use)

    @property
    def noted(self) -> dict[str, list[str]]:
        """Values noted of its uses by `route`, `stream` and `identity`, each in order."""
        notes: dict[str, list[str]] = {"route": [], "stream": [], "identity": []}
        for key, value in self._notes:
            notes[key].append(value)
        return notes

    @property
    def offsets(self) -> tuple[int, int]:
        """Numbers of bytes that the client and the server have sent so far."""
        counts = self.received_bytes, self.sent_bytes
        return counts if self._peer is Sender.CLIENT else counts[::-1]

    @property
    def joins_better(self) -> bool:
        """Return whether a sink can decode more if it joins now than if it had begun earlier without the connection's
        state: HTTP/2 headers refer to earlier ones."""
        place = self._placed()
        return place is not None and place.version == "2"

    def _placed(self) -> HttpStart | None:
        """Return the state of the connection, or None if it is unknown; a defect there must not disturb traffic."""
        try:
            return None if self.place is None else self.place()
        except Exception:
            log.exception("recording_without_state", connection=self.conversation.number)
            return None

    # ---- sinks ---------------------------------------------------------------------------------------------------

    def attach(self, sink: Sink, use: Use | None = None, *, continued: bool = False) -> None:
        """Add a sink, beginning with `Opened` at the current offsets, and the uses so far. `use`: the reason, which may
        not be among them. `continued`: the sink has had an earlier part.

        In the middle of an HTTP connection the sink also gets the state so far (`Joined`); then the rest of our
        messages that are already being sent is left out.
        """
        if self.over or sink in self.sinks:
            return
        now = time.time_ns()
        place = self._placed() if any(self.offsets) else None
        if place is None:
            self.join(sink, [Opened(self.conversation, now, *self.offsets, continued)], use)
            return
        preludes, begins = place.preludes, place.sent + place.preludes.unwritten
        understood = self.received_bytes - len(preludes.held)
        offsets, parts = (understood, begins), (preludes.received, preludes.sent)
        if self._peer is Sender.SERVER:
            offsets, parts = offsets[::-1], parts[::-1]
        heard: list[CaptureEvent] = [
            Opened(self.conversation, now, *offsets, continued),
            Joined(self.conversation, now, place.version, *offsets, *parts),
        ]
        if preludes.held:
            heard.append(Chunk(self.conversation, now, self._peer, understood, preludes.held))
        if begins > self.sent_bytes:
            self._begins[sink] = begins
        self.join(sink, heard, use)

    def join(self, sink: Sink, heard: Iterable[CaptureEvent], use: Use | None = None) -> None:
        """Add a sink as `attach` does, with these events for the time before."""
        if self.over or sink in self.sinks:
            return
        self.sinks = (*self.sinks, sink)
        self._generations[sink] = sink.generation
        for event in (*heard, *self._ends()):
            self._put_in(sink, event)
        for pair in dict.fromkeys((*self._notes, *(() if use is None else _pairs(use)))):
            self._put_in(sink, Noted(self.conversation, time.time_ns(), *pair))

    def detach(self, sink: Sink) -> None:
        """Remove a sink."""
        self.sinks = tuple(other_sink for other_sink in self.sinks if other_sink is not sink)
        self._generations.pop(sink, None)
        self._begins.pop(sink, None)

    def _ends(self) -> Iterator[Closed]:
        """Yield `Closed` for the sides that have finished already."""
        for sender in Sender:
            if sender in self._finished:
                yield Closed(self.conversation, time.time_ns(), sender)

    def _put(self, event: CaptureEvent) -> None:
        for sink in self.sinks:
            self._put_in(sink, event)

    def _put_in(self, sink: Sink, event: CaptureEvent) -> None:
        if sink not in self.sinks:
            return
        if self._begins and type(event) is Chunk and event.sender is self._own and sink in self._begins:
            missing = self._begins[sink] - event.offset
            if missing >= len(event.data):
                return
            del self._begins[sink]
            event = replace(event, offset=event.offset + missing, data=memoryview(event.data)[missing:])
        try:
            kept = sink.put(event)
        except Exception:
            log.exception("recording_failed", connection=self.conversation.number)
            kept = False
        if kept:
            self._generations[sink] = sink.generation
            return
        generation = self._generations[sink]
        self.detach(sink)
        if type(event) is Chunk and generation != sink.generation:
            # The connection was silent while a new file began, so the sink has forgotten it: begin again there.
            self.attach(sink, continued=True)
            self._put_in(sink, event)
        else:
            self._watcher.dropped(self, sink, generation)


def _bytes_of(conversation: Conversation) -> tuple[Count, Count]:
    """Return the counters of connections like this one: bytes received from peers, and bytes sent."""
    if conversation.side is Side.FRONT:
        where, family = conversation.name, NETWORK_BYTES
    else:
        where, family = conversation.name.removeprefix("backs."), BACK_NETWORK_BYTES
    return family.child(where, conversation.protocol, "in"), family.child(where, conversation.protocol, "out")


def _outflow_of(conversation: Conversation) -> Count:
    if conversation.side is Side.FRONT:
        return OUTFLOW_BYTES.child(conversation.name, conversation.protocol)
    return BACK_OUTFLOW_BYTES.child(conversation.name.removeprefix("backs."), conversation.protocol)


def _pairs(use: Use) -> Iterator[tuple[str, str]]:
    """Yield the key and value of each `Noted` event of a use."""
    for key, value in (("route", use.route), ("stream", str(use.stream or "")), ("identity", use.identity)):
        if value:
            yield key, value


def _chunks(parts: Iterable[Buffer], size: int) -> Iterator[bytes | memoryview]:
    """Yield the first `size` bytes of the parts as immutable pieces, with small ones joined."""
    small: list[Buffer] = []
    for part in parts:
        piece = part if len(part) <= size else memoryview(part)[:size]
        size -= len(piece)
        if len(piece) < _SMALL:
            small.append(piece)
        else:
            if small:
                yield b"".join(small)
                small.clear()
            yield _kept(piece)
        if not size:
            break
    if small:
        yield b"".join(small)


def _kept(piece: Buffer) -> bytes | memoryview:
    """Return a piece that may be kept for long: others do not change it, and it holds little more than itself in
    memory."""
    if isinstance(piece, bytes):
        return piece
    whole = piece.obj if isinstance(piece, memoryview) else None
    return memoryview(piece) if isinstance(whole, bytes) and len(whole) <= 2 * len(piece) else bytes(piece)


def note_use(route: str, stream: StreamRef | None, identity: str) -> None:
    """Note a use of the current connection. Costs little if it has been noted before."""
    tap = CONNECTION.get()
    if tap is not None and (route, stream, identity) not in tap.uses:
        tap.use(Use(route, stream, identity))


def note_identity(identity: str) -> None:
    """Note that the current connection is used by this identity ("" for none), also for requests that concern no
    stream, such as lists."""
    if identity:
        note_use("", None, identity)
