"""Put one side's bytes in order, from segments in any order (RFC 9293, 3.10.7.4), within bounds."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from penstock.capture.pcapng.events import CaptureEvent, Chunk, Closed, Conversation, Lost, Sender

__all__ = ["Half", "ReassemblyBudget"]

_SEGMENT_COST: Final = 200
"""Bytes of memory that a held segment takes besides its own."""
_SPACE: Final = 1 << 32
NOT_CAPTURED: Final = "not in the capture"
CUT: Final = "cut off by the capture's snap length"


class ReassemblyBudget:
    """Bytes that the sides of all conversations hold together, at most `most`; beyond that the side that has waited
    longest gives up its gap."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._halves: dict[Half, None] = {}

    def hold(self, half: Half, size: int) -> None:
        """Add that many bytes to those that a side holds."""
        self._bytes += size
        self._halves[half] = None

    def let_go(self, half: Half, size: int, last: bool) -> None:
        """Subtract that many bytes from those that a side holds; `last`: it holds no others."""
        self._bytes -= size
        if last:
            del self._halves[half]

    def relieve(self, out: list[CaptureEvent]) -> None:
        """Release the oldest held bytes to `out` while there are too many."""
        while self._bytes > self._most:
            next(iter(self._halves)).give_up(out)


class Half:
    """Bytes that one side of a conversation sends. `window`: the most bytes held while bytes before them are missing;
    0: missing bytes never arrive later."""

    __slots__ = (
        "_base",
        "_conversation",
        "_cost",
        "_fin",
        "_held",
        "_holding",
        "_order",
        "_sender",
        "_window",
        "finished",
        "next",
    )

    def __init__(self, conversation: Conversation, sender: Sender, window: int, holding: ReassemblyBudget) -> None:
        self._conversation = conversation
        self._sender = sender
        self._window = window
        self._holding = holding
        self._base: int | None = None
        self._held: list[tuple[int, int, int, bytes, int]] = []
        self._cost = 0
        self._order = 0
        self._fin: tuple[int, int] | None = None  # offset and time of its FIN
        self.next = 0
        """Offset of the next byte."""
        self.finished = False
        """Its FIN was reached."""

    @property
    def anchored(self) -> bool:
        """True if sequence numbers can be converted to offsets."""
        return self._base is not None

    def anchor(self, sequence: int, offset: int) -> None:
        """Map this sequence number to `offset`, and continue there."""
        self.next = offset
        self._base = (sequence - offset) % _SPACE

    def begins_at(self, sequence: int) -> bool:
        """Return whether byte 0 has this sequence number, so that a SYN before it is a retransmission; false once
        numbers have wrapped."""
        return self._base == sequence and self.next < _SPACE

    def _place(self, sequence: int) -> int:
        """Return a byte's offset: the candidate nearest to the next one, as sequence numbers wrap every 4 GiB."""
        base = self._base or 0
        return self.next + ((sequence - base - self.next + (_SPACE >> 1)) % _SPACE) - (_SPACE >> 1)

    def segment(
        self, time_ns: int, sequence: int, data: bytes, cut: int, out: list[CaptureEvent], fin: bool = False
    ) -> None:
        """Take the bytes with this sequence number; append the events that are in order now to `out`."""
        if self._base is None:
            self.anchor(sequence, self.next)
        offset = self._place(sequence)
        if fin and self._fin is None:
            self._fin = max(self.next, offset + len(data) + cut), time_ns
        if data or cut:
            if offset <= self.next and not self._held:
                self._deliver(time_ns, offset, data, cut, out)
            else:
                self._hold(time_ns, offset, data, cut, out)
        if self._fin is not None:
            self._finish(time_ns, out, whole=not self._window)

    def _deliver(self, time_ns: int, offset: int, data: bytes, cut: int, out: list[CaptureEvent]) -> None:
        """Deliver bytes that have no gap before them."""
        known = self.next - offset
        if known:
            if known >= len(data) + cut:
                return
            cut, data = min(cut, len(data) + cut - known), data[known:]
            offset = self.next
        if data:
            out.append(Chunk(self._conversation, time_ns, self._sender, offset, data))
            offset += len(data)
        if cut:
            out.append(Lost(self._conversation, time_ns, self._sender, offset, cut, CUT))
        self.next = offset + cut

    def _hold(self, time_ns: int, offset: int, data: bytes, cut: int, out: list[CaptureEvent]) -> None:
        if offset + len(data) + cut > self.next:
            heappush(self._held, (offset, self._order, time_ns, data, cut))
            self._order += 1
            self._cost += len(data) + _SEGMENT_COST
            self._holding.hold(self, len(data) + _SEGMENT_COST)
        self._drain(out)
        while self._held and self._cost > self._window:
            self.give_up(out)
        self._holding.relieve(out)

    def _drain(self, out: list[CaptureEvent]) -> None:
        held = self._held
        while held and held[0][0] <= self.next:
            offset, _, time_ns, data, cut = heappop(held)
            self._cost -= len(data) + _SEGMENT_COST
            self._holding.let_go(self, len(data) + _SEGMENT_COST, not held)
            self._deliver(time_ns, offset, data, cut, out)

    def give_up(self, out: list[CaptureEvent]) -> None:
        """Declare the bytes before the first held segment lost."""
        offset, _, time_ns, _, _ = self._held[0]
        self.lose(time_ns, self.next, offset - self.next, NOT_CAPTURED, out)
        self._drain(out)

    def flush(self, out: list[CaptureEvent]) -> None:
        """Release all held bytes to `out`, with the gaps between them: no more bytes arrive."""
        while self._held:
            self.give_up(out)
        if self._fin is not None:
            self._finish(self._fin[1], out, whole=True)

    def lose(self, time_ns: int, offset: int, length: int, reason: str, out: list[CaptureEvent]) -> None:
        """Record that bytes are missing from `offset` on, and those before it that have not arrived. Reports about
        bytes before `next` are ignored."""
        if offset < self.next:
            return
        if offset > self.next:
            out.append(Lost(self._conversation, time_ns, self._sender, self.next, offset - self.next, NOT_CAPTURED))
        out.append(Lost(self._conversation, time_ns, self._sender, offset, length, reason))
        self.next = offset + length

    def _finish(self, time_ns: int, out: list[CaptureEvent], *, whole: bool) -> None:
        """Deliver the FIN once all bytes before it are there; with `whole` at once, since no more arrive."""
        end = 0 if self._fin is None else self._fin[0]
        if whole and end > self.next:
            self.lose(time_ns, self.next, end - self.next, NOT_CAPTURED, out)
        if end <= self.next and not self.finished:
            self.finished = True
            out.append(Closed(self._conversation, time_ns, self._sender))
