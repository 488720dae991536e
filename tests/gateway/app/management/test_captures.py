"""The captures in the recorder's directory by way of the management listener."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.http.client import memory_pair, serving
from support.management import Asker, Process

from penstock.app.config import parse_config
from penstock.app.management import about_captures, command
from penstock.app.management.front import ManagementFront
from penstock.app.management.overview import Overview
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.traffic import Traffic
from penstock.observe.taps.connections import Connections
from penstock.recorder.recorder import Recorder
from penstock.recorder.recordings import Recordings
from penstock.recorder.settings import FileSettings

APPEND = b"*4\r\n$6\r\nAPPEND\r\n$5\r\nhello\r\n*0\r\n*1\r\n$%d\r\n%b\r\n"


class Archive(Asker):
    """A management listener with a recorder's directory."""

    connections: Connections
    directory: Path

    async def record(self, *bodies: bytes) -> str:
        """Record a client of S3P that appends these bodies; return the name of the capture."""
        recording = await self.post("/recordings", {"expression": "protocol=s3p"})
        assert recording["selection"] == {"protocols": ["s3p"]}
        tap = self.connections.accepted(memory_pair()[1], 7, "listeners.s3p", "s3p").tap
        for number, body in enumerate(bodies):
            tap.received(APPEND % (len(body), body))
            tap.sent([b"$3\r\n%d-0\r\n" % (number + 1)], 9)
        tap.end()
        await self.post(f"/recordings/{recording['id']}/stop", {})
        (name,) = [file.name for file in self.directory.glob(f"penstock-{recording['id']}-*")]
        return name


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    directory = tmp_path / "recordings"
    connections, process = Connections(), Process()
    process.config = parse_config(f'[listeners.s3p]\n[recorder]\ndirectory = "{directory}"\nstart = false\n', "config")
    recordings = Recordings(Recorder(connections, {}), FileSettings(directory=directory), None)
    traffic = Traffic(connections, recordings, ["s3p"], [])
    front = ManagementFront(Overview(listeners=[]), ManagementSettings(), traffic, process.controls)
    async with serving(front.handle, "http/1.1") as client:
        one = Archive(client, front)
        one.connections, one.directory = connections, directory
        yield one


async def test_captures_are_listed_newest_first(archive: Archive) -> None:
    assert await archive.get("/captures") == {"captures": [], "has_more": False}
    first, second = await archive.record(b"one"), await archive.record(b"two")
    recording = await archive.post("/recordings", {})
    answer = await archive.get("/captures")
    running, *others = answer["captures"]
    assert [one["name"] for one in others] == [second, first] and answer["has_more"] is False
    assert (running["recording"], others[0]["recording"]) == (recording["id"], None)
    assert others[0]["bytes"] == (archive.directory / second).stat().st_size and others[0]["modified"] > 1e12
    await archive.post(f"/recordings/{recording['id']}/stop", {})


async def test_a_capture_is_downloaded(archive: Archive) -> None:
    name = await archive.record(b"one")
    answer = await archive.client.ask("GET", f"/captures/{name}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-pcapng")
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert answer.body == (archive.directory / name).read_bytes()
    assert (await archive.client.ask("HEAD", f"/captures/{name}")).body == b""


async def test_messages_come_page_by_page_with_what_is_known_of_them(archive: Archive) -> None:
    name = await archive.record(b"one", b"two", b"three")
    found, cursor = [], ""
    while cursor is not None:
        answer = await archive.get(f"/captures/{name}/messages?limit=4{cursor and f'&cursor={cursor}'}")
        found += answer["messages"]
        cursor = answer["next_cursor"]
    assert [one["sender"] for one in found] == ["client", "server"] * 3 and answer["warnings"] == []
    last = found[-1]
    assert (
        found[-2]["bodies"][0]["body"] == "three" and last["settled"] == 1 and last["dump"][0].endswith("|$3..3-0..|")
    )
    assert last["asked"]["offset"] == found[-2]["offset"] and last["asked"]["kind"] == "APPEND"


async def test_messages_come_as_events_while_they_are_found(archive: Archive) -> None:
    name = await archive.record(b"one", b"two", b"three")
    head = [("accept", "text/event-stream")]
    answer = await archive.client.ask("GET", f"/captures/{name}/messages?filter=kind%3DAPPEND&limit=2", headers=head)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    blocks = [block.split("\n") for block in answer.body.decode().strip().split("\n\n")]
    events = [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in blocks]
    size = (archive.directory / name).stat().st_size
    assert events[0] == ("progress", {"type": "progress", "read": size, "size": size})
    messages = [data for kind, data in events if kind == "message"]
    assert [one["bodies"][0]["body"] for one in messages] == ["one", "two"]
    assert events[-1] == ("end", {"next_cursor": "2", "complete": True, "warnings": []})


async def test_what_came_in_time_is_the_answer(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command goes on for ever, as if the capture were long."""
    script = 'print("{}", flush=True); import time; time.sleep(1000)'
    monkeypatch.setattr(command, "_COMMAND", ["-c", script])
    monkeypatch.setattr(about_captures, "_SECONDS", 2.0)
    name = await archive.record(b"one")
    answer = await archive.get(f"/captures/{name}/messages")
    assert answer == {"messages": [{}], "next_cursor": None, "complete": False, "warnings": []}


async def test_messages_are_chosen_by_a_filter(archive: Archive) -> None:
    name = await archive.record(b"one", b"two", b"three")
    answer = await archive.get(f"/captures/{name}/messages?filter=two")
    (message,) = answer["messages"]
    assert message["bodies"][0]["body"] == "two" and message["kind"] == "APPEND"
    assert (await archive.get(f"/captures/{name}/messages?filter=nowhere&side=front"))["messages"] == []


async def test_two_captures_are_compared(archive: Archive) -> None:
    first, same, other = [await archive.record(b"one", body) for body in (b"two", b"two", b"2")]
    answer = await archive.get(f"/captures/compare?a={first}&b={same}")
    assert answer["equal"] is True and answer["streams"][0]["same"] == 2
    answer = await archive.get(f"/captures/compare?a={first}&b={other}&by=position")
    (stream,) = answer["streams"]
    assert answer["equal"] is False and stream["counts"] == {"altered": 1}
    assert stream["differences"][0]["b"]["body_begins"] == "2"


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/captures/none.pcapng", 404, "'none.pcapng' is not a recording of this gateway"),
        ("/captures/..%2Fconfig/messages", 404, "is not a recording of this gateway"),
        ("/captures/none/messages?filter=a%3Db", 400, "filter: 'a=b': expected NAME=VALUE"),
        ("/captures/none/messages?limit=1000", 400, "limit: expected 1 to 200"),
        ("/captures/none/messages?side=left", 400, "side: expected one of front, back, both"),
        ("/captures/none/messages?cursor=x", 400, "cursor: 'x' is not"),
        ("/captures/compare?a=one", 400, "b: the name of a capture is missing"),
        ("/captures/compare?a=one&b=two", 404, "'one' is not a recording"),
    ],
)
async def test_wrong_requests(archive: Archive, target: str, status: int, said: str) -> None:
    assert said in (await archive.get(target, status))["message"]


async def test_a_filter_with_a_nul_is_refused(archive: Archive) -> None:
    name = await archive.record(b"one")
    answer = await archive.get(f"/captures/{name}/messages?filter=stream%3D%00", 409)
    assert answer["message"] == r"'--filter=stream=\x00' has a NUL"


async def test_a_wrong_selection_is_refused(archive: Archive) -> None:
    for expression, said in (("colour=red", "expression: 'colour=red': expected NAME"), ("connection=x", "int")):
        assert said in (await archive.post("/recordings", {"expression": expression}, 422))["message"]
