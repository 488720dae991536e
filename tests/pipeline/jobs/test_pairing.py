"""Pairing of streams that protocols name differently."""

from __future__ import annotations

import pytest

from penstock_spark.jobs.audit import paired


def test_names_that_are_known_come_first_then_equal_ones_then_last_parts() -> None:
    left = ["b/orders", "b/same", "b/told", "s/seg/0.#epoch.0", "x/twice", "y/twice", "b/alone"]
    right = ["orders", "b/same", "other", "seg", "twice", "told"]
    assert paired(left, right, {"b/told": "other"}) == {
        "b/told": "other",
        "b/same": "b/same",
        "b/orders": "orders",
        "s/seg/0.#epoch.0": "seg",
    }


def test_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="the left has no stream 'a'"):
        paired(["b"], ["b"], {"a": "b"})
    with pytest.raises(ValueError, match="the right has no stream 'c'"):
        paired(["b"], ["b"], {"b": "c"})
    with pytest.raises(ValueError, match="mapped to the same stream"):
        paired(["a", "b"], ["c"], {"a": "c", "b": "c"})
