"""Pravega's REST API on the controller's listener; tests/peers/test_pravega_rest.py compares it with Pravega."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio.testing
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from msgspec.structs import replace
from support.controller import BASIN, NAMES, SCOPE, event, segments, settings, write
from support.http.client import HttpClient, serving
from support.routing import routed
from support.store import Wall

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back, SwappableBack
from penstock.core.identity import CLIENT, Client
from penstock.model.operations import CreateStream
from penstock.model.records import StreamRef
from penstock.net.http.exchange import Exchange
from penstock.net.limits.limiter import CONNECTION_QUOTA, ConnectionQuota, Limiter
from penstock.net.limits.settings import Limits
from penstock.routing.access.passwords import Passwords, hash_password
from penstock.tables.struct_table import StructTable
from penstock.wire.grpc import frame
from penstock_pravega.controller.controller import ControllerSettings
from penstock_pravega.controller.controller.catalog import streams_in
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.records import NO_LIMIT, ReaderGroup, RetentionType
from penstock_pravega.controller.controller.topology import KeyRange
from penstock_pravega.controller.front import ControllerFront
from penstock_pravega.segment.delegation import Delegation

ONE = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}
JSON = ("content-type", "application/json")
ALL = "from=0&to=99999999999999"
GROUP = ReaderGroup(0, 0, 0, 0, 0, "id", (), (), 0)


class RestClient:
    """Asks for paths below /v1."""

    def __init__(self, http: HttpClient) -> None:
        self.http = http

    async def ask(self, method: str, path: str, body: object = None, *headers: tuple[str, str]) -> tuple[int, Any]:
        """Return the status and the JSON of the answer."""
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.http.ask(method, f"/v1/{path}", [*([] if body is None else [JSON]), *headers], sent)
        return answer.status, json.loads(answer.body) if answer.body else None

    async def refused(self, status: int, words: str, method: str, path: str, body: object = None) -> None:
        """Ask for something that is refused with this status, and a message with these words."""
        found, answer = await self.ask(method, path, body)
        assert found == status and words in answer["message"], answer

    async def scope(self) -> None:
        assert await self.ask("POST", "scopes", {"scopeName": SCOPE}) == (201, {"scopeName": SCOPE})

    async def stream(self, name: str = "stream", **policies: object) -> tuple[int, Any]:
        body = {"streamName": name, "scalingPolicy": ONE, **policies}
        return await self.ask("POST", f"scopes/{SCOPE}/streams", body)


@asynccontextmanager
async def asking(
    front: ControllerFront, alpn: str = "http/1.1", identity: str | None = None
) -> AsyncIterator[RestClient]:
    async def handle(exchange: Exchange) -> None:
        if identity is not None:
            CLIENT.set(Client(identity))
        await front.handle(exchange)

    async with serving(handle, alpn) as http:
        yield RestClient(http)


@pytest.fixture(params=["http/1.1", "h2"])
async def rest(
    front: ControllerFront, controller: Controller, request: pytest.FixtureRequest
) -> AsyncIterator[RestClient]:
    """With the scopes that the controller has."""
    async with asking(front, request.param) as made:
        yield made


# ---- requests that are wrong ----


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("scopes", b"{", "the body is not as it must be"),
        ("scopes", b'{"x":' + b"[" * 20_000, "nested too deeply"),
        ("scopes", {}, "`scopeName`"),
        ("scopes", {"scopeName": 5}, "$.scopeName"),
        ("scopes", {"scopeName": "_x"}, "the name is not legal: '_x'"),
        ("scopes", b'{"scopeName":"\xff"}', "the body is not as it must be"),
        (f"scopes/{SCOPE}/streams", {"streamName": "s"}, "`scalingPolicy`"),
        (f"scopes/{SCOPE}/streams", {"streamName": "_s", "scalingPolicy": ONE}, "streamName '_s'"),
        (f"scopes/{SCOPE}/streams", {"streamName": "s", "scalingPolicy": {"type": "NONE"}}, "$.scalingPolicy.type"),
        (
            f"scopes/{SCOPE}/streams",
            {"streamName": "s", "scalingPolicy": {**ONE, "minSegments": 0}},
            "$.scalingPolicy.minSegments",
        ),
        (
            f"scopes/{SCOPE}/streams",
            {"streamName": "s", "scalingPolicy": {**ONE, "minSegments": 5000}},
            "minNumSegments is 1 to 1000",
        ),
        (
            f"scopes/{SCOPE}/streams",
            {"streamName": "s", "scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC", "minSegments": 1}},
            "`targetRate`",
        ),
        (
            f"scopes/{SCOPE}/streams",
            {"streamName": "s", "scalingPolicy": ONE, "retentionPolicy": {"type": "LIMITED_SIZE_MB", "value": -1}},
            "$.retentionPolicy.value",
        ),
        (
            f"scopes/{SCOPE}/streams",
            {"streamName": "s", "scalingPolicy": ONE, "streamTags": ["x" * 257]},
            "$.streamTags[0]",
        ),
    ],
)
async def test_a_wrong_body_is_refused_with_the_name_of_the_field(
    rest: RestClient, path: str, body: object, words: str
) -> None:
    await rest.refused(400, words, "POST", path, body)


async def test_a_large_body_is_refused(rest: RestClient) -> None:
    await rest.refused(413, "larger than 131072 bytes", "POST", "scopes", b" " * (1 << 17) + b"{}")


async def test_a_body_that_does_not_come_is_not_waited_for(
    front: ControllerFront, clock: trio.testing.MockClock
) -> None:
    async with asking(front, "h2") as rest:
        stream_id = await rest.http.open("POST", "/v1/scopes", [JSON])
        assert (await rest.http.answer(stream_id)).status == 408


@pytest.mark.parametrize("name", ["if-match", "if-none-match", "if-unmodified-since"])
async def test_a_change_on_a_condition_is_refused(rest: RestClient, name: str) -> None:
    status, answer = await rest.ask("DELETE", f"scopes/{SCOPE}", None, (name, "*"))
    assert status == 400 and f"{name}: DELETE has no such condition" in answer["message"]
    assert (await rest.ask("GET", f"scopes/{SCOPE}", None, ("if-none-match", '"x"')))[0] == 200


async def test_other_types_paths_and_methods_are_refused(rest: RestClient) -> None:
    form = ("content-type", "application/x-www-form-urlencoded")
    answer = await rest.http.ask("POST", "/v1/scopes", [form], b"{}")
    assert answer.status == 415
    for path in ("scope", "scopes/a/b/c", "scopes/a/streams/b/scaling-events/c", "ping"):
        await rest.refused(404, f"/v1/{path}", "GET", path)
    answer = await rest.http.ask("PUT", f"/v1/scopes/{SCOPE}/streams")
    assert (answer.status, answer.headers["allow"]) == (405, "GET,POST")
    assert (await rest.http.ask("POST", "/ping", [JSON], b"{}")).status == 405
    await rest.refused(400, "from in the query", "GET", f"scopes/{SCOPE}/streams/s/scaling-events?from=x&to=1")
    await rest.refused(400, "to in the query", "GET", f"scopes/{SCOPE}/streams/s/scaling-events?from=0&to={2**63}")


async def test_a_sealed_stream_is_not_configured(rest: RestClient) -> None:
    path = f"scopes/{SCOPE}/streams/stream"
    await rest.stream()
    assert await rest.ask("PUT", f"{path}/state", {"streamState": "SEALED"}) == (200, {"streamState": "SEALED"})
    await rest.refused(409, "the stream is sealed", "PUT", path, {"scalingPolicy": ONE})


# ---- what is there ----


@pytest.mark.slow
async def test_a_listing_is_whole_however_long(front: ControllerFront, back: EmbeddedBack) -> None:
    names = [f"stream-{index:04}" for index in range(1100)]
    async with asking(front) as rest, trio.open_nursery() as nursery:
        await rest.scope()
        for name in names:
            nursery.start_soon(back.perform, CreateStream(StreamRef(BASIN, f"{SCOPE}/{name}")))
        await trio.testing.wait_all_tasks_blocked(0.05)
        while nursery.child_tasks:
            await trio.testing.wait_all_tasks_blocked(0.01)
        status, answer = await rest.ask("GET", f"scopes/{SCOPE}/streams")
        assert status == 200
        assert [one["streamName"] for one in answer["streams"]] == names
        assert answer["streams"][0]["retentionPolicy"]["value"] == 7, "the basin's week"
        assert (await rest.ask("HEAD", f"scopes/{SCOPE}/streams")) == (200, None)
        assert (await rest.ask("GET", "scopes"))[1] == {"scopes": [{"scopeName": BASIN}, {"scopeName": SCOPE}]}


@pytest.mark.parametrize(
    ("policy", "kind", "least", "most"),
    [
        ({"type": "LIMITED_SIZE_MB", "value": 3}, RetentionType.SIZE, 3 << 20, NO_LIMIT),
        ({"type": "LIMITED_SIZE_MB", "value": 3, "maxValue": 5}, RetentionType.SIZE, 3 << 20, 5 << 20),
        ({"type": "LIMITED_DAYS", "value": 3}, RetentionType.TIME, 259_200_000, NO_LIMIT),
        ({"type": "LIMITED_DAYS", "value": 1, "maxValue": 2}, RetentionType.TIME, 86_400_000, 172_800_000),
        (
            {
                "type": "LIMITED_DAYS",
                "value": 0,
                "timeBasedRetention": {"hours": 25, "minutes": 1},
                "maxTimeBasedRetention": {"days": 2, "hours": 1, "minutes": 0},
            },
            RetentionType.TIME,
            90_060_000,
            176_400_000,
        ),
    ],
)
async def test_retention(
    rest: RestClient, controller: Controller, policy: object, kind: RetentionType, least: int, most: int
) -> None:
    status, created = await rest.stream(retentionPolicy=policy)
    assert status == 201
    found = await controller.queries.configuration(SCOPE, "stream")
    assert (found.retention_type, found.retention, found.retention_max) == (kind, least, most)
    path = f"scopes/{SCOPE}/streams/stream"
    assert await rest.ask("GET", path) == (200, created)
    body = {"scalingPolicy": ONE, "retentionPolicy": created["retentionPolicy"]}
    assert await rest.ask("PUT", path, body) == (200, created), "what is answered can be sent"
    assert await controller.queries.configuration(SCOPE, "stream") == found


async def test_scaling_events(rest: RestClient, controller: Controller, wall: Wall) -> None:
    """An event for each epoch, with the times at which its segments began; before a time, the last event only, without
    splits and merges."""
    begun = wall()
    await rest.stream()
    wall.now += 1000
    await controller.scaling.scale(SCOPE, "stream", [0], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
    wall.now += 1000
    await controller.scaling.scale(SCOPE, "stream", [(1 << 32) + 2], [KeyRange(0.5, 0.75), KeyRange(0.75, 1.0)])
    wall.now += 1000
    await controller.scaling.scale(SCOPE, "stream", [(1 << 32) + 1, (2 << 32) + 3], [KeyRange(0.0, 0.75)])

    async def events(first: int, last: int) -> list[Any]:
        status, found = await rest.ask("GET", f"scopes/{SCOPE}/streams/stream/scaling-events?from={first}&to={last}")
        assert status == 200
        return [
            (
                one["timestamp"] - begun,
                [(each["number"], each["epoch"], each["start"] - begun, each["keyEnd"]) for each in one["segments"]],
                one["splits"],
                one["merges"],
            )
            for one in found
        ]

    all_of_them = [
        (0, [(0, 0, 0, 1.0)], 0, 0),
        (1000, [(1, 1, 1000, 0.5), (2, 1, 1000, 1.0)], 1, 0),
        (2000, [(1, 1, 1000, 0.5), (3, 2, 2000, 0.75), (4, 2, 2000, 1.0)], 1, 0),
        (3000, [(4, 2, 2000, 1.0), (5, 3, 3000, 0.75)], 0, 1),
    ]
    assert await events(0, begun + 5000) == all_of_them
    assert await events(begun, begun + 1000) == all_of_them[:2]
    assert await events(begun + 1500, begun + 2500) == [(*all_of_them[1][:2], 0, 0), all_of_them[2]]
    assert await events(begun + 4000, begun + 5000) == [(*all_of_them[3][:2], 0, 0)]
    assert await events(0, begun - 1) == []


async def test_scaling_events_of_streams_without_recorded_times(
    rest: RestClient, back: EmbeddedBack, controller: Controller, wall: Wall
) -> None:
    """A stream that a client of another protocol created began then, and so did one recorded before times were."""
    created = wall()
    await back.perform(CreateStream(StreamRef(BASIN, f"{SCOPE}/foreign")))
    await controller.streams.create(SCOPE, "old", segments(2))
    table, key = StructTable(back, "controller"), streams_in(SCOPE).key("old")
    wall.now += 1000
    await controller.scaling.scale(SCOPE, "old", [0], [KeyRange(0.0, 0.5)])
    found = await table.get(key)
    assert found is not None
    await table.put(key, msgspec.structs.replace(found.value, began={}), found.version)
    for name, times in (("foreign", [created]), ("old", [created, created + 1000])):
        status, events = await rest.ask("GET", f"scopes/{SCOPE}/streams/{name}/scaling-events?{ALL}")
        assert (status, [one["timestamp"] for one in events]) == (200, times)


async def test_internal_streams_are_those_of_reader_groups(rest: RestClient, controller: Controller) -> None:
    await rest.stream("aaa")
    await rest.stream("zzz")
    assert await rest.ask("GET", f"scopes/{SCOPE}/readergroups") == (200, {})
    for name in ("one", "two"):
        await controller.groups.create(SCOPE, name, GROUP)
    listed = {"readerGroups": [{"readerGroupName": "one"}, {"readerGroupName": "two"}]}
    assert await rest.ask("GET", f"scopes/{SCOPE}/readergroups") == (200, listed)
    found = (await rest.ask("GET", f"scopes/{SCOPE}/streams?filter_type=showInternalStreams"))[1]
    assert [one["streamName"] for one in found["streams"]] == ["_RGone", "_RGtwo"]
    assert await rest.ask("DELETE", f"scopes/{SCOPE}/readergroups/one") == (204, None)
    assert await controller.groups.names(SCOPE) == ["two"]


async def test_a_group_whose_stream_holds_something_else(
    rest: RestClient, controller: Controller, back: EmbeddedBack
) -> None:
    await controller.groups.create(SCOPE, "group", GROUP)
    path = f"scopes/{SCOPE}/readergroups/group"
    found = {"scopeName": SCOPE, "readerGroupName": "group", "streamList": [], "onlineReaderIds": []}
    assert await rest.ask("GET", path) == (200, found)
    await write(back, SCOPE, "_RGgroup", event(b"something else"))
    await rest.refused(500, "does not hold the state of its readers", "GET", path)


# ---- access ----


ROUTES = (
    RouteTable(name="own", basin=BASIN, match="prefix", stream=f"{SCOPE}/", identity=("owner",)),
    RouteTable(name="read", basin=BASIN, match="prefix", stream=f"{SCOPE}/", identity=("reader",), allow=("read",)),
    RouteTable(name="strangers", basin=BASIN, match="prefix", stream="public/", identity=("stranger",)),
)
STREAM = f"scopes/{SCOPE}/streams/stream"
QUESTIONS = (
    *(f"scopes/{SCOPE}", f"scopes/{SCOPE}/streams", f"scopes/{SCOPE}/readergroups", STREAM),
    *(f"{STREAM}/scaling-events?{ALL}", f"scopes/{SCOPE}/readergroups/group"),
)
CHANGES = (
    ("POST", f"scopes/{SCOPE}/streams", {"streamName": "another", "scalingPolicy": ONE}),
    ("PUT", STREAM, {"scalingPolicy": ONE}),
    ("PUT", f"{STREAM}/state", {"streamState": "SEALED"}),
    ("DELETE", STREAM, None),
    ("DELETE", f"scopes/{SCOPE}/readergroups/group", None),
    ("DELETE", f"scopes/{SCOPE}", None),
)


@pytest.fixture
async def guarded(back: EmbeddedBack, wall: Wall) -> ControllerFront:
    """A front as clients have it, with a stream and a reader group of the owner's."""
    view: Back = SwappableBack(routed(back, back, *ROUTES).for_listener("controller", NAMES))
    front, controller = ControllerFront(Controller(view, settings(), wall)), Controller(view, settings(), wall)
    token = CLIENT.set(Client("owner"))
    await controller.scopes.create(SCOPE)
    await controller.streams.create(SCOPE, "stream", segments(2))
    await controller.groups.create(SCOPE, "group", GROUP)
    CLIENT.reset(token)
    return front


def stored(directory: Path) -> list[str]:
    (path,) = (directory / "data").glob("*.sqlite3")
    with sqlite3.connect(path) as db:
        found = list(db.iterdump())
    db.close()
    return found


async def test_permissions_are_those_of_grpc(guarded: ControllerFront, tmp_path: Path) -> None:
    before = stored(tmp_path)
    for identity in ("", "stranger"):
        async with asking(guarded, identity=identity) as rest:
            assert {"scopeName": SCOPE} not in (await rest.ask("GET", "scopes"))[1]["scopes"]
            for method, path, body in (*(("GET", path, None) for path in QUESTIONS), *CHANGES):
                assert (await rest.ask(method, path, body))[0] in (403, 404), (identity, method, path)
    async with asking(guarded, identity="reader") as rest:
        for path in QUESTIONS:
            assert (await rest.ask("GET", path))[0] == 200, path
        for method, path, body in CHANGES:
            assert (await rest.ask(method, path, body))[0] == 403, (method, path)
    assert stored(tmp_path) == before
    async with asking(guarded, identity="owner") as rest:
        assert [(await rest.ask(*change))[0] for change in CHANGES[:-1]] == [201, 200, 200, 204, 204]


async def test_credentials(back: EmbeddedBack, wall: Wall) -> None:
    """The same as of gRPC's calls, if there are delegation tokens; health needs none."""
    passwords = Passwords({"ana": ("analytics", hash_password("secret"))})
    guarded = replace(settings(), delegation=Delegation(b"k" * 32, 600), passwords=passwords)

    def basic(text: str) -> tuple[str, str]:
        return "authorization", f"Basic {base64.b64encode(text.encode()).decode()}"

    async with asking(ControllerFront(Controller(back, guarded, wall))) as rest:
        body = {"scopeName": SCOPE}
        for headers in ([], [basic("ana:wrong")], [basic("bob:secret")], [("authorization", "Bearer secret")]):
            assert (await rest.ask("POST", "scopes", body, *headers))[0] == 401
        assert (await rest.http.ask("GET", "/v1/scopes")).headers["www-authenticate"] == "Basic"
        assert (await rest.ask("POST", "scopes", body, basic("ana:secret")))[0] == 201
        assert await rest.ask("GET", "health/readiness") == (200, True)


async def test_grpc_s_health_service_needs_no_credentials(back: EmbeddedBack, wall: Wall) -> None:
    guarded = replace(settings(), delegation=Delegation(b"k" * 32, 600), passwords=Passwords({}))
    front = ControllerFront(Controller(back, guarded, wall))
    headers = [("te", "trailers"), ("content-type", "application/grpc")]
    async with serving(front.handle, "h2") as client:
        service = StringValue(value="io.pravega.controller.stream.api.grpc.v1.ControllerService")
        for status in (1, 2):  # SERVING, NOT_SERVING
            message = frame(service.SerializeToString())
            answer = await client.ask("POST", "/grpc.health.v1.Health/Check", headers, message)
            assert answer.trailers["grpc-status"] == "0"
            assert answer.body == frame(Int32Value(value=status).SerializeToString())
            front.drain()


async def test_pages_in_a_browser_are_refused(back: EmbeddedBack, wall: Wall) -> None:
    """Those of other origins always; those with a name for this machine too where it needs no credentials."""
    open_here: ControllerSettings = replace(settings(), local=True)
    async with asking(ControllerFront(Controller(back, open_here, wall))) as rest:
        status, answer = await rest.ask("GET", "scopes")
        assert status == 403 and "host" in answer["message"]
    async with asking(ControllerFront(Controller(back, settings(), wall))) as rest:
        status, answer = await rest.ask("GET", "scopes", None, ("origin", "https://page.example"))
        assert status == 403 and "origin" in answer["message"]


async def test_a_client_that_asks_too_often(front: ControllerFront, clock: trio.testing.MockClock) -> None:
    limiter = Limiter(Limits(requests_per_second=1, burst_seconds=1))
    quota = limiter.enter("listeners.controller", 100, "10.0.0.1")
    assert isinstance(quota, ConnectionQuota)

    async def handle(exchange: Exchange) -> None:
        CONNECTION_QUOTA.set(quota)
        await front.handle(exchange)

    async with serving(handle, "http/1.1") as http:
        assert (await http.ask("GET", "/v1/scopes")).status == 200
        answer = await http.ask("GET", "/v1/scopes")
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        await trio.sleep(1)
        assert (await http.ask("GET", "/v1/scopes")).status == 200


# ---- shutting down ----


async def test_while_it_drains_the_controller_is_not_ready(rest: RestClient, front: ControllerFront) -> None:
    up = {"name": "", "status": "UP", "readiness": True, "liveness": True, "details": {}, "children": {}}
    assert await rest.ask("GET", "health") == (200, up)
    front.drain()
    assert await rest.ask("GET", "health") == (200, {**up, "status": "DOWN", "readiness": False})
    assert await rest.ask("GET", "health/liveness") == (200, True)
    assert (await rest.http.ask("GET", "/ping")).status == 200
    await rest.refused(503, "shutting down", "GET", "scopes")
