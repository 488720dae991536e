"""Taps: what goes by on one TCP connection, as capture events, for whoever wants them.

A tap stands above TLS and changes nothing: it never waits and never raises. Bytes are told when they have been read,
and when the kernel has taken them. Over TLS they are told just before they are given to TLS, since nobody knows when
they go out; where the connection is then broken off, the last ones may never have done so. Where nobody listens a tap
costs an attribute test and two additions for each read or write.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

import structlog

from penstock.metrics.families import BACK_NETWORK_BYTES, BACK_OUTFLOW_BYTES, NETWORK_BYTES, OUTFLOW_BYTES
from penstock.metrics.series import Count
from penstock.recorder.sink import Sink
from penstock_codecs.capture import CaptureEvent, Chunk, Closed, Conversation, Noted, Opened, Sender, Side
from penstock_codecs.http import Buffer
from penstock_codecs.model import StreamRef

__all__ = ["CONNECTION", "MOST_USES", "Tap", "Use", "Watcher", "note_identity", "note_use"]

log = structlog.get_logger()

MOST_USES: Final = 64
"""So many uses of one connection are remembered, about 250 bytes each."""
_SMALL: Final = 4096
"""Smaller parts of one write are told together."""


class Use(NamedTuple):
    """What a request of a client was about, in the client's words. `route` "": there are no routes; `stream` None: it
    is about none, or nobody has looked yet; `identity` "": it has none."""

    route: str
    stream: StreamRef | None
    identity: str


class Watcher(Protocol):
    """Whoever decides which sinks a tap has. No method waits."""

    def used(self, tap: Tap, use: Use) -> None:
        """A connection is used for something that it was not used for before, as far as that is remembered."""

    def dropped(self, tap: Tap, sink: Sink, generation: int) -> None:
        """A sink takes no more of a connection; this was its generation when it still did."""

    def ended(self, tap: Tap) -> None:
        """The connection is gone; its sinks have been told."""


class Tap:
    """One connection. `received` is what our peer sent; whether that is the client, the conversation's side says."""

    __slots__ = (
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
        "received_bytes",
        "sent_bytes",
        "sinks",
        "uses",
    )

    def __init__(self, conversation: Conversation, watcher: Watcher) -> None:
        self.conversation = conversation
        self.opened_ns = time.time_ns()
        self.received_bytes = 0
        """What the peer has sent so far."""
        self.sent_bytes = 0
        """What we have sent so far."""
        self.sinks: tuple[Sink, ...] = ()
        """Who listens."""
        self.uses: dict[Use, None] = {}
        """What it was used for: the first MOST_USES, in order."""
        self.lost = False
        """Whether it was broken off, as far as was seen."""
        self.over = False
        """Nothing more goes by."""
        self._own = Sender.CLIENT if conversation.side is Side.BACK else Sender.SERVER
        self._peer = self._own.other
        self._finished: set[Sender] = set()
        self._generations: dict[Sink, int] = {}  # of each sink, when it took something last
        self._notes: dict[tuple[str, str], None] = {}
        self._watcher = watcher
        self._received, self._sent = _bytes_of(conversation)
        self.outflow = _outflow_of(conversation)
        """What is ready for peers and waits for their sockets, of all connections like this."""

    # ---- what goes by --------------------------------------------------------------------------------------------

    def received(self, data: Buffer) -> None:
        """The peer's bytes, which may change afterwards; b"": it has finished sending."""
        if not data:
            self._finish(self._peer)
            return
        if self.sinks:
            self._tell(Chunk(self.conversation, time.time_ns(), self._peer, self.received_bytes, bytes(data)))
        size = len(data)
        self.received_bytes += size
        self._received.value += size

    def sent(self, parts: Iterable[Buffer], size: int) -> None:
        """Our bytes: the first `size` of these parts, of which those that are not `bytes` may change afterwards."""
        self._sent.value += size
        if not self.sinks or not size:
            self.sent_bytes += size
            return
        now = time.time_ns()
        for data in _chunks(parts, size):
            self._tell(Chunk(self.conversation, now, self._own, self.sent_bytes, data))
            self.sent_bytes += len(data)

    def finished(self) -> None:
        """We have finished sending."""
        self._finish(self._own)

    def broken(self) -> None:
        """The connection is lost."""
        self.lost = True
        if len(self._finished) < 2:
            self._finished.update(Sender)
            self._tell(Closed(self.conversation, time.time_ns(), self._peer, reset=True))

    def end(self) -> None:
        """We close the connection. What the peer may still say is not heard, so both sides have finished. May be called
        more than once."""
        if self.over:
            return
        self._finish(self._own)
        self._finish(self._peer)
        self.over = True
        self.sinks = ()
        self._generations.clear()
        self._watcher.ended(self)

    def _finish(self, sender: Sender) -> None:
        if sender not in self._finished:
            self._finished.add(sender)
            self._tell(Closed(self.conversation, time.time_ns(), sender))

    # ---- what it is used for -------------------------------------------------------------------------------------

    def use(self, use: Use) -> None:
        """A request that came by it is about this. To be called for what is not in `uses`."""
        if self.over:
            return
        if len(self.uses) < MOST_USES:
            self.uses[use] = None
            for pair in _pairs(use):
                if pair not in self._notes:
                    self._notes[pair] = None
                    self._tell(Noted(self.conversation, time.time_ns(), *pair))
        self._watcher.used(self, use)

    @property
    def noted(self) -> dict[str, list[str]]:
        """What it was used for, by `route`, `stream` and `identity`, each in order."""
        found: dict[str, list[str]] = {"route": [], "stream": [], "identity": []}
        for key, value in self._notes:
            found[key].append(value)
        return found

    @property
    def offsets(self) -> tuple[int, int]:
        """How many bytes the client has sent so far, and the server."""
        counts = self.received_bytes, self.sent_bytes
        return counts if self._peer is Sender.CLIENT else counts[::-1]

    # ---- who listens ---------------------------------------------------------------------------------------------

    def attach(self, sink: Sink, use: Use | None = None, *, continued: bool = False) -> None:
        """From now on a sink is told what goes by, after `Opened` with the bytes so far as its offsets, and what is
        noted. `use`: why, which may not be remembered. `continued`: it has heard an earlier part."""
        self.join(sink, [Opened(self.conversation, time.time_ns(), *self.offsets, continued)], use)

    def join(self, sink: Sink, heard: Iterable[CaptureEvent], use: Use | None = None) -> None:
        """As `attach`, for one that is told first what went by until now."""
        if self.over or sink in self.sinks:
            return
        self.sinks = (*self.sinks, sink)
        self._generations[sink] = sink.generation
        for event in (*heard, *self._ends()):
            self._tell_one(sink, event)
        for pair in {**self._notes, **dict.fromkeys(() if use is None else _pairs(use))}:
            self._tell_one(sink, Noted(self.conversation, time.time_ns(), *pair))

    def detach(self, sink: Sink) -> None:
        """The sink is told nothing more."""
        self.sinks = tuple(one for one in self.sinks if one is not sink)
        self._generations.pop(sink, None)

    def _ends(self) -> Iterator[Closed]:
        """Those who have finished already."""
        for sender in Sender:
            if sender in self._finished:
                yield Closed(self.conversation, time.time_ns(), sender)

    def _tell(self, event: CaptureEvent) -> None:
        for sink in self.sinks:
            self._tell_one(sink, event)

    def _tell_one(self, sink: Sink, event: CaptureEvent) -> None:
        if sink not in self.sinks:
            return
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
            # It has forgotten the connection, which was silent since, and another file has begun: there it goes on.
            self.attach(sink, continued=True)
            self._tell_one(sink, event)
        else:
            self._watcher.dropped(self, sink, generation)


def _bytes_of(conversation: Conversation) -> tuple[Count, Count]:
    """What is counted of this connection and others like it: what peers have sent, and what we have."""
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
    """What a use is noted as."""
    for key, value in (("route", use.route), ("stream", str(use.stream or "")), ("identity", use.identity)):
        if value:
            yield key, value


def _chunks(parts: Iterable[Buffer], size: int) -> Iterator[bytes | memoryview]:
    """The first `size` bytes of some parts in pieces that stay as they are, the small ones joined."""
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
    """A piece that may be kept for long: not changed by others, and not holding much more than itself in memory."""
    if isinstance(piece, bytes):
        return piece
    whole = piece.obj if isinstance(piece, memoryview) else None
    return memoryview(piece) if isinstance(whole, bytes) and len(whole) <= 2 * len(piece) else bytes(piece)


CONNECTION: ContextVar[Tap | None] = ContextVar("penstock.connection", default=None)
"""The client's connection that the current task works for; None where the gateway works for itself."""


def note_use(route: str, stream: StreamRef | None, identity: str) -> None:
    """The current connection is used for this. Costs little where it was noted before."""
    tap = CONNECTION.get()
    if tap is not None and (route, stream, identity) not in tap.uses:
        tap.use(Use(route, stream, identity))


def note_identity(identity: str) -> None:
    """The current connection is used by somebody with this identity ("" for none), whatever for: lists, for example,
    are about no stream."""
    if identity:
        note_use("", None, identity)
