"""A real gateway that records: its files hold the bytes that a relay between it and its peers saw."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import s2_sdk as s2
from support.captures.traffic import MANAGEMENT, RECORDED, before_servers, captured, check, configuration
from support.peers import finish, need
from support.pravega.clients import PravegaClient, advertising, need_pravega
from support.process import BASIN, GatewayProcess
from support.relay import Relay, recorded
from support.s2.client import S2Client
from support.s2.sdk import connector
from support.s3p.client import S3PClient
from support.tls.certificates import needs_openssl, self_signed

from penstock.capture.pcapng import Noted, Sender, Side


async def sdk_session(port: int) -> None:
    """The official client: a session of appends, and one that reads what they became."""
    async with connector(port)() as client:
        stream = client.basin(BASIN).stream("by-sdk")
        async with stream.append_session() as session:
            tickets = [
                await session.submit(s2.AppendInput([s2.Record(body=b"%d-" % number * 3000) for number in range(20)]))
                for _ in range(5)
            ]
            for ticket in tickets:
                await ticket
        batch = await stream.read(start=s2.SeqNum(0), limit=s2.ReadLimit(count=100))
        assert len(batch.records) == 100


def use_all(s2_port: int, s3p_port: int) -> None:
    """A client of each kind."""
    finish(sdk_session(s2_port))
    curl = need("curl")
    body = json.dumps({"records": [{"body": "by curl"}] * 100})
    url = f"http://127.0.0.1:{s2_port}/v1/streams/by-curl/records"
    headers = ("-H", f"s2-basin: {BASIN}", "-H", "content-type: application/json", "-H", "authorization: Bearer t")
    subprocess.run([curl, "-sf", url, *headers, "-d", body], check=True, capture_output=True, timeout=30)
    client = S3PClient(("127.0.0.1", s3p_port))
    client.create("by-s3p")
    for number in range(50):
        client.append("by-s3p", b"x" * (1000 * number + 1))
    assert len(client.call("READ", "by-s3p", [])) > 1
    client.close()


def test_what_clients_say_and_hear() -> None:
    with GatewayProcess(configuration(start=True)) as gateway, contextlib.ExitStack() as stack:
        relays = [stack.enter_context(Relay(port)) for port in (gateway.s2_port, gateway.s3p_port)]
        use_all(relays[0].port, relays[1].port)
        assert gateway.terminate() == 0
        events = captured(gateway)
        conversations = check(relays, events, Side.FRONT)
        assert {(one.name, one.protocol) for one in conversations} == {("listeners.s2", "s2"), ("listeners.s3p", "s3p")}
        noted = {(event.key, event.value) for event in events if isinstance(event, Noted)}
        assert noted == {("stream", f"{BASIN}/{name}") for name in ("by-sdk", "by-curl", "by-s3p")}
        assert "[WARNING]" not in gateway.log_tail()


def test_what_a_client_of_pravega_says_and_hears() -> None:
    """By the controller (gRPC over HTTP/2) and the segment protocol."""
    need_pravega()
    with Relay(0) as segments, GatewayProcess(advertising(segments.port) + MANAGEMENT + RECORDED) as gateway:
        segments.target = gateway.segment_port
        with Relay(gateway.controller_port) as controller:
            with PravegaClient(controller.port) as client:
                client.call("manage", "create_scope", "Scope")
                client.call("manage", "create_stream", "Scope", "stream", 1)
                client.call("write", "Scope", "stream", [(f"event {number}" * 100, None) for number in range(100)])
            assert gateway.terminate() == 0
            events = captured(gateway)
            conversations = check([segments, controller], events, Side.FRONT)
            assert {one.protocol for one in conversations} == {"segment", "controller"}
            streams = {event.value for event in events if isinstance(event, Noted)}
            assert f"{BASIN}/Scope/stream" in streams


def test_what_is_said_with_servers() -> None:
    with before_servers(start=True) as (gateway, relays):
        use_all(gateway.s2_port, gateway.s3p_port)
        assert gateway.terminate() == 0
        events = captured(gateway)
        conversations = check(relays, events, Side.BACK)
        spoken = {("backs.lite", "s2"), ("backs.legacy", "s3p"), ("backs.pravega", "segment")}
        assert {(one.name, one.protocol) for one in conversations} == spoken
        noted = {(event.key, event.value) for event in events if isinstance(event, Noted)}
        assert {("route", "lite"), ("route", "legacy"), ("stream", f"{BASIN}/by-s3p")} <= noted
        numbers = [conversation.number for conversation in recorded(events)]
        assert len(numbers) == len(set(numbers)), "those of clients and those of servers share one count"


TLS_BACK = """
[backs.lite]
kind = "s2"
address = "127.0.0.1:%d"
tls = true
tls_ca = "%s"
tls_server_name = "127.0.0.1"
[[routes]]
name = "all"
back = "lite"
"""


@needs_openssl
def test_both_ends_of_a_connection_over_tls_record_the_same(tmp_path: Path) -> None:
    """Except for the last bytes, which TLS may have accepted and never sent."""
    certificate, key = self_signed(tmp_path)
    secured = f"""bind = "127.0.0.1:{{s2_port}}"\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n"""
    server_side = configuration(start=True).replace('bind = "127.0.0.1:{s2_port}"\n', secured)
    with GatewayProcess(server_side) as server:
        client_side = configuration(True, TLS_BACK % (server.s2_port, certificate))
        with GatewayProcess(client_side) as gateway:
            S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("orders", "x" * 100_000)
            assert gateway.terminate() == 0
            backs = {one: said for one, said in recorded(captured(gateway)).items() if one.side is Side.BACK}
        assert server.terminate() == 0
        fronts = recorded(captured(server))
        assert backs and len(fronts) == len(backs)
        for front, said in fronts.items():
            (back,) = [one for one in backs if one.client == front.client]
            assert front.tls and back.tls and back.server == front.server
            sent, got = backs[back], said
            assert sent[Sender.CLIENT][1].startswith(got[Sender.CLIENT][1])
            assert got[Sender.SERVER][1].startswith(sent[Sender.SERVER][1])
        sizes = [len(said[Sender.CLIENT][1]) for said in fronts.values()]
        assert max(sizes) > 100_000
