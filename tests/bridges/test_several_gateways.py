"""Three gateways without a disk, haproxy before them, three brokers behind them: each is killed under load.

Clients know the balancer only. What was acknowledged is there once, at the position that was told, through every
gateway (docs/scaling.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.bridges.balanced import Balanced, balanced, check, gateway_configuration, loaded, seen_through
from support.kafka.cluster import KafkaCluster

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
    with balanced(gateway_configuration(cluster.addresses)) as started:
        yield started


def test_gateways_are_killed_under_load(gateways: Balanced) -> None:
    dice = random.Random("gateways")
    with loaded(gateways) as loads:
        for gateway in gateways.gateways:
            for load in loads:
                load.wait_for_more(dice.randint(1, 20), 120)
            gateway.restart(kill=True)
        for load in loads:
            load.wait_for_more(10, 120)
    for load in loads:
        check(load, [seen_through(gateway, load) for gateway in gateways.gateways])


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
