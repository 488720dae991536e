"""Readiness of a real gateway whose server goes and comes."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
from support.bridges.balanced import before_kafka
from support.captures.traffic import until
from support.management import ask
from support.peers import call
from support.ports import free_ports
from support.process import BASIN, CONFIG, GatewayProcess
from support.real_backs import SecondPenstock
from support.s2.client import S2Client
from support.store.disks import small_file_system

BACK = """
[backs.second]
kind = "s2"
address = "127.0.0.1:PORT"
breaker_failures = 1
breaker_open_seconds = 0.5
recover_seconds = 0
required = true
[[routes]]
name = "away"
stream = "orders"
back = "second"
[[routes]]
name = "here"
back = "embedded"
"""

FULL = {
    "the store cannot write: [Errno 28] No space left on device",  # as the kernel says it
    "the store cannot write: database or disk is full",  # as SQLite does, if its log has no room for the next page
}


def test_a_server_that_comes_back_is_found_without_any_client() -> None:
    server = SecondPenstock("s2")
    with server:
        port = server.process.s2_port
    config = CONFIG + BACK.replace("PORT", str(port))
    with GatewayProcess(config) as gateway:
        assert ask(gateway.management_port, "/ready") == (200, {"ready": True, "reasons": []})
        with pytest.raises(AssertionError):
            S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("orders", "lost")
        down = (503, {"ready": False, "reasons": ["back second is down"]})
        assert ask(gateway.management_port, "/ready") == down
        assert ask(gateway.management_port, "/live")[0] == 200
        with SecondPenstock("s2") as again:
            again.process.terminate()
            again.process.s2_port = port
            again.process.start()
            until(lambda: ask(gateway.management_port, "/ready")[0] == 200)


def append(gateway: GatewayProcess, size: int) -> bool:
    """Append a record of that many bytes, and return whether it was acknowledged."""
    records = json.dumps({"records": [{"body": "x" * size}]})
    try:
        call(gateway.s2_port, "POST", "/v1/streams/one/records", records, BASIN)
    except AssertionError:
        return False
    return True


def test_a_full_disk_is_a_reason_until_there_is_room(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk", 6) as disk, GatewayProcess(arguments=("--data", str(disk))) as gateway:
        assert append(gateway, 1) and ask(gateway.management_port, "/ready")[0] == 200
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        while append(gateway, 100_000):
            pass
        for _ in range(3):  # also when it has tried itself
            status, answer = ask(gateway.management_port, "/ready")
            assert (status, answer["ready"]) == (503, False)
            (reason,) = answer["reasons"]
            assert reason in FULL
            time.sleep(1.1)
        assert ask(gateway.management_port, "/live")[0] == 200
        filler.unlink()
        until(lambda: ask(gateway.management_port, "/ready")[0] == 200)
        assert append(gateway, 100_000)
        assert gateway.terminate() == 0


def test_a_gateway_waits_for_the_server_that_has_its_state() -> None:
    """It is live and not ready, says what it waits for, and SIGTERM ends it."""
    with GatewayProcess(before_kafka([("127.0.0.1", free_ports(1)[0])])) as gateway:
        until(lambda: gateway.events("waiting_for_state"))
        status, told = ask(gateway.management_port, "/ready")
        assert (status, told["ready"]) == (503, False)
        assert any(
            reason.startswith("the gateway's state cannot be read: back cluster at ") for reason in told["reasons"]
        )
        assert ask(gateway.management_port, "/live")[0] == 200
        (event,) = gateway.events("waiting_for_state")
        assert event["where"] == "back cluster, topic penstock-state"
        assert "connection refused" in event["reason"]
        assert gateway.terminate() == 0
