"""Remarks on valid routes and backs that an operator should know about."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.app.config.backs import kind_of_back
from penstock.app.config.routes import RouteTable
from penstock.app.config.schema import Config
from penstock.core.address import Address
from penstock.protocols.plugin import Advice, back_kinds

__all__ = ["about_routes"]


def about_routes(config: Config) -> Iterator[Advice]:
    """Yield remarks on routes and backs."""
    for index, route in enumerate(config.routes):
        wider = next((earlier_route for earlier_route in config.routes[:index] if _covers(earlier_route, route)), None)
        if wider is not None:
            yield Advice(
                False, f"route {route.name}: unreachable, since route {wider.name} before it takes all its streams."
            )
        yield from _about_others(config.routes[:index], route)
    yield from _about_listings(config)
    yield from _about_mirrors(config)
    used = {name for route in config.routes for name in (route.back, route.mirror)}
    for name, back in config.backs.items():
        if name not in used:
            yield Advice(False, f"backs.{name}: no route uses it.")
        kind = back_kinds()[kind_of_back(back)]
        host = kind.address(back)
        if kind.sends_secrets(back) and not back.tls and not Address.parse(host).is_loopback:
            yield Advice(True, f"backs.{name}: credentials cross the network to {host} in clear text. Set tls = true.")


def _about_others(before: tuple[RouteTable, ...], route: RouteTable) -> Iterator[Advice]:
    """Warn if clients that an earlier route does not admit reach the same streams by this one."""
    for earlier_route in before:
        if not earlier_route.identity or (route.identity and set(route.identity) <= set(earlier_route.identity)):
            continue
        same_place = (earlier_route.back, earlier_route.to_basin, earlier_route.to_stream) == (
            route.back,
            route.to_basin,
            route.to_stream,
        )
        met = not (earlier_route.listeners and route.listeners) or _all_of(
            earlier_route.listeners, route.listeners, prefixes=True
        )
        if same_place and met and (route.takes_all_names or _same_names(route, earlier_route)):
            who, what = ", ".join(earlier_route.identity), _may(route)
            streams = f"the streams of route {earlier_route.name}"
            yield Advice(False, f"route {route.name}: other clients than {who} can {what} {streams} by it.")


def _about_mirrors(config: Config) -> Iterator[Advice]:
    for route in config.routes:
        for name in (route.back, route.mirror) if route.mirror is not None else ():
            back = config.backs.get(name)
            if back is not None and back_kinds()[kind_of_back(back)].needs_client(back):
                reason = f"its mirror copies without an identity, for which back {name} has no token"
                yield Advice(False, f"route {route.name}: {reason}.")


def _about_listings(config: Config) -> Iterator[Advice]:
    for route in config.routes:
        rewriting = route.rewriting()
        there = f"{route.to_basin or '{basin}'}/{route.to_stream or '{stream}'}"
        if not rewriting.changes:
            continue
        if not rewriting.injective:
            yield Advice(False, f"route {route.name}: several streams of clients may become {there}.")
        if not rewriting.shows_streams:
            reason = f"clients' names cannot be told from {there}, so listings leave its streams out"
            yield Advice(False, f"route {route.name}: {reason}.")
        elif not rewriting.shows_basins:
            reason = f"clients' basins cannot be told from {route.to_basin}, so listings of basins leave them out"
            yield Advice(False, f"route {route.name}: {reason}.")


def _covers(earlier: RouteTable, later: RouteTable) -> bool:
    """Return whether the earlier route certainly takes all that the later one could."""
    return (
        _all_of(earlier.listeners, later.listeners, prefixes=True)
        and _all_of(earlier.identity, later.identity)
        and (earlier.takes_all_names or _same_names(earlier, later))
    )


def _all_of(earlier: tuple[str, ...], later: tuple[str, ...], *, prefixes: bool = False) -> bool:
    """Return whether the earlier filter admits all that the later one admits. An empty filter admits all; with
    `prefixes`, a kind of listener admits all its names."""
    if not earlier:
        return True
    return bool(later) and all(name in earlier or (prefixes and name.partition(".")[0] in earlier) for name in later)


def _same_names(earlier: RouteTable, later: RouteTable) -> bool:
    if earlier.basin not in (None, later.basin):
        return False
    if earlier.stream is None:
        return True
    if earlier.match == "prefix" and later.match in ("exact", "prefix") and later.stream is not None:
        return later.stream.startswith(earlier.stream)
    return (earlier.match, earlier.stream) == (later.match, later.stream)


def _may(route: RouteTable) -> str:
    if route.permissions == ("read",):
        return "read"
    return "read and change" if "read" in route.permissions else "change"
