"""The state of all families in prometheus_client's words, for its encoders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.registry import Collector

from penstock.metrics.families import AnyFamily
from penstock.metrics.merging import State

__all__ = ["StateCollector"]


class StateCollector(Collector):
    """One family of a state as a collector; also one without series, with its meaning."""

    def __init__(self, state: State, family: AnyFamily) -> None:
        self._series = state.get(family.name, {})
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """The family."""
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
