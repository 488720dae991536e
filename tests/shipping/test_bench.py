"""The benchmark measures what waits with connections of all protocols."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.shipping import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")


def test_connections_of_all_protocols_are_measured_before_a_request_and_after_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import small
    from duties import QUICK
    from servers import Client

    monkeypatch.setattr(small, "HELD", 50)
    monkeypatch.setattr(small, "HEARTBEATS_SECONDS", 0.1)
    monkeypatch.setattr(small, "REST_SECONDS", 0.1)
    with Client() as client:
        bench = small.SmallBench(QUICK, tmp_path, client, print, (sys.executable, "-m", "penstock"))
        rows = {row.candidate: row.figures["kib"] for row in bench.idle(100)}
    waiting = ("HTTP", "Durable Streams", "Kafka", "S3P", "segment")
    assert list(rows) == [
        "SSE",
        "S2S h1",
        "S2S h2",
        *(name + more for name in waiting for more in ("", ", asked once")),
    ]
    assert all(0 < kib < 200 for kib in rows.values()), rows
