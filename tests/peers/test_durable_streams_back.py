"""Servers of Durable Streams behind a gateway: the reference server from npm, and another Penstock."""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import s2_sdk as s2
from s2_sdk import AppendInput, Record, SeqNum
from support.bridges import SECOND
from support.peers import finish, unique
from support.process import BASIN, GatewayProcess, running_gateway
from support.real_backs import BackServer, DurableReference, SecondPenstock
from support.s2.client import S2Client
from support.s2.sdk import connector
from support.s3p.client import S3PClient, S3PError

from penstock_durable.codec import RECORDS_TYPE
from penstock_proto import s2_pb2

pytestmark = pytest.mark.peer
PATIENCE = 60
"""Seconds to wait for an answer: else a slow machine makes the client or the gateway send again."""
SERVERS = {"reference": lambda: DurableReference(durable=True), "penstock": lambda: SecondPenstock("durable")}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[BackServer]:
    with SERVERS[request.param]() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: BackServer) -> Iterator[GatewayProcess]:
    patient = replace(SECOND["durable"], more=f"request_seconds = {PATIENCE}")
    with running_gateway(patient.configuration(server.address)) as process:
        yield process


def url_of(server: BackServer, stream: str) -> str:
    return f"http://{server.address[0]}:{server.address[1]}/v1/stream/{stream}"


def at_server(server: BackServer, stream: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Any:
    """Make a request to the server itself, and return the answer."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url_of(server, stream), body, given, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers, answer.read()


def texts(gateway: GatewayProcess, stream: str) -> list[str]:
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    return [
        record["body"] for record in client.request("GET", f"/v1/streams/{stream}/records", seq_num=0).json()["records"]
    ]


def test_s2_sdk_appends_and_reads(server: BackServer, gateway: GatewayProcess) -> None:
    """Also after the gateway was killed, with the same positions; and any client of the server can decode the bytes."""
    dice, name = random.Random(1), unique("sdk")
    sent = [
        Record(dice.randbytes(dice.choice([0, 1, 10, 1000, 200_000])), headers=[(b"k", b"%d" % n)] if n % 3 else [])
        for n in range(200)
    ]

    async def read(stream: Any, start: int) -> list[s2.SequencedRecord]:
        found: list[s2.SequencedRecord] = []
        async for batch in stream.read_session(start=SeqNum(start)):
            found += batch.records
            if len(found) == len(sent) - start:
                break
        return found

    async def append() -> list[s2.SequencedRecord]:
        async with connector(gateway.s2_port, PATIENCE)() as client:
            basin = client.basin(BASIN)
            await basin.create_stream(name)
            stream = basin.stream(name)
            async with stream.append_session() as session:
                tickets = [await session.submit(AppendInput(sent[at : at + 5])) for at in range(0, 200, 5)]
                assert [(await ticket).start.seq_num for ticket in tickets] == list(range(0, 200, 5))
            return await read(stream, 0)

    async def again() -> list[s2.SequencedRecord]:
        async with connector(gateway.s2_port, PATIENCE)() as client:
            return await read(client.basin(BASIN).stream(name), 77)

    found = finish(append(), PATIENCE)
    assert [(one.seq_num, one.body, one.headers) for one in found] == [
        (n, record.body, record.headers) for n, record in enumerate(sent)
    ]
    gateway.restart(kill=True)
    assert finish(again(), PATIENCE) == found[77:]
    headers, content = at_server(server, name)
    assert headers["content-type"] == RECORDS_TYPE
    while headers["stream-up-to-date"] is None:
        headers, more = at_server(server, f"{name}?offset={headers['stream-next-offset']}")
        content += more
    records = s2_pb2.AppendInput.FromString(content).records
    assert [record.body for record in records] == [record.body for record in sent]


def test_a_stream_of_json_of_the_python_client(server: BackServer, gateway: GatewayProcess) -> None:
    client, name = pytest.importorskip("durable_streams", reason="`pip install durable-streams`"), unique("json")
    with client.DurableStream.create(url_of(server, name), content_type="application/json") as stream:
        stream.append({"n": 1})
        stream.append([2, 3])
        assert [json.loads(text) for text in texts(gateway, name)] == [{"n": 1}, [2, 3]]
        with S3PClient(("127.0.0.1", gateway.s3p_port)) as s3p:
            s3p.append(name, b'{"n" : 4, "m": 1.50}', b'"five"')
            refused = s3p.append(name, b"not JSON")
            assert isinstance(refused, S3PError) and "is not JSON" in str(refused)
        stream.append("six")
    with client.stream(url_of(server, name), live=False) as response:
        assert response.read_json() == [{"n": 1}, [2, 3], {"n": 4, "m": 1.5}, "five", "six"]
    assert [json.loads(text) for text in texts(gateway, name)] == [{"n": 1}, [2, 3], {"n": 4, "m": 1.5}, "five", "six"]


def test_json_with_half_a_surrogate_pair_or_a_byte_order_mark(server: BackServer, gateway: GatewayProcess) -> None:
    """Both servers take it alike, and so does the gateway before them."""
    name, messages = unique("surrogates"), ["\ud800", {"\udfff": "\U0001f600\ud83dx"}, 1]
    at_server(server, name, "PUT", json.dumps(messages[:1]).encode(), content_type="application/json")
    at_server(server, name, "POST", json.dumps(messages[1:2]).encode("utf-8-sig"), content_type="application/json")
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    client.append(name, "1")
    assert json.loads(at_server(server, name)[1]) == messages
    assert [json.loads(text) for text in texts(gateway, name)] == messages


def test_a_closed_stream_and_one_of_other_bytes(server: BackServer, gateway: GatewayProcess) -> None:
    name, other = unique("closed"), unique("text")
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    client.ensure_stream(name)
    client.append(name, "x")
    at_server(server, name, "POST", b"", stream_closed="true")
    answer = client.request(
        "POST", f"/v1/streams/{name}/records", b'{"records":[{"body":"y"}]}', {"content-type": "application/json"}
    )
    assert answer.status >= 400 and b"closed" in answer.body, answer
    assert texts(gateway, name) == ["x"]
    at_server(server, other, "PUT", b"some text", content_type="text/plain")
    refused = client.request("GET", f"/v1/streams/{other}/records", seq_num=0)
    assert b"bytes without boundaries" in refused.body, refused
