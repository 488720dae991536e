"""Three gateways without a disk, haproxy before them, three brokers behind them: each is killed under load.

Clients know the balancer only. What was acknowledged is there once, at the position that was told, through every
gateway (docs/scaling.md).
"""

from __future__ import annotations

import http.client
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.bridges.balanced import Balanced, balanced
from support.bridges.load import FOLLOWERS, WRITERS, Load, Lost, Stopping
from support.bridges.plain_fronts import FRONTS
from support.kafka.cluster import KafkaCluster
from support.peers import unique

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # Clients of the tests leave their sockets to the garbage collector where a gateway ends in mid-exchange.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
COMPARED = ("S2S", "SSE", "S3P", "segment released")
"""Fronts whose positions, each in its own terms, are compared between the gateways."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as started:
        yield started


@pytest.fixture(scope="module")
def gateways(cluster: KafkaCluster) -> Iterator[Balanced]:
    with balanced(cluster.addresses) as started:
        yield started


def patient(task: Callable[[Load], None]) -> Callable[[Load], None]:
    """Make a task come again when its gateway is killed, as clients do: the balancer takes it to another one."""

    def run(load: Load) -> None:
        try:
            task(load)
        except (OSError, EOFError, http.client.HTTPException) as error:
            raise Lost(type(error).__name__) from error

    return run


@contextmanager
def loaded(gateways: Balanced) -> Iterator[list[Load]]:
    """Writers of all protocols, each on a stream of its own, and followers of each stream."""
    loads, threads, stopping = [], [], Stopping()
    for name, write in WRITERS.items():
        load = Load(gateways, name, unique(name), stopping=stopping)  # type: ignore[arg-type]
        front = FRONTS.get(name.replace("-", " "), FRONTS["protobuf"])(gateways, load.stream)  # type: ignore[arg-type]
        front.create()
        front.close()
        threads.append(load.run(patient(write)))
        for follower, follow in FOLLOWERS.items():
            one = load.followers[follower] = Load(gateways, follower, load.stream, stopping=stopping)  # type: ignore[arg-type]
            threads.append(one.run(patient(follow)))
        loads.append(load)
    try:
        yield loads
    finally:
        stopping.set()
        for thread in threads:
            thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


def check(gateways: Balanced, load: Load) -> None:
    """Check that each gateway shows the same records at the same positions, and all that was acknowledged once."""
    assert load.failure is None, (load.name, load.failure)
    places: dict[object, bytes] = {}
    for gateway in gateways.gateways:
        for name in COMPARED:
            front = FRONTS[name](gateway, load.stream)
            seen = front.read(front.start())
            front.close()
            found = {(name, one.at): one.record.body for one in seen}
            first = gateways.gateways[0] is gateway
            if first:
                places |= found
                load.check(list(found.values()), doubles=False)
            assert found == {key: body for key, body in places.items() if key[0] == name}, (name, "differs")
    terms = "S3P" if load.name == "S3P" else "S2S"
    for number, place in load.acked.items():
        if place is not None:
            assert places[terms, place].startswith(f"{load.name} {number} ".encode()), (number, place)
    for name, follower in load.followers.items():
        assert follower.failure is None, (name, follower.failure)
        numbered = [(key[1], body) for key, body in places.items() if key[0] == "S2S"]
        assert follower.followed == numbered[: len(follower.followed)], name


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
        check(gateways, load)


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
        check(gateways, load)
