"""A recorder with connections, and what they do, for tests."""

from __future__ import annotations

from collections.abc import Mapping

from support.http.client import memory_pair
from support.listening import Heard, tapped_front

from penstock.model.records import StreamRef
from penstock.net.upstream import UpstreamSettings
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tap import CONNECTION, Tap, note_use
from penstock.recorder.pending import PendingConnections
from penstock.recorder.recorder import Recorder
from penstock.recorder.selection import Selection

__all__ = ["ORDERS", "Process", "use"]

ORDERS = Selection(streams=("orders",))


class Process:
    """A recorder, its connections, and what they do."""

    def __init__(self, backs_of_routes: Mapping[str, tuple[str, ...]] | None = None, **holding: int) -> None:
        self.connections = Connections()
        self.holding = PendingConnections(**holding)
        self.recorder = Recorder(self.connections, backs_of_routes or {}, self.holding)
        self._numbers = iter(range(1, 1_000_000))

    def front(self) -> Tap:
        return tapped_front(memory_pair()[1], number=next(self._numbers), connections=self.connections).tap

    def back(self, name: str) -> Tap:
        stream = memory_pair()[0]
        return self.connections.dialled(stream, UpstreamSettings(name=name, host="x", port=1, protocol="s2")).tap

    def record(self, selection: Selection = ORDERS, heard: Heard | None = None) -> Heard:
        heard = heard or Heard()
        for _ in self.recorder.attach_open(self.recorder.start(selection, heard)):
            """Traffic would have its turn."""
        return heard

    def stop(self, heard: Heard) -> None:
        (recording,) = [one for one in self.recorder.recordings if one.sink is heard]
        self.recorder.stop(recording)


def use(tap: Tap, stream: str = "orders", route: str = "", identity: str = "") -> None:
    """A request comes by the connection."""
    token = CONNECTION.set(tap)
    note_use(route, StreamRef("penstock", stream), identity)
    CONNECTION.reset(token)
