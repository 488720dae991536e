"""The official Python client of S2 and curl, through a gateway that records: the recording holds what they said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import s2_sdk as s2
from s2_sdk import AppendInput, Compression, ReadLimit, Record, SeqNum
from support.management import ask
from support.peers import Curl, finish
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s2.sdk import EVERY_COMPRESSION, connector

from penstock.capture.dialogue import APPENDED, DELIVERED, Message, Problem, SeenRecord
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.recorder.captures.opening import CaptureEvents

BODIES = [b"%d " % number + b"x" * (number * 61 % 3000) for number in range(120)] + [b"L" * 900_000, b""]
HEADERS = [(b"k", b"v"), (b"k", b"\xff\x00")]


def recorded(directory: Path) -> list[SeenRecord]:
    """The records in a recording in which nothing is wrong."""
    dialogues = Dialogues()
    heard = [each for event in CaptureEvents([directory]) for each in dialogues.receive(event)]
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


BRIDGE = """
[listeners.s2]
bind = "127.0.0.1:{{s2_port}}"

[store]
directory = "{{data}}"

[recorder]
directory = "{directory}"

[backs.behind]
kind = "s2"
address = "127.0.0.1:{port}"
http = "{version}"

[[routes]]
name = "all"
back = "behind"
"""


@pytest.mark.parametrize("version", ["h1", "h2"])
def test_both_sides_of_a_gateway_before_another(tmp_path: Path, version: str) -> None:
    """Sessions of all kinds, and what clients leave in the middle: nothing that the gateway says is cut off."""
    sent = [Record(body) for body in BODIES[:20]]

    async def main(port: int) -> None:
        async with connector(port)() as client:
            stream = client.basin(BASIN).stream("events")
            for _ in range(2):
                async with stream.append_session() as session:
                    for ticket in [await session.submit(AppendInput(sent[at : at + 5])) for at in range(0, 20, 5)]:
                        await ticket
            await stream.append(AppendInput(sent[:1]))
            async with stream.producer() as producer:
                for record in sent:
                    await producer.submit(record)
            with pytest.raises(s2.SeqNumMismatchError):
                async with stream.append_session() as session:
                    await (await session.submit(AppendInput(sent[:1], match_seq_num=9999)))
            async for _ in stream.read_session(start=SeqNum(0)):
                break
            async for _ in stream.read_session(start=SeqNum(0), limit=ReadLimit(count=len(sent))):
                pass

    with running_gateway() as behind:
        config = BRIDGE.format(directory=tmp_path, port=behind.s2_port, version=version)
        with running_gateway(config) as gateway:
            finish(main(gateway.s2_port))
            gateway.terminate()
    records = recorded(tmp_path)
    appended = [each for each in records if each.action == APPENDED and each.acknowledged]
    assert len(appended) == 2 * (3 * len(sent) + 1)  # once by each side


@pytest.mark.parametrize("version", ["h1", "h2"])
def test_a_recording_that_begins_amid_sessions(tmp_path: Path, version: str) -> None:
    """Append and read sessions, an event stream and later requests are understood on both sides from then on."""
    began: list[int] = []

    async def main(gateway: GatewayProcess) -> None:
        async with connector(gateway.s2_port)() as client:
            stream = client.basin(BASIN).stream("events")
            got: asyncio.Queue[s2.SequencedRecord] = asyncio.Queue()

            async def follow() -> None:
                async for batch in stream.read_session(start=SeqNum(0)):
                    for record in batch.records:
                        got.put_nowait(record)

            async def until(count: int) -> None:
                for _ in range(count):
                    await got.get()

            async with stream.append_session() as session:
                await (await session.submit(AppendInput([Record(b"before")])))
                following = asyncio.create_task(follow())
                await until(1)
                with S2Client(("127.0.0.1", gateway.s2_port), BASIN).events("events", seq_num=0) as events:
                    await asyncio.to_thread(events.batch)
                    status, _ = await asyncio.to_thread(ask, gateway.management_port, "/recordings", {})
                    assert status == 200
                    for number in range(9):
                        await (await session.submit(AppendInput([Record(b"after %d" % number)])))
                    await until(9)
                    for _ in range(9):
                        await asyncio.to_thread(events.batch)
            began.append((await stream.append(AppendInput([Record(b"alone")]))).start.seq_num)
            await until(1)
            following.cancel()

    with running_gateway() as behind:
        config = BRIDGE.format(directory=tmp_path, port=behind.s2_port, version=version)
        with running_gateway(config.replace("[recorder]", "[recorder]\nstart = false")) as gateway:
            finish(main(gateway))
            gateway.terminate()
    records = recorded(tmp_path)
    bodies = [b"after %d" % number for number in range(9)]
    for side in ("listeners.s2", "backs.behind"):
        seen_here = [each for each in records if each.conversation is not None and each.conversation.name == side]
        appended = [each for each in seen_here if each.action == APPENDED]
        assert [(each.seq_num, each.body) for each in appended] == [*enumerate(bodies, 1), (10, b"alone")]
        delivered = [each.body for each in seen_here if each.action == DELIVERED]
        assert all(delivered.count(body) == 2 for body in bodies), "by a session, and as events"
    assert began == [10]


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
