"""Memory that a gateway's process holds for one HTTP/2 client that asks for very much and reads none of it."""

import base64
import json
import os
from collections.abc import Iterator

import pytest
from support.http.h2_client import H2Connection
from support.peers import call
from support.process import BASIN, GatewayProcess, running_gateway

MIB = 1 << 20
READS = 200
BATCHES = 12
BOUND = 60 * MIB
"""More than 8 MiB, since each batch under way is there twice or three times: as it was stored, decoded and spelled."""

HEADERS = {
    "s2s": {"content-type": "s2s/proto", "accept": "s2s/proto"},
    "sse": {"accept": "text/event-stream"},
    "json": {"accept": "application/json"},
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """A gateway with a stream of 12 MB."""
    body = base64.b64encode(os.urandom(75_000)).decode()
    batch = json.dumps({"records": [{"body": body} for _ in range(10)]})
    config = (
        '[listeners.s2]\nbind = "127.0.0.1:{s2_port}"\n[store]\ndirectory = "{data}"\ntail_cache_bytes = 1048576\n'
        '[[store.basins]]\nname = "{basin}"\n'
    )
    with running_gateway(config) as gateway:
        for _ in range(BATCHES):
            call(gateway.s2_port, "POST", "/v1/streams/events/records", batch, BASIN)
        yield gateway


def read_once(gateway: GatewayProcess) -> None:
    """A read from the file: when it is answered, so are all that were wanted before it, or they wait for room."""
    call(gateway.s2_port, "GET", "/v1/streams/events/records?seq_num=0&wait=0", basin=BASIN)


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize("window", [0, 500_000])
def test_many_catch_up_reads_that_no_client_receives(gateway: GatewayProcess, kind: str, window: int) -> None:
    for _ in range(4):
        read_once(gateway)
    before = gateway.resident_bytes()
    with H2Connection(("127.0.0.1", gateway.s2_port), window, 1 << 30) as client:
        target = "/v1/streams/events/records?seq_num=0"
        streams = [client.open("GET", target, {"s2-basin": BASIN, **HEADERS[kind]}) for _ in range(READS)]
        most = 0
        for _ in range(20):
            read_once(gateway)
            most = max(most, gateway.resident_bytes())
        assert most - before < BOUND
        if kind != "json":  # its head comes with its body
            assert [stream.status for stream in streams] == [200] * READS
    read_once(gateway)
