"""Readers on HTTP/2 that raise no window of their streams, beside one on the same connection that does."""

from __future__ import annotations

import http.client
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import pytest
from support.http.h2_client import H2Connection, H2Stream
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.client import S2Client

STUCK = 30
WINDOW = 65_535
STREAM = "windows"
DURABLE = "/v1/stream/windows-durable"
S2S = {"content-type": "s2s/proto"}
SSE = {"accept": "text/event-stream"}
SMALL, LARGE = 900, 3


class Reader(NamedTuple):
    """A request of some megabytes whose answer ends by itself, and is the same each time."""

    listener: str
    target: str
    headers: Mapping[str, str] = {}


RECORDS = f"/v1/streams/{STREAM}/records?seq_num=0&count={SMALL + LARGE}"
READERS = {
    "s2s": Reader("s2", RECORDS, S2S),
    "s2s zstd": Reader("s2", RECORDS, {**S2S, "accept-encoding": "zstd"}),
    "sse": Reader("s2", RECORDS, SSE),
    "json": Reader("s2", RECORDS),
    "protobuf": Reader("s2", RECORDS, {"accept": "application/protobuf", "accept-encoding": "gzip"}),
    "durable": Reader("durable", f"{DURABLE}?offset=-1"),
    "durable sse": Reader("durable", f"{DURABLE}?offset=-1&live=sse"),
}


@pytest.fixture(scope="module")
def process() -> Iterator[GatewayProcess]:
    with running_gateway() as process:
        client = S2Client(("127.0.0.1", process.s2_port), BASIN)
        for _ in range(SMALL // 100):
            client.append(STREAM, *(os.urandom(500).hex() for _ in range(100)))
        for _ in range(LARGE):
            client.append(STREAM, os.urandom(450_000).hex())
        with closing(http.client.HTTPConnection("127.0.0.1", process.durable_port, timeout=10)) as durable:
            for method in ("PUT", "POST", "POST", "POST"):
                durable.request(method, DURABLE, os.urandom(450_000).hex(), {"content-type": "text/plain"})
                assert durable.getresponse().read() == b""
            durable.request("POST", DURABLE, headers={"stream-closed": "true"})
            assert durable.getresponse().read() == b""
        yield process


def whole(stream: H2Stream) -> bytes:
    """Receive a whole body; return it without the cursors of Durable Streams, which depend on the time."""
    return re.sub(rb'"streamCursor":"[0-9]+"', b"", b"".join(iter(stream.receive, b"")))


@pytest.mark.parametrize("kind", READERS)
def test_stuck_readers_take_nothing_from_others_and_go_on_where_they_were(kind: str, process: GatewayProcess) -> None:
    listener, target, headers = READERS[kind]
    headers = {"s2-basin": BASIN, **headers} if listener == "s2" else headers

    def body(connection: H2Connection) -> bytes:
        stream = connection.open("GET", target, headers)
        assert stream.status == 200
        return whole(stream)

    address = "127.0.0.1", getattr(process, f"{listener}_port")
    with H2Connection(address) as alone:
        expected = body(alone)
    with H2Connection(address, WINDOW, connection_window=2**30) as connection:
        stuck = [connection.open("GET", target, headers) for _ in range(STUCK)]
        for stream in stuck:
            assert stream.status == 200
        for _ in range(3):
            assert body(connection) == expected
        for stream in stuck:
            assert whole(stream) == expected
