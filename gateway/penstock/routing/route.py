"""A route as it runs, and the decision that it makes about a stream."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.identity import Client
from penstock.metrics.meters import Meter, meter
from penstock.routing.rewriting import Rewriting
from penstock.routing.target import TargetHolder
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.model import StreamRef

__all__ = ["Decision", "Route"]


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """`listeners`: kinds (`s2`) and single ones (`s2.public`); none: all. `identities`: none: anybody.
    `create_streams`: whether clients may create streams. `read_only`: whether they may change nothing. `mirror`: the
    name of the back that gets the same, if any."""

    name: str
    rewriting: Rewriting
    holder: TargetHolder
    listeners: frozenset[str] = frozenset()
    identities: frozenset[str] = frozenset()
    create_streams: bool = True
    mirror: str | None = None
    read_only: bool = False

    def serves(self, listener: str) -> bool:
        """Whether clients of this listener may take it; `listener` as `s2` or `s2.public`."""
        return not self.listeners or not self.listeners.isdisjoint((listener, listener.partition(".")[0]))

    def admits(self, client: Client) -> bool:
        """Whether this client may take it."""
        return not self.identities or client.identity in self.identities


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a stream is: on which target, and by what name. `route` None: in the embedded store, as it is."""

    route: Route | None
    holder: TargetHolder
    asked: StreamRef
    there: StreamRef

    @property
    def creates(self) -> bool:
        """Whether clients may create the stream."""
        return self.route is None or (self.route.create_streams and not self.route.read_only)

    @property
    def meter(self) -> Meter:
        """What is measured of the current client's use of it."""
        return meter("" if self.route is None else self.route.name, self.holder.target.name)

    def check_change(self) -> None:
        """Raises PERMISSION_DENIED where clients may change nothing."""
        if self.route is not None and self.route.read_only:
            why = f"route {self.route.name}, which has stream {self.asked}, is only for reading"
            raise fail(FailureCode.PERMISSION_DENIED, why)
