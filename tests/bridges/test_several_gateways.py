"""Three gateways without a disk, haproxy before them, and behind them three brokers, or Pravega, or a Penstock in its
place: gateways and brokers are killed under load.

Clients know the balancer only. What was acknowledged is there once, at the position that was told, through every
gateway (docs/scaling.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.bridges.balanced import (
    Balanced,
    balanced,
    before_kafka,
    before_pravega,
    check,
    loaded,
    seen_through,
)
from support.kafka.cluster import KafkaCluster
from support.management import ask
from support.real_backs import BackServer, PravegaStandalone, SecondPenstock

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # Clients of the tests leave their sockets to the garbage collector where a gateway ends in mid-exchange.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as started:
        yield started


@pytest.fixture(scope="module")
def gateways(cluster: KafkaCluster) -> Iterator[Balanced]:
    with balanced(before_kafka(cluster.addresses)) as started:
        yield started


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(PravegaStandalone, marks=pytest.mark.long, id="Pravega"),
        pytest.param(lambda: SecondPenstock("segment"), id="Penstock"),
    ],
)
def before_segments(request: pytest.FixtureRequest) -> Iterator[Balanced]:
    server: BackServer = request.param()
    with server:
        assert server.controller is not None
        with balanced(before_pravega(server.controller)) as started:
            yield started


def kill_each(gateways: Balanced, seed: str, without: tuple[str, ...] = ()) -> None:
    dice = random.Random(seed)
    with loaded(gateways, without) as loads:
        for gateway in gateways.gateways:
            for load in loads:
                load.wait_for_more(dice.randint(1, 20), 120)
            gateway.restart(kill=True)
        for load in loads:
            load.wait_for_more(10, 120)
    for load in loads:
        check(load, [seen_through(gateway, load) for gateway in gateways.gateways])


def test_gateways_are_killed_under_load(gateways: Balanced) -> None:
    kill_each(gateways, "gateways")


def test_gateways_before_segments_are_killed_under_load(before_segments: Balanced) -> None:
    kill_each(before_segments, "before segments")


def test_they_have_no_files_and_all_are_ready(before_segments: Balanced) -> None:
    for gateway in before_segments.gateways:
        assert {path.name for path in gateway.directory.rglob("*")} == {"gateway.toml", "stderr.log", "stdout.log"}
        assert ask(gateway.management_port, "/ready")[0] == 200


@pytest.mark.long
def test_brokers_are_killed_under_load(gateways: Balanced, cluster: KafkaCluster) -> None:
    dice = random.Random("brokers")
    with loaded(gateways) as loads:
        for broker in cluster.brokers.values():
            for load in loads:
                load.wait_for_more(dice.randint(1, 20), 120)
            broker.restart()
        for load in loads:
            load.wait_for_more(10, 120)
    for load in loads:
        check(load, [seen_through(gateway, load) for gateway in gateways.gateways])
