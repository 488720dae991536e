"""Three gateways without a disk, of which one works, and haproxy before them: each is killed under load. Behind them is
Pravega, or a Penstock in its place.

Clients know the balancer only. What was acknowledged is there once, at the position that was told, through whichever
gateway works (docs/scaling.md).
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest
from support.bridges.balanced import Balanced, balanced, check, loaded, seen_through, standby_configuration
from support.captures.traffic import until
from support.management import ask
from support.peers import unique
from support.process import BASIN, GatewayProcess
from support.real_backs import LOOPBACK, BackServer, PravegaStandalone, SecondPenstock
from support.s2.client import S2Client

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(900),
    # Clients of the tests leave their sockets to the garbage collector where a gateway ends in mid-exchange.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NOT_SERVED = ("Kafka", "segment-draft")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(PravegaStandalone, marks=pytest.mark.long, id="Pravega"),
        pytest.param(lambda: SecondPenstock("segment"), marks=pytest.mark.slow, id="Penstock"),
    ],
)
def gateways(request: pytest.FixtureRequest) -> Iterator[Balanced]:
    server: BackServer = request.param()
    with server:
        assert server.controller is not None
        with balanced(standby_configuration(server.controller)) as started:
            yield started


def is_ready(gateway: GatewayProcess) -> bool:
    return ask(gateway.management_port, "/ready")[0] == 200


def working(gateways: Balanced, other_than: GatewayProcess | None = None, seconds: float = 30) -> GatewayProcess:
    """Return the gateway that works, once there is one, and check that it is alone."""
    rest = [gateway for gateway in gateways.gateways if gateway is not other_than]
    until(lambda: any(map(is_ready, rest)), seconds)
    (found,) = filter(is_ready, rest)
    return found


def test_they_have_no_files_and_one_of_them_works(gateways: Balanced) -> None:
    found = working(gateways)
    S2Client((LOOPBACK, found.s2_port), BASIN).append(unique("no-files"), "x")
    for gateway in gateways.gateways:
        assert {path.name for path in gateway.directory.rglob("*")} == {"gateway.toml", "stderr.log", "stdout.log"}
        assert ask(gateway.management_port, "/live")[0] == 200
        if gateway is not found:
            status, answer = ask(gateway.management_port, "/ready")
            assert status == 503 and "another gateway has the use of the state" in str(answer)


def test_gateways_are_killed_under_load(gateways: Balanced) -> None:
    dice = random.Random("standby")
    with loaded(gateways, NOT_SERVED) as loads:
        for _ in range(2):
            for load in loads:
                load.wait_for_more(dice.randint(1, 20), 120)
            before = working(gateways)
            before.kill()
            killed = time.monotonic()
            working(gateways, before)
            assert time.monotonic() - killed < 15
            before.start()
        for load in loads:
            load.wait_for_more(10, 120)
    first = working(gateways)
    seen = [[seen_through(first, load)] for load in loads]
    assert first.terminate() == 0
    stopped = time.monotonic()
    second = working(gateways, first)
    assert time.monotonic() - stopped < 5, "one that stops gives up its place"
    first.start()
    for load, found in zip(loads, seen, strict=True):
        check(load, [*found, seen_through(second, load)])


def test_one_that_stood_still_ends(gateways: Balanced) -> None:
    """It had the state in memory, and another gateway has changed it since."""
    first, stream = working(gateways), unique("stood-still")
    client = S2Client((LOOPBACK, first.s2_port), BASIN)
    client.append(stream, "0")
    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = working(gateways, first)
        S2Client((LOOPBACK, second.s2_port), BASIN).append(stream, "1")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert first.process is not None
    assert first.process.wait(30) == 1
    assert "another one has taken over its state" in first.log_tail()
    assert S2Client((LOOPBACK, second.s2_port), BASIN).bodies(stream, seq_num=0) == ["0", "1"]
    first.start()
