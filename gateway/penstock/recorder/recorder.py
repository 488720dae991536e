"""The recordings of one process: which are running, and which connections they hear."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from penstock.recorder.connections import Connections
from penstock.recorder.holding import HeldBack, Holding
from penstock.recorder.selection import Selection, Verdict
from penstock.recorder.sink import Sink
from penstock.recorder.tap import Tap, Use

__all__ = ["Recorder", "Recording"]

_LOOK_SECONDS: Final = 0.25
"""How often it is looked whether a sink takes dropped connections again."""
_AT_ONCE: Final = 50
"""So many open connections are attached while traffic waits: 1 to 2 ms. 10,000 took up to 0.4 s."""


@dataclass(eq=False, slots=True)
class Recording:
    """One that runs. `id`: counted from 1 in each process; `since_ns`: when it began."""

    id: int
    selection: Selection
    sink: Sink
    since_ns: int = field(default_factory=time.time_ns)
    dropped: dict[Tap, int] = field(default_factory=dict, repr=False)
    """Connections that the sink dropped, each with the sink's generation when it still took them."""


class Recorder:
    """Attaches sinks to taps as connections open, and as their requests show what they are about.

    While a recording selects by what only requests say (identity, route, stream), connections that may still become its
    own are held back: what went by on each, up to a bound, is told when they do.
    """

    def __init__(
        self,
        connections: Connections,
        backs_of_routes: Mapping[str, Collection[str]],
        holding: Holding | None = None,
    ) -> None:
        """`backs_of_routes`: for each route the backs that it leads to, mirrors included."""
        self._connections = connections
        self.backs_of_routes = backs_of_routes
        self._holding = holding or Holding()
        self._recordings: dict[Sink, Recording] = {}
        self._late: list[Recording] = []
        self._held: dict[Tap, HeldBack] = {}
        self._ids = itertools.count(1)
        self._dropping = trio.lowlevel.ParkingLot()
        connections.watcher = self

    @property
    def recordings(self) -> Sequence[Recording]:
        """Those that run, the oldest first."""
        return tuple(self._recordings.values())

    # ---- recordings ----------------------------------------------------------------------------------------------

    def start(self, selection: Selection, sink: Sink) -> Recording:
        """From now on the sink is told of the connections that it wants and that open; see `attach_open`."""
        recording = self._recordings[sink] = Recording(next(self._ids), selection, sink)
        if selection.late:
            self._late.append(recording)
        return recording

    def attach_open(self, recording: Recording) -> Iterator[None]:
        """The sink is told of the connections that are open already, from their middle: of a few with each step, so
        that traffic can have its turn. It may be stopped meanwhile."""
        for turn, tap in enumerate(self._connections, 1):
            if recording.sink not in self._recordings:
                return
            if not tap.over and tap not in recording.dropped:
                self._consider(recording, tap)
            if turn % _AT_ONCE == 0:
                yield

    def stop(self, recording: Recording) -> None:
        """The sink is told nothing more; closing it is the caller's. May be called more than once."""
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
        """A connection that may have been held back is wanted."""
        held = self._held.get(tap)
        if held is None:
            tap.attach(recording.sink, use)
        else:
            tap.join(recording.sink, held.events, use)
            self._release(tap)

    def _release(self, tap: Tap) -> None:
        """Hold nothing back for which nobody waits."""
        held = self._held.get(tap)
        if held is None or any(self._waits(recording, tap) for recording in self._late):
            return
        del self._held[tap]
        tap.detach(held)
        held.end()

    def _waits(self, recording: Recording, tap: Tap) -> bool:
        """Whether a recording may begin to want it."""
        heard = recording.sink in tap.sinks or tap in recording.dropped
        return not heard and not tap.over and self._judge(recording, tap) is Verdict.LATER

    # ---- what connections say ------------------------------------------------------------------------------------

    def opened(self, tap: Tap) -> None:
        """See `penstock.recorder.connections.Opening`."""
        for recording in self.recordings:
            self._consider(recording, tap)

    def used(self, tap: Tap, use: Use) -> None:
        """See `penstock.recorder.tap.Watcher`."""
        for recording in tuple(self._late):
            if recording.selection.wants(use) and self._waits(recording, tap):
                self._begin(recording, tap, use)

    def dropped(self, tap: Tap, sink: Sink, generation: int) -> None:
        """See `penstock.recorder.tap.Watcher`."""
        recording = self._recordings.get(sink)
        if recording is not None:
            recording.dropped[tap] = generation
            self._dropping.unpark_all()

    def ended(self, tap: Tap) -> None:
        """See `penstock.recorder.tap.Watcher`."""
        for recording in self.recordings:
            recording.dropped.pop(tap, None)
        self._release(tap)

    # ---- dropped connections -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever: connections that a sink dropped are told to it again when its `generation` has grown."""
        while True:
            if any(recording.dropped for recording in self.recordings):
                await trio.sleep(_LOOK_SECONDS)
                for recording in self.recordings:
                    for _ in self._attach_again(recording):
                        await trio.lowlevel.checkpoint()
            else:
                await self._dropping.park()

    def _attach_again(self, recording: Recording) -> Iterator[None]:
        """In steps, as `attach_open`: they end, and the recording is stopped, meanwhile."""
        generation = recording.sink.generation
        again = [tap for tap, then in recording.dropped.items() if then != generation]
        for turn, tap in enumerate(again, 1):
            if recording.dropped.pop(tap, None) is not None:
                tap.attach(recording.sink, continued=True)
            if turn % _AT_ONCE == 0:
                yield
