"""Servers by URL, and the gateway in process that leads to one."""

from __future__ import annotations

import pytest
from support.s3p.front import Client

from penstock.core.address import Address
from penstock.model.failures import OperationFailed
from penstock.model.operations import CheckTail
from penstock.model.records import StreamRef
from penstock.protocols.plugin import server_kinds
from penstock.protocols.servers import Server
from penstock.tools.target.back import TargetOptions, open_target_back
from penstock.tools.target.configuring import target_config
from penstock.tools.target.gateway import LazyGateway, open_target_gateway
from penstock.tools.target.url import BadTarget, parse_target
from penstock_s3p.codec import AppendRecords, Create, ErrorReply

KINDS = server_kinds()
DRAFT = frozenset({"draft"})


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("s2://127.0.0.1:8080", Server(KINDS["s2"], Address("127.0.0.1", 8080))),
        ("s2+tls://[::1]:8443/my-basin", Server(KINDS["s2"], Address("::1", 8443), tls=True, space="my-basin")),
        ("http://store.example", Server(KINDS["s2"], Address("store.example", 80))),
        ("https://store.example", Server(KINDS["s2"], Address("store.example", 443), tls=True)),
        ("s3p://h:7500/orders-eu", Server(KINDS["s3p"], Address("h", 7500), space="orders-eu")),
        ("durable+tls://h:4437", Server(KINDS["durable"], Address("h", 4437), tls=True)),
        ("segment+draft://h:1", Server(KINDS["segment"], Address("h", 1), options=DRAFT)),
        ("segment+draft+tls://h:1", Server(KINDS["segment"], Address("h", 1), tls=True, options=DRAFT)),
        ("kafka+tls://a:1,[::1]:2", Server(KINDS["kafka"], Address("a", 1), tls=True, others=(Address("::1", 2),))),
        ("pravega://h:9090/Scope_1", Server(KINDS["pravega"], Address("h", 9090), space="Scope_1")),
    ],
)
def test_what_a_url_says(url: str, target: Server) -> None:
    assert parse_target(url) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("gopher://h:70", "is no server: give a URL such as durable://"),
        ("s2+draft://h:1", "is no server"),
        ("127.0.0.1:8080", "is no server"),
        ("s2://h", "HOST:PORT is missing"),
        ("s3p://:7500", "HOST:PORT is missing"),
        ("s2://h:0", "a server cannot listen on port 0"),
        ("s2://h:99999", "Port out of range"),
        ("s2://h:1,h:2", "has several addresses: a server of this kind has one"),
        ("kafka://h:1,h", "a server cannot listen on port 0"),
        ("kafka://h:1,:2", "address"),
        ("s2://h:1/a/b", "the name of a basin or scope, and no more"),
        ("s2://h:1/Orders", "8 to 48"),
        ("pravega://h:1/a b", "a scope's name is"),
        ("s2://user@h:1", "nothing but HOST:PORT"),
        ("s2://h:1?token=x", "nothing but HOST:PORT"),
    ],
)
def test_what_is_no_server(url: str, why: str) -> None:
    with pytest.raises(BadTarget, match=why) as caught:
        parse_target(url)
    assert "\n" not in str(caught.value)


ASKED = StreamRef("telemetry", "orders")


@pytest.mark.parametrize(
    ("url", "there"),
    [
        ("s2://h:1", StreamRef("telemetry", "orders")),
        ("s2://h:1/other-basin", StreamRef("other-basin", "orders")),
        ("s3p://h:1", StreamRef("penstock", "orders")),
        ("s3p://h:1/other-basin", StreamRef("other-basin", "orders")),
        ("durable://h:1", StreamRef("penstock", "orders")),
        ("kafka://h:1,h:2", StreamRef("penstock", "orders")),
        ("durable://h:1/other-basin", StreamRef("other-basin", "orders")),
        ("segment://h:1", StreamRef("telemetry", "orders")),
        ("pravega://h:1/other-basin", StreamRef("other-basin", "orders")),
        ("pravega://h:1/Other", StreamRef("penstock", "Other/orders")),
    ],
)
def test_what_streams_are_called_there(url: str, there: StreamRef) -> None:
    (route,) = target_config(parse_target(url), TargetOptions(), "x").routes
    rewriting = route.rewriting()
    captures = rewriting.pattern.match(ASKED)
    assert captures is not None and rewriting.forward(ASKED, captures) == there


def test_renames_come_first() -> None:
    options = TargetOptions(renames=(("ord*", "new-{1}"),))
    first, last = target_config(parse_target("pravega://h:1/Other"), options, "x").routes
    captures = first.rewriting().pattern.match(ASKED)
    assert captures is not None
    assert first.rewriting().forward(ASKED, captures) == StreamRef("penstock", "Other/new-ers")
    assert last.takes_all_names
    with pytest.raises(ValueError, match=r"nothing captures \{what\}"):
        target_config(parse_target("s2://h:1"), TargetOptions(renames=(("*", "{what}"),)), "x")


@pytest.mark.parametrize("loss", ["refuse", "envelope", "drop"])
def test_losses_are_what_each_table_can_say(loss: str) -> None:
    config = target_config(parse_target("s3p://h:1"), TargetOptions(loss=loss), "x")
    table = config.backs["target"].loss  # type: ignore[union-attr]
    assert table.headers == loss
    assert table.command_records == (loss if loss != "drop" else "refuse"), "an acknowledgement counts them"
    assert config.listeners.segment[0].loss.empty_body == loss


async def test_a_front_without_a_socket() -> None:
    """The server is not there, and the client is told so by the front that a live one would have."""
    async with (
        open_target_gateway(parse_target("s2://127.0.0.1:1")) as gateway,
        await gateway.connect("s3p") as stream,
    ):
        client = Client(stream)
        (reply,) = await client.call(Create(b"orders"))
        assert isinstance(reply, ErrorReply) and "127.0.0.1:1" in reply.message
        (reply,) = await client.call(AppendRecords(b"orders", [b"x"]))
        assert isinstance(reply, ErrorReply)


async def test_a_back_alone() -> None:
    async with open_target_back(parse_target("s2://127.0.0.1:1"), TargetOptions()) as back:
        with pytest.raises(OperationFailed, match="cannot connect"):
            await back.perform(CheckTail(StreamRef("penstock", "orders")))


async def test_what_the_block_raises_goes_on_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with open_target_gateway(parse_target("s2://127.0.0.1:1")):
            raise KeyError("mine")
    with pytest.raises(KeyError):
        async with open_target_back(parse_target("pravega://127.0.0.1:1"), TargetOptions()):
            raise KeyError("mine")


async def test_opened_once_and_only_if_needed() -> None:
    target = parse_target("s2://127.0.0.1:1")
    async with LazyGateway(target, TargetOptions()):
        pass
    async with LazyGateway(target, TargetOptions()) as lazy:
        assert await lazy.get() is await lazy.get()
