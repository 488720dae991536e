"""Faults on outgoing messages, applied where a front sends them.

The back's answer and the message that carries it are produced in different layers, with a front in between that encodes
it, but in the same task. So the faulty back leaves in a context variable (`DUE`) the subject of the next message, and
the code that sends whole messages takes it from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import trio

from penstock.net.cutting import cut_connection
from penstock.routing.faults.rule import Action, FaultDirection, MessageKind, MessageSubject
from penstock.routing.faults.rules import Faults
from penstock_codecs.http import Buffer

__all__ = [
    "DUE",
    "ON_MESSAGES",
    "ON_ONE_ANSWER",
    "ON_WHOLE_MESSAGES",
    "DueMessages",
    "MessageFaults",
    "due_message",
    "send_faulty",
]

ON_MESSAGES: Final = frozenset({Action.DROP, Action.DUPLICATE, Action.CUT, Action.THROTTLE})
"""Actions applied to an encoded message; the others are applied before (`penstock.routing.faults.arriving`)."""
ON_ONE_ANSWER: Final = ON_MESSAGES - {Action.DUPLICATE} | {Action.UNKNOWN}
"""The same for a whole answer over HTTP, of which a request has exactly one."""
ON_WHOLE_MESSAGES: Final = ON_MESSAGES - {Action.THROTTLE}
"""The same where several tasks write to a connection, and none may wait within a message: answers are throttled before
(`MessageSubject.throttled_whole`)."""
_WRITTEN_SECONDS: Final = 5.0
"""Longest wait before a cut for the client to read the bytes sent so far, in seconds."""
_PIECES_PER_SECOND: Final = 20
"""Pieces per second in which a throttled message is sent."""


@dataclass(frozen=True, slots=True)
class MessageFaults:
    """The faults of one message. `copies`: times it is sent; 0 drops it. `cut_after`: bytes after which the connection
    is cut. `cut_place`: the place of the cut instead, counted from 0, and the number of places. `bytes_per_second`: its
    rate; None sends it at full speed. `piece_bytes`: sent at a time at that rate; 0 for what the rate gives in a
    twentieth of a second. `unknown`: it also has a header and a field that no client knows."""

    copies: int = 1
    cut_after: int | None = None
    cut_place: tuple[int, int] | None = None
    bytes_per_second: int | None = None
    piece_bytes: int = 0
    unknown: bool = False

    @property
    def in_transfer(self) -> bool:
        """True if the message is cut or throttled."""
        return self.cut_after is not None or self.bytes_per_second is not None

    def cut_in(self, size: int) -> int | None:
        """Return the bytes of a message of `size` bytes after which the connection is cut; None to send all of it.

        Places are spread evenly. A message with fewer bytes than places has one before each byte.
        """
        if self.cut_place is None:
            return self.cut_after
        place, places = self.cut_place
        places = min(places, size)
        return place * size // places if place < places else None


class DueMessages:
    """The messages of one kind that the current task is about to send."""

    def __init__(self, faults: Faults, about: MessageSubject) -> None:
        self._faults = faults
        self._about = about
        self._owed: deque[bool] = deque()

    @property
    def owes_records(self) -> bool:
        """True if the answer to an append or a read is still to be sent: a front may ask for more before that."""
        return bool(self._owed) and self._about.kind is not MessageKind.CONTROL

    def owe(self, *, dropped: bool = False) -> None:
        """Announce one more message. `dropped`: do not send it, whatever the rules say."""
        self._owed.append(dropped)

    def only(self, *, dropped: bool = False) -> None:
        """Announce one message, in place of those that were announced and never sent."""
        self._owed.clear()
        self.owe(dropped=dropped)

    def take(self, actions: Collection[Action], answer: bool) -> MessageFaults | None:
        """Return the faults of the next message, or None if it has none. `answer`: it is the only answer to a request,
        so it need not be announced by `owe`."""
        if self._owed:
            if self._owed.popleft():
                return MessageFaults(copies=0)
        elif not answer:
            return None
        copies, cut_after, place, rate, piece, unknown = 1, None, None, None, 0, False
        for rule in self._faults.firing(self._about, FaultDirection.OUT, actions):
            fault = rule.fault
            if fault.action is Action.DROP:
                copies = 0
            elif fault.action is Action.DUPLICATE:
                copies += 1
            elif fault.action is Action.CUT:
                cut_after, place = fault.cut_after, (rule.fired - 1, fault.cut_places) if fault.cut_places else None
            elif fault.action is Action.UNKNOWN:
                unknown = True
            else:
                rate, piece = fault.bytes_per_second, fault.piece_bytes
        if (copies, cut_after, rate, unknown) == (1, None, None, False):
            return None
        return MessageFaults(copies, cut_after, place, rate, piece, unknown)


DUE: ContextVar[DueMessages | None] = ContextVar("penstock.faults.due", default=None)
"""The messages that the current task is about to send; None if there were no rules when its operation began."""


def due_message(actions: Collection[Action] = ON_MESSAGES, *, answer: bool = False) -> MessageFaults | None:
    """Return the faults of the message that is sent now, or None to send it as usual. `answer`: see
    `DueMessages.take`."""
    due = DUE.get()
    return None if due is None else due.take(actions, answer)


async def send_faulty(
    said: MessageFaults,
    pieces: Iterable[Buffer],
    send: Callable[[bytes], Awaitable[None]],
    written: Callable[[], Awaitable[None]],
) -> None:
    """Send one message with the faults in `said`. `send` sends a part of it, `written` waits until all parts sent so
    far are written out."""
    message = b"".join(pieces)
    cut_after = said.cut_in(len(message))
    if cut_after is not None:
        if start := message[:cut_after]:
            await _send(said, start, send)
        with trio.move_on_after(_WRITTEN_SECONDS):
            await written()
        await cut_connection()
    for _ in range(said.copies):
        await _send(said, message, send)


async def _send(said: MessageFaults, data: bytes, send: Callable[[bytes], Awaitable[None]]) -> None:
    rate = said.bytes_per_second
    if rate is None:
        await send(data)
        return
    size = said.piece_bytes or max(1, rate // _PIECES_PER_SECOND)
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        await send(piece)
        await trio.sleep(len(piece) / rate)
