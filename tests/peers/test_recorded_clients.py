"""Real clients through a recording gateway: tshark reads the file without complaint, and so does `penstock records`."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from s2_sdk import AppendInput, Compression, Record, SeqNum
from support.captures.tshark import ROOT, exported, layers, need_tshark, tshark
from support.peers import create_basin, create_stream, finish, unique
from support.pravega.clients import Found, PravegaClient, need_pravega
from support.process import GatewayProcess, running_gateway
from support.s2.sdk import connector
from support.s3p.client import S3PClient

from penstock.capture.pcapng import Chunk, Opened, Sender
from penstock.recorder.captures.opening import CaptureEvents
from penstock_proto import s2_pb2
from penstock_s2.codec.s2s.frames import encode_frame

BODIES = [b"first", bytes(range(256)), b"x" * 70_000, b"\r\n*1\r\n$1\r\n", *(b"record %d" % n for n in range(200))]
EVENTS = [body.decode("latin-1") for body in BODIES]
NOT_FINE = "_ws.malformed || tcp.analysis.flags || _ws.lua.error || _ws.expert.severity == error"


@dataclass
class Recorded:
    """The clients' records, and the file of their recording."""

    file: Path
    exported: Path = Path()
    """The same with its messages."""
    appended: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """By the stream's name, in order."""
    delivered: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    basin: str = ""
    scope: str = ""


def with_s2_sdk(gateway: GatewayProcess, recorded: Recorded) -> None:
    """Unary calls and sessions, over HTTP/2, with and without compression."""
    connect = connector(gateway.s2_port)

    async def main(compression: Compression) -> None:
        name = f"{recorded.basin}/{compression.value}"
        async with connect(compression) as client:
            stream = client.basin(recorded.basin).stream(compression.value)
            records = [Record(body, headers=[(b"k", b"v")]) for body in BODIES]
            await stream.append(AppendInput(records[:2]))
            async with stream.append_session() as session:
                for at in range(2, len(records), 50):
                    await (await session.submit(AppendInput(records[at : at + 50])))
            recorded.appended[name] += BODIES
            got = await stream.read(start=SeqNum(0))
            recorded.delivered[name] += [record.body for record in got.records]
            async for batch in stream.read_session(start=SeqNum(0)):
                recorded.delivered[name] += [record.body for record in batch.records]
                if batch.records and batch.records[-1].seq_num == len(BODIES) - 1:
                    break

    for compression in (Compression.NONE, Compression.GZIP):
        create_stream(gateway.s2_port, recorded.basin, compression.value)
        finish(main(compression))


def over_http1(gateway: GatewayProcess, recorded: Recorded) -> None:
    """Sessions and events over HTTP/1.1, by Python's own client."""
    create_stream(gateway.s2_port, recorded.basin, "http1")
    name, path = f"{recorded.basin}/http1", "/v1/streams/http1/records"
    common = {"s2-basin": recorded.basin}
    inputs = [s2_pb2.AppendInput(records=[s2_pb2.AppendRecord(body=body)]).SerializeToString() for body in BODIES[:3]]
    frames = b"".join(b"".join(encode_frame([payload])) for payload in inputs)
    pieces = [frames[at : at + 9_000] for at in range(0, len(frames), 9_000)]
    connection = http.client.HTTPConnection("127.0.0.1", gateway.s2_port, timeout=20)
    session = {**common, "content-type": "s2s/proto"}
    connection.request("POST", path, iter(pieces), {**session, "transfer-encoding": "chunked"}, encode_chunked=True)
    assert connection.getresponse().read()
    recorded.appended[name] += BODIES[:3]
    connection.request("GET", f"{path}?seq_num=0&count=3", headers=session)
    assert connection.getresponse().read()
    connection.request("GET", f"{path}?seq_num=0&count=1", headers={**common, "accept": "text/event-stream"})
    assert b"[DONE]" in connection.getresponse().read()
    connection.close()
    recorded.delivered[name] += [*BODIES[:3], BODIES[0]]


def with_s3p(gateway: GatewayProcess, recorded: Recorded) -> None:
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        client.create("orders")
        client.append("orders", *BODIES[:4])
        client.append("orders", *BODIES[4:])
        recorded.appended["orders"] += BODIES
        recorded.delivered["orders"] += [body for _, body in client.read_all("orders")]


def with_pravega(gateway: GatewayProcess, recorded: Recorded) -> None:
    with PravegaClient(gateway.controller_port) as pravega:
        pravega.call("manage", "create_scope", recorded.scope)
        pravega.call("manage", "create_stream", recorded.scope, "one", 1)
        pravega.call("write", recorded.scope, "one", [(event, None) for event in EVENTS])
        pravega.call("group", "g", recorded.scope, "one")
        pravega.call("reader", "r", "g")
        assert Found(pravega.call("read", ["r"], len(BODIES), 20)).bodies("r") == BODIES


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    need_tshark()
    need_pravega()
    directory = tmp_path_factory.mktemp("recorded")
    found = Recorded(directory, basin=unique("recorded"), scope=unique("Scope"))
    with running_gateway(arguments=("--record", str(directory))) as gateway:
        create_basin(gateway.s2_port, found.basin)
        for client in (with_s2_sdk, over_http1, with_s3p, with_pravega):
            client(gateway, found)
    (found.file,) = directory.glob("*.pcapng")
    found.exported = exported(found.file, directory / "exported")
    yield found


def bytes_of(values: list[str]) -> list[bytes]:
    return [bytes.fromhex(value.replace(":", "")) for value in values]


@pytest.mark.parametrize("passes", [(), ("-2", "-R", "frame")], ids=["once", "twice"])
def test_nothing_is_malformed_and_no_sequence_is_odd(recorded: Recorded, passes: tuple[str, ...]) -> None:
    for file in (recorded.file, recorded.exported):
        assert tshark(file, *passes, "-Y", NOT_FINE) == ""
        assert tshark(file, *passes, "-Y", NOT_FINE, dissector=False) == "", "nor without our dissector"
    protocols = tshark(recorded.exported, *passes, "-q", "-z", "io,phs")
    for protocol in ("http", "http2", "s2s", "sse", "s3p", "pravega", "grpc"):
        assert f" {protocol} " in protocols


def test_http2_is_decoded(recorded: Recorded) -> None:
    shown = ("-T", "fields", "-e", "http2.headers.method", "-e", "http2.headers.path", "-e", "http2.headers.status")
    heads = tshark(recorded.file, "-Y", "http2.headers.method", *shown)
    assert "/v1/streams/none/records" in heads
    assert "ControllerService/createScope" in heads
    assert "200" in tshark(recorded.file, "-Y", "http2.headers.status == 200", *shown)


def shown(bodies: list[bytes]) -> list[bytes]:
    """Return the part of each body that Wireshark shows."""
    return [body[:4096] for body in bodies]


def test_records_of_s2(recorded: Recorded) -> None:
    """Those of sessions, whatever compressed them, and those of unary calls, which have no frames."""
    found = layers(recorded.exported, "s2s")
    sent = [body for layer in found for body in bytes_of(layer.all("s2s.append_input.records.body"))]
    assert sent == shown([*BODIES, *BODIES, *BODIES[:3]])
    names = {name for layer in found for name in bytes_of(layer.all("s2s.append_input.records.headers.name"))}
    assert names == {b"k"}
    got = [body for layer in found for body in bytes_of(layer.all("s2s.read_batch.records.body"))]
    assert got == shown([*BODIES, *BODIES, *BODIES, *BODIES, *BODIES[:3]])
    ends = [int(value) for layer in found for value in layer.all("s2s.append_ack.end.seq_num")]
    session = [*range(52, len(BODIES), 50), len(BODIES)]
    assert ends == [2, *session, 2, *session, 1, 2, 3]
    info = ("-T", "fields", "-e", "_ws.col.Info")
    assert "AppendInput" in tshark(recorded.exported, "-Y", "s2s.flags.compression == gzip", *info)
    assert "batch" in tshark(recorded.exported, "-Y", "sse.id && sse.records.body", *info)


def test_s3p(recorded: Recorded) -> None:
    found = layers(recorded.exported, "s3p", arguments=("-2", "-R", "tcp"))
    commands = [layer.one("s3p.command") for layer in found if layer.all("s3p.command")]
    assert commands[:3] == ["CREATE", "APPEND", "APPEND"] and set(commands[3:]) == {"READ"}
    assert {name for layer in found for name in layer.all("s3p.name")} == {"orders"}
    appended = [layer for layer in found if layer.all("s3p.command") == ["APPEND"]]
    assert [body for layer in appended for body in bytes_of(layer.all("s3p.record"))] == shown(BODIES)
    reads = [layer for layer in found if layer.all("s3p.reply") == ["records"]]
    assert [body for layer in reads for body in bytes_of(layer.all("s3p.record"))] == shown(BODIES)
    assert all(layer.all("s3p.request_in") and layer.all("s3p.time") for layer in found if layer.all("s3p.reply"))
    assert all(layer.all("s3p.response_in") for layer in found if layer.all("s3p.command"))


def test_pravega(recorded: Recorded) -> None:
    found = layers(recorded.exported, "pravega")
    segment = f"{recorded.scope}/one/0.#epoch.0"
    appends = [layer for layer in found if layer.all("pravega.command") == ["AppendBlockEnd"]]
    assert [body for layer in appends for body in bytes_of(layer.all("pravega.event.data"))] == shown(BODIES)
    reads = [layer for layer in found if layer.all("pravega.command") == ["SegmentRead"]]
    assert [body for layer in reads for body in bytes_of(layer.all("pravega.event.data"))] == shown(BODIES)
    assert {layer.one("pravega.segment") for layer in reads} == {segment}
    numbers = [int(layer.one("pravega.event_number")) for layer in found if layer.all("pravega.previous_event_number")]
    assert max(numbers) == len(BODIES)


def test_the_controller(recorded: Recorded) -> None:
    """With Penstock's .proto files Wireshark shows gRPC's messages too."""
    folder = ROOT / "proto" / "penstock_proto"
    search = ("-o", f'uat:protobuf_search_paths:"{folder}","TRUE"')
    shown = ("-T", "fields", "-e", "protobuf.message.name", "-e", "protobuf.field.value.string")
    rows = [line.split("\t") for line in tshark(recorded.file, *search, "-Y", "protobuf", *shown).splitlines()]
    package = "io.pravega.controller.stream.api.grpc.v1"
    assert [f"{package}.ScopeInfo", recorded.scope] in rows
    assert any(row[0].startswith(f"{package}.StreamConfig") and row[1] == f"{recorded.scope},one" for row in rows)


def test_the_recorder_says_who_is_who(recorded: Recorded) -> None:
    shown = ("-T", "fields", "-e", "penstock.connection", "-e", "penstock.protocol", "-e", "penstock.name")
    rows = {tuple(line.split("\t")) for line in tshark(recorded.file, "-Y", "tcp.flags.syn == 1", *shown).splitlines()}
    assert {row[1] for row in rows} == {"s2", "s3p", "segment", "controller"}
    assert {row[2] for row in rows} >= {"listeners.s2", "listeners.s3p", "listeners.segment", "listeners.controller"}


def test_conversations_can_be_followed(recorded: Recorded) -> None:
    """`-z follow,tcp` gives each side's bytes, exactly as our reader does."""
    wanted: dict[int, dict[Sender, bytearray]] = {}
    ports = {}
    for event in CaptureEvents([recorded.file]):
        if isinstance(event, Opened):
            wanted[event.conversation.number] = {sender: bytearray() for sender in Sender}
            ports[event.conversation.number] = event.conversation.client.port
        elif isinstance(event, Chunk):
            wanted[event.conversation.number][event.sender] += event.data
    order = list(wanted)
    follow = [argument for stream in range(len(order)) for argument in ("-z", f"follow,tcp,raw,{stream}")]
    parts = tshark(recorded.file, "-q", *follow).split("Follow: tcp,raw")[1:]
    assert len(parts) == len(order)
    for part in parts:
        heading, _, lines = part.partition("Node 1:")
        client = int(heading.rsplit(":", 1)[1])
        number = next(number for number in order if ports[number] == client)
        heard = {sender: bytearray() for sender in Sender}
        for line in lines.splitlines()[1:]:
            if line and not line.startswith("="):
                heard[Sender.SERVER if line.startswith("\t") else Sender.CLIENT] += bytes.fromhex(line)
        assert heard == wanted.pop(number)
    assert not wanted


def test_our_codecs_give_exactly_the_records(recorded: Recorded) -> None:
    """`penstock records` against what the clients gave and got."""
    command = [sys.executable, "-m", "penstock", "records", str(recorded.file)]
    run = subprocess.run(command, capture_output=True, timeout=60, check=True)
    found: dict[str, dict[str, list[bytes]]] = {
        "appended": defaultdict(list),
        "delivered": defaultdict(list),
    }
    for line in run.stdout.splitlines():
        record = json.loads(line)
        body = base64.b64decode(record["body_base64"]) if "body_base64" in record else record["body"].encode()
        found[record["action"]][record["stream"]].append(body)
    pravega = f"{recorded.scope}/one/0.#epoch.0"
    recorded.appended[pravega] = BODIES
    recorded.delivered[pravega] = BODIES
    assert found["appended"] == recorded.appended
    assert found["delivered"] == recorded.delivered
