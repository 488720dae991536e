"""The server behind the gateway is killed and started again in the middle of a load (docs/guarantees.md).

Servers that keep nothing over a restart (Pravega in memory, the reference server of S3P) are not killed: the
connections to them are cut, by a relay between the gateway and them.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from support.bridges import DIRECT, REAL, SECOND, Bridge
from support.bridges.fronts import LOOPBACK
from support.bridges.load import FOLLOWERS, WRITERS, Load, wait_for_all, wait_for_all_followers
from support.bridges.plain_fronts import FRONTS
from support.pravega.relay import Relay
from support.process import GatewayProcess
from support.real_backs import (
    BackServer,
    DurableReference,
    KafkaBroker,
    PravegaStandalone,
    S2Lite,
    S3PReference,
    SecondPenstock,
)


@dataclass(frozen=True)
class Case:
    """A bridge whose server is lost, by a kill or (`cut`) with its connections; `more`: further keys of the back's
    table; `doubles`: S3P's guarantee."""

    bridge: Bridge
    start: Callable[[], BackServer]
    more: str = ""
    cut: bool = False
    doubles: bool = False

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[GatewayProcess, Callable[[], object]]]:
        """The gateway, and what makes it lose its server for a moment."""
        with self.start() as server, contextlib.ExitStack() as stack:
            address, controller = server.address, server.controller
            lose: Callable[[], object] = server.restart
            if self.cut:
                relay = stack.enter_context(Relay(server.address[1]))
                address, controller, lose = (LOOPBACK, relay.port), None, relay.cut
            bridge = replace(self.bridge, more=self.more)
            yield stack.enter_context(GatewayProcess(bridge.configuration(address, controller))), lose


AT_LEAST_ONCE, REFUSE = 'delivery = "at-least-once"', 'delivery = "refuse"'
SECOND_CASES = {
    "s2 Penstock": Case(SECOND["s2"], lambda: SecondPenstock("s2")),
    "s3p Penstock, at least once": Case(SECOND["s3p"], lambda: SecondPenstock("s3p"), AT_LEAST_ONCE, doubles=True),
    "s3p Penstock, refuse": Case(SECOND["s3p"], lambda: SecondPenstock("s3p"), REFUSE),
    "segment Penstock": Case(SECOND["segment"], lambda: SecondPenstock("segment")),
    "durable Penstock": Case(SECOND["durable"], lambda: SecondPenstock("durable")),
    "kafka Penstock": Case(SECOND["kafka"], lambda: SecondPenstock("kafka")),
}
REAL_CASES = {
    "s2 lite on files": Case(SECOND["s2"], lambda: S2Lite(durable=True)),
    "s3p reference server": Case(SECOND["s3p"], S3PReference, REFUSE, cut=True),
    "Pravega": Case(DIRECT, PravegaStandalone, cut=True),
    "Durable Streams reference server": Case(SECOND["durable"], DurableReference, cut=True),
    "Apache Kafka": Case(REAL["kafka"], KafkaBroker, REAL["kafka"].more),
}


def run(case: Case, rounds: int) -> None:
    """Run loads through every front at once, each on its own stream, through `rounds` losses of the server."""
    dice = random.Random(str(case.bridge))
    with case.running() as (gateway, lose), loaded(case, gateway) as loads:
        for _ in range(rounds):
            wait_for_all(loads, [dice.randint(1, 20) for _ in loads])
            lose()


@contextlib.contextmanager
def loaded(case: Case, gateway: GatewayProcess) -> Iterator[list[Load]]:
    """Loads that go on until the block ends, and are checked then."""
    loads = [Load(gateway, name, f"chaos-{name}") for name in WRITERS]
    threads = [thread for load in loads for thread in started(load)]
    try:
        yield loads
        wait_for_all(loads, [10] * len(loads))
        wait_for_all_followers(loads)
    finally:
        for load in loads:
            load.stopping.set()
        for thread in threads:
            thread.join(90)
    assert not any(thread.is_alive() for thread in threads)
    for load in loads:
        check(case, gateway, load)


def started(load: Load) -> list[threading.Thread]:
    """Its stream, its writer, and those who follow."""
    front = FRONTS.get(load.name.replace("-", " "), FRONTS["protobuf"])(load.gateway, load.stream)
    front.create()
    front.close()
    threads = [load.run(WRITERS[load.name])]
    for name, follow in FOLLOWERS.items():
        load.followers[name] = follower = Load(load.gateway, name, load.stream, stopping=load.stopping)
        threads.append(follower.run(follow))
    return threads


def check(case: Case, gateway: GatewayProcess, load: Load) -> None:
    """Check that every front reads the records, at the acknowledged positions, and that followers saw them.

    A segment writer without an acknowledgement repeats its batch: S3P cannot tell whether it was stored.
    """
    assert load.failure is None, load.failure
    views = {}
    for name, front_class in FRONTS.items():
        front = front_class(gateway, load.stream)
        views[name] = front.read(front.start())
        front.close()
    numbered = views["S2S"]
    bodies = [one.record.body for one in numbered]
    load.check(bodies, doubles=case.doubles or (case.bridge.kind == "s3p" and load.name.startswith("segment")))
    assert [one.at for one in numbered] == list(range(len(numbered)))
    for name, seen in views.items():
        assert [one.record.body for one in seen] == bodies, name
    places = {one.at: one.record.body for one in views["S2S"]} | {one.at: one.record.body for one in views["S3P"]}
    for number, place in load.acked.items():
        if place is not None:
            assert places[place].startswith(f"{load.name} {number} ".encode()), (number, place)
    for name, follower in load.followers.items():
        assert follower.failure is None, (name, follower.failure)
        assert follower.followed == [(one.at, one.record.body) for one in numbered][: len(follower.followed)], name


@pytest.mark.parametrize("name", ["s2 Penstock", "s3p Penstock, at least once", "segment Penstock"])
def test_a_server_is_killed_in_the_middle_of_a_load(name: str) -> None:
    run(SECOND_CASES[name], 2)


@pytest.mark.parametrize("kind", SECOND)
def test_clients_are_told_of_a_server_that_stays_away(kind: str) -> None:
    """Writers and followers get the errors of docs/guarantees.md; all resume when the server is back."""
    with SecondPenstock(kind) as server:
        case = Case(replace(SECOND[kind], more="recover_seconds = 0.3"), lambda: server)
        text = case.bridge.configuration(server.address, server.controller)
        with GatewayProcess(text) as gateway, loaded(case, gateway) as loads:
            wait_for_all(loads, [5] * len(loads))
            server.kill()
            for load in loads:
                for one in (load, *load.followers.values()):
                    one.wait_for_an_error()
            server.start()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*SECOND_CASES, *REAL_CASES])
def test_ten_rounds(name: str) -> None:
    run((SECOND_CASES | REAL_CASES)[name], 10)
