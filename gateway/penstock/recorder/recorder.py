"""The recordings of one process: which are running, and which connections they hear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.recorder.connections import Connections
from penstock.recorder.selection import Selection
from penstock.recorder.sink import Sink

__all__ = ["Recorder", "Recording"]


@dataclass(eq=False, slots=True)
class Recording:
    """One that runs. `id`: of the process, from 1; `kind`: `file` or `live`; `since_ns`: when it began."""

    id: int
    kind: str
    selection: Selection
    sink: Sink
    since_ns: int


class Recorder:
    """Attaches sinks to taps as connections open and as it becomes known what they are about.

    While a recording selects by what only requests say (identity, route, stream), connections that may still become its
    own are held back: the last bytes of each, up to a bound, are told when they do.
    """

    def __init__(self, connections: Connections, backs_of_routes: Mapping[str, Sequence[str]]) -> None:
        """`backs_of_routes`: for each route the backs that it leads to, mirrors included."""

    def start(self, selection: Selection, sink: Sink, kind: str = "file") -> Recording:
        """Connections that are open are taken from their middle."""

    def stop(self, recording: Recording) -> None:
        """Tell its sink nothing more. Closing the sink is the caller's."""

    @property
    def recordings(self) -> Sequence[Recording]:
        """Those that run."""

    async def run(self) -> None:
        """For ever: connections that a sink dropped are told to it again when its `generation` grows."""
