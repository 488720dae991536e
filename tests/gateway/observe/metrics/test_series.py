"""Families and their series."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import ProcessCollector

from penstock.observe.metrics.exposition import render, render_parts
from penstock.observe.metrics.families import LIMITED, STORE_PENDING
from penstock.observe.metrics.series import Count, Family, Histogram, MetricKind, Sample, looked_up, sampling
from penstock.observe.metrics.state import current, process_samples


def test_a_spread_has_each_value_where_it_belongs() -> None:
    spread = Histogram((1.0, 2.0, 4.0))
    for value in (0.5, 1.0, 1.5, 4.0, 4.1, 100):
        spread.observe(value)
    assert spread.counts == [2, 1, 1, 2]
    assert spread.total == pytest.approx(111.1)


def test_a_family_knows_its_labels() -> None:
    family = Family("x_total", MetricKind.COUNTER, "X.", ("a", "b"), Count)
    family.child("1", "2").inc()
    family.labels("1", b="2").inc(2)
    family.labels(b="2", a="1").inc()
    assert {labels: child.value for labels, child in family.children().items()} == {("1", "2"): 4}
    with pytest.raises(ValueError, match="labels"):
        family.child("1")
    with pytest.raises(KeyError):
        family.labels(a="1", c="2")


def test_one_without_labels_is_there_from_the_beginning() -> None:
    assert [child.value for child in Family("x", MetricKind.GAUGE, "X.", (), Count).children().values()] == [0]


def test_sources_are_asked_while_they_are_watched_and_added_up() -> None:
    def source() -> Iterator[Sample]:
        yield Sample(STORE_PENDING, (), 3)

    with sampling(source), sampling(source):
        assert looked_up()[STORE_PENDING.name] == {(): 6}
        assert current()[STORE_PENDING.name] == {(): 6 + STORE_PENDING.child().value}
    assert STORE_PENDING.name not in looked_up()


def test_parts_are_the_whole() -> None:
    for accept in ("", "application/openmetrics-text"):
        content_type, parts = render_parts(accept)
        pieces = list(parts)
        assert len(pieces) > 50
        assert all(piece.count(b"# TYPE ") <= 1 for piece in pieces)
        assert content_type == render(accept)[0]
        assert pieces[-1].endswith(b"# EOF\n") == bool(accept)
        assert b"".join(pieces).count(b"# EOF") == int(bool(accept))


def test_values_of_labels_are_quoted() -> None:
    LIMITED.labels('a"b\\c\nd', "quoted").inc()
    assert b'listener="a\\"b\\\\c\\nd"' in render()[1]


def test_the_process_is_as_prometheus_own_collector_sees_it() -> None:
    ours = {
        sample.family.name.removesuffix("_total"): sample.value for sample in process_samples() if not sample.labels
    }
    theirs = {metric.name: metric.samples[0].value for metric in ProcessCollector(registry=None).collect()}
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"process_virtual_memory_bytes", "process_resident_memory_bytes"}:
        assert ours[name] == pytest.approx(theirs[name], abs=1), name
    for name in ("process_virtual_memory_bytes", "process_resident_memory_bytes"):
        assert ours[name] == pytest.approx(theirs[name], rel=0.1), name
