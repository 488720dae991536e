"""Placement of the internal streams of Pravega's clients."""

from __future__ import annotations

from support.routing import Without, made, refusal, routed
from support.store import bodies

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, GetByteStreamInfo, Merge
from penstock.model.failures import FailureCode
from penstock.model.operations import Capability, CreateStream, FromSeqNum
from penstock.model.records import StreamRef
from penstock.model.table_operations import CreateTable, GetTableInfo
from penstock_pravega.segment.names import SegmentNames

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
    assert (await there.perform(GetByteStreamInfo(renamed))).length == 0
    await view.perform(AppendBytes(source, join_events([b"one"])))
    await view.perform(Merge(target, (source,)))
    assert await bodies(view, FromSeqNum(0), target) == [b"one"]
    group = StreamRef(INTERNAL_BASIN, "telemetry/_RGreaders/0.#epoch.0")
    await view.perform(CreateStream(group))
    await there.perform(GetByteStreamInfo(StreamRef(INTERNAL_BASIN, "prod-telemetry/_RGreaders/0.#epoch.0")))


async def test_transactions_of_other_streams_are_kept_here(here: EmbeddedBack, there: EmbeddedBack) -> None:
    far = Without(there, Capability.TABLES)
    view = routed(here, far, RouteTable(name="all", back="far")).for_listener("segment", SegmentNames())
    await made(there, "telemetry", "orders")
    source = StreamRef(INTERNAL_BASIN, f"telemetry/orders/0.#epoch.0{TRANSACTION}")
    await view.perform(CreateStream(source))
    assert (await here.perform(GetByteStreamInfo(source))).length == 0
    group = StreamRef(INTERNAL_BASIN, "Shop/_x/0.#epoch.0")
    await view.perform(CreateStream(group))
    await here.perform(GetByteStreamInfo(group))


async def test_streams_of_different_servers_are_not_merged(here: EmbeddedBack, there: EmbeddedBack) -> None:
    router = routed(here, there, RouteTable(name="far", basin="for-far", back="far"), RouteTable(name="near"))
    view = router.for_listener("segment", SegmentNames())
    await made(there, "for-far", "a")
    await made(here, "for-near", "b")
    error = await refusal(view, Merge(StreamRef("for-near", "b"), (StreamRef("for-far", "a"),)))
    assert error.failure.code is FailureCode.NOT_IMPLEMENTED
    assert "for-far/a is on back far" in error.failure.message


async def test_who_may_not_delete_a_stream_does_not_merge_it_into_another(
    here: EmbeddedBack, there: EmbeddedBack
) -> None:
    tables = [RouteTable(name="kept", stream="kept", allow=("read", "append")), RouteTable(name="own")]
    view = routed(here, there, *tables).for_listener("segment", SegmentNames())
    target, kept, own, internal = (
        *(StreamRef("for-near", name) for name in ("target", "kept", "own")),
        StreamRef(INTERNAL_BASIN, f"for-near/kept/0.#epoch.0{TRANSACTION}"),
    )
    await made(here, "for-near", "target", "kept", "own")
    await here.perform(CreateStream(internal))
    error = await refusal(view, Merge(target, (kept,)))
    assert error.failure.code is FailureCode.PERMISSION_DENIED and "manage" in error.failure.message
    await here.perform(GetByteStreamInfo(kept))
    await view.perform(Merge(target, (own,)))
    await view.perform(Merge(kept, (internal,)))


async def test_where_tables_are(here: EmbeddedBack, there: EmbeddedBack) -> None:
    table = RouteTable(name="all", basin="telemetry", back="far", to_basin="prod-telemetry")
    view = routed(here, there, table).for_listener("segment", SegmentNames())
    for name in ("#controller", "telemetry/_kv/0.#epoch.0"):
        await view.perform(CreateTable(name))
    for name in ("elsewhere/_kv/0.#epoch.0", "any text"):
        assert (await refusal(view, CreateTable(name))).failure.code is FailureCode.STREAM_NOT_FOUND
    await there.perform(GetTableInfo("prod-telemetry/_kv/0.#epoch.0"))
    await here.perform(GetTableInfo("#controller"))


async def test_a_listener_without_internal_names_has_no_internal_streams(
    here: EmbeddedBack, there: EmbeddedBack
) -> None:
    view = routed(here, there, RouteTable(name="all", basin="telemetry", back="far")).for_listener("s2")
    source = StreamRef(INTERNAL_BASIN, f"telemetry/orders/0.#epoch.0{TRANSACTION}")
    for operation in (CreateStream(source), CreateTable("telemetry/_kv/0.#epoch.0")):
        error = await refusal(view, operation)
        assert error.failure.code is FailureCode.STREAM_NOT_FOUND
        assert "belongs to no stream" in error.failure.message


async def test_watermarks_are_where_their_stream_is(here: EmbeddedBack, there: EmbeddedBack) -> None:
    table = RouteTable(name="one", basin="telemetry", stream="orders", back="far", to_stream="all-{stream}")
    view = routed(here, there, table).for_listener("segment", SegmentNames("penstock"))
    await view.perform(CreateStream(StreamRef(INTERNAL_BASIN, "telemetry/_MARKorders/0.#epoch.0")))
    await there.perform(GetByteStreamInfo(StreamRef(INTERNAL_BASIN, "telemetry/_MARKall-orders/0.#epoch.0")))
    for other in ("telemetry/_MARKothers/0.#epoch.0", "telemetry/_MARK/0.#epoch.0"):
        error = await refusal(view, CreateStream(StreamRef(INTERNAL_BASIN, other)))
        assert error.failure.code is FailureCode.STREAM_NOT_FOUND
