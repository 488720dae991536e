"""Recordings that are switched while traffic flows."""

from __future__ import annotations

import http.client
import socket
from typing import Any

from support.captures.traffic import Talking, before_servers, captured, check, configuration, until
from support.management import ask, management_port
from support.process import BASIN, GatewayProcess
from support.relay import Relay, recorded

from penstock.capture.pcapng import Side


def record_for_a_while(port: int, words: dict[str, Any]) -> str:
    """Start a recording while traffic flows, and stop it when it has some; gives the prefix of its files."""
    status, started = ask(port, "/recordings", words)
    assert status == 200, started
    # the first event comes when a connection is taken
    until(lambda: [one for one in ask(port, "/recordings")[1]["recordings"] if one["bytes"] > 20_000])
    status, stopped = ask(port, f"/recordings/{started['id']}/stop", {})
    assert status == 200 and stopped["dropped"] == 0
    return f"penstock-{started['id']}-"


def test_switched_at_run_time_for_a_connection_and_for_a_stream() -> None:
    with GatewayProcess(configuration(start=False)) as gateway:
        port = management_port(gateway)
        with Talking(gateway.s3p_port, "orders") as orders, Talking(gateway.s3p_port, "invoices") as invoices:

            def number_of(stream: str) -> int:
                return until(
                    lambda: next(
                        (
                            one["connection"]
                            for one in ask(port, "/connections")[1]["connections"]
                            if one["streams"] == [f"{BASIN}/{stream}"]
                        ),
                        None,
                    )
                )

            by_number = record_for_a_while(port, {"connections": [number_of("orders")]})
            by_stream = record_for_a_while(port, {"streams": [f"{BASIN}/inv*"]})
            first = captured(gateway, by_number)
            second = captured(gateway, by_stream)
            assert list(recorded(first)) != [] and len(recorded(first)) == len(recorded(second)) == 1
        orders.check(first)
        invoices.check(second)


def test_a_stream_is_recorded_from_the_first_byte_of_its_connections() -> None:
    with GatewayProcess(configuration(start=False)) as gateway:
        port = management_port(gateway)
        _, started = ask(port, "/recordings", {"streams": ["wanted"]})
        relay = Relay(gateway.s2_port)
        client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=20)
        for stream in ("unwanted", "wanted", "unwanted"):
            head = {"s2-basin": BASIN, "content-type": "application/json"}
            client.request("POST", f"/v1/streams/{stream}/records", '{"records": [{"body": "x"}]}', head)
            assert client.getresponse().read()
        client.close()
        relay.settle()
        ask(port, f"/recordings/{started['id']}/stop", {})
        events = captured(gateway, "penstock-1-")
        check([relay], events, Side.FRONT)


IDENTITIES = """
[[identities]]
name = "analytics"
tokens = ["analytics-token"]
[[identities]]
name = "local"
addresses = ["127.0.0.1"]
"""


def test_an_identity_is_recorded_whatever_it_asks_for() -> None:
    """Lists are about no stream, and neither is a connection that asks for nothing."""
    with GatewayProcess(configuration(start=False, more=IDENTITIES)) as gateway:
        port = management_port(gateway)
        for name in ("analytics", "local"):
            ask(port, "/recordings", {"identities": [name]})
        relays = Relay(gateway.s2_port), Relay(gateway.s3p_port)
        listing = http.client.HTTPConnection("127.0.0.1", relays[0].port, timeout=20)
        listing.request("GET", "/v1/streams", headers={"s2-basin": BASIN, "authorization": "Bearer analytics-token"})
        assert listing.getresponse().status == 200
        listing.close()
        socket.create_connection(("127.0.0.1", relays[1].port)).close()
        for relay in relays:
            relay.settle()
        for number in (1, 2):
            ask(port, f"/recordings/{number}/stop", {})
        check([relays[0]], captured(gateway, "penstock-1-"), Side.FRONT)
        check(list(relays), captured(gateway, "penstock-2-"), Side.FRONT)


def test_switched_at_run_time_for_a_route_with_its_back() -> None:
    with before_servers(start=False) as (gateway, relays):
        port = management_port(gateway)
        with Talking(gateway.s3p_port, "by-s3p") as talking, Talking(gateway.s3p_port, "elsewhere"):
            events = captured(gateway, record_for_a_while(port, {"routes": ["legacy"]}))
        talking.check(events)
        gateway.terminate()
        relays[1].settle()
        said = recorded(events)
        backs = [one for one in said if one.side is Side.BACK]
        assert backs and {one.name for one in said} == {"listeners.s3p", "backs.legacy"}
        for one in backs:
            (relayed,) = [each for each in relays[1].connections if each.near == one.client]
            for sender, (offset, data) in said[one].items():
                assert data == bytes(relayed.said[sender][offset : offset + len(data)])
