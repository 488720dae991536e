"""All series of a process at one moment, as bytes for another process, and those of several as one.

Counters and histograms are added up. So are gauges, but for those whose family says that the largest or smallest counts
(`Merge`): the state of a circuit, the time of the last reload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import add
from typing import Final

import msgspec

from penstock.metrics.families import FAMILIES
from penstock.metrics.process import process_samples
from penstock.metrics.series import Merge, Spread, looked_up, watching
from penstock.metrics.standing import standing_samples

__all__ = ["State", "current", "merge", "merged", "snapshot"]

Value = float | list[float]
"""A number; of a histogram how many values fell into each part, and their sum at the end."""
State = dict[str, dict[tuple[str, ...], Value]]
"""For each family the series by the values of their labels."""

_Packed = list[tuple[str, list[tuple[tuple[str, ...], Value]]]]
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Packed).decode
_JOIN: Final[Mapping[Merge, Callable[[float, float], float]]] = {Merge.SUM: add, Merge.MAX: max, Merge.MIN: min}


def current() -> State:
    """What this process has now, with what its sources say."""
    with watching(process_samples), watching(standing_samples):
        asked = looked_up()
    state: State = {}
    for family in FAMILIES:
        series: dict[tuple[str, ...], Value] = {}
        for labels, child in family.children().items():
            series[labels] = [*child.counts, child.total] if isinstance(child, Spread) else child.value
        for labels, value in asked.get(family.name, {}).items():
            kept = series.get(labels, 0)
            assert not isinstance(kept, list), f"{family.name} is a histogram, which no source may speak of"
            series[labels] = kept + value
        state[family.name] = series
    return state


def merge(states: Iterable[State]) -> State:
    """Several processes as one."""
    found: State = {family.name: {} for family in FAMILIES}
    for state in states:
        for family in FAMILIES:
            series, join = found[family.name], _JOIN[family.merge]
            for labels, value in state.get(family.name, {}).items():
                kept = series.get(labels)
                if kept is None:
                    series[labels] = value
                elif isinstance(kept, list) and isinstance(value, list):
                    series[labels] = list(map(add, kept, value))
                elif not isinstance(kept, list) and not isinstance(value, list):
                    series[labels] = join(kept, value)
    return found


def snapshot() -> bytes:
    """What this process has now, for `merged` in another one that runs the same version."""
    return _encode([(name, list(series.items())) for name, series in current().items()])


def merged(snapshots: Iterable[bytes]) -> State:
    """This process and those whose snapshots these are, as one. Raises msgspec.DecodeError for what is no snapshot."""
    others = [{name: dict(series) for name, series in _decode(one)} for one in snapshots]
    return merge([current(), *others])
