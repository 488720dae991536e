"""Operations reach the back that their route says, by the name that the stream has there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.store import Wall, appending, bodies

from penstock.backs.base import Back
from penstock.backs.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.config import RouteTable
from penstock.identity import CLIENT, Client
from penstock.routing.route import Route
from penstock.routing.router import Router
from penstock.routing.segments import INTERNAL_BASIN, SegmentNames
from penstock.routing.target import Target, TargetHolder
from penstock_codecs.byte_operations import AppendBytes, GetSegmentInfo, Merge, ReadBytes
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import (
    Append,
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
    ListBasins,
    ListStreams,
    Operation,
    Read,
)
from penstock_codecs.segment.events import join_events
from penstock_codecs.streams import BasinConfig
from penstock_codecs.table_operations import CreateTable, GetTableInfo

AUTO = BasinConfig(create_stream_on_append=True)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "here"), Wall()) as back:
        await back.perform(EnsureBasin(INTERNAL_BASIN))
        yield back


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "there"), Wall()) as back:
        await back.perform(EnsureBasin(INTERNAL_BASIN))
        yield back


class Without:
    """A back that lacks some capabilities."""

    def __init__(self, back: Back, *lacking: Capability) -> None:
        self._back = back
        self.capabilities = back.capabilities - set(lacking)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._back, name)


def routed(here: Back, there: Back, *tables: RouteTable) -> Router:
    targets = {"embedded": Target("embedded", "embedded", here), "far": Target("far", "s2", there)}
    return Router(
        [
            Route(
                table.name,
                table.rewriting(),
                TargetHolder(targets[table.back]),
                frozenset(table.listeners),
                frozenset(table.identity),
                table.create_streams,
                table.mirror,
                table.read_only,
            )
            for table in tables
        ],
        here,
    )


async def made(back: Back, basin: str, *streams: str, **config: Any) -> None:
    await back.perform(EnsureBasin(basin, BasinConfig(**config)))
    for stream in streams:
        await back.perform(EnsureStream(StreamRef(basin, stream)))


async def refusal(back: Back, operation: Operation[Any]) -> OperationFailed:
    with pytest.raises(OperationFailed) as caught:
        await back.perform(operation)
    return caught.value


async def names(back: Back, operation: ListStreams | ListBasins) -> list[str]:
    page: Any = await back.perform(operation)  # type: ignore[arg-type]
    return [info.name for info in page.items] + ["..."] * page.has_more


async def test_without_routes_the_store_itself_is_given(here: EmbeddedBack) -> None:
    assert Router((), here).for_listener("s2") is here


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
        assert (await view.perform(GetSegmentInfo(stream))).length > 0
    assert await bodies(there, FromSeqNum(0), StreamRef("telemetry", "a")) == [b"far", b"far2", b"event"]
    assert await names(here, ListStreams("telemetry")) == ["us/a"]


async def test_a_failure_names_the_stream_as_the_client_does(here: EmbeddedBack, there: EmbeddedBack) -> None:
    view = routed(here, there, RouteTable(name="all", back="far", to_basin="prod-{basin}")).for_listener("s2")
    await made(there, "prod-telemetry")
    stream = StreamRef("telemetry", "orders")
    attempts = [await refusal(view, CheckTail(stream)), await _refused_session(view, stream)]
    for error in [*attempts, await _refused_read(view, stream)]:
        assert error.failure.code is FailureCode.STREAM_NOT_FOUND
        assert error.failure.message == "there is no stream 'orders' in basin 'telemetry'"


async def _refused_session(view: Back, stream: StreamRef) -> OperationFailed:
    with pytest.raises(OperationFailed) as caught:
        async with view.append_session(stream):
            pass
    return caught.value


async def _refused_read(view: Back, stream: StreamRef) -> OperationFailed:
    with pytest.raises(OperationFailed) as caught:
        async with view.read_session(Read(stream, FromSeqNum(0))):
            pass
    return caught.value


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
    for error in (await _refused_session(view, stream), await _refused_read(view, stream)):
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
    for error in [*[await refusal(view, change) for change in changes], await _refused_session(view, stream)]:
        assert error.failure.code is FailureCode.PERMISSION_DENIED
        assert "only for reading" in error.failure.message
    assert (await there.perform(CheckTail(stream))).seq_num == 1


async def test_names_in_results_are_the_clients(here: EmbeddedBack, there: EmbeddedBack) -> None:
    table = RouteTable(name="all", basin="telemetry", back="far", to_basin="prod-{basin}", to_stream="x/{stream}")
    view = routed(here, there, table).for_listener("s2")
    basin = await view.perform(CreateBasin("telemetry", AUTO))
    assert basin.info.name == "telemetry"
    stream = await view.perform(CreateStream(StreamRef("telemetry", "orders")))
    assert stream.info.name == "orders"
    assert await names(there, ListStreams("prod-telemetry")) == ["x/orders"]
    assert await names(view, ListStreams("telemetry")) == ["orders"]
    assert await names(view, ListBasins()) == ["telemetry"]
    assert (await view.perform(GetBasinConfig("telemetry"))).create_stream_on_append
    await view.perform(DeleteStream(StreamRef("telemetry", "orders")))
    assert await names(view, ListStreams("telemetry")) == []
    await view.perform(DeleteBasin("telemetry"))
    assert await names(there, ListBasins()) == []


async def test_listings_are_put_together(here: EmbeddedBack, there: EmbeddedBack) -> None:
    """In name order, page by page, without what other routes have."""
    router = routed(
        here,
        there,
        RouteTable(name="moved", match="glob", basin="telemetry", stream="*/eu", back="far", to_stream="eu-{1}"),
        RouteTable(name="far", match="prefix", basin="telemetry", stream="m", back="far"),
        RouteTable(name="near", basin="telemetry"),
    )
    view = router.for_listener("s2")
    await made(there, "telemetry", "a", "eu-b", "eu-a/x", "eu-z", "m1", "m/eu", "n")
    await made(here, "telemetry", "a", "b/eu", "c", "m2", "z")
    everything = ["a", "b/eu", "c", "m1", "z", "z/eu"]
    assert await names(view, ListStreams("telemetry")) == everything
    found: list[str] = []
    while True:
        page = await view.perform(ListStreams("telemetry", start_after=found[-1] if found else "", limit=1))
        found += [info.name for info in page.items]
        if not page.has_more:
            break
    assert found == everything
    assert await names(view, ListStreams("telemetry", prefix="m")) == ["m1"]
    assert await names(view, ListStreams("telemetry", prefix="z", start_after="z")) == ["z/eu"]
    assert await names(view, ListStreams("telemetry", limit=2)) == ["a", "b/eu", "..."]


async def test_too_many_names_in_another_order(
    here: EmbeddedBack, there: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.routing.listing.MOST_UNORDERED", 1)
    table = RouteTable(name="turned", match="glob", basin="telemetry", stream="*/*", back="far", to_stream="{2}/{1}")
    view = routed(here, there, table).for_listener("s2")
    await made(there, "telemetry", "b/a")
    assert await names(view, ListStreams("telemetry")) == ["a/b"]
    await made(there, "telemetry", "a/z")
    assert (await refusal(view, ListStreams("telemetry"))).failure.code is FailureCode.LIMIT_EXCEEDED


async def test_basins_of_backs_that_have_none_are_kept_here(here: EmbeddedBack, there: EmbeddedBack) -> None:
    far = Without(there, Capability.BASINS)
    view = routed(here, far, RouteTable(name="all", back="far")).for_listener("s2")
    await view.perform(CreateBasin("telemetry", AUTO))
    assert await names(view, ListBasins()) == ["telemetry"]
    assert (await view.perform(GetBasinConfig("telemetry"))) == AUTO
    assert await names(there, ListBasins()) == []


async def test_a_basin_of_which_only_some_streams_are_taken_stays_as_it_is(
    here: EmbeddedBack, there: EmbeddedBack
) -> None:
    some = RouteTable(name="some", match="prefix", stream="eu/", back="far")
    view = routed(here, there, some).for_listener("s2")
    await view.perform(CreateBasin("telemetry"))
    assert await names(there, ListBasins()) == ["telemetry"]
    error = await refusal(view, DeleteBasin("telemetry"))
    assert error.failure.code is FailureCode.PERMISSION_DENIED
    whole = routed(here, there, some, RouteTable(name="whole")).for_listener("s2")
    await made(here, "telemetry")
    await whole.perform(DeleteBasin("telemetry"))
    assert await names(there, ListBasins()) == ["telemetry"] and await names(here, ListBasins()) == []


# ---- what Pravega's clients keep for themselves --------------------------------------------------------------

TRANSACTION = "#transaction." + "0" * 31 + "1"


async def test_transactions_are_where_their_stream_is_if_that_is_a_segment_store(
    here: EmbeddedBack, there: EmbeddedBack
) -> None:
    table = RouteTable(name="all", basin="telemetry", back="far", to_basin="prod-telemetry")
    view = routed(here, there, table).for_listener("segment", SegmentNames("penstock"))
    await made(there, "prod-telemetry", "orders")
    source = StreamRef(INTERNAL_BASIN, f"telemetry/orders/0.#epoch.0{TRANSACTION}")
    target = StreamRef("telemetry", "orders")
    await view.perform(CreateStream(source))
    renamed = StreamRef(INTERNAL_BASIN, f"prod-telemetry/orders/0.#epoch.0{TRANSACTION}")
    assert (await there.perform(GetSegmentInfo(renamed))).length == 0
    await view.perform(AppendBytes(source, join_events([b"one"])))
    await view.perform(Merge(target, (source,)))
    assert await bodies(view, FromSeqNum(0), target) == [b"one"]
    group = StreamRef(INTERNAL_BASIN, "telemetry/_RGreaders/0.#epoch.0")
    await view.perform(CreateStream(group))
    await there.perform(GetSegmentInfo(StreamRef(INTERNAL_BASIN, "prod-telemetry/_RGreaders/0.#epoch.0")))


async def test_transactions_of_other_streams_are_kept_here(here: EmbeddedBack, there: EmbeddedBack) -> None:
    far = Without(there, Capability.TABLES)
    view = routed(here, far, RouteTable(name="all", back="far")).for_listener("segment")
    await made(there, "telemetry", "orders")
    source = StreamRef(INTERNAL_BASIN, f"telemetry/orders/0.#epoch.0{TRANSACTION}")
    await view.perform(CreateStream(source))
    assert (await here.perform(GetSegmentInfo(source))).length == 0
    for internal in ("not a segment's name", "Shop/_x/0.#epoch.0"):
        await view.perform(CreateStream(StreamRef(INTERNAL_BASIN, internal)))
        await here.perform(GetSegmentInfo(StreamRef(INTERNAL_BASIN, internal)))


async def test_streams_of_different_servers_are_not_merged(here: EmbeddedBack, there: EmbeddedBack) -> None:
    router = routed(here, there, RouteTable(name="far", basin="for-far", back="far"), RouteTable(name="near"))
    view = router.for_listener("segment")
    await made(there, "for-far", "a")
    await made(here, "for-near", "b")
    error = await refusal(view, Merge(StreamRef("for-near", "b"), (StreamRef("for-far", "a"),)))
    assert error.failure.code is FailureCode.NOT_IMPLEMENTED
    assert "for-far/a is on back far" in error.failure.message


async def test_where_tables_are(here: EmbeddedBack, there: EmbeddedBack) -> None:
    table = RouteTable(name="all", basin="telemetry", back="far", to_basin="prod-telemetry")
    view = routed(here, there, table).for_listener("segment")
    for name in ("#controller", "telemetry/_kv/0.#epoch.0", "elsewhere/_kv/0.#epoch.0", "any text"):
        await view.perform(CreateTable(name))
    await there.perform(GetTableInfo("prod-telemetry/_kv/0.#epoch.0"))
    for name in ("#controller", "elsewhere/_kv/0.#epoch.0", "any text"):
        await here.perform(GetTableInfo(name))


# ---- cut-overs -----------------------------------------------------------------------------------------------


async def test_a_cut_over_holds_changes_and_moves_sessions(here: EmbeddedBack, there: EmbeddedBack) -> None:
    router = routed(here, there, RouteTable(name="all"))
    view = router.for_listener("s2")
    route = router.route("all")
    assert route is not None and router.route("none") is None
    holder = route.holder
    stream = StreamRef("telemetry", "orders")
    for back in (here, there):
        await made(back, "telemetry", "orders")
    acked: list[int] = []

    async def append() -> None:
        acked.append((await view.perform(appending(b"later", stream=stream))).end.seq_num)

    async with trio.open_nursery() as nursery, view.append_session(stream) as session:
        async with view.read_session(Read(stream, FromSeqNum(0))) as reading:
            await session.send(appending(b"first", stream=stream))
            assert holder.under_way == 1
            nursery.start_soon(holder.hold, 5.0)
            await session.receive()
            while not holder.held or holder.under_way:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(append)
            await trio.testing.wait_all_tasks_blocked()
            assert acked == [] and (await view.perform(CheckTail(stream))).seq_num == 1
            holder.swap(Target("far", "s2", there))
            holder.release()
            with pytest.raises(OperationFailed, match="on another server now") as caught:
                while True:
                    await reading.next()
            assert caught.value.failure.retryable and not caught.value.failure.side_effect_possible
        await session.send(appending(b"lost", stream=stream))
        with pytest.raises(OperationFailed, match="on another server now"):
            await session.receive()
    assert acked == [1]
    assert await bodies(view, FromSeqNum(0), stream) == [b"later"]
    assert await bodies(here, FromSeqNum(0), stream) == [b"first"]


class Slow:
    """A back whose appends end when they are told to."""

    def __init__(self, back: Back) -> None:
        self._back = back
        self.capabilities = back.capabilities
        self.go = trio.Event()

    async def perform(self, operation: Any) -> Any:
        if isinstance(operation, Append):
            await self.go.wait()
        return await self._back.perform(operation)

    def read_session(self, read: Read) -> Any:
        return self._back.read_session(read)


async def test_a_hold_that_takes_too_long_is_given_up(
    here: EmbeddedBack, there: EmbeddedBack, autojump_clock: object
) -> None:
    slow = Slow(here)
    router = routed(slow, there, RouteTable(name="all"))  # type: ignore[arg-type]
    view, holder = router.for_listener("s2"), router.routes[0].holder
    stream = StreamRef("telemetry", "orders")
    await made(here, "telemetry", "orders")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view.perform, appending(b"x", stream=stream))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OperationFailed, match="1 changes are not acknowledged after 3 s"):
            await holder.hold(3.0)
        assert not holder.held
        slow.go.set()
    await holder.hold(3.0)
    with pytest.raises(OperationFailed, match="held already"):
        await holder.hold(3.0)
    begun = trio.current_time()
    error = await refusal(view, appending(b"y", stream=stream))
    assert trio.current_time() - begun == 30
    assert error.failure.retryable and not error.failure.side_effect_possible
    holder.release()
    await view.perform(appending(b"z", stream=stream))
    assert await bodies(view, FromSeqNum(0), stream) == [b"x", b"z"]


async def test_bytes_are_read_by_the_name_there(here: EmbeddedBack, there: EmbeddedBack) -> None:
    view = routed(here, there, RouteTable(name="all", back="far", to_basin="prod-{basin}")).for_listener("segment")
    await made(there, "prod-telemetry", "orders")
    stream = StreamRef("telemetry", "orders")
    await view.perform(AppendBytes(stream, join_events([b"abc"])))
    assert (await view.perform(ReadBytes(stream, 8, 100))).data == b"abc"
