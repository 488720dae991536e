"""`GET /positions`: one position in the terms of every protocol."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from support.management import Asker, asking, overview
from support.routing import routed
from support.store import BASIN, STREAM, appending

from penstock.app.config import RouteTable
from penstock.app.management.overview import Overview
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import BackWrapper
from penstock.core.identity import CLIENT, Client
from penstock.model.operations import CreateStream, FromSeqNum, Locate, Trim
from penstock.model.records import StreamRef
from penstock_s3p.names import FixedBasin

SIXTH = {"seq_num": 6, "timestamp": 300, "record_id": "300-1", "offset": 6 * 8 + 21, "at_tail": False}
TAIL = {"seq_num": 10, "timestamp": 500, "record_id": "500-1", "offset": 10 * 8 + 55, "at_tail": True}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("seq_num=6", SIXTH),
        ("record_id=300-1", SIXTH),
        ("record_id=300-0", {**SIXTH, "seq_num": 5, "record_id": "300-0", "offset": 5 * 8 + 15}),
        ("offset=69", SIXTH),
        ("offset=68", SIXTH),
        ("tail_offset=4", SIXTH),
        ("timestamp=300", {**SIXTH, "seq_num": 5, "record_id": "300-0", "offset": 5 * 8 + 15}),
        ("timestamp=201", {**SIXTH, "seq_num": 5, "record_id": "300-0", "offset": 5 * 8 + 15}),
        ("tail_offset=0", TAIL),
        ("seq_num=10", TAIL),
        ("seq_num=18446744073709551615", TAIL),
        ("tail_offset=100", {"seq_num": 0, "timestamp": 100, "record_id": "100-0", "offset": 0, "at_tail": False}),
    ],
)
async def test_every_way_to_say_it(asker: Asker, asked: str, expected: dict[str, object]) -> None:
    answer = await asker.get(f"/positions?stream={STREAM}&{asked}")
    assert answer["stream"] == str(STREAM)
    assert answer["position"] == expected


async def test_how_each_protocol_reads_on(asker: Asker) -> None:
    answer = await asker.get(f"/positions?stream={STREAM}&seq_num=6")
    path = "/v1/streams/stream/records"
    assert answer["read_on"] == {
        "durable": None,  # it has no listener here
        "kafka": None,
        "s2": {"listener": "listeners.s2", "basin": BASIN, "path": path, "query": "seq_num=6"},
        "sse": {
            "listener": "listeners.s2",
            "basin": BASIN,
            "path": path,
            "query": "seq_num=6",
            "last_event_id": "5,0,0",
        },
        "s3p": {"listener": "listeners.s3p", "name": str(STREAM), "min_id": "300-1"},
        "segment": {"listener": "listeners.segment", "segment": f"{STREAM}/0.#epoch.0", "offset": 69},
    }


async def test_before_the_first_event_no_reader_has_one(asker: Asker) -> None:
    answer = await asker.get(f"/positions?stream={STREAM}&seq_num=0")
    assert answer["read_on"]["sse"]["last_event_id"] is None
    assert answer["read_on"]["sse"]["query"] == "seq_num=0"


async def test_trimmed_records_are_gone_for_all(asker: Asker, back: EmbeddedBack) -> None:
    await back.perform(Trim(STREAM, FromSeqNum(6)))
    for asked in ("seq_num=0", "timestamp=0", "record_id=0-0", "offset=0"):
        assert (await asker.get(f"/positions?stream={STREAM}&{asked}"))["position"] == SIXTH


async def test_streams_by_the_names_of_other_protocols(asker: Asker) -> None:
    for name in (f"s3p={STREAM}", f"segment={STREAM}", f"segment={quote(str(STREAM) + '/0.#epoch.0')}"):
        answer = await asker.get(f"/positions?{name}&seq_num=6")
        assert (answer["stream"], answer["position"]) == (str(STREAM), SIXTH)


async def test_a_name_that_is_no_text(back: EmbeddedBack) -> None:
    """S3P names are bytes."""
    stream = StreamRef(BASIN, "%FFodd")
    await back.perform(CreateStream(stream))
    async with asking(overview(back, s3p=FixedBasin(BASIN))) as asker:
        answer = await asker.get("/positions?s3p=%FFodd&tail_offset=0")
        assert answer["stream"] == str(stream)
        assert answer["read_on"]["s3p"]["name_base64"] == "/29kZA=="
        assert answer["read_on"]["segment"] is None  # its clients have no such name
        answer = await asker.get(f"/positions?stream={quote(str(stream))}&tail_offset=0")
        assert answer["read_on"]["s3p"]["name_base64"] == "/29kZA=="


async def test_a_listeners_own_routes_are_asked(back: EmbeddedBack) -> None:
    asked: list[Client] = []

    class Watched(BackWrapper):
        async def perform(self, operation: Locate) -> object:
            asked.append(CLIENT.get())
            return await back.perform(operation)

    async with asking(overview(Watched(back))) as asker:
        for listener in ("", "&listener=listeners.segment", "&listener=s3p", "&listener=s3p&identity=analytics"):
            await asker.get(f"/positions?stream={STREAM}&seq_num=0{listener}")
        await asker.get(f"/positions?s3p={STREAM}&seq_num=0")
    names = [(client.listener, client.identity) for client in asked]
    assert names == [
        ("listeners.s2", ""),
        ("listeners.segment", ""),
        ("listeners.s3p", ""),
        ("listeners.s3p", "analytics"),
        ("listeners.s3p", ""),
    ]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            "stream=basin-one/stream",
            "give exactly one of seq_num, timestamp, record_id, offset, tail_offset, group; got none",
        ),
        ("stream=basin-one/stream&seq_num=1&offset=2", "got seq_num, offset"),
        ("seq_num=1", "give exactly one of stream, durable, kafka, s3p, segment; got none"),
        ("stream=basin-one/stream&s3p=x&seq_num=1", "got stream, s3p"),
        ("stream=basin-one/stream&seq_num=-1", "seq_num: expected a whole number from 0 to 2^64 - 1, got '-1'"),
        ("stream=basin-one/stream&seq_num=18446744073709551616", "seq_num: expected"),
        ("stream=basin-one/stream&timestamp=now", "timestamp: expected"),
        ("stream=basin-one/stream&record_id=5", "record_id: expected an S3P identifier MS-SEQ, got '5'"),
        ("stream=basin-one/stream&record_id=99999999999999999999-0", "record_id: expected"),
        ("stream=basin-one/stream&seq_num=1&seq_num=2", "seq_num: given twice"),
        ("stream=basin-one/stream&group=g", "group: this gateway has no listener whose clients have groups"),
        (
            "stream=basin-one/stream&seqnum=1",
            "'seqnum': unknown parameter; expected one of stream, durable, kafka, s3p, segment, seq_num",
        ),
        ("stream=orders&seq_num=1", "stream: expected BASIN/STREAM, got 'orders'"),
        ("stream=Bad/orders&seq_num=1", "stream: basin name must"),
        ("s3p=orders&seq_num=1", "s3p: stream name orders is not of the form basin/stream"),
        ("segment=a%23b&seq_num=1", "segment: "),
        ("stream=basin-one/stream&seq_num=1&listener=http", "listener: expected one of listeners.s2, listeners.s3p"),
        ("s3p=basin-one/stream&seq_num=1&listener=s2", "listener: expected one of listeners.s3p, got 's2'"),
        ("stream=%FF/x&seq_num=1", "stream: "),
        ("&".join(f"a{number}=1" for number in range(30)), "the query cannot be read"),
    ],
)
async def test_bad_questions_are_refused_by_name(asker: Asker, query: str, words: str) -> None:
    answer = await asker.get(f"/positions?{query}", 400)
    assert answer["code"] == "bad_query"
    assert words in answer["message"]


async def test_unknown_streams(asker: Asker) -> None:
    assert (await asker.get("/positions?stream=basin-one/none&seq_num=1", 404))["code"] == "stream_not_found"
    assert (await asker.get("/positions?stream=basin-two/none&seq_num=1", 404))["code"] == "basin_not_found"
    assert (await asker.get("/positions?stream=basin-one/none&tail_offset=1", 404))["code"] == "stream_not_found"


async def test_a_record_without_bytes_has_a_place_among_them(tmp_path: Path, back: EmbeddedBack) -> None:
    """An empty body is no event: its offset is that of the next one, and the segment hint goes there."""
    await back.perform(appending(b"", b"x", timestamps=[600, 600]))
    async with asking(overview(back)) as asker:
        for number, record_id in ((10, "600-0"), (11, "600-1")):
            position = (await asker.get(f"/positions?stream={STREAM}&seq_num={number}"))["position"]
            assert (position["record_id"], position["offset"]) == (record_id, 135)


async def test_listeners_that_lead_elsewhere_say_nothing(back: EmbeddedBack, tmp_path: Path) -> None:
    """There the name is another stream's, or names no stream."""
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "far")) as far:
        tables = [
            RouteTable(name="elsewhere", back="far", listeners=("s3p",)),
            RouteTable(name="renamed", to_stream="other", listeners=("segment",), stream="stream"),
            RouteTable(name="rest", listeners=("s2",)),
        ]
        router = routed(back, far, *tables)
        listeners = [
            replace(one, back=router.for_listener(one.kind, one.terms.internal_names))
            for one in overview(back).listeners
        ]
        async with asking(Overview(listeners=listeners)) as asker:
            answer = await asker.get(f"/positions?stream={STREAM}&seq_num=6")
    assert {kind for kind, hint in answer["read_on"].items() if hint is not None} == {"s2", "sse"}


async def test_a_listener_that_has_a_route_is_asked(back: EmbeddedBack, tmp_path: Path) -> None:
    """The first one has none for this stream; if none has, it says so."""
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "far")) as far:
        router = routed(back, far, RouteTable(name="rest", listeners=("segment", "s3p")))
        listeners = [
            replace(one, back=router.for_listener(one.kind, one.terms.internal_names))
            for one in overview(back).listeners
        ]
        async with asking(Overview(listeners=listeners)) as asker:
            answer = await asker.get(f"/positions?stream={STREAM}&seq_num=6")
            assert {kind for kind, hint in answer["read_on"].items() if hint is not None} == {"s3p", "segment"}
            named = await asker.get(f"/positions?stream={STREAM}&seq_num=6&listener=s2", 404)
            assert named["message"] == f"no route of listener s2 takes stream {STREAM}"
