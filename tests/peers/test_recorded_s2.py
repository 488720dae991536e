"""The official Python client of S2 and curl, through a gateway that records: the recording holds what they said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import s2_sdk as s2
from s2_sdk import AppendInput, Compression, ReadLimit, Record, SeqNum
from support.peers import Curl, finish
from support.process import BASIN, running_gateway
from support.s2_sdk_client import EVERY_COMPRESSION, connector

from penstock.captures import Captures
from penstock_codecs.dialogue import APPENDED, DELIVERED, Message, Problem, SeenRecord
from penstock_codecs.dialogue.hearing import Dialogues

BODIES = [b"%d " % number + b"x" * (number * 61 % 3000) for number in range(120)] + [b"L" * 900_000, b""]
HEADERS = [(b"k", b"v"), (b"k", b"\xff\x00")]


def recorded(directory: Path) -> list[SeenRecord]:
    """The records in a recording in which nothing is wrong."""
    dialogues = Dialogues()
    heard = [each for event in Captures([directory]) for each in dialogues.receive(event)]
    heard += dialogues.end()
    assert not [each for each in heard if isinstance(each, Problem)]
    return [record for each in heard if isinstance(each, Message) for record in each.records]


def seen(records: list[SeenRecord], action: str) -> list[tuple[Any, ...]]:
    found = [each for each in records if each.action == action]
    assert {each.stream for each in found} == {f"{BASIN}/events"}
    assert all(each.acknowledged for each in found)
    return [(each.seq_num, each.timestamp, each.body, list(each.headers)) for each in found]


@EVERY_COMPRESSION
def test_the_python_client_of_s2(tmp_path: Path, compression: Compression) -> None:
    """A session that appends beside one that follows it: every position and byte is in the recording."""
    sent = [Record(body, headers=HEADERS if number % 3 == 0 else []) for number, body in enumerate(BODIES)]
    acks: list[s2.AppendAck] = []
    got: list[s2.SequencedRecord] = []

    async def append(stream: s2.S2Stream) -> None:
        async with stream.append_session() as session:
            tickets = [await session.submit(AppendInput(sent[at : at + 7])) for at in range(0, len(sent), 7)]
            for ticket in tickets:
                acks.append(await ticket)

    async def follow(stream: s2.S2Stream) -> None:
        async for batch in stream.read_session(start=SeqNum(0), limit=ReadLimit(count=len(sent))):
            got.extend(batch.records)

    async def main(port: int) -> None:
        async with connector(port)(compression) as client:
            stream = client.basin(BASIN).stream("events")
            acks.append(await stream.append(AppendInput(sent[:1])))
            await asyncio.gather(append(stream), follow(stream))

    with running_gateway(arguments=("--record", str(tmp_path))) as gateway:
        finish(main(gateway.s2_port))
        gateway.terminate()
    records = recorded(tmp_path)
    assert seen(records, DELIVERED) == [(each.seq_num, each.timestamp, each.body, each.headers) for each in got]
    appended = seen(records, APPENDED)
    assert [(body, headers) for _, _, body, headers in appended] == [
        (each.body, each.headers) for each in [*sent[:1], *sent]
    ]
    assert [number for number, *_ in appended] == list(range(len(sent) + 1))
    told = {number: stamp for number, stamp, *_ in appended}
    for ack in acks:
        assert told[ack.start.seq_num] == ack.start.timestamp
        assert told[ack.end.seq_num - 1] == ack.end.timestamp


def test_curl(tmp_path: Path, curl: Curl) -> None:
    """Unary and event stream, over both versions."""
    with running_gateway(arguments=("--record", str(tmp_path))) as gateway:
        url = f"http://127.0.0.1:{gateway.s2_port}/v1/streams/events/records"
        for version in ("--http1.1", "--http2-prior-knowledge"):
            there = (version, "--fail", "-H", f"s2-basin: {BASIN}")
            body = b'{"records":[{"body":"one"},{"body":"two"}]}'
            curl(*there, "-H", "content-type: application/json", "--data-binary", "@-", url, stdin=body)
            curl("--compressed", *there, f"{url}?seq_num=0")
            curl("-N", *there, "-H", "accept: text/event-stream", f"{url}?seq_num=0&wait=0")
        gateway.terminate()
    records = recorded(tmp_path)
    appended = [(number, body) for number, _, body, _ in seen(records, APPENDED)]
    assert appended == [(0, b"one"), (1, b"two"), (2, b"one"), (3, b"two")]
    assert [(number, body) for number, _, body, _ in seen(records, DELIVERED)] == [*appended[:2] * 2, *appended * 2]
