"""A gateway whose disk fails to sync: it acknowledges nothing any more, says why, and ends."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.peers import call, need
from support.process import BASIN, CONFIG, GatewayProcess

HEADERS = {"s2-basin": BASIN, "content-type": "application/json"}
FAILED = "the store stops, because its last writes may not be on disk: disk I/O error"


@contextmanager
def broken_disk(gateway: GatewayProcess) -> Iterator[None]:
    """From its third sync on, each thread of the running gateway is told that it failed, until the gateway ends."""
    strace = need("strace")
    inject = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=3+"]
    command = [strace, "-f", "-p", str(gateway.pid), *inject]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        said = tracer.stderr.readline()
        if "attached" not in said:
            pytest.skip(f"strace is not allowed to attach: {said.strip()}")
        try:
            yield
        finally:
            gateway.kill()
            tracer.communicate(timeout=30)


def append(gateway: GatewayProcess, body: str) -> int:
    """The status of the answer; 0 where there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.s2_port, timeout=10)
    try:
        connection.request("POST", "/v1/streams/one/records", json.dumps({"records": [{"body": body}]}), HEADERS)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def test_a_gateway_ends_where_a_sync_fails() -> None:
    with GatewayProcess(CONFIG) as gateway:
        assert append(gateway, "0") == 200
        acknowledged = 1
        with broken_disk(gateway):
            while append(gateway, str(acknowledged)) == 200:
                acknowledged += 1
                assert acknowledged < 100
            assert gateway.process is not None
            assert gateway.process.wait(20) == 1
        (event,) = gateway.events("store_failed")
        assert event["reason"] == FAILED
        assert f"Error: {FAILED}" in gateway.log_tail()
        assert "Traceback" not in gateway.log_tail()
        gateway.start()
        answer = call(gateway.s2_port, "GET", "/v1/streams/one/records?seq_num=0", basin=BASIN)
        found = [record["body"] for record in json.loads(answer)["records"]]
        assert found[:acknowledged] == [str(number) for number in range(acknowledged)]
