"""The conformance suites of `penstock conform` against servers with planted faults: a relay before a gateway rewrites
what either says, and exactly the cases fail that are about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import trio
from conformance.planted import FAULTS
from support.process import CONFIG, GatewayProcess, running_gateway
from support.rewriting_relay import Fault, relayed

from penstock.protocols.conformance import ConformanceCase, Suite, TestedServer
from penstock.tools.conforming import CaseOutcome, chosen_cases, reached_server, run_cases
from penstock.tools.target.back import TargetOptions
from penstock.tools.target.url import parse_target

KINDS = {"pravega": "controller"}
"""Kinds of listeners by scheme, if their names differ."""
PATIENCE = {"kafka": 5.0}
"""Seconds that cases wait for an answer which a planted fault keeps back; 3 by default. Groups begin after three."""
AT_ONCE = 4
"""Cases that run at once, as most of them wait."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """A gateway whose groups do not wait for more members."""
    with running_gateway(CONFIG.replace("[listeners.kafka]", "[listeners.kafka]\nfirst_rebalance_seconds = 0")) as one:
        yield one


def suite_of(protocol: str) -> Suite:
    server = parse_target(f"{protocol}://127.0.0.1:1")
    suite = server.kind.suite(server)
    assert suite is not None
    return suite


def planted() -> Iterator[object]:
    for protocol, faults in FAULTS.items():
        for name, (fault, only, cases) in faults.items():
            yield pytest.param(protocol, fault, only, cases, id=f"{protocol}: {name}")


@pytest.mark.parametrize("protocol", FAULTS)
def test_each_case_finds_a_planted_fault(protocol: str) -> None:
    found = set[str]().union(*(cases for _, _, cases in FAULTS[protocol].values()))
    assert {case.name for case in suite_of(protocol).cases} == found


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "fault", "only", "cases"), list(planted()))
async def test_a_planted_fault_is_found(
    protocol: str, fault: Fault, only: str, cases: set[str], gateway: GatewayProcess
) -> None:
    """Exactly the cases fail that are about it."""
    suite = suite_of(protocol)
    async with relayed(getattr(gateway, f"{KINDS.get(protocol, protocol).partition('+')[0]}_port"), fault) as port:
        server = parse_target(f"{protocol}://127.0.0.1:{port}")
        tested = reached_server(server, TargetOptions(), PATIENCE.get(protocol, 3.0))
        assert await failing(suite, tested, chosen_cases(suite, only.split())) == cases


async def failing(suite: Suite, server: TestedServer, cases: Sequence[ConformanceCase[Any]]) -> set[str]:
    """Run cases, several at once; return the names of those that fail.

    `run_cases` begins with a connection on which it sends nothing. The gateway slows clients that open many of those,
    so it is called once for many cases.
    """
    found: set[str] = set()

    async def run(share: Sequence[ConformanceCase[Any]]) -> None:
        async for result in run_cases(suite, server, share):
            if result.outcome is CaseOutcome.FAIL:
                found.add(result.case.name)

    async with trio.open_nursery() as nursery:
        for number in range(min(AT_ONCE, len(cases))):
            nursery.start_soon(run, cases[number::AT_ONCE])
    return found
