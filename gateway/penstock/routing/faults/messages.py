"""Faults on outgoing messages, applied where a front sends them.

The back's answer and the message that carries it are produced in different layers, with a front in between that encodes
it, but in the same task. So the faulty back leaves in a context variable (`DUE`) the subject of the next message, and
the code that sends whole messages takes it from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final

import msgspec
import trio

from penstock.net.cutting import cut_connection
from penstock.routing.faults.rule import Action, FaultDirection, MessageKind, MessageSubject
from penstock.routing.faults.rules import Faults

__all__ = [
    "DUE",
    "ON_MESSAGES",
    "ON_WHOLE_MESSAGES",
    "DueMessages",
    "MessageFaults",
    "due_message",
    "send_faulty",
]

ON_MESSAGES: Final = frozenset({Action.DROP, Action.CUT, Action.THROTTLE})
"""Actions applied to an encoded message; the others are applied before (`penstock.routing.faults.arriving`)."""
ON_WHOLE_MESSAGES: Final = ON_MESSAGES - {Action.THROTTLE}
"""The same where several tasks write to a connection, and none may wait within a message: answers are throttled before
(`MessageSubject.throttled_whole`)."""
_WRITTEN_SECONDS: Final = 5.0
"""Longest wait before a cut for the client to read the bytes sent so far, in seconds."""
_PIECES_PER_SECOND: Final = 20
"""Pieces per second in which a throttled message is sent."""
DUE: ContextVar[DueMessages | None] = ContextVar("penstock.faults.due", default=None)
"""The messages that the current task is about to send; None if there were no rules when its operation began."""


class MessageFaults(msgspec.Struct, frozen=True):
    """The faults of one message. `dropped`: it is never sent. `cut_after`: bytes after which the connection is cut.
    `cut_place`: the place of the cut instead, counted from 0, and the number of places. `bytes_per_second`: its rate;
    None sends it at full speed. `piece_bytes`: sent at a time at that rate; 0 for what the rate gives in a twentieth of
    a second."""

    dropped: bool = False
    cut_after: int | None = None
    cut_place: tuple[int, int] | None = None
    bytes_per_second: int | None = None
    piece_bytes: int = 0

    def cut_in(self, size: int) -> int | None:
        """Return the bytes of a message of `size` bytes after which the connection is cut; None to send all of it.

        Places are spread evenly. A message with fewer bytes than places has one before each byte.
        """
        if self.cut_place is None:
            return self.cut_after
        number, places = self.cut_place
        places = min(places, size)
        return number * size // places if number < places else None


class DueMessages:
    """The messages of one kind that the current task is about to send."""

    def __init__(self, faults: Faults, subject: MessageSubject) -> None:
        self._faults = faults
        self._subject = subject
        self._owed: deque[bool] = deque()

    @property
    def owes_records(self) -> bool:
        """True if the answer to an append or a read is still to be sent: a front may ask for more before that."""
        return bool(self._owed) and self._subject.kind is not MessageKind.CONTROL

    def owe(self, *, dropped: bool = False) -> None:
        """Announce one more message. `dropped`: do not send it, whatever the rules say."""
        self._owed.append(dropped)

    def only(self, *, dropped: bool = False) -> None:
        """Announce one message, in place of those that were announced and never sent."""
        self._owed.clear()
        self.owe(dropped=dropped)

    def take(self, actions: frozenset[Action] = ON_MESSAGES, *, answer: bool = False) -> MessageFaults | None:
        """Return the faults of the next message, or None if it has none.

        `answer`: it is the only answer to a request, so it need not be announced by `owe`.
        """
        if self._owed:
            if self._owed.popleft():
                return MessageFaults(dropped=True)
        elif not answer:
            return None
        dropped, cut_after, cut_place, rate, piece_bytes = False, None, None, None, 0
        for rule in self._faults.firing(self._subject, FaultDirection.OUT, actions):
            fault = rule.fault
            if fault.action is Action.DROP:
                dropped = True
            elif fault.action is Action.CUT:
                cut_after = fault.cut_after
                cut_place = (rule.fired - 1, fault.cut_places) if fault.cut_places else None
            else:
                rate, piece_bytes = fault.bytes_per_second, fault.piece_bytes
        if (dropped, cut_after, rate) == (False, None, None):
            return None
        return MessageFaults(dropped, cut_after, cut_place, rate, piece_bytes)


def due_message(actions: frozenset[Action] = ON_MESSAGES, *, answer: bool = False) -> MessageFaults | None:
    """Return the faults of the message that is sent now, or None to send it as usual. See `DueMessages.take`."""
    due = DUE.get()
    return None if due is None else due.take(actions, answer=answer)


async def send_faulty(
    faults: MessageFaults,
    message: bytes,
    send: Callable[[bytes], Awaitable[None]],
    written: Callable[[], Awaitable[None]],
) -> None:
    """Send one message with its faults. `send` sends a part of it, `written` waits until all parts sent so far are
    written out."""
    cut_after = faults.cut_in(len(message))
    if cut_after is not None:
        if start := message[:cut_after]:
            await _send(faults, start, send)
        with trio.move_on_after(_WRITTEN_SECONDS):
            await written()
        await cut_connection()
    if not faults.dropped:
        await _send(faults, message, send)


async def _send(faults: MessageFaults, data: bytes, send: Callable[[bytes], Awaitable[None]]) -> None:
    rate = faults.bytes_per_second
    if rate is None:
        await send(data)
        return
    size = faults.piece_bytes or max(1, rate // _PIECES_PER_SECOND)
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        await send(piece)
        await trio.sleep(len(piece) / rate)
