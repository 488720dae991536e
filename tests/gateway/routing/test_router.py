"""Operations reach the back that their route says, by the name that the stream has there."""

from __future__ import annotations

from typing import Any

import pytest
from support.routing import made, names, refusal, refused_read, refused_session, routed
from support.store import appending, bodies

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.identity import CLIENT, Client
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, GetByteStreamInfo, Merge, ReadBytes
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureStream,
    FromSeqNum,
    GetBasinConfig,
    ListBasins,
    ListStreams,
    Operation,
)
from penstock.model.records import StreamRef
from penstock.routing.observed import ObservedBack
from penstock.routing.router import Router


async def test_without_routes_all_goes_to_the_store(here: EmbeddedBack) -> None:
    given = Router((), here).for_listener("s2")
    assert isinstance(given, ObservedBack)
    assert given.capabilities == here.capabilities
    await made(given, "telemetry", "orders")
    assert await names(here, ListStreams("telemetry")) == ["orders"]


async def test_the_first_route_that_takes_a_stream_has_it(here: EmbeddedBack, there: EmbeddedBack) -> None:
    eu = RouteTable(name="eu", match="prefix", basin="telemetry", stream="eu/", back="far", to_stream="{rest}")
    view = routed(here, there, eu, RouteTable(name="rest", basin="telemetry")).for_listener("s2")
    await made(here, "telemetry", "us/a")
    await made(there, "telemetry", "a")
    for name, body in (("eu/a", b"far"), ("us/a", b"near")):
        stream = StreamRef("telemetry", name)
        assert (await view.perform(appending(body, stream=stream))).end.seq_num == 1
        async with view.append_session(stream) as session:
            await session.send(appending(body + b"2", stream=stream))
            session.close()
            assert [one.end.seq_num for one in await session.receive()] == [2]
            assert await session.receive() == []
        assert await bodies(view, FromSeqNum(0), stream) == [body, body + b"2"]
        await view.perform(AppendBytes(stream, join_events([b"event"])))
        assert (await view.perform(CheckTail(stream))).seq_num == 3
        assert (await view.perform(GetByteStreamInfo(stream))).length > 0
    assert await bodies(there, FromSeqNum(0), StreamRef("telemetry", "a")) == [b"far", b"far2", b"event"]
    assert await names(here, ListStreams("telemetry")) == ["us/a"]


async def test_a_failure_names_the_stream_as_the_client_does(here: EmbeddedBack, there: EmbeddedBack) -> None:
    view = routed(here, there, RouteTable(name="all", back="far", to_basin="prod-{basin}")).for_listener("s2")
    await made(there, "prod-telemetry")
    stream = StreamRef("telemetry", "orders")
    attempts = [await refusal(view, CheckTail(stream)), await refused_session(view, stream)]
    for error in [*attempts, await refused_read(view, stream)]:
        assert error.failure.code is FailureCode.STREAM_NOT_FOUND
        assert error.failure.message == "there is no stream 'orders' in basin 'telemetry'"


async def test_partitions_are_kept_from_hiding_under_their_names_there(here: EmbeddedBack, there: EmbeddedBack) -> None:
    table = RouteTable(name="all", back="far", to_basin="prod-{basin}", to_stream="of-us/{stream}")
    view = routed(here, there, table).for_listener("kafka")
    view.declare_partitioned("telemetry")
    await made(there, "prod-telemetry")
    await view.perform(CreateStream(StreamRef("telemetry", "orders/0")))
    error = await refusal(view, EnsureStream(StreamRef("telemetry", "orders")))
    assert error.failure.code is FailureCode.INVALID
    assert error.failure.message == (
        "stream 'orders' in basin 'telemetry' cannot be created: it is divided into partitions, and partition 0 exists"
    )
    assert await names(there, ListStreams("prod-telemetry")) == ["of-us/orders/0"]


async def test_what_no_route_takes(here: EmbeddedBack, there: EmbeddedBack) -> None:
    router = routed(
        here,
        there,
        RouteTable(name="s2", listeners=("s2.inner",), basin="telemetry"),
        RouteTable(name="known", basin="for-known", identity=("analytics",)),
    )
    await made(here, "telemetry", "orders")
    await made(here, "for-known", "orders")
    inner, outer = router.for_listener("s2.inner"), router.for_listener("s2.outer")
    wanted = CheckTail(StreamRef("telemetry", "orders"))
    assert (await inner.perform(wanted)).seq_num == 0
    error = await refusal(outer, wanted)
    assert error.failure.code is FailureCode.STREAM_NOT_FOUND
    assert error.failure.message == "no route of listener s2.outer takes stream telemetry/orders"
    error = await refusal(inner, ListStreams("other-basin"))
    assert error.failure.code is FailureCode.BASIN_NOT_FOUND

    wanted = CheckTail(StreamRef("for-known", "orders"))
    error = await refusal(inner, wanted)
    assert error.failure.code is FailureCode.PERMISSION_DENIED
    assert "route known" in error.failure.message and "clients without an identity" in error.failure.message
    assert await names(inner, ListBasins()) == ["telemetry"]
    CLIENT.set(Client("analytics"))
    assert (await inner.perform(wanted)).seq_num == 0
    assert await names(inner, ListBasins()) == ["for-known", "telemetry"]
    CLIENT.set(Client("somebody"))
    assert (await refusal(inner, wanted)).failure.code is FailureCode.PERMISSION_DENIED


async def test_decisions_that_are_remembered_are_bounded(
    here: EmbeddedBack, there: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.routing.router.CACHED", 2)
    view: Any = routed(here, there, RouteTable(name="all", back="far")).for_listener("s2")
    for number in (1, 2, 3, 1):
        assert view.decide(StreamRef("telemetry", str(number))).there == StreamRef("telemetry", str(number))
    assert len(view._cache) == 2


async def test_a_route_may_forbid_to_create_streams(here: EmbeddedBack, there: EmbeddedBack) -> None:
    fixed = RouteTable(name="fixed", back="far", create_streams=False)
    view = routed(here, there, fixed).for_listener("s2")
    await made(there, "telemetry", create_stream_on_append=True, create_stream_on_read=True)
    stream = StreamRef("telemetry", "orders")
    for operation in (CreateStream(stream), EnsureStream(stream)):
        error = await refusal(view, operation)
        assert error.failure.code is FailureCode.PERMISSION_DENIED and "create_streams" in error.failure.message
    for operation in (appending(b"x", stream=stream), CheckTail(stream)):
        assert (await refusal(view, operation)).failure.code is FailureCode.STREAM_NOT_FOUND
    for error in (await refused_session(view, stream), await refused_read(view, stream)):
        assert error.failure.code is FailureCode.STREAM_NOT_FOUND
    assert await names(there, ListStreams("telemetry")) == []


async def test_a_route_that_is_only_for_reading(here: EmbeddedBack, there: EmbeddedBack) -> None:
    view = routed(here, there, RouteTable(name="window", back="far", read_only=True)).for_listener("s2")
    await made(there, "telemetry", "orders")
    stream = StreamRef("telemetry", "orders")
    await there.perform(appending(b"x", stream=stream))
    assert await bodies(view, FromSeqNum(0), stream) == [b"x"]
    assert (await view.perform(CheckTail(stream))).seq_num == 1
    await view.perform(GetBasinConfig("telemetry"))
    changes: list[Operation[Any]] = [
        appending(b"y", stream=stream),
        AppendBytes(stream, b"y"),
        Merge(stream, (stream,)),
        DeleteStream(stream),
        CreateStream(StreamRef("telemetry", "other")),
        DeleteBasin("telemetry"),
        CreateBasin("another-basin"),
    ]
    for error in [*[await refusal(view, change) for change in changes], await refused_session(view, stream)]:
        assert error.failure.code is FailureCode.PERMISSION_DENIED
        assert "read-only" in error.failure.message
    assert (await there.perform(CheckTail(stream))).seq_num == 1


async def test_bytes_are_read_by_the_name_there(here: EmbeddedBack, there: EmbeddedBack) -> None:
    view = routed(here, there, RouteTable(name="all", back="far", to_basin="prod-{basin}")).for_listener("segment")
    await made(there, "prod-telemetry", "orders")
    stream = StreamRef("telemetry", "orders")
    await view.perform(AppendBytes(stream, join_events([b"abc"])))
    assert (await view.perform(ReadBytes(stream, 8, 100))).data == b"abc"
