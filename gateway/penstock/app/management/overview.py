"""The parts of a gateway that the management listener shows; the wiring, which knows them all, supplies them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.core.back import Back
from penstock.protocols.terms import Terms

if TYPE_CHECKING:
    from penstock.routing.mirror.route import MirroredRoute

__all__ = ["BackView", "Circuit", "ListenerView", "Overview", "RouteView"]


class Circuit(NamedTuple):
    """A back's circuit breaker: `state` (`closed`, `open`, `half-open`), the time of its last change (ms since the
    epoch; None if it never changed), and the failure behind that ("" for none). `wants_request`: only a client's
    request, which is due, can find out whether the server answers again."""

    state: str
    since: int | None = None
    reason: str = ""
    wants_request: bool = False


CLOSED: Final = Circuit("closed")


class BackView(msgspec.Struct, frozen=True, kw_only=True):
    """One back. `address`: HOST:PORT, "" for the embedded store. `circuit` is read for each answer. `probe`: if the
    circuit is open and its pause is over, tries one connection, whose outcome decides; None: it cannot be probed.
    `required`: whether the gateway is not ready while the circuit is open; None: only if no route leads to another."""

    name: str
    kind: str
    address: str = ""
    circuit: Callable[[], Circuit] = lambda: CLOSED
    probe: Callable[[], Awaitable[None]] | None = None
    required: bool | None = None


class RouteView(msgspec.Struct, frozen=True, kw_only=True):
    """One route. `match`: the streams and clients that it is for, in plain words. `back`: the configured back's name;
    `mirrored` knows which side is in use."""

    name: str
    match: str
    back: str
    mirrored: MirroredRoute | None = None

    @property
    def leads_to(self) -> str:
        """The back that answers its clients now."""
        return self.back if self.mirrored is None else self.mirrored.primary


class ListenerView(msgspec.Struct, frozen=True, kw_only=True):
    """A listener as its clients see it. `back`: its view of the router. `terms`: its clients' terms."""

    name: str
    kind: str
    back: Back
    terms: Terms = msgspec.field(default_factory=Terms)


class Overview(msgspec.Struct, kw_only=True):
    """All parts. A request that names no listener uses the names of the first listener of its kind."""

    listeners: Sequence[ListenerView]
    routes: Mapping[str, RouteView] = msgspec.field(default_factory=dict)
    backs: Sequence[BackView] = ()
