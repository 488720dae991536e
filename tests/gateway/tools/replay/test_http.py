"""Recorded conversations over HTTP, played to a fresh S2 front: all of S2's API, over both versions."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio.testing
from msgspec.structs import replace
from support.captures.dialogues import conversation, events
from support.listening import Heard
from support.s2.model import ModelBack
from support.s2.whole_api import STREAM, Talk, talk, whole_talk

from penstock.capture.pcapng import CaptureEvent, Sender
from penstock.net.http.exchange import Exchange, Handler, Request
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.observe.taps.connections import Connections
from penstock.protocols.plugin import listener_kinds
from penstock.tools.replay.live import Rewritten
from penstock.tools.replay.replaying import PlayedParts, Replay, ReplaySettings
from penstock.tools.replay.report import ReplaySummary
from penstock.tools.target.back import TargetOptions
from penstock.tools.target.url import parse_target
from penstock.wire.http import PREFACE, RequestHead
from penstock_s2.front import S2Front, S2Settings

Clock = trio.testing.MockClock
FAST = ReplaySettings(speed=math.inf)


async def played(
    recorded: list[CaptureEvent],
    handler: Handler,
    settings: ReplaySettings = FAST,
    url: str = "s2://127.0.0.1:8080",
    server: HttpSettings | None = None,
) -> ReplaySummary:
    """To a server over streams in memory."""

    async def again() -> AsyncGenerator[CaptureEvent, None]:
        for event in recorded:
            yield event

    async with trio.open_nursery() as nursery:

        async def dial(_host: str, _port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            near, far = trio.testing.memory_stream_pair()
            nursery.start_soon(serve_http, far, handler, server)
            return near

        summary = await Replay(parse_target(url), again, settings, dial).run()
        nursery.cancel_scope.cancel()
    return summary


@pytest.fixture(params=["http/1.1", "h2"])
def recorded(request: pytest.FixtureRequest) -> Talk:
    return talk(request.param)


@asynccontextmanager
async def model() -> AsyncGenerator[tuple[ModelBack, S2Front], None]:
    async with trio.open_nursery() as nursery:
        back = ModelBack(nursery)
        back.make(STREAM)
        yield back, S2Front(back, S2Settings())  # type: ignore[arg-type]
        nursery.cancel_scope.cancel()


async def test_all_of_the_api(recorded: Talk, autojump_clock: Clock) -> None:
    """The same is answered, and the stream holds what the recorded one held. The one session that fails does again."""
    async with model() as (back, front):
        summary = await played(list(events(conversation("s2"), recorded.said)), front.handle)
        bodies = [record.body for record in back.streams[STREAM].records]
    assert summary.same, list(summary.lines())
    acknowledged = [body for body, _, seq_num, _ in recorded.appended if seq_num is not None]
    assert bodies == acknowledged
    assert summary.totals["appended"] == len(acknowledged)
    assert summary.totals["delivered"] == len(recorded.delivered)


async def test_what_is_not_about_the_streams_wanted_is_left_out(recorded: Talk, autojump_clock: Clock) -> None:
    settings = ReplaySettings(speed=math.inf, parts=PlayedParts(streams=["nope"]))
    asked: list[str] = []

    async def handler(exchange: Exchange) -> None:
        asked.append(exchange.request.path)
        await exchange.respond(404, [], b"")

    summary = await played(list(events(conversation("s2"), recorded.said)), handler, settings)
    assert asked == ["/v1/streams/nope/records", "/elsewhere"], "and what is about none"
    assert summary.totals["answers"] == 2


async def test_a_server_that_answers_otherwise(recorded: Talk, autojump_clock: Clock) -> None:
    """Every answer is compared; sessions that never begin are not waited for."""

    async def handler(exchange: Exchange) -> None:
        await exchange.respond(503, [], b"")

    summary = await played(list(events(conversation("s2"), recorded.said)), handler)
    [report] = summary.conversations
    assert report.ran_out == 0 and report.different > 5
    assert (
        str(report.differences[0])
        == "exchange 1: 200 was recorded, and 503 came, " + f"{report.differences[0].times} times"
    )


@pytest.mark.parametrize("how", ["connection: close", "silently"])
async def test_a_server_that_closes_between_requests(how: str, autojump_clock: Clock) -> None:
    """The recorded one did not; later requests are sent on a new connection."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    said = [(Sender.CLIENT, REQUEST), (Sender.SERVER, answer)] * 3
    settings = HttpSettings(keep_alive=1.0)
    recorded = list(events(conversation("s2"), said))
    if how == "silently":  # after a second, and there are five between the requests
        recorded = [replace(event, time_ns=place * 5 * 10**9) for place, event in enumerate(recorded)]
    asked = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal asked
        asked += 1
        await exchange.respond(200, [("connection", "close")] if how != "silently" else [], b"")

    speed = 1.0 if how == "silently" else math.inf
    summary = await played(recorded, handler, ReplaySettings(speed=speed), server=settings)
    assert asked == 3
    assert summary.same, list(summary.lines())


@pytest.mark.parametrize("fewer_at_once", [False, True])
async def test_requests_that_did_not_wait_for_each_other(fewer_at_once: bool, autojump_clock: Clock) -> None:
    """Over HTTP/1.1; or a server takes two at once of what was said over HTTP/2."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    said: list[tuple[Sender, bytes]] = [(Sender.CLIENT, REQUEST * 5), *[(Sender.SERVER, answer)] * 5]
    if fewer_at_once:
        head = b"\x82\x86\x84\x01\x01a"  # GET http / a
        first, *frames = [b"\0\0%c\x01\x05\0\0\0%c%b" % (len(head), 2 * n + 1, head) for n in range(5)]
        told, *answers = [b"\0\0\x01\x01\x05\0\0\0%c\x88" % (2 * n + 1) for n in range(5)]
        settings = b"\0\0\0\x04\0\0\0\0\0"
        said = [(Sender.CLIENT, PREFACE + settings + first), (Sender.SERVER, settings + told)]
        said += [(Sender.CLIENT, b"".join(frames)), (Sender.SERVER, b"".join(answers))]
    at_once = most = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await trio.sleep(1.0)
        await exchange.respond(200, [], b"")
        at_once -= 1

    limits = msgspec.structs.replace(HttpSettings().limits, max_streams=2)
    summary = await played(list(events(conversation("s2"), said)), handler, server=HttpSettings(limits=limits))
    assert summary.same, list(summary.lines())
    assert summary.totals["answers"] == 5 and most == (2 if fewer_at_once else 1)


async def test_records_that_did_not_come_are_told(autojump_clock: Clock) -> None:
    """The session ends as it should, with fewer records."""

    def body(count: int) -> bytes:
        batches = [
            b'event: batch\ndata: {"records":[{"seq_num":%d,"timestamp":1,"body":"x"}]}\n\n' % n for n in range(count)
        ]
        return b"".join(batches) + b"data: [DONE]\n\n"

    request = REQUEST.replace(b"\r\n\r\n", b"\r\nAccept: text/event-stream\r\n\r\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body(5))
    said = [(Sender.CLIENT, request), (Sender.SERVER, head + body(5))]

    async def handler(exchange: Exchange) -> None:
        await exchange.respond(200, [("content-type", "text/event-stream")], body(live))

    recorded = list(events(conversation("s2"), said))
    live = 5
    assert (await played(recorded, handler)).same
    live = 3
    summary = await played(recorded, handler)
    [report] = summary.conversations
    assert (report.delivered, report.ran_out) == (3, 2) and not summary.same
    assert report.waits[0] == "exchange 1: 1 of 4 records did not come: the answer ended before"


async def test_who_asks_and_where(autojump_clock: Clock) -> None:
    """The token that is given takes the place of the recorded one, and the basin that the URL names."""
    seen: list[dict[str, str]] = []

    async def handler(exchange: Exchange) -> None:
        request = exchange.request
        seen.append({**dict(request.headers), "authority": request.authority})
        await exchange.respond(404, [], b"")

    options = TargetOptions(token="new")
    settings = ReplaySettings(speed=math.inf, options=options)
    said = [(Sender.CLIENT, REQUEST), (Sender.SERVER, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")]
    recorded = list(events(conversation("s2"), said))
    await played(recorded, handler, settings, "s2://127.0.0.1:8080/other-basin")
    assert seen[0]["authorization"] == "Bearer new"
    assert seen[0]["s2-basin"] == "other-basin"
    assert seen[0]["authority"] == "127.0.0.1:8080"


REQUEST = (
    b"GET /v1/streams/x/records HTTP/1.1\r\nHost: old.example:1\r\nAuthorization: Bearer ******\r\n"
    b"S2-Basin: penstock\r\n\r\n"
)


@pytest.mark.parametrize(
    "value",
    ["Bearer ******", "******", "AWS4-HMAC-SHA256 ***"],
)
def test_what_was_redacted_is_not_shown(value: str) -> None:
    rewritten = Rewritten("here:1", "http", None, None, listener_kinds()["s2"].replayed_headers)
    head = RequestHead(1, "GET", "/v1/basins", [("authorization", value), ("accept", "*/*"), ("x", "a*")])
    assert rewritten.head(head, "").headers == [("accept", "*/*"), ("x", "a*")]


async def test_a_request_that_the_server_s_http_cannot_say(autojump_clock: Clock) -> None:
    """It is told at once, and the others are made."""
    asked = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal asked
        asked += 1
        await exchange.respond(200, [], b"")

    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    odd = [(Sender.CLIENT, REQUEST), (Sender.SERVER, answer)] * 3
    with pytest.MonkeyPatch.context() as patch:
        head = Rewritten.head
        patch.setattr(
            Rewritten,
            "head",
            lambda *a: msgspec.structs.replace(head(*a), target="/a b" if not asked else head(*a).target),
        )
        began = trio.current_time()
        summary = await played(list(events(conversation("s2"), odd)), handler)
    assert trio.current_time() - began < 5.0
    [report] = summary.conversations
    assert report.ran_out == 0 and "headers that HTTP cannot carry" in report.differences[0].live


def test_what_was_not_redacted_is_shown_as_it_was() -> None:
    rewritten = Rewritten("here:1", "http", None, None, listener_kinds()["s2"].replayed_headers)
    headers = [("authorization", "Bearer abc"), ("connection", "close"), ("expect", "100-continue")]
    told = rewritten.head(RequestHead(1, "GET", "/v1/streams/x", headers, "old-basin.localhost"), "old-basin")
    assert told.headers == [("authorization", "Bearer abc"), ("s2-basin", "old-basin")]
    assert (told.authority, told.scheme) == ("here:1", "http")


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
async def test_what_began_before_the_recording_is_told_and_the_rest_is_played(alpn: str, autojump_clock: Clock) -> None:
    connections, heard = Connections(), Heard()

    def begin(request: Request) -> None:
        if request.path.endswith("/tail") and not heard.events:
            (tap,) = connections
            tap.attach(heard)

    def served(far: trio.abc.HalfCloseableStream) -> trio.abc.Stream:
        return connections.accepted(far, 1, "listeners.s2", "s2")

    await whole_talk(alpn, served=served, on_request=begin)
    async with model() as (back, front):
        summary = await played(heard.events, front.handle)
        assert len(back.streams[STREAM].records) > 5
    (report,) = summary.conversations
    assert report.not_carried == ["not said again: a request that began before the recording did"]
    assert summary.same is False and report.said > 20
