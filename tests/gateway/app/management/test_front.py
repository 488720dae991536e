"""The management listener's other answers: access control, contents, and invalid requests."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing
from support.http.client import serving
from support.management import JSON, Asker, asking, overview

from penstock.app.management.front import ManagementFront
from penstock.app.management.overview import BackView, Circuit, Overview, RouteView
from penstock.app.management.settings import ManagementSettings
from penstock.backends.embedded import EmbeddedBack


async def test_health_and_draining(asker: Asker) -> None:
    assert await asker.get("/health") == {"state": "running"}
    asker.front.drain()
    assert await asker.get("/health", 503) == {"state": "draining"}


async def test_backs_show_their_circuits() -> None:
    circuits = iter([Circuit("closed"), Circuit("open", 1234, "connection refused")])
    lite = BackView(name="lite", kind="s2", address="127.0.0.1:8090", circuit=lambda: next(circuits))
    async with asking(Overview(listeners=[], backs=[lite])) as asker:
        shown = {"name": "lite", "kind": "s2", "address": "127.0.0.1:8090"}
        assert await asker.get("/backs") == {"backs": [{**shown, "circuit": "closed", "since": None, "reason": ""}]}
        now_open = {**shown, "circuit": "open", "since": 1234, "reason": "connection refused"}
        assert await asker.get("/backs") == {"backs": [now_open]}


async def test_routes_without_a_mirror(back: EmbeddedBack) -> None:
    routes = {"all": RouteView(name="all", match="everything", back="embedded")}
    async with asking(overview(back, routes=routes)) as asker:
        assert await asker.get("/routes") == {
            "routes": [
                {
                    "name": "all",
                    "match": "everything",
                    "back": "embedded",
                    "configured_back": "embedded",
                    "circuit": "closed",
                    "mirror": None,
                }
            ]
        }
        assert (await asker.get("/routes/all/streams", 409))["code"] == "no_mirror"
        assert (await asker.post("/routes/all/cut-over", {}, 409))["code"] == "no_mirror"
        refusal = await asker.post("/routes/none/cut-over", {}, 404)
        assert refusal == {"code": "route_not_found", "message": "route 'none' does not exist; expected one of: all"}


async def test_only_holders_of_a_token_may_ask(back: EmbeddedBack) -> None:
    settings = ManagementSettings(bearer_tokens=frozenset({"secret", "other"}))
    async with asking(overview(back), settings) as asker:
        assert (await asker.ask("GET", "/health")).status == 200
        for headers in ([], [("authorization", "Bearer wrong")], [("authorization", "Basic secret")]):
            for method, target in (("GET", "/routes"), ("GET", "/positions?x=1"), ("POST", "/routes/a/cut-over")):
                answer = await asker.ask(method, target, headers)
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert (await asker.ask("GET", "/routes", [("authorization", "bearer other")])).status == 200


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/nothing", 404),
        ("GET", "/routes/x", 404),
        ("GET", "/routes/x/y", 404),
        ("GET", "/health/x/cut-over", 404),
        ("POST", "/routes", 405),
        ("GET", "/routes/x/cut-over", 405),
        ("DELETE", "/backs", 405),
        ("GET", "/routes/x/streams?limit=0", 400),
        ("GET", "/routes/x/streams?limit=1001", 400),
        ("GET", "/routes/x/streams?limit=many", 400),
        ("GET", "/routes/x/streams?first=1", 400),
    ],
)
async def test_what_is_no_question(asker: Asker, method: str, target: str, status: int) -> None:
    answer = await asker.ask(method, target)
    assert answer.status == status, answer
    assert set(json.loads(answer.body)) == {"code", "message"}


async def test_a_web_page_is_told_nothing(asker: Asker) -> None:
    """Neither answers nor permission to send JSON: there is no CORS."""
    answer = await asker.ask("GET", "/routes", [("origin", "http://evil.example")])
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = await asker.ask(
        "OPTIONS", "/routes/x/cut-over", [("origin", "http://evil.example"), ("access-control-request-method", "POST")]
    )
    assert preflight.status == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]


MIRRORED = "/routes/all/cut-over"


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ([], b"{}", "content-type: expected application/json"),
        ([("content-type", "text/plain")], b"{}", "content-type: expected application/json"),
        ([*JSON, ("if-match", '"x"')], b"{}", "if-match: POST has no such condition"),
        (JSON, b"{", "Input data was truncated"),
        (JSON, b'{"\xff": true}', "can't decode byte 0xff"),
        (JSON, b'{"forced": true}', "unknown field `forced`"),
        (JSON, b'{"force": 1}', "Expected `bool`"),
        (JSON, b'{"wait_seconds": -1}', "wait_seconds: expected 0 to 600, got -1"),
        (JSON, b'{"wait_seconds": 601}', "wait_seconds: expected 0 to 600, got 601"),
        (JSON, b" " * 20_000, "the body has more than 16384 bytes"),
    ],
)
async def test_bad_words_cut_nothing_over(
    back: EmbeddedBack, headers: list[tuple[str, str]], body: bytes, words: str
) -> None:
    routes = {"all": RouteView(name="all", match="everything", back="embedded", mirrored=object())}  # type: ignore[arg-type]
    async with asking(overview(back, routes=routes)) as asker:
        answer = await asker.ask("POST", MIRRORED, headers, body)
        assert answer.status == 400, answer
        assert words in json.loads(answer.body)["message"]


async def test_a_body_must_come_in_time(autojump_clock: trio.testing.MockClock) -> None:
    routes = {"all": RouteView(name="all", match="everything", back="embedded", mirrored=object())}  # type: ignore[arg-type]
    front = ManagementFront(Overview(listeners=[], routes=routes), ManagementSettings(body_seconds=5))
    async with serving(front.handle, "http/1.1") as client:
        stream_id = await client.open("POST", MIRRORED, [*JSON, ("content-length", "10")])
        assert (await client.answer(stream_id)).status == 408
