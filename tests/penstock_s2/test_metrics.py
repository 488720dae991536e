"""S2's metrics over HTTP: real figures, of clients of every protocol (S2 fact sheet, 1.3)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.process import GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient


def metrics(s2: S2Client, path: str, wanted: str, **query: object) -> list[dict[str, Any]]:
    """Return the metrics of a set, of the last hour unless the query says otherwise."""
    now = int(time.time())
    asked = {"start": now - 3600, "end": now + 30, **query}
    values = s2.of(None).request("GET", f"/v1/metrics{path}", set=wanted, **asked).json()["values"]
    assert isinstance(values, list)
    return values


def sums(s2: S2Client, path: str, wanted: str, unit: str, **query: object) -> dict[str, float]:
    """Return the sums of a set's accumulations, by name."""
    found = [each["accumulation"] for each in metrics(s2, path, wanted, **query)]
    assert {each["unit"] for each in found} <= {unit}
    assert {each["interval"] for each in found} <= {query.get("interval", "hour")}
    return {each["name"]: sum(value for _, value in each["values"]) for each in found}


def test_a_basin_that_was_worked_in(own_basin: S2Client) -> None:
    path = f"/{own_basin.basin}"
    assert sums(own_basin, path, "append-ops", "operations") == {"express": 0, "standard": 0}
    own_basin.ensure_stream("fast")
    own_basin.ensure_stream("slow", storage_class="standard")
    own_basin.append("fast", "x" * 92, "y" * 92)
    own_basin.append("slow", "z" * 42)
    assert len(own_basin.bodies("fast", seq_num=0)) == 2
    with own_basin.read_session("fast", seq_num=0, count=1) as session:
        session.records(1)
    own_basin.tail("fast")
    own_basin.request("GET", "/v1/streams").json()
    assert sums(own_basin, path, "append-ops", "operations") == {"express": 1, "standard": 1}
    assert sums(own_basin, path, "append-throughput", "bytes") == {"express": 200, "standard": 50}
    assert sums(own_basin, path, "read-ops", "operations") == {"streaming": 1, "unary": 1}
    assert sums(own_basin, path, "read-throughput", "bytes") == {"read_bytes": 300}
    done = sums(own_basin, path, "basin-ops", "operations", interval="minute")
    assert done == {"check_tail": 1, "ensure_stream": 2, "list_streams": 1}
    day = sums(own_basin, path, "append-throughput", "bytes", interval="day", start=int(time.time()) - 86_400)
    assert day == {"express": 200, "standard": 50}
    label = metrics(own_basin, "", "active-basins")[0]["label"]
    assert label["name"] == "active_basins" and own_basin.basin in label["values"]
    assert sums(own_basin, "", "account-ops", "operations")["ensure_basin"] >= 1
    assert sums(own_basin, "", "estimated-billable-usage", "usd") == {"total": 0}


def test_storage_now_and_before(own_basin: S2Client) -> None:
    own_basin.ensure_stream("a/b")
    own_basin.append("a/b", "x" * 92)
    (gauge,) = (each["gauge"] for each in metrics(own_basin, f"/{own_basin.basin}/a%2Fb", "storage"))
    assert (gauge["name"], gauge["unit"]) == ("storage", "bytes")
    times = [at for at, _ in gauge["values"]]
    assert len(times) >= 60 and all(at % 60 == 0 for at in times) and times == sorted(times)
    assert gauge["values"][0][1] == 0
    assert gauge["values"][-1][1] in (0, 100), "100 from the next full minute on"
    (whole,) = (each["gauge"] for each in metrics(own_basin, f"/{own_basin.basin}", "storage"))
    assert all(at % 3600 == 0 for at, _ in whole["values"])


def test_other_protocols_count_too(gateway: GatewayProcess, shared_basin: S2Client) -> None:
    def appended() -> float:
        return sums(shared_basin, f"/{shared_basin.basin}", "append-throughput", "bytes")["express"]

    before = appended()
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as s3p:
        s3p.create("metered-by-s3p")
        s3p.append("metered-by-s3p", b"x" * 92)
    assert appended() == before + 100


@pytest.mark.parametrize("path", ["", "/served-basin", "/served-basin/s"])
def test_what_may_not_be_asked(s2: S2Client, path: str) -> None:
    now, wanted = int(time.time()), "storage" if path else "active-basins"
    client = s2.of(None)

    def refused(status: int, code: str, **query: object) -> str:
        return client.request("GET", f"/v1/metrics{path}", **query).fails(status, code)

    assert "start and end params required" in refused(422, "invalid", set=wanted)
    for start, end in ((now, now - 3600), (now - 3600, now + 600), (now - 91 * 86_400, now)):
        refused(422, "invalid", set=wanted, start=start, end=end)
    refused(400, "bad_query", start=now, end=now)
    refused(400, "bad_query", set="nonsense", start=now, end=now)
    old = client.request("GET", f"/v1/metrics{path}", set=wanted, start=1_000_000, end=1_003_600)
    assert old.status == 200


def test_unknown_basins_and_streams_have_no_figures(s2: S2Client) -> None:
    assert metrics(s2, "/never-named-elsewhere", "storage") == []
    assert metrics(s2, "/never-named-elsewhere/s", "storage") == []
    assert sums(s2, "/never-named-elsewhere", "basin-ops", "operations") == {}
