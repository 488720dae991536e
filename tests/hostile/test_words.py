"""Errors that clients get at a limit of a real gateway, in each protocol's own terms."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from support.http.h2_client import H2Connection
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s3p.client import S3PClient, S3PError
from support.segment.client import ReleasedSocket

FULL = """
[listeners.s2.limits]
max_connections = 1

[listeners.s3p.limits]
max_connections = 1

[listeners.segment.limits]
max_connections = 1
"""
RATES = """
[limits]
requests_per_second = 1
burst_seconds = 2
"""


@pytest.fixture(scope="module")
def full() -> Iterator[GatewayProcess]:
    """A gateway that bears one connection of each kind."""
    with running_gateway(CONFIG + FULL) as process:
        yield process


@pytest.fixture
def slow() -> Iterator[GatewayProcess]:
    """A gateway that takes two requests, and then one a second."""
    with running_gateway(CONFIG + RATES) as process:
        yield process


@contextmanager
def one_more_http(process: GatewayProcess) -> Iterator[None]:
    """While it lasts there is a connection that has just asked for something."""
    while True:
        first = http.client.HTTPConnection("127.0.0.1", process.s2_port, timeout=20)
        first.request("GET", "/health")
        if first.getresponse().read() == b"OK":
            break
        first.close()  # that of the test before is not gone yet
    yield
    first.close()


def test_s2_is_full(full: GatewayProcess) -> None:
    with one_more_http(full):
        answer = S2Client(("127.0.0.1", full.s2_port), BASIN).request("GET", "/v1/streams")
    assert "listener.max_connections" in answer.fails(503, "rate_limited")
    assert answer.headers["retry-after"] == "1"


def test_s2_is_full_over_http2(full: GatewayProcess) -> None:
    with one_more_http(full):
        connection = H2Connection(("127.0.0.1", full.s2_port))
        stream = connection.open("GET", "/v1/streams", {"s2-basin": BASIN}, own_connection=True)
        status, body = stream.status, b"".join(iter(stream.receive, b""))
        stream.close()
    assert (status, json.loads(body)["code"]) == (503, "rate_limited")


def test_s3p_is_full(full: GatewayProcess) -> None:
    with S3PClient(("127.0.0.1", full.s3p_port)) as first:
        assert first.create("a-stream") == "OK"
        with socket.create_connection(("127.0.0.1", full.s3p_port)) as second:
            assert second.recv(1000) == b"-ERR_LIMITS listener.max_connections is reached, try again later\r\n"
            assert second.recv(1) == b""


@pytest.mark.long
def test_who_is_at_rest_makes_room(full: GatewayProcess) -> None:
    with S3PClient(("127.0.0.1", full.s3p_port)) as first:
        while first.create("at-rest") != "OK":  # the connection of the test before is not gone yet
            first.close()
            first = S3PClient(("127.0.0.1", full.s3p_port))
        while True:
            with S3PClient(("127.0.0.1", full.s3p_port)) as second:
                second.socket.settimeout(1)
                with suppress(TimeoutError):
                    assert second.reply().code == "ERR_LIMITS"
                    time.sleep(0.2)
                    continue
                break
        with pytest.raises((EOFError, ConnectionError)):
            first.create("another")


def test_the_segment_protocol_has_no_word_for_it(full: GatewayProcess) -> None:
    with ReleasedSocket(("127.0.0.1", full.segment_port)) as first:
        first.create("scope/stream/0.#epoch.0")
        with socket.create_connection(("127.0.0.1", full.segment_port)) as second:
            assert second.recv(1) == b""


def test_rates(slow: GatewayProcess) -> None:
    client = S2Client(("127.0.0.1", slow.s2_port), BASIN)
    assert client.request("GET", "/v1/streams").status == 200
    while (answer := client.request("GET", "/v1/streams")).status == 200:
        continue
    assert "requests_per_second" in answer.fails(429, "rate_limited")
    assert answer.headers["retry-after"] == "1"
    assert 1 <= int(answer.headers["retry-after-ms"]) <= 1000
    with S3PClient(("127.0.0.1", slow.s3p_port)) as s3p:
        told = s3p.create("a-stream")
        assert isinstance(told, S3PError)
        assert told.code == "ERR_RATE_LIMITED"
        time.sleep(float(re.findall(r"([0-9.]+) s", told.message)[0]))
        assert s3p.create("a-stream") == "OK"
    with ReleasedSocket(("127.0.0.1", slow.segment_port)) as segment:
        segment.create("scope/stream/0.#epoch.0")  # it only takes longer
