"""Three gateways without a disk, haproxy before them, and behind them three brokers, or Pravega, or a Penstock in its
place: gateways and brokers are killed under load.

Clients know the balancer only. What was acknowledged is there once, at the position that was told, through every
gateway (docs/scaling.md).
"""

from __future__ import annotations

import random
import time
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
from support.bridges.load import wait_for_all
from support.kafka.cluster import KafkaCluster
from support.management import ask
from support.peers import unique
from support.pravega.clients import Found, PravegaClient, need_pravega
from support.process import BASIN
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
            wait_for_all(loads, [dice.randint(1, 20) for _ in loads], 120)
            gateway.restart(kill=True)
        wait_for_all(loads, [10] * len(loads), 120)
    for load in loads:
        check(load, [seen_through(gateway, load) for gateway in gateways.gateways])


def test_gateways_are_killed_under_load(gateways: Balanced) -> None:
    kill_each(gateways, "gateways")


def test_gateways_before_segments_are_killed_under_load(before_segments: Balanced) -> None:
    kill_each(before_segments, "before segments")


def commit_while_each_is_killed(gateways: Balanced) -> None:
    """Transactions of Pravega's client, whose controller is any of the gateways: each is there whole and once, for a
    group of readers that was there before and for one that comes after."""
    need_pravega()
    scope, stream = BASIN, unique("transactions")
    dice = random.Random("transactions")
    with PravegaClient(gateways.controller_port) as client:
        client.call("manage", "create_scope", scope)
        assert client.call("manage", "create_stream", scope, stream, 1, seconds=60)
        client.call("group", "before", scope, stream)
        client.call("reader", "early", "before")
        for number in range(6):
            name = str(number)
            client.call("begin", name, scope, stream, seconds=60)
            client.call("write_in", name, [(f"{number} {part}", "key") for part in range(3)], seconds=60)
            client.start("of_transaction", name, "commit")
            if number % 2:
                time.sleep(dice.random() / 5)
                gateways.gateways[number // 2].restart(kill=True)
            client.finish(120)
        expected = [f"{number} {part}".encode() for number in range(6) for part in range(3)]
        client.call("group", "after", scope, stream)
        client.call("reader", "late", "after")
        for reader in ("early", "late"):
            assert Found(client.call("read", [reader], len(expected), 60, seconds=90)).bodies(reader) == expected
        assert client.call("manage", "seal_stream", scope, stream, seconds=60)
        assert client.call("manage", "delete_stream", scope, stream, seconds=60)


def test_transactions_while_gateways_before_segments_are_killed(before_segments: Balanced) -> None:
    commit_while_each_is_killed(before_segments)


def test_transactions_while_gateways_before_kafka_are_killed(gateways: Balanced) -> None:
    commit_while_each_is_killed(gateways)


def test_they_have_no_files_and_all_are_ready(before_segments: Balanced) -> None:
    for gateway in before_segments.gateways:
        assert {path.name for path in gateway.directory.rglob("*")} == {"gateway.toml", "stderr.log", "stdout.log"}
        assert ask(gateway.management_port, "/ready")[0] == 200


@pytest.mark.long
def test_brokers_are_killed_under_load(gateways: Balanced, cluster: KafkaCluster) -> None:
    dice = random.Random("brokers")
    with loaded(gateways) as loads:
        for broker in cluster.brokers.values():
            wait_for_all(loads, [dice.randint(1, 20) for _ in loads], 120)
            broker.restart()
        wait_for_all(loads, [10] * len(loads), 120)
    for load in loads:
        check(load, [seen_through(gateway, load) for gateway in gateways.gateways])
