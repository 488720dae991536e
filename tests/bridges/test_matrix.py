"""Every front over every back: one workload, compared byte for byte, and the table of it in docs/matrix.md.

A pair is a front (how clients come) and a server behind the gateway. Each kind of server is a second Penstock always,
and a real server where `make peers` put one. What a pair does not carry must be refused, and the table says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.bridges import BRIDGES, Bridge
from support.bridges.client_fronts import ALL_FRONTS
from support.bridges.fronts import Front
from support.bridges.workload import Plan, Shape, Workload, plans
from support.matrix_page import PAGE, Found, render
from support.process import GatewayProcess

FOUND = Found()
QUICKLY = (Phase.explicit, Phase.generate)
"""A plan is not made smaller where it fails: each try costs a second, and the plan is small."""


@pytest.fixture(scope="module", params=BRIDGES, ids=str)
def bridge(request: pytest.FixtureRequest) -> Iterator[tuple[Bridge, GatewayProcess]]:
    """A gateway with one server behind it, which all fronts share."""
    with request.param.running() as gateway:
        yield request.param, gateway


def run(pair: tuple[Bridge, GatewayProcess], front: type[Front], plan: Plan) -> None:
    FOUND.run(*pair, front, plan)


@pytest.mark.parametrize("front", ALL_FRONTS)
@settings(
    max_examples=2,
    derandomize=True,
    database=None,
    phases=QUICKLY,
    suppress_health_check=list(HealthCheck),
)
@given(plan=plans())
def test_a_pair(bridge: tuple[Bridge, GatewayProcess], front: str, plan: Plan) -> None:
    run(bridge, ALL_FRONTS[front], plan)


@pytest.mark.parametrize("front", ALL_FRONTS)
def test_large_records(bridge: tuple[Bridge, GatewayProcess], front: str) -> None:
    """Of 1 MiB, as far as all protocols can say it, between small ones."""
    small, large = Shape(1, 5), Shape(2, min(bridge[0].largest, ALL_FRONTS[front].largest))
    plan = Plan([[small], [large], [small, small]])
    Workload(bridge[1], ALL_FRONTS[front], plan, bridge[0].kind == "s2").run()


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("front", ALL_FRONTS)
@settings(max_examples=40, phases=QUICKLY, suppress_health_check=list(HealthCheck))
@given(plan=plans(larger=True))
def test_a_pair_at_length(bridge: tuple[Bridge, GatewayProcess], front: str, plan: Plan) -> None:
    run(bridge, ALL_FRONTS[front], plan)


def test_the_page_says_what_was_found() -> None:
    """Results of real servers that are not installed here are taken from it."""
    if not FOUND.complete:
        pytest.skip("only some of the pairs were run, so the page cannot be judged")
    committed = PAGE.read_text()
    assert render(FOUND, committed) == committed, "docs/matrix.md is stale: `make pages` writes it"
