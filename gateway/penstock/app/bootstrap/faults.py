"""Builds fault injection from a configuration."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.app.config import FaultTable
from penstock.core.back import Back
from penstock.routing.faults.back import FaultyBack, RouteOf
from penstock.routing.faults.rule import Action, Direction, Fault, Kind
from penstock.routing.faults.rules import Faults
from penstock.routing.router import View
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import StreamRef

__all__ = ["fault_settings", "faulty"]


def fault_settings(tables: Iterable[FaultTable]) -> list[Fault]:
    """Return the fault rules of the configuration."""
    return [_fault(table) for table in tables]


def faulty(back: Back, faults: Faults, label: str) -> FaultyBack:
    """Wrap a listener's `back` (the router's view) so that faults are injected into its operations."""
    return FaultyBack(back, faults, label, _route_of(back))


def _route_of(back: Back) -> RouteOf:
    def route_of(stream: StreamRef) -> str:
        inner: object = back
        while not isinstance(inner, View):  # follow wrappers: a SwappableBack may change its inner back
            inner = getattr(inner, "inner", None)
            if inner is None:
                return ""
        try:
            route = inner.decide(stream).route
        except OperationFailed:  # the operation itself reports this to the client
            return ""
        return "" if route is None else route.name

    return route_of


def _fault(table: FaultTable) -> Fault:
    return Fault(
        name=table.name,
        action=Action(table.action),
        direction=Direction(table.towards),
        listeners=frozenset(table.listeners),
        routes=frozenset(table.routes),
        identities=frozenset(table.identity),
        kinds=frozenset(map(Kind, table.operations)),
        pattern=table.pattern(),
        seed=table.seed,
        probability=table.probability,
        every=table.every,
        after=table.after,
        times=table.times,
        delay=table.delay_ms / 1000,
        jitter=table.jitter_ms / 1000,
        cut_after=table.cut_after_bytes,
        bytes_per_second=table.bytes_per_second,
        records=table.records,
        code=FailureCode(table.code),
        message=table.message or f"injected by fault {table.name}",
    )
