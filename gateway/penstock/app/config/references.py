"""Checks of names that one table of the configuration uses and another defines."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from penstock.app.config.backs import EMBEDDED, BackTable, kind_of_back
from penstock.app.config.faults import FaultTable
from penstock.app.config.listeners import Listeners, listener_kind_of
from penstock.app.config.recorder import RecorderTable
from penstock.app.config.routes import IdentityTable, RouteTable
from penstock.core.matching import Match, NamePattern
from penstock.protocols.plugin import back_kinds, listener_kinds

__all__ = ["check_faults", "check_recorder", "check_references", "check_state", "state_back"]

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def check_references(
    listeners: Listeners,
    backs: Mapping[str, BackTable],
    routes: Sequence[RouteTable],
    identities: Sequence[IdentityTable],
) -> Iterator[str]:
    """Yield each name that is unknown, used twice, or malformed, with what is wrong with it."""
    for name in backs:
        if name == EMBEDDED:
            yield "[backs.embedded]: the name is reserved for the embedded store"
        elif not _NAME.fullmatch(name):
            yield f"[backs]: {name!r} is not a name: use A-Z, a-z, 0-9, '.', '_' and '-'"
    yield from _check_unique("route", [route.name for route in routes])
    yield from _check_unique("identity", [identity.name for identity in identities])
    yield from _check_unique(
        "username", [identity.username for identity in identities if identity.username is not None]
    )
    known = [identity.name for identity in identities]
    labels = [label for label, _ in listeners.labelled()]
    kinds = {listener_kind_of(label) for label in labels}
    for route in routes:
        where = f"route {route.name}: "
        yield from _check_known(where + "back", [route.back], [EMBEDDED, *backs])
        yield from _check_known(where + "mirror", [route.mirror] if route.mirror else [], [EMBEDDED, *backs])
        yield from _check_known(where + "listeners", route.listeners, {*labels, *kinds})
        yield from _check_known(where + "identity", route.identity, known)
        mirror, back = backs.get(route.mirror or ""), backs.get(route.back)
        if mirror is not None and not back_kinds()[kind_of_back(mirror)].side(mirror).appends:
            yield f"{where}mirror: {route.mirror} is of kind {kind_of_back(mirror)}, to which nothing can be appended"
        for kind in sorted(kinds):
            served = not route.listeners or any(listener_kind_of(label) == kind for label in route.listeners)
            if back is not None and served:
                yield from _check_reads(where, kind, route.back, back)
    for name, back in backs.items():
        yield from _check_known(f"back {name}: tokens", getattr(back, "tokens", ()), known)


def state_back(backs: Mapping[str, BackTable]) -> str | None:
    """Return the name of the back whose server keeps the gateway's state, None if the embedded store does. Raises
    ValueError if there are several."""
    names = [name for name, table in backs.items() if back_kinds()[kind_of_back(table)].keeps_state(table)]
    if len(names) > 1:
        raise ValueError(f"backs {' and '.join(names)}: one of them can keep the gateway's state, not both")
    return names[0] if names else None


def check_state(
    backs: Mapping[str, BackTable], routes: Sequence[RouteTable], embedded: Mapping[str, bool]
) -> Iterator[str]:
    """Yield what needs the embedded store, which does not exist if the gateway's state is at a server. `embedded`: keys
    that need it, and whether they are given."""
    try:
        name = state_back(backs)
    except ValueError as error:
        yield str(error)
        return
    if name is None:
        return
    reason = f"back {name} keeps the gateway's state, so there is no embedded store"
    if not routes:
        yield f"{reason}: give [[routes]]"
    for route in routes:
        if EMBEDDED in (route.back, route.mirror):
            yield f"route {route.name}: {reason}"
    for key, is_set in embedded.items():
        if is_set:
            yield f"{key}: {reason}"
    for other, table in backs.items():
        if getattr(table, "exclusive", False):
            yield f"back {other}: exclusive: an append of a gateway that was killed may come late"


def check_faults(
    faults: Sequence[FaultTable],
    listeners: Listeners,
    routes: Sequence[RouteTable],
    identities: Sequence[IdentityTable],
) -> Iterator[str]:
    """Yield each listener, route or identity that a fault names and that does not exist."""
    yield from _check_unique("fault", [fault.name for fault in faults])
    labels = [label for label, _ in listeners.labelled()]
    for fault in faults:
        where = f"fault {fault.name}: "
        yield from _check_known(
            where + "listeners", fault.listeners, {*labels, *(listener_kind_of(label) for label in labels)}
        )
        yield from _check_known(where + "routes", fault.routes, [route.name for route in routes])
        yield from _check_known(where + "identity", fault.identity, [identity.name for identity in identities])


def check_recorder(
    recorder: RecorderTable, listeners: Listeners, backs: Mapping[str, BackTable], routes: Sequence[RouteTable]
) -> Iterator[str]:
    """Yield each listener, back or route that the recorder names and that does not exist."""
    labels = [label for label, _ in listeners.labelled()]
    yield from _check_known(
        "recorder.listeners", recorder.listeners, {*labels, *(listener_kind_of(label) for label in labels)}
    )
    yield from _check_known("recorder.backs", recorder.backs, backs)
    names = [route.name for route in routes]
    for glob in recorder.routes:
        pattern = NamePattern.compile(Match.GLOB, glob)
        if not any(pattern.match(name) is not None for name in names):
            yield from _check_known("recorder.routes", [glob], names)


def _check_reads(where: str, listener: str, name: str, back: BackTable) -> Iterator[str]:
    """Yield each capability that reads of a listener's clients need and that a back lacks."""
    needs, kind = listener_kinds()[listener], back_kinds()[kind_of_back(back)]
    for capability, missing in needs.reads_need.items():
        if capability not in kind.side(back).capabilities:
            yield (
                f"{where}clients of {needs.title} cannot read from {name}, since a back of kind {kind.kind} has no "
                f"{missing}; exclude its listeners with `listeners`"
            )


def _check_unique(kind: str, names: Sequence[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{kind} {name} is defined twice: give each a name of its own"


def _check_known(where: str, names: Iterable[str], defined: Collection[str]) -> Iterator[str]:
    for name in names:
        if name not in defined:
            near = difflib.get_close_matches(name, defined, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(sorted(defined)) or 'none'}"
            yield f"{where}: {name} is unknown; {hint}"
