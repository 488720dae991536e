"""Ways around a route that is only for reading, or for others: there are none."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from support.backs import DecodedBack
from support.routing import Without, made, names, refusal, refused_read, refused_session, routed
from support.store import appending

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import AppendSession, Back, BackWrapper
from penstock.core.identity import CLIENT, Client
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_operations import GetByteStreamInfo
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    Append,
    Appended,
    Capability,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    EnsureStream,
    FromSeqNum,
    GetBasinConfig,
    GetStreamConfig,
    ListBasins,
    ListStreams,
    Locate,
    Operation,
    ProvisionResult,
    Read,
    ReconfigureBasin,
    ReconfigureStream,
    Trim,
)
from penstock.model.records import StreamPosition, StreamRef
from penstock.model.streams import BasinConfig, BasinConfigPatch, StreamConfigPatch
from penstock.model.table_operations import CreateTable, DeleteTable, ReadTable, TableItem, UpdateTable
from penstock.routing.target import Target
from penstock_pravega.segment.names import SegmentNames

DENIED = FailureCode.PERMISSION_DENIED
OPEN = RouteTable(name="open", basin="telemetry", back="far")


async def test_tables_of_a_route_that_is_only_for_reading(here: EmbeddedBack, there: EmbeddedBack) -> None:
    router = routed(here, there, RouteTable(name="history", back="far", read_only=True))
    view = router.for_listener("segment", SegmentNames())
    table = "telemetry/_kv/0.#epoch.0"
    await there.perform(CreateTable(table))
    await there.perform(UpdateTable(table, (TableItem(b"key", b"value"),)))
    for change in (DeleteTable(table), CreateTable("telemetry/_more/0.#epoch.0"), UpdateTable(table, ())):
        assert (await refusal(view, change)).failure.code is DENIED
    (found,) = await view.perform(ReadTable(table, (b"key",)))
    assert found is not None and found.value == b"value"


NO_SEGMENT = StreamRef(INTERNAL_BASIN, "no segment's name")
MINE = RouteTable(name="mine", basin="telemetry", back="far", to_stream="mine/{stream}")


@pytest.mark.parametrize(
    "change",
    [
        DeleteBasin("telemetry"),
        ReconfigureBasin("telemetry", BasinConfigPatch()),
        EnsureBasin("telemetry", BasinConfig(create_stream_on_read=True)),
    ],
    ids=["delete", "reconfigure", "ensure"],
)
@pytest.mark.parametrize(
    ("theirs", "own"),
    [
        (RouteTable(name="kept", basin="telemetry", stream="kept", back="far", read_only=True), OPEN),
        (RouteTable(name="kept", basin="old-*", back="far", to_basin="telemetry", read_only=True), OPEN),
        (RouteTable(name="kept", back="far", to_stream="theirs/{stream}", identity=("admin",)), MINE),
    ],
    ids=["read-only", "by another name", "others"],
)
async def test_a_basin_stays_where_others_have_streams_of_it(
    theirs: RouteTable, own: RouteTable, change: Any, here: EmbeddedBack, there: EmbeddedBack
) -> None:
    await made(there, "telemetry", "kept", "mine")
    view = routed(here, there, theirs, own).for_listener("s2")
    error = await refusal(view, change)
    assert error.failure.code is DENIED and "route kept has streams of it" in error.failure.message
    assert await names(there, ListStreams("telemetry")) == ["kept", "mine"]
    assert not (await there.perform(GetBasinConfig("telemetry"))).create_stream_on_read
    ensured = await view.perform(EnsureBasin("telemetry"))
    assert ensured.result is ProvisionResult.NOOP


@pytest.mark.parametrize(
    "theirs",
    [
        RouteTable(name="readers", basin="telemetry", back="far", read_only=True),
        RouteTable(name="others", basin="telemetry", back="far", identity=("somebody",)),
    ],
    ids=["readers", "others"],
)
async def test_who_may_delete_all_streams_may_delete_the_basin(
    theirs: RouteTable, here: EmbeddedBack, there: EmbeddedBack
) -> None:
    view = routed(here, there, OPEN, theirs).for_listener("s2")
    await made(there, "telemetry", "orders")
    await view.perform(DeleteBasin("telemetry"))
    assert await names(there, ListBasins()) == []


async def test_a_basin_of_the_same_name_elsewhere_is_no_reason(here: EmbeddedBack, there: EmbeddedBack) -> None:
    """Each tenant has a server: a change of one's basin does not affect the others."""
    router = routed(
        here,
        there,
        RouteTable(name="a", identity=("a",), back="far"),
        RouteTable(name="b", identity=("b",)),
    )
    view = router.for_listener("s2")
    await made(here, "telemetry")
    await made(there, "telemetry")
    CLIENT.set(Client("a"))
    await view.perform(DeleteBasin("telemetry"))
    assert await names(there, ListBasins()) == [] and await names(here, ListBasins()) == ["telemetry"]


async def test_a_basin_is_not_made_by_a_route_that_is_only_for_reading(here: EmbeddedBack, there: EmbeddedBack) -> None:
    """Another takes some of its streams, and may make it on its own back."""
    view = routed(
        here,
        there,
        RouteTable(name="history", back="far", match="prefix", stream="old/", read_only=True),
        RouteTable(name="new", match="prefix", stream="new/"),
    ).for_listener("s2")
    await view.perform(CreateBasin("telemetry"))
    assert await names(there, ListBasins()) == [] and await names(here, ListBasins()) == ["telemetry"]


async def test_a_transaction_is_looked_for_anew_after_a_cut_over(here: EmbeddedBack, there: EmbeddedBack) -> None:
    router = routed(here, there, RouteTable(name="all", back="far"))
    view = router.for_listener("segment", SegmentNames())
    await made(there, "telemetry", "orders")
    source = StreamRef(INTERNAL_BASIN, "telemetry/orders/0.#epoch.0#transaction." + "0" * 32)
    await view.perform(CreateStream(source))
    router.routes[0].holder.swap(Target("other", "s2", Without(there, Capability.TABLES)))
    assert (await refusal(view, GetByteStreamInfo(source))).failure.code is FailureCode.STREAM_NOT_FOUND
    await view.perform(CreateStream(source))
    assert (await here.perform(GetByteStreamInfo(source))).length == 0


NOWHERE = StreamPosition(0, 0)


class Eager(DecodedBack):
    """A back whose acknowledgements come before `send` is back."""

    def __init__(self, back: Back) -> None:
        super().__init__(back)
        self.let_go = trio.Event()

    @asynccontextmanager
    async def append_session(self, *_args: Any, **_options: Any) -> AsyncIterator[AppendSession]:
        sent: list[Append] = []
        let_go = self.let_go

        class Session(AppendSession):
            async def send(self, append: Append) -> None:
                sent.append(append)
                await let_go.wait()

            def close(self) -> None: ...

            async def receive(self) -> list[Appended]:
                count, sent[:] = len(sent), []
                return [Appended(NOWHERE, NOWHERE, NOWHERE)] * count  # only their number matters

        yield Session()


async def test_what_is_acknowledged_while_it_is_sent_is_not_under_way(here: EmbeddedBack, there: EmbeddedBack) -> None:
    eager = Eager(here)
    router = routed(eager, there, RouteTable(name="all"))
    holder, stream = router.routes[0].holder, StreamRef("telemetry", "orders")
    async with router.for_listener("s2").append_session(stream) as session:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.send, appending(b"x", stream=stream))
            await trio.testing.wait_all_tasks_blocked()
            assert len(await session.receive()) == 1
            assert holder.under_way == 0
            eager.let_go.set()
        assert holder.under_way == 0
        with trio.CancelScope() as scope:
            scope.cancel()
            await session.send(appending(b"y", stream=stream))
        eager.let_go = trio.Event()
    assert holder.under_way == 0


async def test_who_gives_up_amid_a_send_leaves_nothing_under_way(here: EmbeddedBack, there: EmbeddedBack) -> None:
    eager = Eager(here)
    router = routed(eager, there, RouteTable(name="all"))
    holder, stream = router.routes[0].holder, StreamRef("telemetry", "orders")
    async with router.for_listener("s2").append_session(stream) as session, trio.open_nursery() as nursery:
        nursery.start_soon(session.send, appending(b"x", stream=stream))
        await trio.testing.wait_all_tasks_blocked()
        await session.receive()
        nursery.cancel_scope.cancel()
    assert holder.under_way == 0


@pytest.mark.parametrize("lacking", [(), (Capability.TABLES,)], ids=["kept there", "kept here"])
async def test_what_is_kept_beside_streams_of_others_is_theirs(
    lacking: tuple[Capability, ...], here: EmbeddedBack, there: EmbeddedBack
) -> None:
    theirs = RouteTable(name="theirs", basin="telemetry", back="far", identity=("plant",))
    view = routed(here, Without(there, *lacking), theirs).for_listener("segment", SegmentNames())
    await made(there, "telemetry", "orders")
    transaction = StreamRef(INTERNAL_BASIN, "telemetry/orders/0.#epoch.0#transaction." + "0" * 32)
    table = "telemetry/_kv/0.#epoch.0"
    CLIENT.set(Client("plant"))
    await view.perform(CreateStream(transaction))
    await view.perform(CreateTable(table))
    CLIENT.set(Client("stranger"))
    for operation in (
        GetByteStreamInfo(transaction),
        DeleteStream(transaction),
        ReadTable(table, ()),
        DeleteTable(table),
    ):
        assert (await refusal(view, operation)).failure.code is DENIED
    for nobodys in (CreateTable("elsewhere/_kv/0.#epoch.0"), CreateTable("any text"), CreateStream(NO_SEGMENT)):
        assert (await refusal(view, nobodys)).failure.code is FailureCode.STREAM_NOT_FOUND
    CLIENT.set(Client("plant"))
    await view.perform(GetByteStreamInfo(transaction))
    await view.perform(DeleteTable(table))


@pytest.mark.parametrize("basin", ["telemetry", "telemetry-x", "telemetry--abcdefg"])
async def test_a_basin_that_has_no_legal_name_there_is_not_asked_for(
    basin: str, here: EmbeddedBack, there: EmbeddedBack
) -> None:
    asked: list[str] = []

    class Listening(BackWrapper):
        async def perform(self, operation: Any) -> Any:
            asked.append(operation.basin)
            return await there.perform(operation)

    table = RouteTable(name="all", basin="telemetry*", back="far", to_basin="{1}")
    view = routed(here, Listening(there), table).for_listener("s2")
    for operation in (GetBasinConfig(basin), DeleteBasin(basin)):
        assert (await refusal(view, operation)).failure.code is FailureCode.BASIN_NOT_FOUND
    assert await names(view, ListStreams(basin)) == []
    assert asked == []


@pytest.mark.parametrize(("allow", "created"), [(("read", "append"), []), (("read", "manage"), ["looked-at", "read"])])
async def test_reading_creates_streams_for_who_may_manage_them(
    allow: tuple[str, ...], created: list[str], here: EmbeddedBack, there: EmbeddedBack
) -> None:
    await made(there, "telemetry", create_stream_on_read=True)
    view = routed(here, there, RouteTable(name="some", back="far", allow=allow)).for_listener("s2")  # type: ignore[arg-type]
    with contextlib.suppress(OperationFailed):
        async with view.read_session(Read(StreamRef("telemetry", "read"), FromSeqNum(0), clamp=True)):
            pass
    with contextlib.suppress(OperationFailed):
        await view.perform(CheckTail(StreamRef("telemetry", "looked-at")))
    assert await names(there, ListStreams("telemetry")) == created


THEIRS = StreamRef("telemetry", "orders")
ASKED: list[Operation[Any]] = [
    CreateBasin("telemetry"),
    CreateBasin("nowhere-at-all"),
    EnsureBasin("telemetry", BasinConfig(create_stream_on_read=True)),
    GetBasinConfig("telemetry"),
    ReconfigureBasin("telemetry", BasinConfigPatch(create_stream_on_read=True)),
    DeleteBasin("telemetry"),
    ListStreams("telemetry"),
    CreateStream(StreamRef("telemetry", "new")),
    EnsureStream(THEIRS),
    GetStreamConfig(THEIRS),
    ReconfigureStream(THEIRS, StreamConfigPatch()),
    DeleteStream(THEIRS),
    CheckTail(THEIRS),
    CheckTail(StreamRef("telemetry", "new")),
    Locate(THEIRS, FromSeqNum(0)),
    Trim(THEIRS, 1),
    appending(b"x", stream=THEIRS),
    appending(b"x", stream=StreamRef("telemetry", "new")),
]


@pytest.mark.parametrize("operation", ASKED, ids=lambda operation: type(operation).__name__)
async def test_what_no_route_of_a_client_takes_is_not_there(
    operation: Operation[Any], here: EmbeddedBack, there: EmbeddedBack
) -> None:
    """By S2 and S3P, whose fronts ask for nothing else; see `test_route_bypass` for segments."""
    theirs = RouteTable(name="theirs", basin="telemetry", back="far", identity=("plant",))
    own = RouteTable(name="own", basin="public-*", identity=("stranger",))
    view = routed(here, there, theirs, own).for_listener("s2")
    await made(there, "telemetry", "orders", create_stream_on_read=True, create_stream_on_append=True)
    config = await there.perform(GetBasinConfig("telemetry"))
    for identity in ("", "stranger"):
        CLIENT.set(Client(identity))
        refused = (await refusal(view, operation)).failure.code
        assert refused in (DENIED, FailureCode.BASIN_NOT_FOUND, FailureCode.STREAM_NOT_FOUND)
        assert await names(view, ListBasins()) == []
        for stream in (THEIRS, StreamRef("telemetry", "new")):
            assert (await refused_read(view, stream)).failure.code in (DENIED, FailureCode.STREAM_NOT_FOUND)
            assert (await refused_session(view, stream)).failure.code in (DENIED, FailureCode.STREAM_NOT_FOUND)
    assert await names(here, ListBasins()) == [] and await names(there, ListBasins()) == ["telemetry"]
    assert await names(there, ListStreams("telemetry")) == ["orders"]
    assert await there.perform(GetBasinConfig("telemetry")) == config
    assert (await there.perform(CheckTail(THEIRS))).seq_num == 0
