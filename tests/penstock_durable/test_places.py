"""Properties belong to the stream that a name leads to: by routes, by listeners, and by the prefix of a token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.access import TokensOf, scope
from support.durable import CLOSE, JSON, SETTINGS, TEXT, Service, changed, producer, ref, running
from support.routing import routed
from support.store import BASIN, Wall, appending
from trio.testing import MockClock

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.core.identity import Identities
from penstock.model.access_tokens import ResourceSet
from penstock.model.byte_operations import GetByteStreamInfo
from penstock.model.operations import CreateBasin, CreateStream
from penstock.model.records import StreamRef
from penstock.model.table_operations import ListTable
from penstock.routing.access.authority import Authority, FileOfTokens
from penstock.routing.access.clients import ClientRules
from penstock.routing.access.guard import GuardedBack
from penstock.tables.struct_table import Prefix, StructTable
from penstock_durable.front import DurableFront, DurableSettings
from penstock_durable.front.catalog import StreamMeta

STREAMS = Prefix("stream/", StreamMeta)
EXPIRING = ("stream-ttl", "10")


def over(service: Service, back: Back, own: Back, settings: DurableSettings = SETTINGS) -> Service:
    """A service with the same store and clock, whose front asks these backs."""
    found = Service(service.back, service.wall, settings)
    found.front = DurableFront(back, own, settings, service.wall)
    return found


async def keys(service: Service) -> list[str]:
    return [item.key.decode() for item in (await service.back.perform(ListTable("#durable"))).items]


@pytest.fixture
async def far(clock: MockClock, tmp_path: Path) -> AsyncIterator[Back]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "far"), Wall()) as back:
        await back.perform(CreateBasin(BASIN))
        yield back


async def exercise(one: Service, other: Service, *names: str) -> None:
    """Check that content type, time to live and producers of a stream are not those of the other service's."""
    (first, second) = names
    assert (await one.ask("PUT", first, TEXT, EXPIRING)).status == 201
    assert (await other.ask("PUT", second, JSON)).status == 201
    assert (await one.ask("POST", first, TEXT, *producer(3, 0), body=b"one")).status == 200
    assert (await other.ask("POST", second, JSON, *producer(0, 0), body=b"1")).status == 200
    assert (await one.ask("POST", first, TEXT, *producer(2, 1), body=b"!")).status == 403
    for service, name, kind, body in ((one, first, "text/plain", b"one"), (other, second, "application/json", b"[1]")):
        answer = await service.ask("GET", name)
        assert (answer.headers["content-type"], answer.body) == (kind, body)
    one.wall.now += 20_000
    assert (await one.ask("GET", first)).status == 404
    assert await other.read(second) == b"[1]"
    assert (await other.ask("DELETE", second)).status == 204
    assert await keys(one) == []


async def test_two_listeners_lead_one_name_to_two_backs(service: Service, far: Back) -> None:
    router = routed(
        service.back,
        far,
        RouteTable(name="a", listeners=("durable.a",)),
        RouteTable(name="b", back="far", listeners=("durable.b",)),
    )
    one, other = (over(service, view, view) for view in map(router.for_listener, ("durable.a", "durable.b")))
    await exercise(one, other, "a", "a")
    await exercise(other, one, "a", "a")


async def test_routes_rename_the_streams_of_two_identities(service: Service, far: Back) -> None:
    tables = [RouteTable(name=name, identity=(name,), to_stream=name + "/{stream}") for name in ("x", "y")]
    view = routed(service.back, far, *tables).for_listener("durable")
    clients = ClientRules(identities=Identities({"of-x": "x", "of-y": "y"}, ()))
    shared = over(service, view, view, changed(clients=clients))

    class Client(Service):
        def __init__(self, token: str) -> None:
            super().__init__(service.back, service.wall, SETTINGS)
            self.shown = ("authorization", f"Bearer {token}")

        async def ask(self, method: str, name: str, *headers: tuple[str, str], **more: object) -> object:  # type: ignore[override]
            return await shared.ask(method, name, self.shown, *headers, **more)  # type: ignore[arg-type]

    await exercise(Client("of-x"), Client("of-y"), "a", "a")
    await Client("of-x").ask("PUT", "a", TEXT)
    assert await keys(service) == [f"stream/{BASIN}/x/a"]


async def test_a_name_and_another_one_lead_to_one_stream(service: Service, far: Back) -> None:
    router = routed(
        service.back, far, RouteTable(name="a", listeners=("durable.a",), to_stream="a/{stream}"), RouteTable(name="b")
    )
    renaming, plain = (over(service, view, view) for view in map(router.for_listener, ("durable.a", "durable.b")))
    await renaming.ask("PUT", "one", JSON, EXPIRING, body=b"1")
    assert (await plain.ask("GET", "a/one")).headers["content-type"] == "application/json"
    await renaming.ask("PUT", "two", ("stream-forked-from", "/v1/stream/one"))
    assert (await renaming.ask("PUT", "two", ("stream-forked-from", "/v1/stream/one"))).status == 200
    assert await plain.read("a/two") == b"[1]"
    service.wall.now += 20_000
    await renaming.front._catalog.sweep()
    assert await keys(service) == []


async def test_entries_of_older_gateways_go_on(service: Service, far: Back) -> None:
    """They are named as the client named the stream, whatever back it was on."""
    view = routed(
        service.back, far, RouteTable(name="f", back="far"), RouteTable(name="e", listeners=("s2",))
    ).for_listener("durable")
    before = over(service, view, view, changed(home="far"))
    await before.ask("PUT", "a", JSON, EXPIRING, body=b"1")
    assert (await before.ask("POST", "a", JSON, *producer(4, 0), body=b"2")).status == 200
    assert await keys(service) == [f"producer/{ref('a')}\0p", f"stream/{ref('a')}"], "one back alone: mere names"
    after = over(service, view, view)
    assert (await after.ask("POST", "a", JSON, *producer(3, 0), body=b"3")).status == 403
    assert (await after.ask("POST", "a", JSON, *producer(4, 1), CLOSE, body=b"3")).status == 200
    assert (await after.ask("HEAD", "a")).headers["stream-ttl"] == "10"
    service.wall.now += 20_000
    assert (await after.ask("GET", "a")).status == 404
    assert await keys(service) == []
    # That of a stream elsewhere, which has the same name, is left alone.
    await service.ask("PUT", "b", JSON)
    await after.ask("PUT", "b", TEXT)
    assert await keys(service) == [f"stream/{ref('b')}", f"stream/far:{ref('b')}"]


async def test_an_older_entry_of_a_stream_that_routes_rename(service: Service, far: Back) -> None:
    view = routed(service.back, far, RouteTable(name="a", to_stream="a/{stream}")).for_listener("durable")
    await service.back.perform(CreateStream(ref("a/one")))
    info = await service.back.perform(GetByteStreamInfo(ref("a/one")))
    table = StructTable(service.back, "durable")
    meta = StreamMeta("text/html", info.incarnation)
    await table.put(STREAMS.key(str(ref("one"))), meta)
    assert (await over(service, view, view).ask("HEAD", "one")).headers["content-type"] == "text/html"
    await table.change(STREAMS.key(str(ref("one"))), lambda _: replace(meta, incarnation="another"))
    assert (await over(service, view, view).ask("HEAD", "one")).headers["content-type"] == "application/octet-stream"


async def test_a_token_with_a_prefix_has_properties_of_its_own(service: Service, tmp_path: Path) -> None:
    """Its streams expire, and those without the prefix stay."""
    tokens = TokensOf(tmp_path)
    token = tokens.issue(
        "tenant",
        scope("create-stream", "append", "check-tail", "read", streams=ResourceSet(prefix="t/")),
        auto_prefix=True,
    )
    shown = ("authorization", f"Bearer {token}")
    with closing(Authority(FileOfTokens(tokens.path), service.wall)) as authority:
        guarded = GuardedBack(service.back, authority.vigil)
        tenant = over(service, guarded, service.back, changed(clients=ClientRules(access=authority)))
        await service.ask("PUT", "a", JSON, body=b"1")
        assert (await tenant.ask("PUT", "a", shown, TEXT, EXPIRING, body=b"x")).status == 201
        assert await keys(service) == [f"stream/{ref('a')}", f"stream/{ref('t/a')}"]
        assert await service.read("t/a") == (await tenant.ask("GET", "a", shown)).body == b"x"
        service.wall.now += 20_000
        assert (await tenant.ask("GET", "a", shown)).status == 404, "it is deleted where it is"
        assert await service.read("a") == b"[1]"
        await service.back.perform(CreateStream(ref("t/b")))
        await service.back.perform(appending(b"theirs", stream=StreamRef(BASIN, "t/b")))
        assert (await tenant.ask("GET", "b", shown)).body == b"theirs"
        assert await keys(service) == [f"stream/{ref('a')}"]


async def test_the_names_of_entries_stay(clock: MockClock, tmp_path: Path) -> None:
    """Of a store without routes: as older gateways spelled them."""
    async with running(tmp_path) as service:
        await service.ask("PUT", "a", TEXT)
        await service.ask("PUT", "b", ("stream-forked-from", "/v1/stream/a"))
        await service.ask("POST", "a", TEXT, *producer(0, 0), body=b"x")
        assert await keys(service) == [
            f"fork/{ref('a')}\0{ref('b')}",
            f"producer/{ref('a')}\0p",
            f"stream/{ref('a')}",
            f"stream/{ref('b')}",
        ]
