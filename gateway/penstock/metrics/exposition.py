"""What `GET /metrics` answers: the text format of Prometheus, or OpenMetrics for who accepts that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock.metrics.collecting import StateCollector
from penstock.metrics.families import FAMILIES, SCRAPE_SECONDS
from penstock.metrics.merging import State, merged

__all__ = ["render", "render_parts"]

_END: Final = b"# EOF\n"
"""Of OpenMetrics, behind everything."""


def render(accept: str = "", snapshots: Iterable[bytes] = ()) -> tuple[str, bytes]:
    """The content type and the body, for a request with this `accept` header. `snapshots`: of other processes, whose
    series are added (`penstock.metrics.merging`)."""
    content_type, parts = render_parts(accept, snapshots)
    return content_type, b"".join(parts)


def render_parts(accept: str = "", snapshots: Iterable[bytes] = ()) -> tuple[str, Iterator[bytes]]:
    """The same in parts, one for each family, for who lets others have their turn in between. All values are those of
    one moment.

    A line takes about 15 us, and a route with traffic has some 60 of them in each direction; no series is about a
    connection, client or stream, so that their number makes no difference.
    """
    encode, content_type = choose_encoder(accept)
    state = merged(snapshots)
    return content_type, _parts(encode, state, content_type.startswith("application/openmetrics-text"))


def _parts(encode: Callable[[Collector], bytes], state: State, ends: bool) -> Iterator[bytes]:
    seconds = 0.0
    for family in FAMILIES:
        began = perf_counter()
        part = encode(StateCollector(state, family))
        seconds = max(seconds, perf_counter() - began)
        yield part.removesuffix(_END)
    SCRAPE_SECONDS.child().value = seconds
    if ends:
        yield _END
