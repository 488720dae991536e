"""Every command of docs/scaling.md works as it says: two stores, two gateways in front, and haproxy before these."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from support.markdown import DOCUMENTS
from support.peers import need
from support.walking import Walk, blocks_of

BALANCER = DOCUMENTS.parent / "config/haproxy/gateways.cfg"


@pytest.mark.peer
@pytest.mark.slow
def test_the_commands(tmp_path: Path) -> None:
    need("haproxy")
    with Walk(tmp_path) as walk:
        walk.write("config/haproxy/gateways.cfg", BALANCER.read_text())
        (tmp_path / "data").mkdir()
        *serves, balancer, create, read = [block.text for block in blocks_of("scaling.md")]
        for text in serves:
            walk.serve(text)
        walk.run(balancer)
        try:
            until_it_accepts(walk)
            assert '"start":{"seq_num":0' in walk.run(create)
            assert walk.run(read).count('"body":"21.5"') == 3
            assert basins(walk, 8091) == ["penstock", "telemetry-eu"], "the route chooses the store"
            assert basins(walk, 8090) == ["penstock"]
            walk.stop()
            for _ in range(4):  # of the gateways one is left
                assert '"body":"21.5"' in walk.run(read.splitlines()[0].replace("8081", "8080"))
        finally:
            os.kill(int((tmp_path / "data/haproxy.pid").read_text()), signal.SIGTERM)


def until_it_accepts(walk: Walk) -> None:
    """Wait until the balancer has found a gateway that is ready."""
    deadline = time.monotonic() + 30
    while "basins" not in walk.run("curl -s http://127.0.0.1:8080/v1/basins || true"):
        assert time.monotonic() < deadline, "no gateway is ready"
        time.sleep(0.05)


def basins(walk: Walk, port: int) -> list[str]:
    """Return the basins of a store."""
    return [one["name"] for one in json.loads(walk.run(f"curl -s http://127.0.0.1:{port}/v1/basins"))["basins"]]
