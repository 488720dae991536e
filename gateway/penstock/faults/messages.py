"""From what a back gives to the message that a front makes of it.

A back's answer and the message that tells it are apart by a front, which spells it. They come in the same task: so what
a message will be about is left in a context variable, and taken from there where whole messages go out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import trio

from penstock.faults.cutting import cut
from penstock.faults.rule import About, Action, Direction
from penstock.faults.rules import Faults
from penstock_codecs.http import Buffer

__all__ = ["DUE", "ON_MESSAGES", "ON_ONE_ANSWER", "ON_SEGMENT_MESSAGES", "Due", "Said", "due_message", "send_faulty"]

ON_MESSAGES: Final = frozenset({Action.DROP, Action.DUPLICATE, Action.CUT, Action.THROTTLE})
"""What is done to messages that go out, where they are spelled; the rest is done before."""
ON_ONE_ANSWER: Final = ON_MESSAGES - {Action.DUPLICATE}
"""The same, where a request has exactly one answer: HTTP."""
ON_SEGMENT_MESSAGES: Final = ON_MESSAGES - {Action.THROTTLE}
"""The same for the segment protocol, where several tasks talk and none of them may wait in the middle of a message."""
_WRITTEN_SECONDS: Final = 5.0
"""A client that does not take what comes before a cut is cut off after this."""
_PIECES_PER_SECOND: Final = 20
"""A throttled message goes out in so many pieces."""


@dataclass(frozen=True, slots=True)
class Said:
    """What becomes of one message. `copies` 0: it is not sent. `cut_after`: so many bytes, then the connection is cut.
    `bytes_per_second` None: as fast as it goes."""

    copies: int = 1
    cut_after: int | None = None
    bytes_per_second: int | None = None


class Due:
    """Messages of one kind that the current task is going to say."""

    def __init__(self, faults: Faults, about: About) -> None:
        self._faults = faults
        self._about = about
        self._owed: deque[bool] = deque()

    def owe(self, *, dropped: bool = False) -> None:
        """One more message. `dropped`: it is not to be sent, whatever the rules say."""
        self._owed.append(dropped)

    def only(self, *, dropped: bool = False) -> None:
        """One message, instead of those that were owed and never said."""
        self._owed.clear()
        self.owe(dropped=dropped)

    def take(self, actions: Collection[Action], answer: bool) -> Said | None:
        """What becomes of the next message; None: nothing special. `answer`: it is the only one, so it need not be
        owed."""
        if self._owed:
            if self._owed.popleft():
                return Said(copies=0)
        elif not answer:
            return None
        copies, cut_after, rate = 1, None, None
        for rule in self._faults.firing(self._about, Direction.OUT, actions):
            fault = rule.fault
            if fault.action is Action.DROP:
                copies = 0
            elif fault.action is Action.DUPLICATE:
                copies += 1
            elif fault.action is Action.CUT:
                cut_after = fault.cut_after
            else:
                rate = fault.bytes_per_second
        if (copies, cut_after, rate) == (1, None, None):
            return None
        return Said(copies, cut_after, rate)


DUE: ContextVar[Due | None] = ContextVar("penstock.faults.due", default=None)
"""What the current task is going to say; None where there were no faults when it asked."""


def due_message(actions: Collection[Action] = ON_MESSAGES, *, answer: bool = False) -> Said | None:
    """What becomes of the message that is said now; None: it is sent as ever. `answer`: see `Due.take`."""
    due = DUE.get()
    return None if due is None else due.take(actions, answer)


async def send_faulty(
    said: Said,
    pieces: Iterable[Buffer],
    send: Callable[[bytes], Awaitable[None]],
    written: Callable[[], Awaitable[None]],
) -> None:
    """Send one message as `said` has it: `send` sends some of it, `written` waits until all of that is on its way."""
    message = b"".join(pieces)
    if said.cut_after is not None:
        if start := message[: said.cut_after]:
            await _send(said, start, send)
        with trio.move_on_after(_WRITTEN_SECONDS):
            await written()
        await cut()
    for _ in range(said.copies):
        await _send(said, message, send)


async def _send(said: Said, data: bytes, send: Callable[[bytes], Awaitable[None]]) -> None:
    rate = said.bytes_per_second
    if rate is None:
        await send(data)
        return
    size = max(1, rate // _PIECES_PER_SECOND)
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        await send(piece)
        await trio.sleep(len(piece) / rate)
