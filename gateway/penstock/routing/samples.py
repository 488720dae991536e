"""Metrics of a router's backs and mirrors, sampled on every scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.net.breaker import BreakerState
from penstock.observe.metrics.families import (
    BACK_CIRCUIT,
    MIRROR_LAG_RECORDS,
    MIRROR_LAG_SECONDS,
    MIRROR_STREAMS,
    MIRROR_STREAMS_DIFFERING,
    MIRROR_STREAMS_STOPPED,
)
from penstock.observe.metrics.series import Sample
from penstock.routing.router import Router

__all__ = ["router_samples"]

_MIRROR: Final = (
    (MIRROR_LAG_RECORDS, "lag_records", 1.0),
    (MIRROR_LAG_SECONDS, "lag_ms", 0.001),
    (MIRROR_STREAMS, "streams", 1.0),
    (MIRROR_STREAMS_STOPPED, "streams_stopped", 1.0),
    (MIRROR_STREAMS_DIFFERING, "streams_differing", 1.0),
)
"""Metric families, each with its key in the mirror's status and the factor from that value to the metric's unit."""


def router_samples(router: Router) -> Iterator[Sample]:
    """See `penstock.observe.metrics.series.Source`."""
    for name, target in router.targets.items():
        if target.breaker is not None:
            for state in BreakerState:
                yield Sample(BACK_CIRCUIT, (name, state.value), float(target.breaker.state is state))
    for name, mirrored in router.mirrored.items():
        status = mirrored.status()
        for family, key, unit in _MIRROR:
            yield Sample(family, (name,), status[key] * unit)
