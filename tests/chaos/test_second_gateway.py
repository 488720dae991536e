"""Bridges to a second gateway: whatever happens at whichever message boundary, clients see one log."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from chaos.pairs import PAIRS, run
from chaos.wire import Act, Direction, Kind

SAMPLE = 5
"""Boundaries of each of several histories that something happens at."""


def acts(name: str, seed: int) -> list[Act]:
    """Every kind of trouble at every boundary of a pair's history."""
    messages = run(PAIRS[name], seed=seed).messages
    return [
        Act(kind, direction, number)
        for kind in Kind
        for direction in Direction
        for number in range(len(messages[direction]))
    ]


def check(name: str, seed: int, chosen: Iterable[Act]) -> None:
    """Run the history of a seed once for each act."""
    for act in chosen:
        try:
            assert run(PAIRS[name], act, seed).acted
        except Exception as error:
            error.add_note(f"{name}, seed {seed}: {act}")
            raise


def check_some(name: str, seeds: Iterable[int], boundaries: int = SAMPLE) -> None:
    """Check a few boundaries of several histories."""
    for seed in seeds:
        check(name, seed, random.Random(f"{name} {seed}").sample(acts(name, seed), boundaries))


@pytest.mark.parametrize("name", PAIRS)
def test_some_boundaries(name: str) -> None:
    check_some(name, [0], boundaries=2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAIRS)
def test_many_histories(name: str) -> None:
    check_some(name, range(6))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PAIRS)
def test_very_many_histories(name: str) -> None:
    check_some(name, range(6, 200))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("name", PAIRS)
def test_all_boundaries(name: str, kind: Kind) -> None:
    check(name, 0, [act for act in acts(name, 0) if act.kind is kind])
