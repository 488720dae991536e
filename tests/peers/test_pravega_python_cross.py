"""Records that other protocols appended, read by Pravega's Python client: every record is an event."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.pravega.clients import Found, PravegaClient, bodies_by_s2s, bodies_by_s3p
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client
from support.s2.frames import append_input
from support.s3p.client import S3PClient

BODIES = [b"one", "zwölf".encode(), b"\x01\x02\xff" * 5, b"x" * 70_000, b"last"]
Append = Callable[[GatewayProcess, str, list[bytes]], None]


def s2(gateway: GatewayProcess) -> S2Client:
    return S2Client(("127.0.0.1", gateway.s2_port), BASIN)


def by_s2s(gateway: GatewayProcess, stream: str, bodies: list[bytes]) -> None:
    with s2(gateway).append_session(stream, "h2") as session:
        for body in bodies:
            session.send(append_input(body))
        for _ in bodies:
            session.ack()


def by_json(gateway: GatewayProcess, stream: str, bodies: list[bytes]) -> None:
    records = [{"body": body.decode("latin-1")} for body in bodies]
    s2(gateway).append_json(stream, {"records": records}).json()


def by_s3p(gateway: GatewayProcess, stream: str, bodies: list[bytes]) -> None:
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        client.append(stream, *bodies)


WRITERS = {"s2s": by_s2s, "json": by_json, "s3p": by_s3p}


@pytest.mark.parametrize("write", WRITERS)
def test_a_stream_that_another_protocol_made(
    write: str, client: PravegaClient, pravega_gateway: GatewayProcess, scope: str
) -> None:
    """It is a stream of one segment for Pravega's clients, and they can append to it too."""
    bodies = [body.decode("latin-1").encode() for body in BODIES] if write == "json" else BODIES
    stream = f"{scope}/from-{write}"
    with S3PClient(("127.0.0.1", pravega_gateway.s3p_port)) as s3p:
        assert s3p.create(stream) == "OK"
    WRITERS[write](pravega_gateway, stream, BODIES)
    assert f"from-{write}" in client.call("manage", "list_stream", scope)
    client.call("group", "g", scope, f"from-{write}")
    client.call("reader", "r", "g")
    assert Found(client.call("read", ["r"], len(bodies), 20)).bodies("r") == bodies
    client.call("write", scope, f"from-{write}", [("theirs", "key")])
    assert bodies_by_s2s(pravega_gateway, stream) == bodies_by_s3p(pravega_gateway, stream) == [*bodies, b"theirs"]


def test_every_writer_in_turn_while_a_reader_waits(
    client: PravegaClient, pravega_gateway: GatewayProcess, scope: str
) -> None:
    """A waiting reader is given what any protocol appends; all see one order."""
    client.call("manage", "create_stream", scope, "s", 1)
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    expected = []
    for number in range(9):
        name, write = list(WRITERS.items())[number % 3]
        client.start("read", ["r"], 2, 10)
        write(pravega_gateway, f"{scope}/s", [f"{name} {number}".encode(), b"."])
        expected += [f"{name} {number}".encode(), b"."]
        assert Found(client.finish()).bodies("r") == expected[-2:]
        if number % 3 == 2:
            client.call("write", scope, "s", [(f"pravega {number}", "key")])
            expected.append(f"pravega {number}".encode())
            assert Found(client.call("read", ["r"], 1, 10)).bodies("r") == expected[-1:]
    assert bodies_by_s2s(pravega_gateway, f"{scope}/s") == bodies_by_s3p(pravega_gateway, f"{scope}/s") == expected


def test_what_is_no_event_is_left_out(client: PravegaClient, pravega_gateway: GatewayProcess, scope: str) -> None:
    """Empty bodies would stop this client for ever; fences are none of its business (docs/loss.md)."""
    client.call("manage", "create_stream", scope, "s", 1)
    stream = s2(pravega_gateway)
    stream.append(f"{scope}/s", "one", "", "two")
    stream.fence(f"{scope}/s", "token").json()
    stream.append(f"{scope}/s", "three", fencing_token="token")
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    assert Found(client.call("read", ["r"], 4, 1.5)).events == [(0, b"one"), (11, b"two"), (22, b"three")]
    page = json.loads(stream.read(f"{scope}/s", seq_num=0).body)
    assert [record.get("body", "") for record in page["records"]][:3] == ["one", "", "two"]
