"""Questions about many streams."""

from __future__ import annotations

import threading

import pytest
from support.spark.fake_streams import FakeServer

from penstock.model.failures import OperationFailed
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.client_pool import ClientPool


def filled(count: int) -> FakeServer:
    server = FakeServer()
    for number in range(count):
        server.append(f"b/{number}", [b"x"] * number)
    return server


@pytest.mark.parametrize(("count", "clients"), [(0, 1), (5, 1), (31, 1), (40, 2), (1000, 16)])
def test_every_answer_and_few_connections(count: int, clients: int) -> None:
    server = filled(count)
    pool = ClientPool(server.connect)
    for _ in range(2):
        found = pool.ask(lambda client, stream: client.tail(stream), list(server.streams))
        assert list(found.items()) == [(f"b/{number}", number) for number in range(count)]
        assert server.open == clients
    pool.close()
    assert server.open == 0


def test_several_are_asked_at_a_time_and_each_client_by_one_thread() -> None:
    server = filled(64)
    pool = ClientPool(server.connect)
    together = threading.Barrier(4)  # asked one after the other, they would never meet
    users: dict[StreamClient, set[int]] = {}

    def meet(client: StreamClient, stream: str) -> None:
        users.setdefault(client, set()).add(threading.get_ident())
        together.wait(30)

    pool.ask(meet, list(server.streams))
    assert [len(threads) for threads in users.values()] == [1] * 4


def test_after_one_failed_no_more_are_asked() -> None:
    server = filled(1000)
    pool = ClientPool(server.connect)
    asked = 0

    def ask(client: StreamClient, stream: str) -> int:
        nonlocal asked
        asked += 1
        return client.tail("b/none")

    with pytest.raises(OperationFailed, match="b/none is not there"):
        pool.ask(ask, list(server.streams))
    assert asked <= 16
