"""The page's files, and the events that feed it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any

import pytest
import trio
import trio.testing
from support.http.client import HttpClient, memory_pair, serving
from support.management import Asker, Process

from penstock.app.management.front import ManagementFront
from penstock.app.management.overview import Overview
from penstock.app.management.page_events import PageEvents
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.traffic import Traffic
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tap import Tap
from penstock.recorder import recordings as recordings_module
from penstock.recorder.recorder import Recorder
from penstock.recorder.recordings import Recordings
from penstock.recorder.selection import Selection
from penstock.wire.http import Data, End

APPEND = b"*4\r\n$6\r\nAPPEND\r\n$5\r\nhello\r\n*0\r\n*1\r\n$%d\r\n%b\r\n"


class Page(Asker):
    """A management listener of a process with connections, whose duties run."""

    connections: Connections
    recordings: Recordings
    process: Process

    def speaks(self, number: int = 1) -> Tap:
        """A connection of a client of S3P."""
        return self.connections.accepted(memory_pair()[1], number, "listeners.s3p", "s3p").tap

    async def follow(self, last: str = "", client: HttpClient | None = None, query: str = "") -> Feed:
        """Open the stream of events that a page receives from now on."""
        client = client or self.client
        headers = [("last-event-id", last)] if last else []
        stream_id = await client.open("GET", f"/events{query}", headers)
        head = await client.head(stream_id)
        assert (head.status, dict(head.headers)["content-type"]) == (200, "text/event-stream")
        return Feed(client, stream_id)


class Feed:
    """Events, one after the other."""

    def __init__(self, client: HttpClient, stream_id: int) -> None:
        self._client = client
        self._stream_id = stream_id
        self._held = ""
        self.last = ""

    async def next(self, kind: str) -> dict[str, Any]:
        """The next one of a kind; others are passed by."""
        while True:
            while "\n\n" not in self._held:
                event = await self._client.next(self._stream_id)
                assert isinstance(event, Data), event
                self._held += event.data.decode()
            block, _, self._held = self._held.partition("\n\n")
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            self.last = fields.get("id", self.last)
            if fields.get("event") == kind:
                found: dict[str, Any] = json.loads(fields["data"])
                return found


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    connections, process = Connections(), Process()
    recordings = Recordings(Recorder(connections, {}), None, None)
    traffic = Traffic(connections, recordings, ["s3p"], [])
    front = ManagementFront(Overview(listeners=[]), ManagementSettings(), traffic, process.controls)
    async with trio.open_nursery() as nursery, serving(front.handle, "http/1.1") as client:
        nursery.start_soon(front.run)
        page = Page(client, front)
        page.connections, page.recordings, page.process = connections, recordings, process
        yield page
        front.drain()
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(10):
        while not condition():
            await trio.lowlevel.checkpoint()


# ---- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "content_type", "said"),
    [
        ("/", "text/html", "<title>Penstock"),
        ("/page.js", "text/javascript", "import "),
        ("/page.css", "text/css", "{"),
    ],
)
async def test_files_of_the_page(page: Page, target: str, content_type: str, said: str) -> None:
    answer = await page.client.ask("GET", target)
    assert answer.status == 200 and answer.headers["content-type"].startswith(content_type)
    text = answer.body.decode()
    assert said in text
    assert not re.search(r"https?://(?!www[.]w3[.]org/2000/svg)", text), "nothing comes from elsewhere"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'" and policy["require-trusted-types-for"] == "'script'"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_no_text_becomes_markup(page: Page) -> None:
    """The page does not use what its content security policy forbids either."""
    scripts = [file.name for file in (files("penstock.app.management") / "web").iterdir() if file.name.endswith(".js")]
    assert len(scripts) > 5
    for name in scripts:
        script = (await page.client.ask("GET", f"/{name}")).body.decode()
        for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser", "srcdoc"):
            assert sink not in script
    markup = (await page.client.ask("GET", "/")).body.decode()
    assert not re.search(r"\son\w+=|style=|<script>|<style", markup)


# ---- events ----------------------------------------------------------------------------------------------------------


async def test_the_state_of_the_moment(page: Page) -> None:
    tap = page.speaks(7)
    tap.received(b"question")
    page.process.reasons = ["the gateway is draining"]
    state = await (await page.follow()).next("state")
    assert (state["ready"], state["reasons"]) == (False, ["the gateway is draining"])
    assert state["connections"] >= 0 and set(state["bytes"]) == {"in", "out"}


async def test_messages_are_decoded(page: Page) -> None:
    feed = await page.follow()
    await feed.next("state")
    tap = page.speaks(7)
    tap.received(APPEND % (5, b"first"))
    message = await feed.next("message")
    assert (message["connection"], message["layer"], message["kind"]) == (7, "s3p", "APPEND")
    assert (message["sender"], message["stream"], message["nth"]) == ("client", "hello", 1)
    assert (message["records"], message["bodies"]) == (1, ["first"])
    tap.sent([b"$3\r\n1-0\r\n"], 9)
    message = await feed.next("message")
    assert (message["sender"], message["records"], message["bodies"]) == ("server", 0, [])
    assert message["detail"]["settled"] == 1
    assert message["detail"]["asked"]["bodies"][0]["body"] == "first"
    page.speaks(8).received(b"nonsense\r\n")
    problem = await feed.next("message")
    assert (problem["connection"], problem["kind"], problem["nth"]) == (8, "problem", 3)
    assert problem["failure"].startswith("byte 0: ")


async def test_a_filter_of_the_command_line_chooses_messages(page: Page) -> None:
    feed = await page.follow(query="?filter=stream%3Dhel*+%22second+body%22")
    await feed.next("state")
    tap = page.speaks(7)
    for body in (b"first", b"second body"):
        tap.received(APPEND % (len(body), body))
        tap.sent([b"$3\r\n1-0\r\n"], 9)
    message = await feed.next("message")
    assert (message["sender"], message["kind"], message["bodies"]) == ("client", "APPEND", ["second body"])
    assert "|*4..$6..APPEND..|" in message["detail"]["dump"][0] and message["detail"]["fields"]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("nonsense%3D1", "filter: 'nonsense=1': expected NAME=VALUE with one of connection, protocol"),
        ("connection%3Dx", "filter: connection=x: expected a whole number"),
        ("protocol%3Dx", "filter: protocol=x: expected one of"),
        ("%22", "filter: No closing quotation"),
        ("x" * 501, "filter: more than 500 characters"),
    ],
)
async def test_a_wrong_filter_is_refused(page: Page, expression: str, said: str) -> None:
    answer = await page.get(f"/events?filter={expression}", 400)
    assert answer["code"] == "bad_query" and answer["message"].startswith(said)


async def test_a_page_that_comes_back_goes_on(page: Page) -> None:
    feed = await page.follow()
    await feed.next("state")
    tap = page.speaks()
    tap.received(APPEND % (3, b"one"))
    assert (await feed.next("message"))["nth"] == 1
    async with serving(page.front.handle, "http/1.1") as other:
        tap.received(APPEND % (3, b"two"))
        again = await page.follow(feed.last, other)
        assert (await again.next("message"))["nth"] == 2
    async with serving(page.front.handle, "http/1.1") as other:
        anew = await page.follow("another-1", other)
        assert [(await anew.next("message"))["nth"] for _ in range(2)] == [1, 2], "of another process: all that is kept"


async def test_nothing_is_done_without_viewers(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.app.management.page_events._LINGER_SECONDS", 0.01)
    await page.get("/connections")
    tap = page.speaks()
    assert tap.sinks == ()
    async with serving(page.front.handle, "http/1.1") as client:
        await (await page.follow(client=client)).next("state")
        await until(lambda: tap.sinks)
        assert not page.recordings.running, "a page is no recording"
        async with page.recordings.listening(Selection()):
            assert [one.recording.id for one in page.recordings.running] == [1], "nor has it a number"
    await until(lambda: not tap.sinks)
    tap.received(b"heard by nobody")
    assert tap.sinks == ()


async def test_a_page_shows_the_rest_where_no_other_tap_is_allowed(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings_module, "MOST_RECORDINGS", 0)
    assert (await (await page.follow()).next("state"))["ready"] is True


async def test_events_go_on_while_a_state_is_awaited(autojump_clock: trio.testing.MockClock) -> None:
    async def slow_state() -> dict[str, Any]:
        await trio.sleep(0.5)
        return {}

    connections = Connections()
    recordings = Recordings(Recorder(connections, {}), None, None)
    events, last = PageEvents(Traffic(connections, recordings, ["s3p"], []), slow_state), 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run)
        async with events.opened():
            for _ in range(10):

                async def another_page_opens() -> None:
                    await trio.sleep(1.4)  # 0.1 s before the next state is there
                    async with events.opened():
                        pass

                nursery.start_soon(another_page_opens)
                news = await events.news(last)
                assert [kind for _, kind, _ in news] == ["state"]
                assert news[0][0] > last
                last = news[0][0]
        events.drain()
        assert await events.news(last) == []
        nursery.cancel_scope.cancel()


async def test_a_drain_ends_the_events(page: Page) -> None:
    stream_id = await page.client.open("GET", "/events")
    await page.client.head(stream_id)
    page.front.drain()
    while not isinstance(event := await page.client.next(stream_id), End):
        assert isinstance(event, Data)


async def test_a_head_of_the_events_is_not_endless(page: Page) -> None:
    assert (await page.client.ask("HEAD", "/events")).status == 200
