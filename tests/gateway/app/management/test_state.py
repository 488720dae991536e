"""Probes, the running configuration, counters, and changes by operators while the gateway runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import AsyncIterator

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from support.management import JSON, Asker, Process, asking

from penstock.app.config import parse_config
from penstock.app.management.overview import BackView, Circuit, Overview, RouteView
from penstock.app.management.settings import ManagementSettings
from penstock.observe import level

NOTHING = Overview(listeners=[])


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
async def asker(process: Process) -> AsyncIterator[Asker]:
    async with asking(NOTHING, process=process) as one:
        yield one


# ---- probes ------------------------------------------------------------------------------------------------------


async def test_it_lives_and_is_ready(asker: Asker, process: Process) -> None:
    assert await asker.get("/live") == {"live": True}
    assert await asker.get("/ready") == {"ready": True, "reasons": []}
    process.warnings = ["the clock jumped"]
    assert await asker.get("/ready") == {"ready": True, "reasons": ["the clock jumped"]}
    process.reasons = ["the gateway is draining"]
    assert await asker.get("/live") == {"live": True}
    both = ["the gateway is draining", "the clock jumped"]
    assert await asker.get("/ready", 503) == {"ready": False, "reasons": both}


class Server:
    """A back with a circuit; a probe finds out whether it is there."""

    def __init__(self, name: str, state: str, *, there: bool = False, required: bool | None = None) -> None:
        self.state, self.there, self.probes = state, there, 0
        self.view = BackView(
            name=name, kind="s2", circuit=lambda: Circuit(self.state), probe=self.probe, required=required
        )

    async def probe(self) -> None:
        await trio.lowlevel.checkpoint()
        self.probes += 1
        self.state = "closed" if self.there else self.state


async def test_a_back_that_is_down_is_named(process: Process) -> None:
    up, down, idle = (
        Server("up", "closed"),
        Server("down", "open", required=True),
        Server("idle", "open", required=True),
    )
    routes = {name: RouteView(name=name, match="", back=name) for name in ("up", "down")}
    shown = Overview(listeners=[], routes=routes, backs=[up.view, down.view, idle.view])
    async with asking(shown, process=process) as asker:
        assert await asker.get("/ready", 503) == {"ready": False, "reasons": ["back down is down"]}
        assert (up.probes, down.probes, idle.probes) == (0, 1, 0), "only what clients need is tried"
        down.there = True
        assert await asker.get("/ready") == {"ready": True, "reasons": []}


async def test_a_back_beside_others_is_not_required(process: Process) -> None:
    """Streams of the other backs can be served; the only back is required unless its table denies it."""
    down, up = Server("down", "open"), Server("up", "closed")
    routes = {name: RouteView(name=name, match="", back=name) for name in ("down", "up")}
    async with asking(Overview(listeners=[], routes=routes, backs=[down.view, up.view]), process=process) as asker:
        assert await asker.get("/ready") == {"ready": True, "reasons": []}
        assert down.probes == 1, "its recovery is looked for all the same"
    only_route = {"down": routes["down"]}
    async with asking(Overview(listeners=[], routes=only_route, backs=[down.view]), process=process) as asker:
        assert await asker.get("/ready", 503) == {"ready": False, "reasons": ["back down is down"]}
    denied = Server("down", "open", required=False)
    async with asking(Overview(listeners=[], routes=only_route, backs=[denied.view]), process=process) as asker:
        assert await asker.get("/ready") == {"ready": True, "reasons": []}


async def test_a_gateway_is_ready_for_the_request_that_a_server_has_to_answer(process: Process) -> None:
    circuits = iter([Circuit("half-open"), Circuit("half-open"), *[Circuit("half-open", wants_request=True)] * 2])
    hangs = BackView(name="hangs", kind="s2", circuit=lambda: next(circuits))
    routes = {"all": RouteView(name="all", match="", back="hangs")}
    async with asking(Overview(listeners=[], routes=routes, backs=[hangs]), process=process) as asker:
        await asker.get("/ready", 503)
        assert await asker.get("/ready") == {"ready": True, "reasons": []}


async def test_probes_need_no_token_and_all_else_does(process: Process) -> None:
    settings = ManagementSettings(bearer_tokens=frozenset({"secret"}))
    async with asking(NOTHING, settings, process=process) as asker:
        for target in ("/live", "/ready", "/health"):
            assert (await asker.ask("GET", target)).status == 200
        for method, target in (
            ("GET", "/metrics"),
            ("GET", "/config"),
            ("GET", "/log"),
            ("PUT", "/log"),
            ("POST", "/drain"),
            ("POST", "/reload"),
        ):
            assert (await asker.ask(method, target, JSON, b"{}")).status == 401
            assert process.asked == []


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
async def test_pages_of_other_origins_are_refused(asker: Asker, site: str, status: int) -> None:
    """Also where a browser would let them ask, and only keep the answer from them."""
    assert (await asker.ask("GET", "/config", [("sec-fetch-site", site)])).status == status


# ---- what is so --------------------------------------------------------------------------------------------------


SECRETS = """
[listeners.s2]
auth_tokens = ["hidden-1"]
[management]
auth_tokens = ["hidden-2", "hidden-3"]
[[identities]]
name = "analytics"
tokens = ["hidden-4"]
[backs.lite]
kind = "s2"
address = "127.0.0.1:8090"
credentials = "swap"
token = "hidden-5"
[backs.lite.tokens]
analytics = "hidden-6"
[backs.other]
kind = "s2"
address = "127.0.0.1:8091"
token_file = "a-path-to-be-seen"
credentials = "static"
[recorder]
directory = "recordings"
[recorder.redact]
tokens = true
"""


async def test_what_is_in_force_is_shown_without_secrets(asker: Asker, process: Process) -> None:
    process.config = parse_config(SECRETS)
    shown = await asker.get("/config")
    assert "hidden" not in json.dumps(shown)
    assert shown["management"]["auth_tokens"] == ["(masked)", "(masked)"]
    assert shown["backs"]["lite"]["tokens"] == {"analytics": "(masked)"}
    assert shown["backs"]["other"]["token_file"] == "a-path-to-be-seen"
    assert shown["recorder"]["redact"]["tokens"] is True
    assert shown["store"]["directory"] == "./data", "defaults are in force, too"


async def test_it_is_a_configuration_file_too(asker: Asker, process: Process) -> None:
    process.config = parse_config(SECRETS)
    answer = await asker.client.ask("GET", "/config?format=toml")
    assert answer.headers["content-type"] == "application/toml" and "hidden" not in answer.body.decode()
    text = answer.body.decode().replace("(masked)", "masked")
    assert tomllib.loads(text)["store"]["directory"] == "./data"
    again = parse_config(text)
    assert again.store == process.config.store and again.listeners.s2[0].bind == process.config.listeners.s2[0].bind
    refusal = await asker.get("/config?format=yaml", 400)
    assert "expected json or toml" in refusal["message"]


async def test_metrics_are_what_prometheus_reads(asker: Asker) -> None:
    answer = await asker.client.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert {"penstock_connections", "penstock_limited", "process_open_fds"} <= families
    answer = await asker.client.ask("HEAD", "/metrics")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(("reasons", "value"), [([], 1), (["the gateway is draining"], 0)])
async def test_readiness_is_a_metric_too(asker: Asker, process: Process, reasons: list[str], value: int) -> None:
    process.reasons = reasons
    answer = await asker.client.ask("GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    assert [sample.value for sample in families["penstock_ready"].samples] == [value]


async def test_the_level_is_shown(asker: Asker) -> None:
    assert await asker.get("/log") == {"level": level()}


# ---- what is changed ---------------------------------------------------------------------------------------------


async def test_the_level_is_changed(asker: Asker, process: Process) -> None:
    answer = await asker.ask("PUT", "/log", JSON, b'{"level": "debug"}')
    assert (answer.status, json.loads(answer.body)) == (200, {"level": "debug"})
    answer = await asker.ask("PUT", "/log", JSON, b'{"level": "loud"}')
    assert answer.status == 400 and "expected one of debug, info, warning, error" in json.loads(answer.body)["message"]
    assert process.asked == [("level", "debug")]


async def test_drain_and_reload(asker: Asker, process: Process) -> None:
    assert await asker.post("/reload", {}) == {"changed": "routes: added orders"}
    process.refusal = "store cannot change"
    refusal = await asker.post("/reload", {}, 409)
    assert refusal == {"code": "cannot_reload", "message": "store cannot change"}
    assert await asker.post("/drain", {}, 202) == {"state": "draining"}
    assert process.asked == ["reload", "reload", "drain"]


@pytest.mark.parametrize("target", ["/drain", "/reload", "/connections/1/close"])
async def test_what_a_page_may_send_unasked_changes_nothing(asker: Asker, process: Process, target: str) -> None:
    """A form of another origin may be posted without a question beforehand, but not with this content type."""
    for headers in ([], [("content-type", "text/plain")], [("content-type", "application/x-www-form-urlencoded")]):
        assert (await asker.ask("POST", target, headers, b"{}")).status in (400, 404)
    assert process.asked == []
