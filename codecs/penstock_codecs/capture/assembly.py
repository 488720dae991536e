"""One side's bytes in order, from segments in any order (RFC 9293, 3.10.7.4), within bounds."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from penstock_codecs.capture.events import CaptureEvent, Chunk, Closed, Conversation, Lost, Sender

__all__ = ["Half", "Holding"]

_SEGMENT_COST: Final = 200
"""What holding a segment costs besides its bytes."""
_SPACE: Final = 1 << 32
NOT_CAPTURED: Final = "not in the capture"
CUT: Final = "cut off by the capture's snap length"


class Holding:
    """What the sides of all conversations hold together, at most `most` bytes: of more, the one that has waited longest
    waits no more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._halves: dict[Half, None] = {}

    def hold(self, half: Half, size: int) -> None:
        """A side holds so many bytes more."""
        self._bytes += size
        self._halves[half] = None

    def let_go(self, half: Half, size: int, last: bool) -> None:
        """A side holds so many bytes less; `last`: and no others."""
        self._bytes -= size
        if last:
            del self._halves[half]

    def relieve(self, out: list[CaptureEvent]) -> None:
        """Of what is too much the oldest goes to `out`."""
        while self._bytes > self._most:
            next(iter(self._halves)).give_up(out)


class Half:
    """What one side of a conversation sends. `window`: how many bytes are held while others are missing before them;
    0: what is missing never comes later."""

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

    def __init__(self, conversation: Conversation, sender: Sender, window: int, holding: Holding) -> None:
        self._conversation = conversation
        self._sender = sender
        self._window = window
        self._holding = holding
        self._base: int | None = None
        self._held: list[tuple[int, int, int, bytes, int]] = []
        self._cost = 0
        self._order = 0
        self._fin: tuple[int, int] | None = None  # where it has finished, and when it said so
        self.next = 0
        """Where the next byte belongs."""
        self.finished = False
        """Its FIN was reached."""

    @property
    def anchored(self) -> bool:
        """Sequence numbers can be told as places."""
        return self._base is not None

    def anchor(self, sequence: int, offset: int) -> None:
        """The byte with this sequence number is the one at `offset`, and the next one."""
        self.next = offset
        self._base = (sequence - offset) % _SPACE

    def begins_at(self, sequence: int) -> bool:
        """Its byte 0 has this sequence number, so a SYN before it is the one that was seen; as far as numbers have not
        begun anew."""
        return self._base == sequence and self.next < _SPACE

    def _place(self, sequence: int) -> int:
        """Where a byte belongs: the nearest place to the next one, with numbers that begin anew every 4 GiB."""
        base = self._base or 0
        return self.next + ((sequence - base - self.next + (_SPACE >> 1)) % _SPACE) - (_SPACE >> 1)

    def segment(
        self, time_ns: int, sequence: int, data: bytes, cut: int, out: list[CaptureEvent], fin: bool = False
    ) -> None:
        """Bytes with this sequence number; what is in order by now goes to `out`."""
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
        """Bytes of which none before them is missing."""
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
        """What is missing before the first held segment does not come any more."""
        offset, _, time_ns, _, _ = self._held[0]
        self.lose(time_ns, self.next, offset - self.next, NOT_CAPTURED, out)
        self._drain(out)

    def flush(self, out: list[CaptureEvent]) -> None:
        """Nothing more comes: all that is held goes to `out`, with what is missing between."""
        while self._held:
            self.give_up(out)
        if self._fin is not None:
            self._finish(self._fin[1], out, whole=True)

    def lose(self, time_ns: int, offset: int, length: int, reason: str, out: list[CaptureEvent]) -> None:
        """Bytes are known to be missing here. Such as are not next are not believed."""
        if offset < self.next:
            return
        if offset > self.next:
            out.append(Lost(self._conversation, time_ns, self._sender, self.next, offset - self.next, NOT_CAPTURED))
        out.append(Lost(self._conversation, time_ns, self._sender, offset, length, reason))
        self.next = offset + length

    def _finish(self, time_ns: int, out: list[CaptureEvent], *, whole: bool) -> None:
        """Its FIN, once all before it is there; or with `whole` at once, since no more comes."""
        end = 0 if self._fin is None else self._fin[0]
        if whole and end > self.next:
            self.lose(time_ns, self.next, end - self.next, NOT_CAPTURED, out)
        if end <= self.next and not self.finished:
            self.finished = True
            out.append(Closed(self._conversation, time_ns, self._sender))
