"""A consumer changes its protocol in mid-stream: a real gateway, all protocols, each record exactly once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from support.management import ask, management_port
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s3p.client import S3PClient
from support.segment.client import ReleasedSocket

from penstock.cli import main
from penstock.model.byte_events import split_events
from penstock_proto import s2_pb2 as pb

NAME = "changing"
BODIES = [f"record {number} {'x' * number}" for number in range(12)]


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(CONFIG + '\n[management]\nbind = "127.0.0.1:0"\n') as process:
        S2Client(("127.0.0.1", process.s2_port), BASIN).append(NAME, *BODIES[:5])
        S2Client(("127.0.0.1", process.s2_port), BASIN).append(NAME, *BODIES[5:])
        yield process


@pytest.fixture
def port(gateway: GatewayProcess) -> int:
    return management_port(gateway)


def read_on(port: int, asked: str) -> dict[str, dict[str, object]]:
    """Return how each protocol resumes from a position."""
    status, answer = ask(port, f"/positions?stream={BASIN}/{NAME}&{asked}")
    assert status == 200, answer
    hints: dict[str, dict[str, object]] = answer["read_on"]
    return hints


def test_each_record_exactly_once(gateway: GatewayProcess, port: int) -> None:
    """Three by S2S, three by S3P, three from the segment, the rest as events."""
    host = "127.0.0.1"
    s2 = S2Client((host, gateway.s2_port), BASIN)
    got: list[str] = []

    session = s2.read_session(NAME, seq_num=0, count=3)
    batch = pb.ReadBatch.FromString(session.next().message)
    got += [record.body.decode() for record in batch.records]
    session.stream.close()
    last = batch.records[-1].seq_num

    hint = read_on(port, f"seq_num={last + 1}")["s3p"]
    with S3PClient((host, gateway.s3p_port)) as s3p:
        found = s3p.read(str(hint["name"]), MIN_ID=str(hint["min_id"]), COUNT=3)
    got += [body.decode() for _identifier, body in found]
    identifier = found[-1][0].decode()

    ms, _, place = identifier.partition("-")
    hint = read_on(port, f"record_id={ms}-{int(place) + 1}")["segment"]
    with ReleasedSocket((host, gateway.segment_port)) as segment:
        sizes = [8 + len(body) for body in BODIES[6:9]]
        block = segment.read_bytes(str(hint["segment"]), int(str(hint["offset"])), sum(sizes))
    got += [body.decode() for body in split_events(block)]

    hint = read_on(port, f"offset={int(str(hint['offset'])) + sum(sizes)}")["sse"]
    headers = {"last-event-id": str(hint["last_event_id"])}
    with s2.events(NAME, headers=headers, wait=0) as events:
        for event in events.rest():
            if event.name == "batch":
                got += [record["body"] for record in event.json()["records"]]

    assert got == BODIES


def penstock(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_command_line_says_it_too(gateway: GatewayProcess, port: int) -> None:
    done = penstock("positions", f"{BASIN}/{NAME}", "--seq-num", "2", "--management", f"127.0.0.1:{port}")
    assert done.exit_code == 0, done.output
    assert f"offset     {sum(8 + len(body) for body in BODIES[:2])}" in done.output
    assert "last_event_id=1,0,0" in done.output
    done = penstock("positions", f"{BASIN}/none", "--seq-num", "2", "--management", f"127.0.0.1:{port}")
    assert (done.exit_code, "none" in done.output) == (1, True), done.output
    done = penstock("positions", f"{BASIN}/{NAME}", "--management", f"127.0.0.1:{port}")
    assert (done.exit_code, "give exactly one of seq_num" in done.output) == (1, True), done.output
    done = penstock("cut-over", "orders", "--management", f"127.0.0.1:{port}")
    assert (done.exit_code, "route 'orders' does not exist" in done.output) == (1, True), done.output


def test_who_is_not_there(gateway: GatewayProcess) -> None:
    done = penstock("cut-over", "orders", "--management", "127.0.0.1:1")
    assert (done.exit_code, "no answer from 127.0.0.1:1" in done.output) == (1, True), done.output
    done = penstock("cut-over", "orders", "--management", "nowhere")
    assert (done.exit_code, "--management" in done.output) == (2, True), done.output
    done = penstock("positions", "a/b", "--seq-num", "1", "--management", f"127.0.0.1:{gateway.s2_port}")
    assert (done.exit_code, "not a management listener" in done.output) == (1, True), done.output


def test_what_a_gateway_without_routes_shows(gateway: GatewayProcess, port: int) -> None:
    assert ask(port, "/health") == (200, {"state": "running"})
    assert ask(port, "/routes") == (200, {"routes": []})
    status, answer = ask(port, "/backs")
    assert status == 200
    assert [(back["name"], back["circuit"]) for back in answer["backs"]] == [("embedded", "closed")]
