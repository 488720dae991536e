"""A configuration reaches the parts; a key that is left out leaves the part's own default."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from support.s3p import front as s3p_front
from support.segment import front as segment_front
from support.store import appending

from penstock.app.bootstrap import (
    apply_resources,
    open_listeners,
    open_store,
    store_settings,
    tls_of,
)
from penstock.app.config import (
    BasinTable,
    Config,
    DrainTable,
    Listeners,
    Management,
    StoreTable,
    StreamTable,
    default_config,
)
from penstock.core.errors import CannotStart
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_layout import Layout
from penstock.model.features import Feature
from penstock.model.operations import CheckTail, GetBasinConfig, GetStreamConfig, ListBasins, ListStreams
from penstock.model.records import StreamRef
from penstock.model.streams import INFINITE, Retention, StreamConfig, TimestampingMode
from penstock.net.accepting import Listener
from penstock.net.http.serving import HttpSettings
from penstock.routing.access.clients import ClientRules
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock.routing.router import Router
from penstock.store.settings import StoreSettings
from penstock_durable.back_opening import durable_upstream_settings
from penstock_durable.config import DurableBackTable, DurableListener
from penstock_pravega.codec import Dialect, SegmentClient
from penstock_pravega.codec.limits import SegmentLimits
from penstock_pravega.codec.released import Hello
from penstock_pravega.controller.config import ControllerListener, ControllerListenerLimits
from penstock_pravega.controller.controller import Advertised, SegmentsMode
from penstock_pravega.controller.opening import controller_http_settings, controller_settings
from penstock_pravega.segment.config import SegmentListener, SegmentListenerLimits, SegmentLoss
from penstock_pravega.segment.front import SegmentFront, SegmentSettings
from penstock_pravega.segment.names import SegmentNames
from penstock_pravega.segment.opening import segment_settings
from penstock_s2.config import S2Listener, S2ListenerLimits
from penstock_s2.front import S2Settings
from penstock_s2.opening import http_settings, s2_settings
from penstock_s3p.codec import Create, Ok
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.config import S3PListener, S3PListenerLimits, S3PLoss
from penstock_s3p.front import S3PFront, S3PSettings
from penstock_s3p.names import BasinInName
from penstock_s3p.opening import s3p_settings


def test_defaults_are_those_of_the_parts() -> None:
    assert http_settings(S2ListenerLimits()) == HttpSettings(streams_before_auth=100)
    assert s2_settings(S2Listener(), ClientRules(), DrainTable().grace_seconds) == S2Settings(
        hosts=frozenset({"127.0.0.1", "*.localhost"})
    )
    assert s3p_settings(S3PListener()) == S3PSettings()
    assert segment_settings(SegmentListener()) == SegmentSettings()
    assert controller_http_settings(ControllerListenerLimits()) == HttpSettings(
        keep_alive=3600.0, streams_before_auth=100
    )
    assert store_settings(default_config()) == StoreSettings(directory=Path("data"))


def test_the_s2_front_is_told_what_the_file_says() -> None:
    listener = S2Listener(
        default_basin="some-basin",
        basin_host_suffixes=(".example",),
        cors_origins=("https://a.example",),
        sse_dialect="seed",
        compress=False,
        limits=S2ListenerLimits(event_stream_seconds=9),
    )
    clients = ClientRules(frozenset({"a", "b"}))
    told = s2_settings(listener, clients, 1.5)
    assert told == S2Settings(
        default_basin="some-basin",
        basin_host_suffixes=(".example",),
        cors_origins=frozenset({"https://a.example"}),
        clients=clients,
        sse_dialect="seed",
        compress=False,
        event_stream_seconds=9,
        drain_grace_seconds=1.5,
    )


@pytest.mark.parametrize(
    ("listener", "allowed"),
    [
        (S2Listener(hosts=("gw", "*.example")), frozenset({"127.0.0.1", "*.localhost", "gw", "*.example"})),
        (S2Listener(bind="gw.internal:1", basin_host_suffixes=()), frozenset({"gw.internal"})),
        (S2Listener(auth_tokens=("a",)), None),
        (S2Listener(auth_tokens=("a",), anonymous=True), frozenset({"127.0.0.1", "*.localhost"})),
        (S2Listener(tls_certificate="c.pem", tls_key="k.pem"), None),
    ],
)
def test_hosts_are_checked_where_a_page_would_be_served(listener: S2Listener, allowed: frozenset[str] | None) -> None:
    clients = ClientRules(frozenset(listener.auth_tokens), anonymous=listener.anonymous)
    assert s2_settings(listener, clients, DrainTable().grace_seconds).hosts == allowed


def test_the_http_server_is_told_what_the_file_says() -> None:
    told = http_settings(
        S2ListenerLimits(
            keep_alive_seconds=1,
            head_timeout_seconds=2,
            slow_reader_seconds=3,
            max_head_bytes=4096,
            max_streams=5,
            receive_buffer_bytes=16_384,
            send_buffer_bytes=16_385,
            max_unsent_bytes=2_000_000,
        )
    )
    assert (told.keep_alive, told.head_timeout, told.slow_reader) == (1, 2, 3)
    assert (told.limits.max_head, told.limits.max_streams) == (4096, 5)
    assert (told.receive_buffer, told.send_buffer, told.max_unsent) == (16_384, 16_385, 2_000_000)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate for localhost and its key, as the keys of a listener."""
    certificate, key = (tmp_path_factory.mktemp("tls") / name for name in ("certificate.pem", "key.pem"))
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout"
    try:
        subprocess.run([*command.split(), key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return {"tls_certificate": str(certificate), "tls_key": str(key)}


def test_a_certificate_gives_tls_and_a_bad_one_a_reason(files: dict[str, str]) -> None:
    bad = {"tls_certificate": files["tls_key"], "tls_key": files["tls_key"]}
    for listener in (S2Listener, S3PListener, SegmentListener, ControllerListener, Management):
        assert tls_of("some", listener(**files), over_http=True) is not None
        with pytest.raises(CannotStart, match=r"some: .* not a PEM certificate chain and its key"):
            tls_of("some", listener(**bad), over_http=True)
        assert tls_of("some", listener(), over_http=True) is None


def test_the_s3p_front_is_told_what_the_file_says() -> None:
    listener = S3PListener(
        names="path",
        loss=S3PLoss(headers="envelope", empty_body="drop", command_records="refuse"),
        limits=S3PListenerLimits(
            max_name_bytes=1,
            max_records_per_append=2,
            max_record_bytes=3,
            max_append_bytes=4,
            default_count=5,
            max_count=6,
            max_read_bytes=1_048_577,
            max_block_ms=8,
            max_option_pairs=9,
            max_option_bytes=41,
            idle_timeout_seconds=11,
            send_timeout_seconds=12,
        ),
    )
    assert s3p_settings(listener) == S3PSettings(
        names=BasinInName(),
        limits=S3PLimits(1, 2, 3, 4, 5, 6, 8, 9, 41),
        loss=LossPolicy(Loss.ENVELOPE, Loss.DROP, Loss.REFUSE),
        max_read_bytes=1_048_577,
        idle_timeout_seconds=11,
        send_timeout_seconds=12,
    )


def test_the_store_is_told_what_the_file_says() -> None:
    store = StoreTable(
        directory="somewhere",
        append_inflight_bytes=1_048_576,
        tail_cache_bytes=1_048_577,
        read_ahead_batches=3,
        cached_streams=4,
        reader_threads=5,
        sweep_interval_seconds=6,
    )
    config = Config(listeners=Listeners(s2=(S2Listener(),)), store=store)
    assert store_settings(config) == StoreSettings(
        directory=Path("somewhere"),
        append_inflight_bytes=1_048_576,
        tail_cache_bytes=1_048_577,
        read_ahead_batches=3,
        cached_streams=4,
        reader_threads=5,
        sweep_interval_seconds=6,
    )


def test_the_segment_front_takes_the_largest_message_by_default() -> None:
    assert segment_settings(SegmentListener()).limits == SegmentLimits()


def test_the_segment_front_is_told_what_the_file_says() -> None:
    listener = SegmentListener(
        basin="telemetry",
        loss=SegmentLoss(headers="envelope", empty_body="refuse", command_records="refuse"),
        limits=SegmentListenerLimits(
            max_message_bytes=65_536,
            max_writers=1,
            max_read_bytes=4096,
            read_hold_seconds=2,
            idle_timeout_seconds=3,
            send_timeout_seconds=4,
        ),
    )
    assert segment_settings(listener) == SegmentSettings(
        names=SegmentNames("telemetry"),
        limits=SegmentLimits(max_message_bytes=65_536, max_writers=1),
        refuse=frozenset({Feature.EMPTY_BODY, Feature.COMMAND}),
        max_read_bytes=4096,
        read_hold_seconds=2,
        idle_timeout_seconds=3,
        send_timeout_seconds=4,
    )


@pytest.mark.parametrize(
    ("loss", "layout"),
    [
        (SegmentLoss(headers="envelope"), Layout.ENVELOPE_HEADERS),
        (SegmentLoss(empty_body="envelope"), Layout.ENVELOPE_EMPTY),
        (SegmentLoss(command_records="envelope"), Layout.ENVELOPE_COMMANDS),
        (
            SegmentLoss(headers="envelope", empty_body="envelope", command_records="refuse"),
            Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY,
        ),
    ],
)
def test_the_store_is_told_what_goes_into_envelopes(loss: SegmentLoss, layout: Layout) -> None:
    listeners = Listeners(segment=(SegmentListener(loss=loss), SegmentListener(name="other")))
    assert store_settings(Config(listeners=listeners)).envelopes is layout


def test_the_controller_is_told_what_the_file_says() -> None:
    segment = SegmentListener(basin="telemetry")
    told = controller_settings(ControllerListener(segments="single"), segment, lambda: 54_321)
    assert told.names == SegmentNames("telemetry")
    assert told.segments is SegmentsMode.SINGLE
    assert told.advertise() == Advertised(None, 54_321)
    told = controller_settings(ControllerListener(advertise="[2001:db8::1]:12"), segment, lambda: 54_321)
    assert told.segments is SegmentsMode.SEPARATE
    assert told.advertise() == Advertised("2001:db8::1", 12)


def test_the_controllers_http_server_is_told_what_the_file_says() -> None:
    told = controller_http_settings(
        ControllerListenerLimits(keep_alive_seconds=1, head_timeout_seconds=2, slow_reader_seconds=3, max_streams=4)
    )
    assert (told.keep_alive, told.head_timeout, told.slow_reader, told.limits.max_streams) == (1, 2, 3, 4)


async def test_a_basin_for_what_pravegas_clients_keep(tmp_path: Path) -> None:
    """It is there, keeps everything, creates nothing unasked, and is not listed."""
    store = StoreTable(directory=str(tmp_path / "data"), basins=(BasinTable(name="penstock"),))
    async with open_store(Config(listeners=Listeners(segment=(SegmentListener(),)), store=store)) as back:
        config = await back.perform(GetBasinConfig(INTERNAL_BASIN))
        assert config.default_stream_config.retention == Retention(None)
        assert not config.create_stream_on_append and not config.create_stream_on_read
        assert [info.name for info in (await back.perform(ListBasins())).items] == ["penstock"]


async def test_a_new_retention_of_a_declared_basin_leaves_the_streams_of_every_listener_alone(tmp_path: Path) -> None:
    basins = [BasinTable(name="penstock", retention_seconds=seconds) for seconds in (1000, 5)]
    stores = [StoreTable(directory=str(tmp_path / "data"), basins=(basin,)) for basin in basins]
    long, short = (Config(listeners=Listeners(s2=(S2Listener(),)), store=store) for store in stores)
    made = {StreamRef("penstock", name): Retention(1000) for name in ("over S2", "over-s3p")}
    made[StreamRef("penstock", "over/segments")] = INFINITE
    async with open_store(long) as back:
        await back.perform(appending(b"x", stream=StreamRef("penstock", "over S2")))
        async with s3p_front.serving(S3PFront(back)) as connect_s3p:
            assert await connect_s3p().call(Create(b"over-s3p")) == [Ok()]
        async with segment_front.serving(SegmentFront(back)) as connect_segment:
            await (await connect_segment()).create("over/segments")
        assert {stream: (await back.perform(GetStreamConfig(stream))).retention for stream in made} == made
        await apply_resources(back, short, long)
        await back.perform(appending(b"x", stream=StreamRef("penstock", "later")))
    async with open_store(short) as back:
        made[StreamRef("penstock", "later")] = Retention(5)
        assert {stream: (await back.perform(GetStreamConfig(stream))).retention for stream in made} == made


async def test_declared_streams_are_there_from_the_start_and_after_a_reload(tmp_path: Path) -> None:
    """The file's settings win over earlier ones; what it leaves out is the basin's, and records stay."""

    def declaring(*streams: StreamTable) -> Config:
        basins = (BasinTable(name="penstock", retention_seconds=1000),)
        store = StoreTable(directory=str(tmp_path / "data"), basins=basins, streams=streams)
        return Config(listeners=Listeners(s2=(S2Listener(),)), store=store)

    stream = StreamRef("penstock", "a/b")
    plain = declaring(StreamTable(basin="penstock", name="a/b"))
    changed = declaring(
        StreamTable(
            basin="penstock",
            name="a/b",
            storage_class="gold",
            retention_seconds=0,
            timestamping_mode="arrival",
            timestamping_uncapped=True,
            delete_on_empty_seconds=60,
        ),
        StreamTable(basin="penstock", name="second"),
    )
    for _ in range(2):
        async with open_store(plain) as back:
            config = await back.perform(GetStreamConfig(stream))
            assert (config.storage_class, config.retention) == ("express", Retention(1000))
            await back.perform(appending(b"x", stream=stream))
    async with open_store(plain) as back:
        await apply_resources(back, changed, plain)
        assert await back.perform(GetStreamConfig(stream)) == StreamConfig(
            storage_class="gold",
            retention=INFINITE,
            timestamping_mode=TimestampingMode.ARRIVAL,
            timestamping_uncapped=True,
            delete_on_empty_seconds=60,
            retention_bytes=0,
        )
        names = [info.name for info in (await back.perform(ListStreams("penstock"))).items]
        assert names == ["a/b", "second"]
        assert (await back.perform(CheckTail(stream))).seq_num == 2
        await apply_resources(back, plain, changed)
        assert len((await back.perform(ListStreams("penstock"))).items) == 2, "no stream is deleted"


async def test_a_declared_stream_needs_its_basin(tmp_path: Path) -> None:
    streams = (StreamTable(basin="elsewhere", name="s"),)
    store = StoreTable(directory=str(tmp_path / "data"), streams=streams)
    config = Config(listeners=Listeners(s2=(S2Listener(),)), store=store)
    with pytest.raises(CannotStart, match="stream 's' needs a basin 'elsewhere'"):
        async with open_store(config):
            pytest.fail("it opened")


@pytest.mark.parametrize(
    ("streams", "why"),
    [
        ([{"basin": "penstock", "name": ""}], "name"),
        ([{"basin": "x", "name": "s"}], "basin"),
        ([{"basin": "penstock", "name": "s"}] * 2, "stream s of basin penstock is defined twice"),
        ([{"basin": "penstock", "name": "s", "storage_class": "x" * 65}], "length <= 64"),
    ],
)
def test_declared_streams_that_cannot_be(streams: list[dict[str, str]], why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        msgspec.convert({"streams": streams}, StoreTable)


async def test_recordings_say_under_which_path_streams_are(tmp_path: Path) -> None:
    listeners = Listeners(durable=(DurableListener(path="/streams/"),), s2=(S2Listener(),))
    config = Config(listeners=listeners, store=StoreTable(directory=str(tmp_path / "data")))
    async with open_store(config) as back:
        opened = open_listeners(config, Router((), back))
    assert {one.name: one.path for one in opened if one.name.startswith("listeners.")} == {
        "listeners.durable": "/streams/",
        "listeners.s2": "",
    }
    table = DurableBackTable(address="a:1", path="/far/")
    assert durable_upstream_settings("far", table).path == "/far/"


@pytest.fixture
async def segment_over_tls(tmp_path: Path, files: dict[str, str]) -> AsyncIterator[Listener]:
    listeners = Listeners(segment=(SegmentListener(**files),))
    config = Config(listeners=listeners, store=StoreTable(directory=str(tmp_path / "data")))
    async with open_store(config) as back:
        listener, _management = open_listeners(config, Router((), back))
        yield listener


async def test_the_segment_protocol_over_tls(
    segment_over_tls: Listener, files: dict[str, str], nursery: trio.Nursery
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    nursery.start_soon(segment_over_tls.serve, segment_over_tls.carried(theirs))
    context = ssl.create_default_context(cafile=files["tls_certificate"])
    client = trio.SSLStream(ours, context, server_hostname="localhost", https_compatible=True)
    await client.send_all(b"".join(SegmentClient(Dialect.RELEASED).send(Hello(16, 5))))
    assert (await client.receive_some()).hex() == "ffffff81000000080000001000000005"
    await client.aclose()


async def test_a_tls_handshake_must_come_to_an_end(segment_over_tls: Listener, autojump_clock: object) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await ours.send_all(b"\x16\x03")
    began = trio.current_time()
    await segment_over_tls.serve(segment_over_tls.carried(theirs))
    assert trio.current_time() - began == 10
    assert await ours.receive_some() == b""
