"""The recordings of one process, and the connections that each of them hears."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from penstock.observe.taps.connections import Connections
from penstock.observe.taps.sink import Sink
from penstock.observe.taps.tap import Tap, Use, Watcher
from penstock.recorder.pending import PendingConnections, PendingSink
from penstock.recorder.selection import Selection, Verdict

__all__ = ["Recorder", "Recording"]

_LOOK_SECONDS: Final = 0.25
"""Seconds between checks whether a sink accepts dropped connections again."""
_AT_ONCE: Final = 20
"""Open connections that are attached in one step while traffic waits: 1 to 2 ms. A connection with HTTP/2 takes up to
0.1 ms, for its header tables."""


@dataclass(eq=False, slots=True)
class Recording:
    """A running recording. `id`: counted from 1 in each process; 0 for a viewer of the management page, which is not
    listed. `since_ns`: when it began."""

    id: int
    selection: Selection
    sink: Sink
    since_ns: int = field(default_factory=time.time_ns)
    dropped: dict[Tap, int] = field(default_factory=dict, repr=False)
    """Connections that the sink dropped, each with the sink's generation when it last accepted their events."""


class Recorder(Watcher):
    """Attaches sinks to taps as connections open, and as requests show their identity, route and stream.

    While a recording selects by these, connections that may still match are held back: once one does, the recording
    gets the held events, up to a bound.
    """

    def __init__(
        self,
        connections: Connections,
        backs_of_routes: Mapping[str, Collection[str]],
        holding: PendingConnections | None = None,
    ) -> None:
        """`backs_of_routes`: the backs that each route leads to, mirrors included."""
        self._connections = connections
        self.backs_of_routes = backs_of_routes
        self._holding = holding or PendingConnections()
        self._recordings: dict[Sink, Recording] = {}
        self._late: list[Recording] = []
        self._held: dict[Tap, PendingSink] = {}
        self._ids = itertools.count(1)
        self._dropping = trio.lowlevel.ParkingLot()
        connections.watcher = self

    @property
    def recordings(self) -> Sequence[Recording]:
        """Running recordings, the oldest first."""
        return tuple(self._recordings.values())

    # ---- recordings ----------------------------------------------------------------------------------------------

    def start(self, selection: Selection, sink: Sink, *, numbered: bool = True) -> Recording:
        """Attach the sink to matching connections that open from now on; for open ones see `attach_open`. `numbered`:
        whether it takes the next number."""
        recording = self._recordings[sink] = Recording(next(self._ids) if numbered else 0, selection, sink)
        if selection.late:
            self._late.append(recording)
        return recording

    def attach_open(self, recording: Recording) -> Iterator[None]:
        """Attach the sink to matching connections that are open already, from their middle: a few with each step, so
        that traffic can have its turn. The recording may be stopped meanwhile."""
        for turn, tap in enumerate(self._connections, 1):
            if recording.sink not in self._recordings:
                return
            if not tap.over and tap not in recording.dropped:
                self._consider(recording, tap)
            if turn % _AT_ONCE == 0:
                yield

    def stop(self, recording: Recording) -> None:
        """Detach the sink; the caller closes it. May be called more than once."""
        self._recordings.pop(recording.sink, None)
        recording.dropped.clear()
        if recording in self._late:
            self._late.remove(recording)
        for tap in self._connections:
            tap.detach(recording.sink)
            self._release(tap)

    def _consider(self, recording: Recording, tap: Tap) -> None:
        verdict = self._judge(recording, tap)
        if verdict is Verdict.YES:
            tap.attach(recording.sink)
        elif verdict is Verdict.LATER:
            use = next((use for use in tap.uses if recording.selection.wants(use)), None)
            if use is not None:
                self._begin(recording, tap, use)
            elif tap not in self._held:
                held = self._held[tap] = self._holding.begin()
                tap.attach(held)

    def _judge(self, recording: Recording, tap: Tap) -> Verdict:
        return recording.selection.judge(tap.conversation, self.backs_of_routes)

    def _begin(self, recording: Recording, tap: Tap, use: Use) -> None:
        """Attach a connection that matches now, with the events held back for it."""
        held = self._held.get(tap)
        if held is None or (not held.whole and tap.joins_better):
            tap.attach(recording.sink, use)
            self._release(tap)
        else:
            tap.join(recording.sink, held.events, use)
            self._release(tap)

    def _release(self, tap: Tap) -> None:
        """Stop holding back a connection that no recording may still want."""
        held = self._held.get(tap)
        if held is None or any(self._waits(recording, tap) for recording in self._late):
            return
        del self._held[tap]
        tap.detach(held)
        held.end()

    def _waits(self, recording: Recording, tap: Tap) -> bool:
        """Return whether the recording may still select this connection."""
        heard = recording.sink in tap.sinks or tap in recording.dropped
        return not heard and not tap.over and self._judge(recording, tap) is Verdict.LATER

    # ---- events of connections -----------------------------------------------------------------------------------

    def opened(self, tap: Tap) -> None:
        """See `penstock.observe.taps.connections.Opening`."""
        for recording in self.recordings:
            self._consider(recording, tap)

    def used(self, tap: Tap, use: Use) -> None:
        for recording in tuple(self._late):
            if recording.selection.wants(use) and self._waits(recording, tap):
                self._begin(recording, tap, use)

    def dropped(self, tap: Tap, sink: Sink, generation: int) -> None:
        recording = self._recordings.get(sink)
        if recording is not None:
            recording.dropped[tap] = generation
            self._dropping.unpark_all()

    def ended(self, tap: Tap) -> None:
        for recording in self.recordings:
            recording.dropped.pop(tap, None)
        self._release(tap)

    # ---- dropped connections -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Attach dropped connections again when their sink's `generation` has grown. Never returns."""
        while True:
            if any(recording.dropped for recording in self.recordings):
                await trio.sleep(_LOOK_SECONDS)
                for recording in self.recordings:
                    for _ in self._attach_again(recording):
                        await trio.lowlevel.checkpoint()
            else:
                await self._dropping.park()

    def _attach_again(self, recording: Recording) -> Iterator[None]:
        """Attach dropped connections again, in steps as `attach_open`: they may end, and the recording may be stopped,
        meanwhile."""
        generation = recording.sink.generation
        again = [tap for tap, then in recording.dropped.items() if then != generation]
        for turn, tap in enumerate(again, 1):
            if recording.dropped.pop(tap, None) is not None:
                tap.attach(recording.sink, continued=True)
            if turn % _AT_ONCE == 0:
                yield
