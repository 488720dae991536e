"""What the management listener shows: filled in by the wiring, which knows all parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.backs.base import Back
from penstock.mirror.route import MirroredRoute
from penstock.routing.names import S3PNames
from penstock.routing.segments import SegmentNames

__all__ = ["BackView", "Circuit", "ListenerView", "Overview", "RouteView"]


class Circuit(NamedTuple):
    """A back's circuit breaker: `state` by name (`closed`, `open`, `half-open`), since when (ms since the epoch; None
    where it never changed), and the failure that changed it last ("" for none)."""

    state: str
    since: int | None = None
    reason: str = ""


CLOSED: Final = Circuit("closed")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackView:
    """One back. `address`: HOST:PORT, "" for the embedded store. `circuit` is asked for each answer. `probe`: where the
    circuit is open and its pause over, one connection is tried, which decides; None: nobody can."""

    name: str
    kind: str
    address: str = ""
    circuit: Callable[[], Circuit] = lambda: CLOSED
    probe: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteView:
    """One route. `match`: in plain words, what it is for. `back`: the configured back's name; a mirrored route says
    itself which of the two it is now."""

    name: str
    match: str
    back: str
    mirrored: MirroredRoute | None = None

    @property
    def leads_to(self) -> str:
        """The back that answers its clients now."""
        return self.back if self.mirrored is None else self.mirrored.primary


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerView:
    """A listener as those see it who come by it. `kind`: s2, s3p, segment or controller. `back`: its router.

    `s3p` and `segment`: how names are spelled there, where it is one of these. `sse_dialect`: of an S2 listener.
    """

    name: str
    kind: str
    back: Back
    s3p: S3PNames | None = None
    segment: SegmentNames | None = None
    sse_dialect: str = "s2"


@dataclass(slots=True, kw_only=True)
class Overview:
    """Everything. The first listener of each kind is the one whose names are used where a request names none."""

    listeners: Sequence[ListenerView]
    routes: Mapping[str, RouteView] = field(default_factory=dict)
    backs: Sequence[BackView] = ()
