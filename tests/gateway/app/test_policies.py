"""Operations that a route allows clients, by protocol and identity, in a real process. Refused ones change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from click.testing import CliRunner
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s2.frames import record
from support.s3p.client import S3PClient, S3PError
from support.segment.client import SegmentSocket

from penstock.cli import main
from penstock_pravega.codec import released
from penstock_proto import s2_pb2 as pb

POLICIES = (
    CONFIG
    + """
[[identities]]
name = "here"
addresses = ["127.0.0.0/8"]

[[identities]]
name = "everything"
tokens = ["of-everything"]

[[routes]]
name = "for-everything"
identity = ["everything"]

[[routes]]
name = "only-read"
identity = ["here"]
match = "prefix"
stream = "history"
allow = ["read"]

[[routes]]
name = "only-append"
identity = ["here"]
match = "prefix"
stream = "inbox"
allow = ["append"]
"""
)
ANYTHING = {"authorization": "Bearer of-everything"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with running_gateway(POLICIES) as running:
        for stream in ("history", "inbox"):
            assert append(running, stream, ANYTHING) == 200
        yield running


def append(gateway: GatewayProcess, stream: str, headers: dict[str, str], *command: str) -> int:
    """The status of an append of one record, or of a command."""
    record = {"headers": [["", command[0]]], "body": command[1]} if command else {"body": "x"}
    body = json.dumps({"records": [record]}).encode()
    said = {"content-type": "application/json", **({"s2-format": "base64"} if command else {}), **headers}
    return client(gateway).request("POST", f"/v1/streams/{stream}/records", body, headers=said).status


def client(gateway: GatewayProcess) -> S2Client:
    return S2Client(("127.0.0.1", gateway.s2_port), BASIN)


def state(gateway: GatewayProcess) -> object:
    """Return all streams with their tails, as a client without restrictions sees them."""
    streams = client(gateway).request("GET", "/v1/streams", headers=ANYTHING).json()["streams"]
    return [
        client(gateway).request("GET", f"/v1/streams/{one['name']}/records/tail", headers=ANYTHING).json()
        for one in streams
    ]


def test_s3p(gateway: GatewayProcess) -> None:
    before = state(gateway)
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as s3p:
        for refused in (
            s3p.append("history", b"x"),
            s3p.create("history-too"),
            s3p.call("DELETE", "history", []),
            s3p.call("TRIM", "history", ["MIN_ID", "9-9"]),
            s3p.create("inbox-too"),
            s3p.call("DELETE", "inbox", []),
            s3p.call("TRIM", "inbox", ["MIN_ID", "9-9"]),
            s3p.read("inbox"),
        ):
            assert isinstance(refused, S3PError)
            assert refused.code == "ERR_PERMISSION_DENIED", refused
        assert state(gateway) == before
        assert [body for _, body in s3p.read("history")] == [b"x"]
        assert isinstance(s3p.append("inbox", b"y"), bytes)
    assert state(gateway) != before


def test_segments(gateway: GatewayProcess) -> None:
    before = state(gateway)
    history, inbox = f"{BASIN}/history/0.#epoch.0", f"{BASIN}/inbox/0.#epoch.0"
    with SegmentSocket(("127.0.0.1", gateway.segment_port)) as connection:
        connection.send(released.Hello(17, 5))
        connection.reply()
        for request in (
            released.SetupAppend(connection.next_id(), uuid4(), history),
            released.SealSegment(connection.next_id(), history),
            released.DeleteSegment(connection.next_id(), history),
            released.TruncateSegment(connection.next_id(), history, 8),
            released.CreateSegment(connection.next_id(), f"{BASIN}/history-too/0.#epoch.0", 0, 0),
            released.SealSegment(connection.next_id(), inbox),
            released.ReadSegment(inbox, 0, 100, "", connection.next_id()),
        ):
            connection.send(request)
            reply = connection.reply()
            assert isinstance(reply, released.AuthTokenCheckFailed), (request, reply)
            assert (reply.request_id, reply.error_code) == (request.request_id, 0)
        connection.send(released.ReadSegment(history, 0, 100, "", connection.next_id()))
        assert isinstance(connection.reply(), released.SegmentRead)
        connection.send(released.SetupAppend(connection.next_id(), uuid4(), inbox))
        assert isinstance(connection.reply(), released.AppendSetup)
    assert state(gateway) == before


def test_s2(gateway: GatewayProcess) -> None:
    before = state(gateway)
    s2 = client(gateway)
    read = "/v1/streams/{}/records?seq_num=0"
    assert append(gateway, "history", {}) == 403
    assert append(gateway, "inbox", {}, "dHJpbQ==", "AAAAAAAAAAE=") == 403, "to trim is to manage"
    s2.request("GET", read.format("inbox")).fails(403, "permission_denied")
    s2.request("DELETE", "/v1/streams/inbox").fails(403, "permission_denied")
    s2.request("DELETE", f"/v1/basins/{BASIN}").fails(403, "permission_denied")
    with s2.append_session("inbox") as session:
        trim = record(bytes(8), [(b"", b"trim")])
        session.send(pb.AppendInput(records=[trim]).SerializeToString())
        status, error = session.failure()
        assert (status, error["code"]) == (403, "permission_denied")
    assert state(gateway) == before
    assert s2.request("GET", read.format("history")).status == 200
    assert append(gateway, "inbox", {}) == 200
    assert append(gateway, "inbox", ANYTHING, "dHJpbQ==", "AAAAAAAAAAE=") == 200


def test_check_says_what_is_refused(gateway: GatewayProcess) -> None:
    config = gateway.directory / "gateway.toml"
    said = CliRunner().invoke(main, ["check", "--config", str(config)]).stdout
    assert "clients may only append" in " ".join(said.split())
