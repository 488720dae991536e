"""Routes, and decisions on the route, target and name of a stream."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.core.identity import Client
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.core.permissions import ANY_PERMISSION, Permission, has_trim
from penstock.model.failures import FailureCode, fail
from penstock.model.records import StreamRef
from penstock.observe.metrics.meters import Meter, meter
from penstock.routing.rewriting import Rewriting
from penstock.routing.target import TargetHolder

__all__ = ["Decision", "Route"]


class Route(msgspec.Struct, frozen=True, eq=False):
    """A route. `listeners`: kinds (`s2`) and single ones (`s2.public`), empty for all. `identities`: the clients it is
    for, empty for all. `create_streams`: whether clients may create streams. `allow`: their permissions. `mirror`: the
    name of the back that gets a copy, if any."""

    name: str
    rewriting: Rewriting
    holder: TargetHolder
    listeners: frozenset[str] = frozenset()
    identities: frozenset[str] = frozenset()
    create_streams: bool = True
    mirror: str | None = None
    allow: frozenset[Permission] = ANY_PERMISSION

    def serves(self, listener: str) -> bool:
        """Return whether the route is for clients of this listener, given as `s2` or `s2.public`."""
        return not self.listeners or not self.listeners.isdisjoint((listener, listener.partition(".")[0]))

    @property
    def read_only(self) -> bool:
        """True if clients may only read."""
        return self.allow == {Permission.READ}

    @property
    def manages(self) -> bool:
        """True if clients may create, configure and delete."""
        return Permission.MANAGE in self.allow

    def admits(self, client: Client) -> bool:
        """Return whether the route is for this client."""
        return not self.identities or client.gateway or client.identity in self.identities


class Decision(msgspec.Struct, frozen=True):
    """The routing of a stream. `asked`: its name for the client; `there`: its name on the target. If the route's target
    cannot keep it, `holder` is the embedded store's, and only the permissions are the route's."""

    route: Route
    holder: TargetHolder
    asked: StreamRef
    there: StreamRef

    @property
    def creates(self) -> bool:
        """True if clients may create the stream (`create_streams`). They may always create internal streams, which are
        part of using a stream."""
        if self.asked.basin == INTERNAL_BASIN:
            return True
        return self.route.create_streams and not self.route.read_only

    @property
    def creates_by_reading(self) -> bool:
        """True if a read or a check of the tail may create the stream; they change nothing else."""
        return self.creates and self.route.manages

    @property
    def meter(self) -> Meter:
        """The meter for the current client's operations on the stream."""
        return meter(self.route.name, self.holder.target.name)

    @property
    def restricted(self) -> bool:
        """True if clients lack any permission."""
        return self.route.allow != ANY_PERMISSION

    def check(self, needs: frozenset[Permission]) -> None:
        """Check that clients have at least one of the permissions in `needs`. Raises PERMISSION_DENIED."""
        if not needs.isdisjoint(self.route.allow):
            return
        route = f"route {self.route.name}, which has stream {self.asked},"
        if self.route.read_only:
            raise fail(FailureCode.PERMISSION_DENIED, f"{route} is read-only")
        words = " or ".join(sorted(need.value for need in needs))
        raise fail(FailureCode.PERMISSION_DENIED, f"{route} does not let its clients {words} (allow)")

    def check_append(self, append: Any) -> None:
        """Check that clients who append a batch that trims the stream may manage it. Raises PERMISSION_DENIED."""
        if self.restricted and has_trim(append):
            self.check(frozenset({Permission.MANAGE}))
