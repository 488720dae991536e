"""Basins and streams: creating, configuring, listing, deleting (S2 fact sheet, 1.3)."""

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.store import BASIN, NOW, STREAM, Fails, Wall, appending, bodies

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
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
    Operation,
    Provisioned,
    ProvisionResult,
    ReconfigureBasin,
    ReconfigureStream,
    Trim,
)
from penstock.model.records import StreamRef
from penstock.model.streams import (
    DEFAULT_STREAM_CONFIG,
    INFINITE,
    BasinConfig,
    BasinConfigPatch,
    BasinInfo,
    Retention,
    StreamConfig,
    StreamConfigPatch,
    StreamInfo,
    TimestampingMode,
)
from penstock.store.reader import ReaderThreads

LAYER = StreamConfig(
    storage_class="standard",
    retention=INFINITE,
    timestamping_mode=TimestampingMode.ARRIVAL,
    timestamping_uncapped=True,
    delete_on_empty_seconds=60,
    retention_bytes=1000,
)
DEFAULT_STREAM_CONFIG_FOR_5_SECONDS = msgspec.structs.replace(DEFAULT_STREAM_CONFIG, retention=Retention(5))
NEW = StreamRef(BASIN, "new")
NOWHERE = StreamRef("no-such-basin", "s")


async def test_creating_twice_fails_unless_it_is_the_same_request(settings: EmbeddedSettings, wall: Wall) -> None:
    basin = CreateBasin(BASIN, BasinConfig(create_stream_on_read=True), "token")
    stream = CreateStream(STREAM, LAYER, "token")
    async with open_embedded(settings, wall) as back:
        created = await back.perform(basin)
        assert created == Provisioned(BasinInfo(name=BASIN, created_at=NOW), ProvisionResult.CREATED)
        made = await back.perform(stream)
        assert made == Provisioned(StreamInfo(name=STREAM.stream, created_at=NOW), ProvisionResult.CREATED)
        wall.now += 5
        await _only_the_same_is_repeated(back, basin, stream)
        await back.perform(ReconfigureStream(STREAM, StreamConfigPatch(retention=Retention(5))))
        await back.perform(ReconfigureBasin(BASIN, BasinConfigPatch(create_stream_on_read=False)))
    async with open_embedded(settings, wall) as back:
        await _only_the_same_is_repeated(back, basin, stream)
        assert (await back.perform(GetStreamConfig(STREAM))).retention == Retention(5), "a repetition changes nothing"


async def _only_the_same_is_repeated(back: EmbeddedBack, basin: CreateBasin, stream: CreateStream) -> None:
    for same in (basin, stream):
        repeated = await back.perform(same)  # type: ignore[type-var]
        assert repeated.result is ProvisionResult.NOOP and repeated.info.created_at == NOW
    for other in (
        msgspec.structs.replace(basin, request_token=None),
        msgspec.structs.replace(basin, request_token="another"),
        msgspec.structs.replace(basin, config=BasinConfig()),
        msgspec.structs.replace(stream, request_token=None),
        msgspec.structs.replace(stream, request_token="another"),
        msgspec.structs.replace(stream, config=StreamConfig()),
    ):
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS, "already exists"):
            await back.perform(other)  # type: ignore[type-var]


async def test_ensure_creates_updates_or_does_nothing(back: EmbeddedBack) -> None:
    on = BasinConfig(create_stream_on_append=True)
    basins = [
        EnsureBasin("basin-two"),
        EnsureBasin("basin-two"),
        EnsureBasin("basin-two", on),
        EnsureBasin("basin-two"),
    ]
    results = [(await back.perform(ensure)).result.value for ensure in basins]
    assert results == ["created", "noop", "updated", "updated"]
    streams = [EnsureStream(NEW), EnsureStream(NEW), EnsureStream(NEW, LAYER), EnsureStream(NEW, LAYER)]
    results = [(await back.perform(ensure)).result.value for ensure in streams]
    assert results == ["created", "noop", "updated", "noop"]
    assert await back.perform(GetStreamConfig(NEW)) == LAYER


async def test_configurations_are_resolved_and_survive(settings: EmbeddedSettings, wall: Wall) -> None:
    default = StreamConfig(retention=Retention(100), timestamping_uncapped=True)
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN, BasinConfig(default_stream_config=default)))
        await back.perform(CreateStream(STREAM, StreamConfig(retention=Retention(7))))
        expected = StreamConfig(retention=Retention(7)).over(default).over(DEFAULT_STREAM_CONFIG)
        assert await back.perform(GetStreamConfig(STREAM)) == expected

        change = BasinConfigPatch(default_stream_config=StreamConfigPatch(timestamping_uncapped=None))
        config = await back.perform(ReconfigureBasin(BASIN, change))
        assert config.default_stream_config == StreamConfig(retention=Retention(100))
        changed = await back.perform(ReconfigureStream(STREAM, StreamConfigPatch(retention=None, storage_class="x")))
        assert changed == msgspec.structs.replace(expected, retention=Retention(100), storage_class="x")
        reset = await back.perform(ReconfigureStream(STREAM, StreamConfigPatch(timestamping_uncapped=None)))
        assert reset == msgspec.structs.replace(changed, timestamping_uncapped=False), "the basin's default of today"
    async with open_embedded(settings, wall) as back:
        assert await back.perform(GetStreamConfig(STREAM)) == reset
        assert await back.perform(GetBasinConfig(BASIN)) == config


async def test_a_new_default_of_the_basin_leaves_the_streams_that_exist_alone(
    settings: EmbeddedSettings, wall: Wall
) -> None:
    on = BasinConfig(create_stream_on_append=True, create_stream_on_read=True)
    streams = {name: StreamRef(BASIN, name) for name in ("created", "ensured", "appended to", "read", "found anew")}
    short = BasinConfigPatch(default_stream_config=StreamConfigPatch(retention=Retention(5)))
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN, on))
        await back.perform(CreateStream(streams["created"]))
        await back.perform(EnsureStream(streams["ensured"]))
        await back.perform(CheckTail(streams["read"]))
        await back.perform(CreateStream(streams["found anew"]))
        for stream in streams.values():
            await back.perform(appending(b"kept", stream=stream))
        await back.perform(ReconfigureBasin(BASIN, short))
        for stream in streams.values():
            await _is_left_alone(back, stream)
        wall.now += 5001
        await back._store.sweeper.expire(back._store.sweeper._clock())
        await back.perform(CreateStream(NEW))
        assert await back.perform(GetStreamConfig(NEW)) == DEFAULT_STREAM_CONFIG_FOR_5_SECONDS
    async with open_embedded(settings, wall) as back:
        await back._store.sweeper.expire(back._store.sweeper._clock())
        for stream in streams.values():
            await _is_left_alone(back, stream)
        emptied = await back.perform(EnsureStream(streams["created"]))
        assert emptied.result is ProvisionResult.UPDATED, "ensuring a stream asks for the default of today"
        assert await back.perform(GetStreamConfig(streams["created"])) == DEFAULT_STREAM_CONFIG_FOR_5_SECONDS


async def _is_left_alone(back: EmbeddedBack, stream: StreamRef) -> None:
    config = await back.perform(GetStreamConfig(stream))
    assert config == DEFAULT_STREAM_CONFIG
    assert (await back.perform(EnsureStream(stream, config))).result is ProvisionResult.NOOP
    assert await bodies(back, FromSeqNum(0), stream) == [b"kept"]


async def test_a_changed_timestamping_mode_counts_from_the_next_append(back: EmbeddedBack) -> None:
    mode = StreamConfigPatch(timestamping_mode=TimestampingMode.CLIENT_REQUIRE)
    await back.perform(ReconfigureStream(STREAM, mode))
    with Fails(FailureCode.INVALID, "timestamp was required"):
        await back.perform(appending(b"x"))
    await back.perform(ReconfigureStream(STREAM, StreamConfigPatch(timestamping_mode=None)))
    await back.perform(appending(b"x"))


async def test_a_retention_of_nothing_is_refused(back: EmbeddedBack) -> None:
    bad = StreamConfig(retention=Retention(0))
    operations: list[Operation[object]] = [
        CreateStream(NEW, bad),
        EnsureStream(NEW, bad),
        ReconfigureStream(STREAM, StreamConfigPatch(retention=Retention(0))),
        CreateBasin("basin-two", BasinConfig(default_stream_config=bad)),
        EnsureBasin("basin-two", BasinConfig(default_stream_config=bad)),
        ReconfigureBasin(BASIN, BasinConfigPatch(default_stream_config=StreamConfigPatch(retention=Retention(0)))),
    ]
    for operation in operations:
        with Fails(FailureCode.INVALID, "retention"):
            await back.perform(operation)
    assert len((await back.perform(ListBasins())).items) == len((await back.perform(ListStreams(BASIN))).items) == 1


async def test_what_is_unknown(back: EmbeddedBack) -> None:
    missing = StreamRef(BASIN, "nope")
    not_found: list[tuple[Operation[object], FailureCode]] = [
        (GetBasinConfig("no-such-basin"), FailureCode.BASIN_NOT_FOUND),
        (ReconfigureBasin("no-such-basin", BasinConfigPatch()), FailureCode.BASIN_NOT_FOUND),
        (DeleteBasin("no-such-basin"), FailureCode.BASIN_NOT_FOUND),
        (ListStreams("no-such-basin"), FailureCode.BASIN_NOT_FOUND),
        (CreateStream(NOWHERE), FailureCode.BASIN_NOT_FOUND),
        (EnsureStream(NOWHERE), FailureCode.BASIN_NOT_FOUND),
        (ReconfigureStream(NOWHERE, StreamConfigPatch()), FailureCode.BASIN_NOT_FOUND),
        (GetStreamConfig(NOWHERE), FailureCode.STREAM_NOT_FOUND),
        (DeleteStream(NOWHERE), FailureCode.STREAM_NOT_FOUND),
        (GetStreamConfig(missing), FailureCode.STREAM_NOT_FOUND),
        (ReconfigureStream(missing, StreamConfigPatch()), FailureCode.STREAM_NOT_FOUND),
        (DeleteStream(missing), FailureCode.STREAM_NOT_FOUND),
        (Trim(missing, FromSeqNum(0)), FailureCode.STREAM_NOT_FOUND),
    ]
    for operation, code in not_found:
        with Fails(code):
            await back.perform(operation)
    with Fails(FailureCode.NOT_IMPLEMENTED):
        await back.perform(Operation())


async def test_a_deleted_name_is_free_at_once_and_everything_of_it_gone(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        for _ in range(3):
            await back.perform(CreateStream(STREAM, LAYER, "token"))
            await back.perform(appending(b"old", token=""))
            await back.perform(DeleteStream(STREAM))
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await back.perform(CheckTail(STREAM))
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await back.perform(appending(b"x"))
        assert (await back.perform(CreateStream(STREAM))).result is ProvisionResult.CREATED
        assert await back.perform(CheckTail(STREAM)) == (0, 0)
        await back.perform(appending(b"new"))
        await back._store.sweeper.purge()
        count = "SELECT (SELECT count(*) FROM batches), (SELECT count(*) FROM streams)"
        assert back._store._look_ups.execute(count).fetchone() == (1, 1)
    async with open_embedded(settings, wall) as back:
        assert await bodies(back, FromSeqNum(0)) == [b"new"]


async def test_a_deleted_basin_takes_its_streams_with_it(back: EmbeddedBack) -> None:
    await back.perform(appending(b"x"))
    await back.perform(DeleteBasin(BASIN))
    with Fails(FailureCode.BASIN_NOT_FOUND):
        await back.perform(CheckTail(STREAM))
    assert (await back.perform(ListBasins())).items == []
    with Fails(FailureCode.BASIN_NOT_FOUND):
        await back.perform(ListStreams(BASIN))
    await back.perform(CreateBasin(BASIN))
    assert (await back.perform(ListStreams(BASIN))).items == []
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(CheckTail(STREAM))
    await back.perform(CreateStream(STREAM))
    await back._store.sweeper.purge()
    assert await back.perform(CheckTail(STREAM)) == (0, 0)
    counts = "SELECT (SELECT count(*) FROM batches), (SELECT count(*) FROM streams), (SELECT count(*) FROM basins)"
    assert back._store._look_ups.execute(counts).fetchone() == (0, 1, 1)


async def test_of_concurrent_creations_one_wins(back: EmbeddedBack) -> None:
    results: list[str] = []

    async def create() -> None:
        try:
            results.append((await back.perform(CreateStream(NEW))).result.value)
        except OperationFailed as error:
            results.append(error.failure.code.value)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(create)
    assert sorted(results) == ["created"] + ["resource_already_exists"] * 4


async def test_deleting_and_creating_while_appends_are_under_way(back: EmbeddedBack) -> None:
    """In any order of decisions, the disk ends in the same state as memory."""

    async def disturb(number: int) -> None:
        for operation in (DeleteStream(STREAM), CreateStream(STREAM)):
            try:
                await back.perform(operation)  # type: ignore[type-var]
            except OperationFailed as error:
                assert error.failure.code in (FailureCode.STREAM_NOT_FOUND, FailureCode.RESOURCE_ALREADY_EXISTS)
        try:
            await back.perform(appending(b"%d" % number))
        except OperationFailed as error:
            assert error.failure.code is FailureCode.STREAM_NOT_FOUND

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(disturb, number)
    stream = back._store.registry.stream(STREAM)
    assert stream is not None and stream.head is stream.durable
    assert len(await bodies(back, FromSeqNum(0))) == stream.head.next_seq
    await back._store.sweeper.purge()
    row = back._store._look_ups.execute("SELECT id FROM streams").fetchall()
    assert row == [(stream.id,)]


async def test_lists_are_in_byte_order_with_prefix_start_and_limit(back: EmbeddedBack) -> None:
    names = ["a", "a/b", "aB", "b", "é", "Z", "\U0001f600", "zz", "a\x00b"]
    for name in names:
        await back.perform(CreateStream(StreamRef("basin-one", name)))
    names = sorted([*names, STREAM.stream], key=str.encode)
    page = await back.perform(ListStreams(BASIN))
    assert [info.name for info in page.items] == names and not page.has_more
    for limit in range(1, 12):
        page = await back.perform(ListStreams(BASIN, limit=limit))
        assert [info.name for info in page.items] == names[:limit]
        assert page.has_more == (limit < len(names))
    page = await back.perform(ListStreams(BASIN, prefix="a", start_after="a/b", limit=1))
    assert [info.name for info in page.items] == ["aB"] and not page.has_more
    page = await back.perform(ListStreams(BASIN, prefix="a", limit=2))
    assert [info.name for info in page.items] == ["a", "a\x00b"] and page.has_more
    assert [info.name for info in (await back.perform(ListStreams(BASIN, start_after="zz"))).items] == [
        "é",
        "\U0001f600",
    ]

    for name in ("basin-two", "basin-000"):
        await back.perform(CreateBasin(name))
    basins = await back.perform(ListBasins(prefix="basin-", start_after="basin-000", limit=1))
    assert [info.name for info in basins.items] == [BASIN] and basins.has_more


async def test_one_stream_is_listed_without_a_read_from_the_file(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = ListStreams(NEW.basin, prefix=NEW.stream, limit=1, exact=True)
    assert (await back.perform(exact)).items == []
    created = (await back.perform(CreateStream(NEW))).info
    await back.perform(CreateStream(StreamRef(BASIN, NEW.stream + "er")))
    with monkeypatch.context() as patch:
        patch.setattr(ReaderThreads, "run", None)
        assert (await back.perform(exact)).items == [created]
    assert (await back.perform(replace(exact, start_after=NEW.stream))).items[0].name == NEW.stream + "er"
    await back.perform(DeleteStream(NEW))
    assert created not in (await back.perform(exact)).items


async def test_few_streams_in_memory_many_on_disk(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(replace(settings, cached_streams=1), wall) as back:
        refs = [StreamRef(f"basin-{number % 3:03}", f"s{number}") for number in range(30)]
        for basin in sorted({ref.basin for ref in refs}):
            await back.perform(CreateBasin(basin))
        async with trio.open_nursery() as nursery:
            for ref in refs:
                nursery.start_soon(back.perform, CreateStream(ref))
        for number in range(1, 4):
            async with trio.open_nursery() as nursery:
                for ref in refs:
                    nursery.start_soon(back.perform, appending(b"%d" % number, stream=ref, match=number - 1))
        for ref in refs:
            assert await bodies(back, FromSeqNum(0), ref) == [b"1", b"2", b"3"]
        registry = back._store.registry
        for number in range(6):  # the next ones make room for themselves, now that no other is in use
            await back.perform(CreateStream(StreamRef("basin-000", f"new {number}")))
        await back.perform(CreateBasin("basin-003"))
        assert len(registry._streams) == 1 and len(registry._basins) == 2


configs = st.builds(
    StreamConfig,
    storage_class=st.none() | st.text(max_size=5),
    retention=st.none() | st.builds(Retention, st.none() | st.integers(1, 2**62)),
    timestamping_mode=st.none() | st.sampled_from(TimestampingMode),
    timestamping_uncapped=st.none() | st.booleans(),
    delete_on_empty_seconds=st.none() | st.integers(0, 2**62),
    retention_bytes=st.none() | st.integers(0, 2**62),
)


@given(st.builds(BasinConfig, default_stream_config=configs, create_stream_on_append=st.booleans()))
def test_configurations_survive_being_stored(config: BasinConfig) -> None:
    from penstock.store.catalog import _to_json
    from penstock.store.registry import decode_basin_config, decode_stream_config

    assert decode_basin_config(_to_json(config)) == config
    assert decode_stream_config(_to_json(config.default_stream_config)) == config.default_stream_config.resolve()
