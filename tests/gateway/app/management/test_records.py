"""The records of a stream by way of the management listener: reading, searching, following, appending."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from support.http.client import HttpClient
from support.management import JSON, Asker, asking, overview
from support.store import STREAM, appending

from penstock.app.management import about_records
from penstock.app.management.settings import ManagementSettings
from penstock.backends.embedded import EmbeddedBack
from penstock.model.operations import FromSeqNum, Trim
from penstock.model.records import Header
from penstock.wire.http import Data, End

NAME = f"{STREAM.basin}/{STREAM.stream}"
BODIES = [str(number) * (number + 1) for number in range(10)]


async def read(asker: Asker, query: str = "") -> Any:
    return await asker.get(f"/records?stream={NAME}{query}")


def numbers(answer: Any) -> list[int]:
    return [one["seq_num"] for one in answer["records"]]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", range(10)),
        ("&from=7", range(7, 10)),
        ("&from=-2", range(8, 10)),
        ("&from=tail", range(0)),
        ("&from=200-1", range(4, 10)),
        ("&from=1970-01-01T00:00:00.300Z", range(5, 10)),
        ("&from=3&count=2", range(3, 5)),
    ],
)
async def test_reading_from_any_position(asker: Asker, query: str, wanted: range) -> None:
    answer = await read(asker, query)
    assert numbers(answer) == list(wanted)
    assert [one["body"] for one in answer["records"]] == [BODIES[number] for number in wanted]
    assert answer["tail"] == {"seq_num": 10, "timestamp": 500} and answer["stream"] == NAME
    end = wanted.stop if wanted else 10
    assert (answer["next"], answer["has_more"]) == (end, end < 10)


async def test_records_are_shown_in_the_terms_of_all_protocols(asker: Asker, back: EmbeddedBack) -> None:
    await back.perform(appending(b"\xff" * 20_000, headers={0: (Header(b"kind", b"\xfe"),)}, timestamps=[600]))
    (record,) = (await read(asker, "&from=10"))["records"]
    assert (record["seq_num"], record["timestamp"], record["record_id"]) == (10, 600, "600-0")
    assert record["headers"] == [{"name": "kind", "value_base64": "/g=="}]
    assert record["body_bytes"] == 20_000 and len(record["body_base64"]) < 22_000, "a long body is cut"


async def test_a_search_looks_into_bodies_and_headers(asker: Asker, back: EmbeddedBack) -> None:
    await back.perform(appending(b"plain", headers={0: (Header(b"trace", b"zz7zz"),)}, timestamps=[600]))
    answer = await read(asker, "&text=7")
    assert numbers(answer) == [7, 10] and answer["scanned"] == 11 and answer["has_more"] is False
    assert numbers(await read(asker, "&text=trace")) == [10]
    assert numbers(await read(asker, "&text=nowhere")) == []


async def test_a_long_search_says_where_to_go_on(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about_records, "_MOST_SCANNED", 4)
    first = await read(asker, "&text=7")
    assert (numbers(first), first["next"], first["has_more"], first["scanned"]) == ([], 4, True, 4)
    second = await read(asker, f"&text=7&from={first['next']}")
    assert (numbers(second), second["has_more"]) == ([7], True)


async def test_a_trimmed_stream_is_read_from_its_first_record(asker: Asker, back: EmbeddedBack) -> None:
    await back.perform(Trim(STREAM, FromSeqNum(6)))
    assert numbers(await read(asker)) == [6, 7, 8, 9]


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/records", 400, "stream: expected BASIN/STREAM, got ''"),
        ("/records?stream=none", 400, "stream: expected BASIN/STREAM"),
        (f"/records?stream={NAME}&from=yesterday", 400, "from: 'yesterday' is no position"),
        (f"/records?stream={NAME}&count=0", 400, "count: expected 1 to 500"),
        (f"/records?stream={NAME}&listener=other", 400, "listener: expected one of"),
        (f"/records?stream={NAME}x", 404, "stream"),
        (f"/records/follow?stream={NAME}x", 404, "stream"),
        (f"/records?stream={NAME}&text={'x' * 501}", 400, "text: more than 500"),
    ],
)
async def test_wrong_requests(asker: Asker, target: str, status: int, said: str) -> None:
    assert said in (await asker.get(target, status))["message"]


async def test_a_start_beyond_the_tail(asker: Asker) -> None:
    assert (await asker.get(f"/records?stream={NAME}&from=99", 416))["tail"]["seq_num"] == 10


# ---- appending -------------------------------------------------------------------------------------------------------


async def test_one_record_is_appended(asker: Asker) -> None:
    words = {"body": "a new one", "headers": [{"name": "kind", "value": "test"}]}
    answer = await asker.post(f"/records?stream={NAME}", words)
    assert (answer["seq_num"], answer["stream"], answer["listener"]) == (10, NAME, "listeners.s2")
    (record,) = (await read(asker, "&from=10"))["records"]
    assert record["body"] == "a new one" and record["headers"] == words["headers"]
    assert record["timestamp"] == answer["timestamp"]
    answer = await asker.ask(
        "POST", f"/records?stream={NAME}", JSON, json.dumps({"body_base64": "/w=="}, indent=2).encode()
    )
    assert answer.status == 200 and (await read(asker, "&from=11"))["records"][0]["body_base64"] == "/w=="


@pytest.mark.parametrize(
    ("stream", "words", "status", "said"),
    [
        (NAME, {}, 400, "expected body or body_base64"),
        (NAME, {"body": "x", "colour": "red"}, 400, "colour"),
        (NAME + "x", {"body": "x"}, 404, "stream"),
        (NAME, {"body": "x", "timestamp": -1}, 400, "timestamp"),
    ],
)
async def test_wrong_appends(asker: Asker, stream: str, words: dict[str, Any], status: int, said: str) -> None:
    assert said in (await asker.post(f"/records?stream={stream}", words, status))["message"]
    assert len((await read(asker))["records"]) == 10


async def test_a_token_for_looking_cannot_append(back: EmbeddedBack) -> None:
    settings = ManagementSettings(bearer_tokens=frozenset({"all"}), read_tokens=frozenset({"look"}))
    async with asking(overview(back), settings) as asker:
        look, all_ = [("authorization", "Bearer look")], [("authorization", "Bearer all")]
        for headers, status in (([], 401), (look, 200), (all_, 200)):
            assert (await asker.ask("GET", f"/records?stream={NAME}", headers)).status == status
        for headers, status in (([], 401), (look, 403), (all_, 200)):
            answer = await asker.ask("POST", f"/records?stream={NAME}", [*JSON, *headers], b'{"body":"x"}')
            assert answer.status == status


# ---- following -------------------------------------------------------------------------------------------------------


async def events(client: HttpClient, stream_id: int) -> AsyncGenerator[tuple[str, Any], None]:
    """The identifiers and records of a follower, until the end."""
    held = ""
    while not isinstance(event := await client.next(stream_id), End):
        assert isinstance(event, Data), event
        *blocks, held = (held + event.data.decode()).split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            if fields.get("event") == "record":
                yield fields["id"], json.loads(fields["data"])


async def test_following_goes_on_at_the_tail_until_the_drain(asker: Asker, back: EmbeddedBack) -> None:
    stream_id = await asker.client.open("GET", f"/records/follow?stream={NAME}&from=8&text=9")
    assert (await asker.client.head(stream_id)).status == 200
    async with aclosing(events(asker.client, stream_id)) as follower:
        assert (await anext(follower))[1]["seq_num"] == 9
        await back.perform(appending(b"other", b"19", timestamps=[600, 700]))
        number, record = await anext(follower)
        assert (number, record["body"], record["record_id"]) == ("12", "19", "700-0")
        asker.front.drain()
        assert [one async for one in follower] == []


async def test_a_follower_comes_back_after_the_last_record(asker: Asker) -> None:
    headers = [("last-event-id", "9")]
    stream_id = await asker.client.open("GET", f"/records/follow?stream={NAME}&from=0", headers)
    await asker.client.head(stream_id)
    async with aclosing(events(asker.client, stream_id)) as follower:
        assert (await anext(follower))[1]["seq_num"] == 9
