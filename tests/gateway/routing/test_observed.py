"""Streams and routes that clients use are noted for their connection under their own names, whatever the identity."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.http.client import memory_pair
from support.listening import tapped_front
from support.routing import made, refused_session, routed

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.identity import CLIENT, Client
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_operations import Merge
from penstock.model.failures import OperationFailed
from penstock.model.operations import CheckTail, FromSeqNum, ListStreams, Read
from penstock.model.records import StreamRef
from penstock.model.table_operations import GetTableInfo
from penstock.observe.taps.tap import CONNECTION, Tap
from penstock.routing.router import Router
from penstock_pravega.segment.names import SegmentNames

STREAM = StreamRef("penstock", "orders")
TRANSACTION = StreamRef(INTERNAL_BASIN, "penstock/orders/0.#epoch.0#transaction." + "0" * 32)


@pytest.fixture
def tap() -> Iterator[Tap]:
    """Of the connection that all is asked by."""
    tap = tapped_front(memory_pair()[1]).tap
    token = CONNECTION.set(tap)
    yield tap
    CONNECTION.reset(token)


@pytest.fixture(params=["no routes", "a route"])
async def router(request: pytest.FixtureRequest, here: EmbeddedBack, there: EmbeddedBack) -> Router:
    """With the same streams; on the back of the route they are called otherwise."""
    if request.param == "no routes":
        await made(here, "penstock", "orders", "by-append")
        return Router((), here)
    await made(there, "far-penstock", "orders", "by-append")
    return routed(here, there, RouteTable(name="orders", back="far", to_basin="far-{basin}"))


async def test_operations_and_sessions(router: Router, tap: Tap) -> None:
    back = router.for_listener("s2")
    expected = {"route": ["orders"] if router.routes else [], "identity": []}
    await back.perform(CheckTail(STREAM))
    assert tap.noted == {**expected, "stream": ["penstock/orders"]}
    async with back.append_session(StreamRef("penstock", "by-append")):
        pass
    async with back.read_session(Read(StreamRef("penstock", "orders"), FromSeqNum(0), wait=0)):
        pass
    await back.perform(ListStreams("penstock"))
    assert tap.noted == {**expected, "stream": ["penstock/orders", "penstock/by-append"]}
    assert len(tap.uses) == 2


async def test_what_pravegas_clients_keep_belongs_to_a_stream(router: Router, tap: Tap) -> None:
    back = router.for_listener("segment", SegmentNames("penstock"))
    for operation in (CheckTail(TRANSACTION), GetTableInfo("penstock/invoices/0.#epoch.0"), GetTableInfo("#own")):
        with pytest.raises(OperationFailed):
            await back.perform(operation)
    assert tap.noted["stream"] == ["penstock/orders", "penstock/invoices"]
    with pytest.raises(OperationFailed):
        await back.perform(Merge(StreamRef("penstock", "target"), (TRANSACTION,)))
    assert "penstock/target" in tap.noted["stream"]


async def test_by_whom(router: Router, tap: Tap) -> None:
    back = router.for_listener("s2")
    for identity in ("analytics", "", "analytics"):
        token = CLIENT.set(Client(identity=identity))
        await back.perform(CheckTail(STREAM))
        CLIENT.reset(token)
    assert tap.noted["identity"] == ["analytics"]
    assert [use.identity for use in tap.uses] == ["analytics", ""]


async def test_the_gateways_own_work_belongs_to_no_client(router: Router) -> None:
    assert CONNECTION.get() is None
    await router.for_listener("s2").perform(CheckTail(STREAM))


async def test_what_is_refused_is_not_noted(here: EmbeddedBack, there: EmbeddedBack, tap: Tap) -> None:
    await made(here, "penstock", "orders")
    view = routed(here, there, RouteTable(name="others", identity=("analytics",), back="far")).for_listener("s2")
    await refused_session(view, STREAM)
    assert tap.noted == {"route": [], "stream": [], "identity": []}
