"""A protocol of another distribution whose server pushes: STOMP 1.2, with its most used client from PyPI.

Its distribution is tests/outside_stomp, a front alone. It needs no file of the gateway changed.
"""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures.traffic import until
from support.process import GatewayProcess
from support.s2.client import S2Client

from penstock.routing.access.passwords import hash_password
from penstock.wire import conformance
from penstock.wire.codec import NEED_DATA, Role

stomp = pytest.importorskip("stomp", reason="stomp.py is not installed: make .venv/.dev")

CONFIGURATION = f"""
[listeners.s2]
bind = "127.0.0.1:{{s2_port}}"
[[listeners.stomp]]
name = "open"
bind = "127.0.0.1:0"
heartbeat_seconds = 0.2
[[listeners.stomp]]
name = "closed"
bind = "127.0.0.1:0"
auth_tokens = ["a-passcode"]
[[listeners.stomp]]
name = "dropping"
bind = "127.0.0.1:0"
[listeners.stomp.loss]
headers = "drop"
[[identities]]
name = "analytics"
username = "user"
password_hash = "{hash_password("password")}"
tokens = ["of-analytics"]
[store]
directory = "{{data}}"
[[store.basins]]
name = "penstock"
create_stream_on_append = true
[log]
format = "json"
level = "debug"
"""


class Heard(stomp.ConnectionListener):
    """The frames that a client was sent, in their order."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.frames.put(("MESSAGE", frame))

    def on_receipt(self, frame: Any) -> None:
        self.frames.put(("RECEIPT", frame))

    def on_error(self, frame: Any) -> None:
        self.frames.put(("ERROR", frame))

    def on_disconnected(self) -> None:
        self.frames.put(("disconnected", None))

    def on_heartbeat_timeout(self) -> None:
        self.frames.put(("heartbeat timeout", None))

    def next(self, kind: str) -> Any:
        event, frame = self.frames.get(timeout=20)
        assert event == kind, (event, frame and (frame.headers, frame.body))
        return frame


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess(CONFIGURATION) as running:
        yield running


def port_of(gateway: GatewayProcess, name: str = "open") -> int:
    return next(
        event["port"] for event in gateway.events("listening") if event["listener"] == f"listeners.stomp.{name}"
    )


@contextmanager
def connected(port: int, heartbeats: tuple[int, int] = (0, 0), **options: Any) -> Iterator[tuple[Any, Heard]]:
    connection = stomp.Connection12([("127.0.0.1", port)], heartbeats=heartbeats, auto_content_length=True)
    heard = Heard()
    connection.set_listener("heard", heard)
    connection.connect(wait=True, **options)
    try:
        yield connection, heard
    finally:
        if connection.is_connected():
            connection.disconnect()


def test_records_are_appended_and_pushed(gateway: GatewayProcess) -> None:
    s2 = S2Client(("127.0.0.1", gateway.s2_port), "penstock")
    s2.append("pushed", "before")
    with connected(port_of(gateway)) as (client, heard):
        client.subscribe("/pushed", id=1, headers={"x-stream-offset": "first"})
        first = heard.next("MESSAGE")
        assert (first.body, first.headers["message-id"], first.headers["destination"]) == ("before", "0", "/pushed")
        client.send("/pushed", "over STOMP\0 with a NUL", headers={"kind": "a:b", "receipt": "r1"})
        frames = dict(heard.frames.get(timeout=20) for _ in range(2))
        assert frames["RECEIPT"].headers["receipt-id"] == "r1"
        assert frames["MESSAGE"].body == "over STOMP\0 with a NUL" and frames["MESSAGE"].headers["kind"] == "a:b"
        s2.append("pushed", "over S2", "again")
        assert [heard.next("MESSAGE").body for _ in range(2)] == ["over S2", "again"]
        client.unsubscribe(id=1, headers={"receipt": "r2"})
        heard.next("RECEIPT")
        s2.append("pushed", "without a subscription")
        client.subscribe("/pushed", id=1, headers={"x-stream-offset": "4"})
        assert heard.next("MESSAGE").body == "without a subscription"
    (record,) = s2.read("pushed", seq_num=1, count=1).json()["records"]
    assert ["kind", "a:b"] in record["headers"]


@pytest.mark.parametrize(("mode", "acknowledged"), [("client-individual", "0"), ("client", "1")])
def test_credit_bounds_what_is_not_acknowledged(gateway: GatewayProcess, mode: str, acknowledged: str) -> None:
    name = f"credit-{mode}"
    S2Client(("127.0.0.1", gateway.s2_port), "penstock").append(name, *map(str, range(6)))
    with connected(port_of(gateway)) as (client, heard):
        client.subscribe(f"/{name}", id="of me", ack=mode, headers={"x-stream-offset": "first", "prefetch-count": "2"})
        acks = [heard.next("MESSAGE").headers["ack"] for _ in range(2)]
        with pytest.raises(queue.Empty):
            heard.frames.get(timeout=0.5)
        client.ack(acks[int(acknowledged)])
        more = [heard.next("MESSAGE").body for _ in range(int(acknowledged) + 1)]
        assert more == ["2", "3"][: len(more)]
        with pytest.raises(queue.Empty):
            heard.frames.get(timeout=0.5)


def test_heartbeats_flow_both_ways(gateway: GatewayProcess) -> None:
    """A client that agreed to send some, and sends nothing, is cut off."""
    with connected(port_of(gateway), heartbeats=(200, 200)) as (client, heard):
        client.subscribe("/quiet", id=1)
        with pytest.raises(queue.Empty):
            heard.frames.get(timeout=1.5)
        assert client.is_connected()
    with socket.create_connection(("127.0.0.1", port_of(gateway)), timeout=10) as silent:
        silent.sendall(b"CONNECT\naccept-version:1.2\nheart-beat:200,200\n\n\0SUBSCRIBE\nid:1\ndestination:/q\n\n\0")
        began, received = time.monotonic(), b""
        while data := silent.recv(65536):
            received += data
        assert received.endswith(b"\n") and received.rstrip(b"\n").endswith(b"\0"), received
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("login", "passcode", "serves"),
    [
        ("user", "password", True),
        ("any", "of-analytics", True),
        ("any", "a-passcode", True),
        ("user", "wrong", False),
        ("other", "password", False),
        (None, None, False),
    ],
)
def test_logins(gateway: GatewayProcess, login: str | None, passcode: str | None, serves: bool) -> None:
    with socket.create_connection(("127.0.0.1", port_of(gateway, "closed")), timeout=10) as client:
        proof = "" if passcode is None else f"login:{login}\npasscode:{passcode}\n"
        client.sendall(f"CONNECT\naccept-version:1.2\n{proof}\n\0DISCONNECT\nreceipt:bye\n\n\0".encode())
        response = client.makefile("rb").read()
    assert response.startswith(b"CONNECTED\n") == serves, response
    assert (b"receipt-id:bye" if serves else b"message:") in response


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (b"SEND\ndestination:/a\n\n\0", b"SEND comes before CONNECT"),
        (b"CONNECT\naccept-version:1.0,1.1\n\n\0", b"STOMP 1.2 alone"),
        (b"CONNECT\naccept-version:1.2\nheart-beat:x,1\n\n\0", b"heart-beat is no pair of numbers"),
        (b"JUMP\n\n\0", b"'JUMP' is no command"),
        (b"CONNECT\naccept-version:1.2\n\n\0SEND\n\nx\0", b"SEND lacks the header destination"),
        (b"CONNECT\naccept-version:1.2\n\n\0BEGIN\ntransaction:1\n\n\0", b"neither redelivery nor transactions"),
        (
            b"CONNECT\naccept-version:1.2\n\n\0SUBSCRIBE\nid:1\ndestination:/a\nack:never\n\n\0",
            b"ack\\cnever is none of",
        ),
        (b"CONNECT\naccept-version:1.2\n\n\0SUBSCRIBE\nid:1\ndestination:/\n\n\0", b"stream name"),
    ],
)
def test_refusals_name_what_is_wrong(gateway: GatewayProcess, frames: bytes, reason: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port_of(gateway)), timeout=10) as client:
        client.sendall(frames)
        response = client.makefile("rb").read()
    assert reason in response and b"ERROR\n" in response, response


def test_headers_that_are_no_text_are_refused_or_dropped(gateway: GatewayProcess) -> None:
    s2 = S2Client(("127.0.0.1", gateway.s2_port), "penstock")
    s2.append("binary", "plain")
    s2.append_json(
        "binary", {"records": [{"headers": [["a2luZA==", "/w=="]], "body": "Ym9keQ=="}]}, {"s2-format": "base64"}
    )
    with connected(port_of(gateway)) as (client, heard):
        client.subscribe("/binary", id=1, headers={"x-stream-offset": "first"})
        heard.next("MESSAGE")
        assert "record 1 has headers, which no frame can carry" in heard.next("ERROR").headers["message"]
        heard.next("disconnected")
    with connected(port_of(gateway, "dropping")) as (client, heard):
        client.subscribe("/binary", id=1, headers={"x-stream-offset": "1"})
        assert heard.next("MESSAGE").body == "body"


def test_a_front_that_counts_nothing_is_within_the_limits_of_its_clients() -> None:
    """Nothing in it names a quota's requests: the back of its listener counts."""
    with GatewayProcess(CONFIGURATION + "[limits]\nrequests_per_second = 5\nburst_seconds = 1\n") as running:
        with socket.create_connection(("127.0.0.1", port_of(running)), timeout=10) as client:
            client.sendall(b"CONNECT\naccept-version:1.2\n\n\0" + b"SEND\ndestination:/a\nreceipt:1\n\nx\0" * 50)
            response = client.makefile("rb").read()
        assert response.count(b"RECEIPT\n") == 5 and b"requests_per_second is reached" in response, response


def test_it_is_reported_and_recorded(gateway: GatewayProcess, tmp_path: Path) -> None:
    (tmp_path / "stomp.toml").write_text("[listeners.stomp]\nbind = '127.0.0.1:0'\n")
    command = [sys.executable, "-m", "penstock", "check", "--config", tmp_path / "stomp.toml"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "STOMP on 127.0.0.1:0, for any client" in report
    with connected(port_of(gateway)):
        until(
            lambda: any(
                event.get("listener") == "listeners.stomp.open" for event in gateway.events("connection_opened")
            )
        )


@pytest.mark.parametrize("role", Role)
def test_its_codec_keeps_the_laws(role: Role) -> None:
    from stomp_front.codec import PLUGIN

    def make() -> Any:
        return PLUGIN.make(role, "1.2")

    sample = PLUGIN.sample(role, "1.2")
    for cut in range(len(sample) + 1):
        conformance.cut_anywhere(make, sample, [cut])
        conformance.prefix(make, sample, cut)
        conformance.no_surprise(make, sample[:cut] + b"\xff" + sample[cut:])
    for flood in (b"SEND\n\n" + b"a" * 3_000_000, b"a" * 3_000_000, b"\n" * 3_000_000):
        conformance.bounded(make, flood, PLUGIN.limit)


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        )
    ),
    st.binary(),
)
def test_what_is_sent_is_received(headers: list[tuple[str, str]], body: bytes) -> None:
    from stomp_front.codec import Frame, StompCodec

    sent = Frame("SEND", tuple((name, value) for name, value in headers if name != "content-length"), body)
    server = StompCodec(Role.SERVER)
    server.receive(b"".join(StompCodec(Role.CLIENT).send(sent)))
    assert server.next_event() == sent._replace(headers=(*sent.headers, ("content-length", str(len(body)))))
    assert server.next_event() is NEED_DATA
