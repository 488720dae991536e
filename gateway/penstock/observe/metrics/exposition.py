"""The answer to `GET /metrics`: the text format of Prometheus, or OpenMetrics for clients that accept that.

It encodes the state of all families with prometheus_client's encoders. Import it with the first request, since they
import much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Final

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock.observe.metrics.families import FAMILIES, SCRAPE_SECONDS, AnyFamily
from penstock.observe.metrics.state import State, current

__all__ = ["StateCollector", "render", "render_parts"]

_END: Final = b"# EOF\n"
"""The end of an OpenMetrics answer, after all families."""


class StateCollector(Collector):
    """A collector for one family of a state, with its meaning even if it has no series."""

    def __init__(self, state: State, family: AnyFamily) -> None:
        self._series = state.get(family.name, {})
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yield the family."""
        family = self._family
        metric = Metric(family.name.removesuffix("_total"), family.meaning, family.kind.value)
        for labels, value in sorted(self._series.items()):
            named = dict(zip(family.label_names, labels, strict=True))
            if not isinstance(value, list):
                metric.add_sample(family.name, named, value)
                continue
            for suffix, more, number in _histogram(family.bounds, value):
                metric.add_sample(family.name + suffix, {**named, **more}, number)
        yield metric


def _histogram(bounds: Sequence[float], value: Sequence[float]) -> Iterable[tuple[str, dict[str, str], float]]:
    *counts, total = value
    below = 0.0
    for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        below += count
        yield "_bucket", {"le": bound}, below
    yield "_count", {}, below
    yield "_sum", {}, total


def render(accept: str = "") -> tuple[str, bytes]:
    """Return content type and body for a request with this `accept` header."""
    content_type, parts = render_parts(accept)
    return content_type, b"".join(parts)


def render_parts(accept: str = "") -> tuple[str, Iterator[bytes]]:
    """Return content type and body, in one part for each family, so that the caller can let other tasks run in between.
    All values are of the same moment.

    A line takes about 15 us, and a route with traffic has some 60 of them in each direction; no series is about a
    connection, client or stream, so that their number makes no difference.
    """
    encode, content_type = choose_encoder(accept)
    return content_type, _parts(encode, current(), content_type.startswith("application/openmetrics-text"))


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
