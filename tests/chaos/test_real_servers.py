"""Bridges to the real servers: whatever happens at whichever message boundary, clients see one log.

Two runs of a history differ a little in real time, so an act may come too late to happen; few do.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

import pytest
from chaos.pairs import PAIRS, Run, run_real
from chaos.wire import Act, Direction, Kind
from support.real_backs import REAL_SERVERS, BackServer

BASINS = itertools.count()
TROUBLES = {
    **{kind: list(itertools.product(Kind, Direction)) for kind in ("durable", "kafka", "s2")},
    # Pravega 0.13 appends twice what comes twice on one connection, as nothing does over TCP.
    "segment": [each for each in itertools.product(Kind, Direction) if each != (Kind.DOUBLE, Direction.OUT)],
}
"""Kinds and directions of trouble, by the kind of server."""
NOT_SPOKEN = {"durable over http/2"}
"""Pairs that the real server does not speak: that of Durable Streams has HTTP/1.1 alone."""


@pytest.fixture(scope="module", params=TROUBLES)
def server(request: pytest.FixtureRequest) -> Iterator[BackServer]:
    with REAL_SERVERS[request.param]() as server:
        yield server


def pairs_of(server: BackServer) -> Iterator[tuple[str, int]]:
    """Yield the pairs whose server this is, and the ports that they are at."""
    for pair in PAIRS.values():
        address = server.controller if pair.by == "controller" else server.address
        if pair.kind == server.kind and address is not None and pair.name not in NOT_SPOKEN:
            yield pair.name, address[1]


def one(name: str, port: int, act: Act | None = None) -> Run:
    """Run a history in a basin of its own."""
    try:
        return run_real(PAIRS[name], port, f"chaos-{next(BASINS):04}", act)
    except Exception as error:
        error.add_note(f"{name}: {act}")
        raise


def boundaries(name: str, port: int) -> dict[Direction, int]:
    """Return the number of messages in each direction that nearly every run has."""
    return {direction: len(messages) * 2 // 3 for direction, messages in one(name, port).messages.items()}


def check(name: str, port: int, acts: Iterable[Act]) -> None:
    """Run a history once for each act."""
    runs = [one(name, port, act) for act in acts]
    assert sum(run.acted for run in runs) > 0.9 * len(runs)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_some_boundaries(server: BackServer) -> None:
    dice = random.Random(server.kind)
    for name, port in pairs_of(server):
        messages = boundaries(name, port)
        check(name, port, [Act(kind, way, dice.randrange(messages[way])) for kind, way in TROUBLES[server.kind]])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(6000)
def test_many_boundaries(server: BackServer) -> None:
    for name, port in pairs_of(server):
        messages = boundaries(name, port)
        troubles = TROUBLES[server.kind]
        check(name, port, [Act(kind, way, at) for kind, way in troubles for at in range(0, messages[way], 3)])
