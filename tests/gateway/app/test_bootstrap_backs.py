"""Backs, routes and identities of a configuration reach the parts; keys that are left out have the parts' defaults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from penstock.app.bootstrap import check_files, open_router
from penstock.app.config import Config, Listeners, parse_config
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.backends.sequence_numbering import IndexedSettings
from penstock.core.delivery import Delivery
from penstock.core.errors import CannotStart
from penstock.core.identity import Identities
from penstock.model.byte_layout import Layout
from penstock.net.http.client.settings import HttpVersion
from penstock.net.upstream import CredentialsMode, UpstreamSettings
from penstock.protocols.back_opening import numbering_settings
from penstock.protocols.upstreams import upstream_settings
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock.wire.compression import Compression
from penstock_pravega.codec import Dialect
from penstock_pravega.segment.back import SegmentBackSettings
from penstock_pravega.segment.back_opening import segment_back_settings
from penstock_pravega.segment.config import SegmentBackLoss, SegmentBackTable, SegmentListener, SegmentLoss
from penstock_pravega.segment.names import SegmentNames
from penstock_s2.back.settings import BasinStyle, S2BackSettings
from penstock_s2.back_opening import credentials, s2_back_settings
from penstock_s2.config import S2BackTable, S2SseBackTable
from penstock_s3p.back import S3PBackSettings
from penstock_s3p.back_opening import s3p_back_settings
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.config import S3PBackLimits, S3PBackLoss, S3PBackTable
from penstock_s3p.names import BasinInName, FixedBasin

S2 = S2BackTable(address="server.example:1")
LISTENER = "[listeners.s2]\nbind = '127.0.0.1:0'\n"


def test_defaults_are_those_of_the_parts() -> None:
    assert upstream_settings("far", S2, "host:1", "s2") == UpstreamSettings(
        name="far", host="host", port=1, protocol="s2"
    )
    assert s2_back_settings(S2) == S2BackSettings()
    assert s2_back_settings(S2SseBackTable(address="a:1")) == S2BackSettings()
    s3p = S3PBackTable(address="a:1")
    assert s3p_back_settings(s3p) == S3PBackSettings(names=FixedBasin("penstock"))
    assert numbering_settings(s3p) == IndexedSettings()
    segment = SegmentBackTable(address="a:1")
    store = UpstreamSettings(name="far", host="a", port=1, protocol="segment")
    assert segment_back_settings("far", segment) == SegmentBackSettings(store=store)


def test_a_server_is_reached_as_the_file_says() -> None:
    table = S2BackTable(
        address="a:1",
        tls=True,
        tls_server_name="store.example",
        connect_seconds=1,
        request_seconds=2,
        idle_seconds=3,
        max_connections=4,
        breaker_failures=5,
        breaker_open_seconds=6,
    )
    told = upstream_settings("far", table, "[::1]:7", "s2")
    assert told.tls is not None
    assert replace(told, tls=None) == UpstreamSettings(
        name="far",
        host="::1",
        port=7,
        protocol="s2",
        server_name="store.example",
        connect_seconds=1,
        request_seconds=2,
        idle_seconds=3,
        max_connections=4,
        breaker_failures=5,
        breaker_open_seconds=6,
    )


def test_an_s2_server_is_told_what_the_file_says() -> None:
    table = S2BackTable(
        address="a:1",
        http="h2",
        basin_style="host",
        basin_authority="b.example",
        compression="zstd",
        recover_seconds=7,
        delivery="refuse",
    )
    assert s2_back_settings(table) == S2BackSettings(
        http=HttpVersion.H2,
        basin_style=BasinStyle.HOST,
        basin_authority="b.example",
        compression=Compression.ZSTD,
        recover_seconds=7,
        delivery=Delivery.REFUSE,
    )
    source = S2SseBackTable(address="a:1", sse_dialect="seed")
    assert s2_back_settings(source) == S2BackSettings(sse_dialect="seed")


def test_an_s3p_server_is_told_what_the_file_says() -> None:
    table = S3PBackTable(
        address="a:1",
        names="path",
        exclusive=True,
        create_streams=True,
        split_appends=True,
        trim_keeps_last=True,
        delivery="at-least-once",
        recover_seconds=7,
        loss=S3PBackLoss(headers="drop", empty_body="envelope", command_records="envelope"),
        limits=S3PBackLimits(max_records_per_append=1, max_record_bytes=2, max_append_bytes=3),
    )
    assert s3p_back_settings(table) == S3PBackSettings(
        names=BasinInName(),
        limits=msgspec.structs.replace(S3PLimits(), max_records_per_append=1, max_record_bytes=2, max_append_bytes=3),
        loss=LossPolicy(Loss.DROP, Loss.ENVELOPE, Loss.ENVELOPE),
        delivery=Delivery.AT_LEAST_ONCE,
        split_appends=True,
        trim_keeps_last=True,
        recover_seconds=7,
    )
    assert numbering_settings(table) == IndexedSettings(create_streams=True, exclusive=True, recover_seconds=7)


def test_a_segment_store_is_told_what_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(" secret\n")
    table = SegmentBackTable(
        controller="a:1",
        basin="telemetry",
        username="penstock",
        password_file=str(tmp_path / "password"),
        delivery="refuse",
        recover_seconds=7,
        loss=SegmentBackLoss(headers="envelope", empty_body="keep", command_records="envelope"),
    )
    assert segment_back_settings("far", table) == SegmentBackSettings(
        controller=UpstreamSettings(name="far", host="a", port=1, protocol="controller"),
        names=SegmentNames("telemetry"),
        username="penstock",
        password="secret",
        delivery=Delivery.REFUSE,
        recover_seconds=7,
        loss=LossPolicy(Loss.ENVELOPE, Loss.REFUSE, Loss.ENVELOPE),
        keep_empty=True,
    )
    draft = SegmentBackTable(address="a:1", dialect="draft")
    assert segment_back_settings("far", draft).dialect is Dialect.DRAFT


def test_bytes_are_enveloped_as_any_segment_listener_wants() -> None:
    listeners = SegmentListener(name="a"), SegmentListener(name="b", loss=SegmentLoss(headers="envelope"))
    assert Listeners(segment=listeners).envelopes is Layout.ENVELOPE_HEADERS


def test_credentials(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    assert credentials("far", S2).mode is CredentialsMode.NONE
    static = credentials("far", S2BackTable(address="a:1", credentials="static", token_file=str(tmp_path / "token")))
    assert (static.mode, static.secret) == (CredentialsMode.STATIC, "from-a-file")
    swap = credentials("far", S2BackTable(address="a:1", credentials="swap", token="x", tokens={"analytics": "y"}))
    assert swap.by_identity == {"analytics": "y", "": "x"}
    (tmp_path / "token").write_text("two words")
    with pytest.raises(CannotStart, match=r"backs\.far\.token_file: .* does not hold a word of visible ASCII"):
        credentials("far", S2BackTable(address="a:1", credentials="static", token_file=str(tmp_path / "token")))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tls = true\ntls_ca = '{0}/absent'", "backs.far: tls: cannot use the authorities in .*absent"),
        (
            "credentials = 'static'\ntoken_file = '{0}/absent'",
            "backs.far.token_file: cannot read .*absent: No such",
        ),
    ],
)
def test_files_of_backs_are_looked_at_before_anything_runs(text: str, why: str, tmp_path: Path) -> None:
    back = "[backs.far]\nkind = 's2'\naddress = '127.0.0.1:1'\n"
    store = f"[store]\ndirectory = '{tmp_path}'\n"
    config = parse_config(LISTENER + store + back + text.format(tmp_path))
    with pytest.raises(CannotStart, match=why):
        check_files(config)


def test_all_unusable_files_are_reported_in_one_pass(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    back = "kind = 's2'\naddress = '127.0.0.1:1'\ntls = true\ntls_ca = '{0}/absent'\n"
    store = "[store]\ndirectory = '{0}/file'\n"
    text = LISTENER + (store + "[backs.far]\n" + back + "[backs.near]\n" + back).format(tmp_path)
    with pytest.raises(CannotStart) as caught:
        check_files(parse_config(text))
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "backs.far",
        "backs.near",
        "store.directory",
    ]


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "data")) as back:
        yield back


ALL_KINDS = """
[backs.a]
kind = "s2"
address = "127.0.0.1:1"
[backs.b]
kind = "s2-sse"
address = "127.0.0.1:1"
[backs.c]
kind = "s3p"
address = "127.0.0.1:1"
delivery = "at-least-once"
[backs.d]
kind = "segment"
controller = "127.0.0.1:1"
[[routes]]
name = "first"
listeners = ["s2"]
identity = ["known"]
back = "d"
create_streams = false
[[routes]]
name = "second"
back = "a"
read_only = true
[[identities]]
name = "known"
tokens = ["t"]
"""


async def test_a_router_of_servers_that_are_not_there(embedded: EmbeddedBack) -> None:
    """Nothing is dialled, so the gateway starts all the same."""
    config = parse_config(LISTENER + ALL_KINDS)
    async with open_router(config, embedded) as router:
        assert {name: (one.kind, one.delivery) for name, one in router.targets.items()} == {
            "embedded": ("embedded", "exactly-once"),
            "a": ("s2", "exactly-once"),
            "b": ("s2-sse", "refuse"),
            "c": ("s3p", "at-least-once"),
            "d": ("segment", "exactly-once"),
        }
        first, second = router.routes
        assert (first.name, first.holder.target.name, second.holder.target.name) == ("first", "d", "a")
        assert (first.listeners, first.identities) == ({"s2"}, {"known"})
        assert (first.create_streams, first.read_only) == (False, False)
        assert (second.create_streams, second.read_only) == (True, True)


async def test_what_cannot_start_is_not_hidden_in_a_group(embedded: EmbeddedBack) -> None:
    config = parse_config(LISTENER + ALL_KINDS)
    with pytest.raises(CannotStart, match="the port is in use"):
        async with open_router(config, embedded):
            raise CannotStart("the port is in use")
    with pytest.raises(ExceptionGroup):
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(open_router(config, embedded))
            raise ExceptionGroup("several", [CannotStart("one"), ValueError("another")])


def test_who_is_who() -> None:
    config: Config = parse_config(
        LISTENER
        + "[[identities]]\nname = 'one'\ntokens = ['a', 'b']\naddresses = ['10.0.0.0/8', '::1']\n"
        + "[[identities]]\nname = 'two'\ntokens = ['b', 'c']\naddresses = ['10.1.0.0/16', '127.0.0.1']\n"
    )
    known = Identities.of(
        (table.name, table.tokens, table.certificates, table.addresses) for table in config.identities
    )
    assert [known.of_token(token) for token in ("a", "b", "c", "d", "\udcff")] == ["one", "one", "two", None, None]
    addresses = ("10.1.2.3", "127.0.0.1", "::1", "::ffff:127.0.0.1", "fe80::1%eth0", "192.0.2.1", "")
    assert [known.of_address(address) for address in addresses] == ["one", "two", "one", "two", "", "", ""]
