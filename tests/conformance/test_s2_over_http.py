"""The conformance suite of S2 against this gateway, over HTTP/1.1 and HTTP/2; several cases at once, as most wait."""

from __future__ import annotations

import pytest
import trio
from support.process import BASIN, GatewayProcess

from penstock.core.address import Address
from penstock.net.http.client import HttpClient, HttpVersion
from penstock.protocols.conformance import ConformanceCase, TestedServer
from penstock.tools.conforming import CaseOutcome, run_cases
from penstock_s2.conformance import SUITE
from penstock_s2.conformance.session import S2TestSession

AT_ONCE = 4


class Http2Server(TestedServer, frozen=True, kw_only=True):
    """A server of which only HTTP/2 is used, by prior knowledge."""

    def http(self, protocol: str, version: HttpVersion = HttpVersion.H2) -> HttpClient:
        return super().http(protocol, version)


async def outcomes_but_pass(server: TestedServer) -> dict[str, tuple[CaseOutcome, str]]:
    """Run all cases; return the outcomes of those that do not pass, and the reasons."""
    others: dict[str, tuple[CaseOutcome, str]] = {}
    running = trio.CapacityLimiter(AT_ONCE)

    async def run(case: ConformanceCase[S2TestSession]) -> None:
        async with running:
            async for result in run_cases(SUITE, server, [case]):
                if result.outcome is not CaseOutcome.PASS:
                    others[case.name] = result.outcome, result.reason

    async with trio.open_nursery() as nursery:
        for case in SUITE.cases:
            nursery.start_soon(run, case)
    return others


@pytest.mark.parametrize("kind", [TestedServer, Http2Server])
async def test_this_gateway(kind: type[TestedServer], gateway: GatewayProcess) -> None:
    assert await outcomes_but_pass(kind(address=Address("127.0.0.1", gateway.s2_port))) == {}


async def test_a_basin_that_creates_streams(gateway: GatewayProcess) -> None:
    """Unknown streams are not applicable there."""
    others = await outcomes_but_pass(TestedServer(address=Address("127.0.0.1", gateway.s2_port), space=BASIN))
    assert others == {
        "tail-of-an-unknown-stream": (CaseOutcome.NOT_APPLICABLE, "the basin has create_stream_on_read"),
        "session-on-an-unknown-stream": (CaseOutcome.NOT_APPLICABLE, "the basin has create_stream_on_append"),
        "delete-a-stream": (CaseOutcome.NOT_APPLICABLE, "the basin has create_stream_on_read"),
    }
