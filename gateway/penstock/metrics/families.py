"""The metric families of one process, each with its name, type, labels, unit and meaning.

Names follow Prometheus: `penstock_` first, base units (bytes, seconds), `_total` for counters. The labels that several
share mean the same everywhere: `listener` (`listeners.s2`), `route` ("" where there are no routes), `back`
(`embedded`), `protocol` (`s2s`, `sse`, `s2`, `s3p`, `segment`, `controller`), `direction` (`in`: towards the
gateway's streams, `out`: from them), `code` (a failure's code), `limit` (the configuration's key of a limit).
docs/metrics.md is written from this table.

Whatever is counted as it happens is incremented here (about 1 us: per batch, request or connection, never per record).
Whatever can be looked up when somebody asks is given by a collector instead (`penstock.metrics.collecting`).
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter

__all__ = ["LIMITED", "REGISTRY"]

REGISTRY: Final = CollectorRegistry(auto_describe=True)
"""All families of this process."""

LIMITED: Final = Counter(
    "penstock_limited_total",
    "Refusals, cuts and waits by a named limit of the configuration.",
    ("listener", "limit"),
    registry=REGISTRY,
)
"""By every limit: `limit` is its key as it stands in the configuration, as `max_connections_per_client`."""
