"""Connections and recordings by way of the management listener."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.captures import read
from support.http.client import memory_pair, serving
from support.listening import tapped_front
from support.management import JSON, Asker

from penstock.app.management.front import ManagementFront
from penstock.app.management.overview import Overview
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.traffic import Traffic
from penstock.capture.pcapng import Chunk, Closed, Opened, Sender
from penstock.model.records import StreamRef
from penstock.net.upstream import UpstreamSettings
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tap import Tap, Use
from penstock.recorder import recordings as recordings_module
from penstock.recorder.recorder import Recorder
from penstock.recorder.recordings import Recordings
from penstock.recorder.settings import FileSettings


class Desk(Asker):
    """A management listener of a process with connections, which writes into `directory`."""

    connections: Connections
    recordings: Recordings
    directory: Path

    def front_of(self, number: int = 1) -> Tap:
        """A client's connection."""
        return tapped_front(memory_pair()[1], number=number, connections=self.connections).tap

    def captured(self, prefix: str = "penstock-1-") -> list[Any]:
        """Return the events in the files of a recording."""
        return [event for path in sorted(self.directory.glob(prefix + "*")) for event in read(path.read_bytes())]


@asynccontextmanager
async def opened(directory: Path | None) -> AsyncIterator[Desk]:
    connections = Connections()
    files = None if directory is None else FileSettings(directory=directory)
    recordings = Recordings(Recorder(connections, {}), files, None)
    traffic = Traffic(connections, recordings, ["s2", "s3p.inner"], ["lite"])
    front = ManagementFront(Overview(listeners=[]), ManagementSettings(), traffic)
    try:
        async with serving(front.handle, "http/1.1") as client:
            desk = Desk(client, front)
            desk.connections, desk.recordings, desk.directory = connections, recordings, directory or Path()
            yield desk
    finally:
        await recordings.close()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(tmp_path / "recordings") as one:
        yield one


async def test_connections_are_searched_and_sorted(desk: Desk) -> None:
    for number, stream in ((1, "b"), (2, "a"), (3, "other")):
        tap = desk.front_of(number)
        tap.received(b"x" * number)
        tap.use(Use("everything", StreamRef("basin", stream), ""))
    answer = await desk.get("/connections?sort=-client_bytes&limit=2")
    assert ([one["connection"] for one in answer["connections"]], answer["total"]) == ([3, 2], 3)
    answer = await desk.get("/connections?search=BASIN/A")
    assert ([one["connection"] for one in answer["connections"]], answer["total"]) == ([2], 1)
    answer = await desk.get("/connections?sort=streams")
    assert [one["connection"] for one in answer["connections"]] == [2, 1, 3]
    for query, said in (("sort=colour", "sort: expected one of connection"), ("limit=0", "limit: expected 1 to 1000")):
        assert (await desk.get(f"/connections?{query}", 400))["message"].startswith(said)


async def test_connections_are_shown_with_what_is_known_of_them(desk: Desk) -> None:
    assert await desk.get("/connections") == {"connections": [], "total": 0}
    tap = desk.front_of(7)
    tap.received(b"question")
    tap.sent([b"answer"], 6)
    tap.use(Use("orders", StreamRef("penstock", "eu/1"), "analytics"))
    back = desk.connections.dialled(memory_pair()[0], UpstreamSettings(name="lite", host="x", port=1, protocol="s2"))
    shown, other = sorted((await desk.get("/connections"))["connections"], key=lambda one: one["side"], reverse=True)
    assert shown.pop("since") == tap.opened_ns // 1_000_000
    assert shown == {
        "connection": 7,
        "side": "front",
        "name": "listeners.s2",
        "protocol": "s2",
        "tls": False,
        "client": "0.0.0.0:1",
        "server": "0.0.0.0:0",
        "client_bytes": 8,
        "server_bytes": 6,
        "routes": ["orders"],
        "streams": ["penstock/eu/1"],
        "identities": ["analytics"],
        "recordings": [],
    }
    assert (other["side"], other["name"], other["protocol"]) == ("back", "backs.lite", "s2")
    await back.aclose()
    tap.end()
    assert await desk.get("/connections") == {"connections": [], "total": 0}


async def test_a_recording_is_started_and_stopped(desk: Desk) -> None:
    tap = desk.front_of()
    tap.received(b"before")
    started = await desk.post("/recordings", {"connections": [1]})
    number = started["id"]
    assert (started["kind"], started["state"], started["files"]) == ("file", "recording", 1)
    assert started["selection"] == {"connections": [1]}
    assert Path(started["file"]).parent == desk.directory
    desk.front_of(2).received(b"another's")
    tap.received(b"during")
    assert (await desk.get("/connections"))["connections"][0]["recordings"] == [number]
    (running,) = (await desk.get("/recordings"))["recordings"]
    assert running["id"] == number and running["conversations"] == 1
    stopped = await desk.post(f"/recordings/{number}/stop", {})
    assert (stopped["state"], stopped["id"]) == ("stopped", number)
    tap.received(b"after")
    assert await desk.get("/recordings") == {"recordings": []}
    await desk.post(f"/recordings/{number}/stop", {}, 404)
    chunks = [event for event in desk.captured() if isinstance(event, Chunk)]
    assert [(bytes(event.data), event.offset) for event in chunks] == [(b"during", 6)]


async def test_listeners_and_backs_are_also_named_as_they_are_shown(desk: Desk) -> None:
    words = {"listeners": ["listeners.s2", "s3p"], "backs": ["backs.lite"]}
    started = await desk.post("/recordings", words)
    assert started["selection"] == {"listeners": ["s2", "s3p"], "backs": ["lite"]}


async def test_recordings_at_the_same_time_keep_apart(desk: Desk) -> None:
    first = await desk.post("/recordings", {"streams": ["orders"]})
    second = await desk.post("/recordings", {})
    tap = desk.front_of()
    tap.received(b"question")
    tap.use(Use("", StreamRef("penstock", "orders"), ""))
    for started in (first, second):
        await desk.post(f"/recordings/{started['id']}/stop", {})
    for prefix in ("penstock-1-", "penstock-2-"):
        events = desk.captured(prefix)
        assert b"".join(bytes(event.data) for event in events if isinstance(event, Chunk)) == b"question"
        assert [event.conversation.number for event in events if isinstance(event, Opened)] == [1]


async def test_traffic_goes_on_while_many_connections_are_shown(desk: Desk) -> None:
    connections = [desk.front_of(number) for number in range(1, 1501)]
    traffic = Traffic(desk.connections, desk.recordings, [], [])
    shown: list[list[dict[str, Any]]] = []

    async def show() -> None:
        shown.append(await traffic.connections())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(show)
        await trio.lowlevel.checkpoint()
        assert not shown, "others have had their turn"
        connections[-1].end()
    assert [one["connection"] for one in shown[0]] == list(range(1, 1500))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ({"listeners": ["s4"]}, 422, "listeners: 's4' is unknown; expected s2, s3p, s3p.inner"),
        ({"backs": ["embedded"]}, 422, "backs: 'embedded' is unknown; expected lite"),
        ({"protocols": ["management"]}, 422, "protocols: 'management' is unknown"),
        ({"connections": [5]}, 422, "connections: 5 is not open"),
        ({"peers": ["10.0.0.1/8"]}, 422, "peers: 10.0.0.1/8 has host bits set"),
        ({"streams": ["x"] * 51}, 422, "streams: more than 50"),
        ({"connections": list(range(51))}, 422, "connections: more than 50"),
        ({"routes": ["*a" * 21]}, 422, "has more than 20 wildcards"),
        ({"stream": ["x"]}, 400, "unknown field `stream`"),
        ({"streams": "x"}, 400, "Expected `array`, got `str`"),
    ],
)
async def test_bad_words_record_nothing(desk: Desk, words: dict[str, Any], status: int, said: str) -> None:
    answer = await desk.post("/recordings", words, status)
    assert said in answer["message"]
    assert await desk.get("/recordings") == {"recordings": []}


async def test_without_a_directory_nothing_is_written_and_all_can_be_followed() -> None:
    async with opened(None) as desk:
        answer = await desk.post("/recordings", {}, 422)
        assert "no [recorder] with a directory" in answer["message"]
        async with desk.recordings.listening(recordings_module.Selection()):
            (live,) = (await desk.get("/recordings"))["recordings"]
            assert (live["kind"], live["file"]) == ("live", None)


async def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with opened(tmp_path / "file") as desk:
        answer = await desk.post("/recordings", {}, 409)
        assert answer["code"] == "cannot_record" and str(tmp_path / "file") in answer["message"]
        assert await desk.get("/recordings") == {"recordings": []}


async def test_not_too_many_run_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings_module, "MOST_RECORDINGS", 2)
    for _ in range(2):
        await desk.post("/recordings", {})
    answer = await desk.ask("POST", "/recordings", JSON, b"{}")
    assert answer.status >= 400 and "2 recordings are running already" in json.loads(answer.body)["message"]


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", "/connections", 405),
        ("POST", "/tail", 405),
        ("GET", "/recordings/1/stop", 405),
        ("GET", "/tail?streams=x", 400),
        ("GET", "/tail?connection=one", 400),
        ("GET", "/tail?listener=s4", 422),
        ("GET", "/tail?stream=%ff", 400),
    ],
)
async def test_what_is_no_question(desk: Desk, method: str, target: str, status: int) -> None:
    answer = await desk.ask(method, target)
    assert answer.status == status, answer
    assert set(json.loads(answer.body)) == {"code", "message"}


async def test_the_tail_is_a_capture_of_what_goes_by(desk: Desk) -> None:
    stream_id = await desk.client.open("GET", "/tail?stream=orders&stream=invoices&protocol=s2")
    head = await desk.client.head(stream_id)
    assert head.status == 200
    assert dict(head.headers)["content-type"] == "application/x-pcapng"
    (running,) = desk.recordings.running
    assert (running.recording.selection.streams, running.recording.selection.protocols) == (
        ("orders", "invoices"),
        ("s2",),
    )
    tap = desk.front_of()
    tap.received(b"question")
    tap.use(Use("", StreamRef("penstock", "orders"), ""))
    tap.end()
    desk.recordings.drain()  # the gateway drains: the answer comes to its end
    events = read(await desk.client.answer_body(stream_id))
    assert isinstance(events[0], Opened)
    assert b"".join(bytes(event.data) for event in events if isinstance(event, Chunk)) == b"question"
    assert [event.sender for event in events if isinstance(event, Closed)] == [Sender.SERVER, Sender.CLIENT]
    await trio.testing.wait_all_tasks_blocked()
    assert not desk.recordings.running


async def test_who_follows_is_forgotten_when_he_goes_away(desk: Desk) -> None:
    stream_id = await desk.client.open("GET", "/tail")
    await desk.client.head(stream_id)
    assert len(desk.recordings.running) == 1
    await trio.aclose_forcefully(desk.client.stream)
    with trio.fail_after(10):
        while desk.recordings.running:
            await trio.lowlevel.checkpoint()


async def test_a_head_of_the_tail_is_not_endless(desk: Desk) -> None:
    answer = await desk.client.ask("HEAD", "/tail")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-pcapng")
    assert not desk.recordings.running
