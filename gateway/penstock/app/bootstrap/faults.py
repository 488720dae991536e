"""Builds fault injection from a configuration."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.app.config import FaultTable
from penstock.model.failures import FailureCode
from penstock.routing.faults.rule import Action, Fault, FaultDirection, MessageKind

__all__ = ["fault_settings"]


def fault_settings(tables: Iterable[FaultTable]) -> list[Fault]:
    """Return the fault rules of the configuration."""
    return [_fault(table) for table in tables]


def _fault(table: FaultTable) -> Fault:
    return Fault(
        name=table.name,
        action=Action(table.action),
        direction=FaultDirection(table.towards),
        listeners=frozenset(table.listeners),
        routes=frozenset(table.routes),
        identities=frozenset(table.identity),
        kinds=frozenset(map(MessageKind, table.operations)),
        pattern=table.pattern(),
        seed=table.seed,
        probability=table.probability,
        every=table.every,
        after=table.after,
        times=min(filter(None, (table.times, table.cut_places)), default=0),
        delay=table.delay_ms / 1000,
        jitter=table.jitter_ms / 1000,
        cut_after=table.cut_after_bytes,
        cut_places=table.cut_places,
        bytes_per_second=table.bytes_per_second,
        piece_bytes=table.piece_bytes,
        records=table.records,
        code=FailureCode(table.code),
        message=table.message or f"injected by fault {table.name}",
    )
