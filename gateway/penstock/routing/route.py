"""A route as it runs, and the decision that it makes about a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.identity import Client
from penstock.metrics.meters import Meter, meter
from penstock.routing.permissions import ANY, Permission, trims
from penstock.routing.rewriting import Rewriting
from penstock.routing.target import TargetHolder
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.model import StreamRef

__all__ = ["Decision", "Route"]


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """`listeners`: kinds (`s2`) and single ones (`s2.public`); none: all. `identities`: none: anybody.
    `create_streams`: whether clients may create streams. `allow`: what they may do. `mirror`: the name of the back that
    gets the same, if any."""

    name: str
    rewriting: Rewriting
    holder: TargetHolder
    listeners: frozenset[str] = frozenset()
    identities: frozenset[str] = frozenset()
    create_streams: bool = True
    mirror: str | None = None
    allow: frozenset[Permission] = ANY

    def serves(self, listener: str) -> bool:
        """Whether clients of this listener may take it; `listener` as `s2` or `s2.public`."""
        return not self.listeners or not self.listeners.isdisjoint((listener, listener.partition(".")[0]))

    @property
    def read_only(self) -> bool:
        """Whether clients may change nothing."""
        return self.allow == {Permission.READ}

    @property
    def manages(self) -> bool:
        """Whether clients may create, configure and delete."""
        return Permission.MANAGE in self.allow

    def admits(self, client: Client) -> bool:
        """Whether this client may take it."""
        return not self.identities or client.gateway or client.identity in self.identities


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

    @property
    def restricted(self) -> bool:
        """Whether there is anything that clients may not do."""
        return self.route is not None and self.route.allow != ANY

    def check(self, needs: frozenset[Permission]) -> None:
        """Raises PERMISSION_DENIED where clients may do nothing of what is needed one of."""
        if self.route is None or not needs.isdisjoint(self.route.allow):
            return
        route = f"route {self.route.name}, which has stream {self.asked},"
        if self.route.read_only:
            raise fail(FailureCode.PERMISSION_DENIED, f"{route} is only for reading")
        words = " or ".join(sorted(need.value for need in needs))
        raise fail(FailureCode.PERMISSION_DENIED, f"{route} does not let its clients {words} (allow)")

    def check_append(self, append: Any) -> None:
        """Raises PERMISSION_DENIED for a batch that trims the stream, where clients may not manage it."""
        if self.restricted and trims(append):
            self.check(frozenset({Permission.MANAGE}))
