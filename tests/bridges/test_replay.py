"""`penstock replay` and `penstock mock`: real clients are recorded through Penstock; then they speak again to other
servers, over the same protocol and over others, and are spoken to again without any."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import s2_sdk as s2
from click.testing import CliRunner
from redis.connection import Connection
from s2_sdk import AppendInput, Compression, Record, SeqNum
from support.peers import finish, need
from support.pravega.clients import Found, PravegaClient, bodies_by_s2s, need_pravega
from support.process import BASIN, GatewayProcess
from support.real_backs import BackServer, PravegaStandalone, S2Lite, S3PReference
from support.s2.client import S2Client
from support.s2.sdk import connector
from support.s3p.client import S3PClient

from penstock.cli.main import main

PENSTOCK = Path(sys.executable).parent / "penstock"
pytestmark = pytest.mark.peer


# ---- clients ---------------------------------------------------------------------------------------------------------


class RedisPy:
    """redis-py's connection, which reads replies; S3P's commands nest arrays, so they are packed here."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(host="127.0.0.1", port=port, protocol=2, driver_info=None)
        self._connection.connect_check_health(check_health=False, retry_socket_connect=False)

    def send(self, *command: Any) -> None:
        self._connection.send_packed_command([packed(list(command))], check_health=False)

    def reply(self) -> Any:
        return self._connection.read_response()

    def ask(self, *command: Any) -> Any:
        self.send(*command)
        return self.reply()

    def close(self) -> None:
        self._connection.disconnect()


def packed(value: bytes | list[Any]) -> bytes:
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(map(packed, value))
    return b"$%d\r\n%s\r\n" % (len(value), value)


BODIES = [b"record %d " % number + bytes(range(256)) * (number % 5) for number in range(1, 241)]


def s3p_work(port: int) -> list[Any]:
    """Appends one after the other and without waiting, a read that waits for them on a second connection, pages, and an
    error; all replies."""
    writer, reader = RedisPy(port), RedisPy(port)
    said = [writer.ask(b"CREATE", b"orders", []), writer.ask(b"APPEND", b"orders", [], BODIES[:1])]
    reader.send(b"READ", b"orders", [b"BLOCK", b"9000", b"MIN_ID", said[-1][:-1] + b"1"])
    said += [writer.ask(b"APPEND", b"orders", [], BODIES[at : at + 10]) for at in range(1, 101, 10)]
    for at in range(101, 240, 20):
        writer.send(b"APPEND", b"orders", [], BODIES[at : at + 20])
    said += [writer.reply() for _ in range(101, 240, 20)]
    first = reader.reply()
    assert first[1] == BODIES[1]
    said += [first, writer.ask(b"READ", b"orders", [b"COUNT", b"7"])]
    try:
        writer.ask(b"READ", b"nothing", [])
    except Exception as error:
        said.append(str(error))
    writer.close()
    reader.close()
    return said


RECORDS = [Record(b"body %d" % number, headers=[(b"n", b"%d" % number)] if number % 3 else []) for number in range(120)]


def sdk_work(port: int) -> list[Any]:
    """An append session that waits now and then, a read session that follows it, unary calls, an error; what was
    acknowledged and read."""
    said: list[Any] = []

    async def main() -> None:
        async with connector(port)(Compression.ZSTD) as client:
            basin = client.basin(BASIN)
            await basin.create_stream("sdk")
            stream = basin.stream("sdk")
            said.append(await stream.append(AppendInput(RECORDS[:20])))
            async with stream.append_session() as session:
                for at in range(20, 100, 10):
                    ticket = await session.submit(AppendInput(RECORDS[at : at + 10]))
                    if at % 30 == 20:
                        said.append(await ticket)
            said.append(await stream.append(AppendInput(RECORDS[100:], match_seq_num=100)))
            found: list[Any] = []
            async for batch in stream.read_session(start=SeqNum(0)):
                found += [(one.seq_num, one.timestamp, one.body, one.headers) for one in batch.records]
                if len(found) == len(RECORDS):
                    break
            said.append(found)
            said.append(await stream.check_tail())
            try:
                await stream.append(AppendInput([Record(b"no")], match_seq_num=3))
            except s2.S2Error as error:
                said.append(type(error).__name__)

    finish(main())
    assert len(said[-3]) == len(RECORDS)
    return said


def curl_work(port: int) -> list[Any]:
    """Return curl's output, heads included, for an append, reads of all kinds, and an error."""
    need("curl")
    records = f"http://127.0.0.1:{port}/v1/streams/curl/records"
    body = json.dumps({"records": [{"body": "first"}, {"body": "second"}]})
    asked: list[list[str]] = [
        ["-H", "content-type: application/json", "-d", body, records],
        [f"{records}?seq_num=0"],
        ["--http2-prior-knowledge", f"{records}/tail"],
        ["-H", "accept: text/event-stream", f"{records}?seq_num=0&count=2"],
        [f"http://127.0.0.1:{port}/v1/streams/nothing"],
    ]
    command = ["curl", "--silent", "--include", "--max-time", "20", "-H", f"s2-basin: {BASIN}"]
    return [subprocess.run([*command, *each], capture_output=True, check=True, timeout=30).stdout for each in asked]


WORK: dict[str, Callable[[int], list[Any]]] = {"s3p": s3p_work, "s2-sdk": sdk_work, "curl": curl_work}
PORT = {"s3p": "s3p_port", "s2-sdk": "s2_port", "curl": "s2_port"}


class Recorded:
    """`said`: the bytes that the client received."""

    def __init__(self, directory: Path, said: list[Any]) -> None:
        self.directory = directory
        self.said = said


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorded]:
    """The recording of a client's work through a gateway; made once."""
    made: dict[str, Recorded] = {}

    def record(client: str) -> Recorded:
        if client not in made:
            directory = tmp_path_factory.mktemp(client)
            with GatewayProcess(arguments=("--record", str(directory))) as gateway:
                said = WORK[client](getattr(gateway, PORT[client]))
                assert gateway.terminate() == 0
            made[client] = Recorded(directory, said)
        return made[client]

    return record


def penstock(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(map(str, arguments)))
    return done.exit_code, done.output


def replayed(recording: Recorded, url: str, *more: str) -> dict[str, Any]:
    code, said = penstock("replay", recording.directory, "--to", url, "--fast", "--strict", "--json", *more)
    assert code == 0, said
    summary: dict[str, Any] = json.loads(said)
    assert summary["same"] and summary["damage"] is None, said
    return summary


# ---- replays ---------------------------------------------------------------------------------------------------------


REAL: dict[str, Callable[[], BackServer]] = {
    "s2 lite": S2Lite,
    "Pravega": PravegaStandalone,
    "S3P reference": S3PReference,
}
SERVERS = [
    *("S3P reference", "Penstock s2", "Penstock segment"),
    *(pytest.param(name, marks=pytest.mark.long) for name in ("s2 lite", "Pravega")),  # they take ten seconds each
]


class Served(NamedTuple):
    """A server with nothing in it; of the shared gateway a basin."""

    url: str
    kind: str
    address: tuple[str, int]
    basin: str = BASIN


@contextmanager
def serving(name: str, gateway: GatewayProcess, basin: str) -> Iterator[Served]:
    if name not in REAL:
        S2Client(("127.0.0.1", gateway.s2_port)).ensure_basin(basin)
        kind = name.removeprefix("Penstock ")
        port, scheme = (gateway.s2_port, "s2") if kind == "s2" else (gateway.controller_port, "pravega")
        yield Served(f"{scheme}://127.0.0.1:{port}/{basin}", kind, ("127.0.0.1", gateway.s2_port), basin)
        return
    with REAL[name]() as server:
        host, port = server.controller or server.address
        scheme = "pravega" if server.kind == "segment" else server.kind
        yield Served(f"{scheme}://{host}:{port}", server.kind, server.address)


def read_back(server: Served, stream: str) -> list[bytes]:
    """By a client of the server's own protocol."""
    if server.kind == "s3p":
        with S3PClient(server.address) as client:
            return [body for _, body in client.read_all(stream)]
    found = S2Client(server.address, server.basin).read_proto(stream, seq_num=0)
    return [record.body for record in found.records]


@pytest.mark.parametrize("name", SERVERS)
def test_a_client_of_s3p_speaks_again_over_every_protocol(
    recorded: Callable[[str], Recorded], gateway: GatewayProcess, name: str
) -> None:
    recording = recorded("s3p")
    with serving(name, gateway, f"s3p-to-{name.split()[-1]}-again") as server:
        summary = replayed(recording, server.url)
        assert summary["total"]["appended"] == len(BODIES)
        assert {one["way"] for one in summary["conversations"]} == {"direct" if server.kind == "s3p" else "translated"}
        if server.kind != "segment":
            assert read_back(server, "orders") == BODIES
        code, said = penstock("diff", recording.directory, server.url)
        assert (code, said.splitlines()[-1]) == (0, "equal: 1 stream"), said


@pytest.mark.parametrize("name", ["Penstock s2", pytest.param("s2 lite", marks=pytest.mark.long)])
def test_the_sdk_of_s2_speaks_again_to_an_s2_server(
    recorded: Callable[[str], Recorded], gateway: GatewayProcess, name: str
) -> None:
    """Its token was redacted in the recording."""
    recording = recorded("s2-sdk")
    with serving(name, gateway, "sdk-again") as server:
        summary = replayed(recording, server.url, "--token", "another")
        assert summary["total"]["appended"] == len(RECORDS)
        assert {one["way"] for one in summary["conversations"]} == {"direct"}
        assert read_back(server, "sdk") == [record.body for record in RECORDS]
        code, said = penstock("diff", recording.directory, server.url)
        assert code == 0, said


def test_a_client_of_pravega_speaks_again_to_an_s2_server(tmp_path: Path, gateway: GatewayProcess) -> None:
    """Its controller is played in process, and so are its reader group's tables."""
    need_pravega()
    events = [(f"event {number}", None) for number in range(100)]
    with GatewayProcess(arguments=("--record", str(tmp_path))) as first:
        with PravegaClient(first.controller_port) as client:
            client.call("manage", "create_scope", BASIN)
            assert client.call("manage", "create_stream", BASIN, "events", 1) is True
            client.call("write", BASIN, "events", events)
            client.call("group", "readers", BASIN, "events")
            client.call("reader", "one", "readers")
            found = Found(client.call("read", ["one"], len(events), 20)).bodies("one")
        wanted = bodies_by_s2s(first, "events")
        assert sorted(wanted) == sorted(found)
        assert first.terminate() == 0
    with serving("Penstock s2", gateway, "pravega-again") as server:
        code, said = penstock("replay", tmp_path, "--to", server.url, "--fast", "--json")
        assert code == 0, said
        total = json.loads(said)["total"]
        assert (total["appended"], total["different"], total["ran_out"]) == (len(events), 0, 0), said
        assert read_back(server, "events") == wanted


def test_a_consumer_group_and_an_idempotent_producer_speak_again(tmp_path: Path) -> None:
    """With the members, generations, producers and topics of the other server."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    group = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 2}

    def committed(gateway: GatewayProcess) -> int:
        consumer = confluent.Consumer({"bootstrap.servers": f"127.0.0.1:{gateway.kafka_port}", **group})
        [place] = consumer.committed([confluent.TopicPartition("orders", 0)], timeout=20)
        consumer.close()
        return int(place.offset)

    with GatewayProcess(arguments=("--record", str(tmp_path))) as first:
        server = {"bootstrap.servers": f"127.0.0.1:{first.kafka_port}"}
        producer = confluent.Producer({**server, "enable.idempotence": True, "log_level": 2})
        for number in range(20):
            producer.produce("orders", b"%d" % number)
            assert producer.flush(20) == 0
        consumer = confluent.Consumer({**server, **group})
        consumer.subscribe(["orders"])
        read = 0
        while read < 20:
            read += len(consumer.consume(20 - read, timeout=20))
            consumer.commit(asynchronous=False)
        consumer.close()
        assert first.terminate() == 0
    with GatewayProcess() as second:
        confluent.Producer({"bootstrap.servers": f"127.0.0.1:{second.kafka_port}", "enable.idempotence": True}).flush(5)
        code, said = penstock("replay", tmp_path, "--to", f"kafka://127.0.0.1:{second.kafka_port}", "--fast", "--json")
        assert code == 0, said
        total = json.loads(said)["total"]
        assert (total["appended"], total["different"], total["ran_out"]) == (20, 0, 0), said
        assert committed(second) == 20


# ---- mocks -----------------------------------------------------------------------------------------------------------


@contextmanager
def mock(recording: Recorded, kind: str, report: Path) -> Iterator[int]:
    """Serve a recording's clients of this kind; yield the port. At the end the report is written."""
    listener = f"{kind}=127.0.0.1:0"
    command = [PENSTOCK, "mock", recording.directory, "--listen", listener, "--report", report]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert line.startswith(f"penstock: {kind} on 127.0.0.1:"), line + process.stderr.read()
            yield int(line.rsplit(":", 1)[1])
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            assert process.wait(20) == bool(json.loads(report.read_text())["missed_count"])
        finally:
            process.kill()


@pytest.mark.parametrize("client", WORK)
def test_a_recorded_client_is_served_again(recorded: Callable[[str], Recorded], client: str, tmp_path: Path) -> None:
    """The client receives the same again, with timestamps and identifiers; every recorded request is made once more."""
    recording = recorded(client)
    with mock(recording, PORT[client].removesuffix("_port"), tmp_path / "report") as port:
        assert undated(WORK[client](port)) == undated(recording.said)
    report = json.loads((tmp_path / "report").read_text())
    assert report["answered"] and not report["missed"] and not report["never_asked"], report


def undated(received: list[Any]) -> list[Any]:
    """Return what a client received, without the dates of responses, which a mock writes itself."""
    return [re.sub(rb"(?m)^date: .*\r\n", b"", item) if isinstance(item, bytes) else item for item in received]


def test_a_client_that_makes_another_request(recorded: Callable[[str], Recorded], tmp_path: Path) -> None:
    with mock(recorded("s3p"), "s3p", tmp_path / "report") as port:
        client = RedisPy(port)
        assert client.ask(b"CREATE", b"orders", []) == b"OK"
        with pytest.raises(Exception, match="APPEND orders is not in the recording"):
            client.ask(b"APPEND", b"orders", [], [b"one", b"two"])
        client.close()
    assert json.loads((tmp_path / "report").read_text())["missed"] == [{"test": "", "request": "APPEND orders"}]
