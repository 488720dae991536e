"""Real clients through a gateway whose recording is redacted: no secret is in any file, and all else can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from s2_sdk import AppendInput, Compression, Record, SeqNum
from support.captures.redaction import leaks
from support.peers import Curl, create_basin, create_stream, finish, unique
from support.pravega.clients import Found, PravegaClient, need_pravega
from support.process import CONFIG, GatewayProcess, running_gateway
from support.s2.sdk import connector
from support.s3p.client import S3PClient

from penstock.capture.dialogue import APPENDED, DELIVERED, Message, Problem, SeenRecord
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.dialogue.records import records_in
from penstock.recorder.captures.opening import CaptureEvents

SECRET = b"card-4711-0815-4242-1717"
BLANK = b"*" * len(SECRET)
REDACT = """
[recorder]
directory = "%s"

[recorder.redact]
record_headers = ["x-secret"]
patterns = ["card(-[0-9]{{4}}){{4}}"]
"""
FILLER = b"".join(b"%d;" % (number * number) for number in range(900))
BODIES = [SECRET, b"a" + SECRET, b"ab" + SECRET + b" and more", FILLER + SECRET + FILLER, b"plain"]
BLANKED = [body.replace(SECRET, BLANK) for body in BODIES]


@contextmanager
def recording(directory: Path) -> Iterator[GatewayProcess]:
    with running_gateway(CONFIG + REDACT % directory) as gateway:
        yield gateway
        gateway.terminate()


def read(directory: Path) -> tuple[list[Message], list[Problem]]:
    """Check that no file of a recording has a secret in any form, and that no clause is broken, and return its messages
    and fatal problems."""
    for file in directory.glob("penstock-*"):
        assert not leaks(file.read_bytes(), SECRET)
        assert not leaks(file.read_bytes(), b"a-token")
    dialogues = Dialogues(lambda _: True)
    captures = CaptureEvents([directory])
    heard = [each for event in captures for each in dialogues.receive(event)]
    heard += dialogues.end()
    assert not captures.warnings
    assert not [each for each in heard if isinstance(each, Problem) and each.clause]
    problems = [each for each in heard if isinstance(each, Problem) and each.fatal]
    return [each for each in heard if isinstance(each, Message)], problems


def records(messages: list[Message], action: str, stream: str) -> list[SeenRecord]:
    return list(records_in(messages, action=action, streams={stream}))


def test_the_official_client_of_s2(tmp_path: Path) -> None:
    with recording(tmp_path) as gateway:
        basin = unique("redacted")
        create_basin(gateway.s2_port, basin)
        connect = connector(gateway.s2_port)

        async def main(compression: Compression) -> None:
            async with connect(compression) as client:
                stream = client.basin(basin).stream(compression.value)
                given = [Record(body, headers=[(b"x-secret", b"never this"), (b"o", b"seen")]) for body in BODIES]
                await stream.append(AppendInput(given))
                async with stream.append_session() as session:
                    await (await session.submit(AppendInput(given)))
                assert len((await stream.read(start=SeqNum(0))).records) == 10
                async for batch in stream.read_session(start=SeqNum(0)):
                    if batch.records[-1].seq_num == 9:
                        break

        for compression in Compression:
            create_stream(gateway.s2_port, basin, compression.value)
            finish(main(compression))
    messages, problems = read(tmp_path)
    assert not problems
    for file in tmp_path.glob("penstock-*"):
        assert not leaks(file.read_bytes(), b"never this")
    headers = ((b"x-secret", b"*" * 10), (b"o", b"seen"))
    for compression in Compression:
        for action, times in ((APPENDED, 2), (DELIVERED, 4)):
            found = records(messages, action, f"{basin}/{compression.value}")
            assert [record.body for record in found] == BLANKED * times, (compression, action)
            assert {tuple(record.headers) for record in found} == {headers}


def test_curl(tmp_path: Path, curl: Curl) -> None:
    with recording(tmp_path) as gateway:
        basin = unique("redacted")
        create_basin(gateway.s2_port, basin)
        create_stream(gateway.s2_port, basin, "one")
        url = f"http://127.0.0.1:{gateway.s2_port}/v1/streams/one/records"
        document = b'{"records":[{"body":"%b","headers":[["x-secret","never this"]]}]}' % SECRET
        for version in ("--http1.1", "--http2-prior-knowledge"):
            common = (version, "-H", f"s2-basin: {basin}", "-H", "authorization: Bearer a-token")
            curl(*common, "-H", "content-type: application/json", "-d", document.decode(), url)
            for form in ("raw", "base64"):
                more = ("-H", f"s2-format: {form}")
                assert b"records" in curl(*common, *more, f"{url}?seq_num=0&access_token=a-token").stdout
                events = ("-H", "accept: text/event-stream", "--compressed")
                assert b"batch" in curl(*common, *more, *events, f"{url}?seq_num=0&count=1").stdout
    messages, problems = read(tmp_path)
    assert not problems
    for file in tmp_path.glob("penstock-*"):
        assert not leaks(file.read_bytes(), b"never this")
    for action in (APPENDED, DELIVERED):
        found = records(messages, action, f"{basin}/one")
        assert {(record.body, tuple(record.headers)) for record in found} == {(BLANK, ((b"x-secret", b"*" * 10),))}


def test_kafka(tmp_path: Path) -> None:
    """librdkafka, in every compression: all of its records are seen, blanked, and nothing is held against it."""
    confluent = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    with recording(tmp_path) as gateway:
        server = {"bootstrap.servers": f"127.0.0.1:{gateway.kafka_port}", "log_level": 2}
        consumer = confluent.Consumer({**server, "group.id": "g", "auto.offset.reset": "earliest"})
        for codec in codecs:
            producer = confluent.Producer({**server, "compression.type": codec, "linger.ms": 50})
            for body in BODIES:
                producer.produce(codec, body, SECRET, headers=[("x-secret", b"never this"), ("o", b"seen")])
            assert producer.flush(30) == 0
        consumer.subscribe(list(codecs))
        bodies: list[bytes] = []
        while len(bodies) < len(codecs) * len(BODIES):
            for message in consumer.consume(100, timeout=30):
                assert message.error() is None
                bodies.append(message.value())
        consumer.close()
    messages, problems = read(tmp_path)
    assert not problems
    for file in tmp_path.glob("penstock-*"):
        assert not leaks(file.read_bytes(), b"never this")
    for codec in codecs:
        for action in (APPENDED, DELIVERED):
            found = records(messages, action, codec)
            assert [record.body for record in found] == BLANKED, (codec, action)
            assert [record.seq_num for record in found] == list(range(len(BODIES)))
            assert {value for record in found for name, value in record.headers if name == b"x-secret"} == {b"*" * 10}


def test_s3p_and_pravega(tmp_path: Path) -> None:
    need_pravega()
    scope = unique("Scope")
    with (
        recording(tmp_path) as gateway,
        S3PClient(("127.0.0.1", gateway.s3p_port)) as client,
        PravegaClient(gateway.controller_port) as pravega,
    ):
        client.create("orders")
        client.append("orders", *BODIES)
        assert len(client.read_all("orders")) == len(BODIES)
        pravega.call("manage", "create_scope", scope)
        pravega.call("manage", "create_stream", scope, "one", 1)
        pravega.call("write", scope, "one", [(body.decode("latin-1"), None) for body in BODIES])
        pravega.call("group", "g", scope, "one")
        pravega.call("reader", "r", "g")
        assert Found(pravega.call("read", ["r"], len(BODIES), 20)).bodies("r") == BODIES
    messages, problems = read(tmp_path)
    assert not problems
    for stream in ("orders", f"{scope}/one/0.#epoch.0"):
        appended = records(messages, APPENDED, stream)
        assert [record.body for record in appended] == BLANKED
        assert all(record.acknowledged for record in appended)
        assert set(BLANKED) == {record.body for record in records(messages, DELIVERED, stream)}
