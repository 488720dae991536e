"""Pravega's REST API: the gateway answers as the controller of Pravega 0.13.0 itself does, but for what is listed."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from support.peers import unique
from support.pravega.clients import wait_until
from support.pravega.java import MAVEN_SECONDS, running_java
from support.process import CONFIG, running_gateway
from support.real_backs import PravegaStandalone

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

PROJECT = Path(__file__).parent / "java" / "client"
FIXED = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 2}
ONE = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}
RATED = {"targetRate": 100, "scaleFactor": 2, "minSegments": 1}
PLAIN = {"tags": [], "timestampAggregationTimeout": 0, "rolloverSizeBytes": 0}
UP = {"status": "UP", "readiness": True, "liveness": True, "details": {}}
ALL = "from=0&to=99999999999999"


def stream(name: str, scaling: object, **more: object) -> dict[str, object]:
    return {"scopeName": "SCOPE", "streamName": name, "scalingPolicy": scaling, **PLAIN, **more}


def days(value: int, days: int, hours: int = 0, minutes: int = 0) -> dict[str, object]:
    exact = {"days": days, "hours": hours, "minutes": minutes}
    return {"retentionPolicy": {"type": "LIMITED_DAYS", "value": value, "timeBasedRetention": exact}}


S1 = stream("s1", FIXED)
S2 = stream(
    "s2",
    {"type": "BY_RATE_IN_EVENTS_PER_SEC", **RATED},
    **days(3, 3),
    tags=["t1", "t2"],
    timestampAggregationTimeout=1000,
    rolloverSizeBytes=1 << 20,
)
S3 = stream(
    "s3",
    {"type": "BY_RATE_IN_KBYTES_PER_SEC", **RATED},
    retentionPolicy={"type": "LIMITED_SIZE_MB", "value": 3},
)
S4 = stream("s4", ONE, **days(0, 1, 2, 3))
WIDER = stream("s1", {**FIXED, "minSegments": 3}, **days(1, 1), tags=["a"])
HALVES = [(0, 0, 0.0, 0.5), (1, 0, 0.5, 1.0)]
THIRDS = [(2, 1, 0.0, 1 / 3), (3, 1, 1 / 3, 2 / 3), (4, 1, 2 / 3, 1.0)]


def new(name: str, policies: dict[str, Any]) -> dict[str, object]:
    """Return the body that creates a stream like this one."""
    kept = {key: value for key, value in policies.items() if key not in ("scopeName", "streamName", "tags")}
    return {"streamName": name, "streamTags": policies["tags"], **kept}


def event(segments: list[tuple[int, int, float, float]], splits: int, merges: int) -> dict[str, object]:
    spelled = [
        {"number": number, "epoch": epoch, "start": f"epoch {epoch}", "keyStart": low, "keyEnd": high}
        for number, epoch, low, high in segments
    ]
    return {"timestamp": f"epoch {segments[0][1]}", "segments": spelled, "splits": splits, "merges": merges}


STORY: list[tuple[str, str, object, int, object]] = [
    # ---- scopes
    ("POST", "scopes", {"scopeName": "SCOPE"}, 201, {"scopeName": "SCOPE"}),
    ("POST", "scopes", {"scopeName": "SCOPE"}, 409, None),
    ("POST", "scopes", {"scopeName": "a/b"}, 400, None),
    ("POST", "scopes", {"scopeName": "_x"}, 400, None),
    ("POST", "scopes", {}, 400, None),
    ("POST", "scopes", [], 400, None),
    ("PUT", "scopes", {"scopeName": "SCOPE"}, 405, None),
    ("GET", "scopes/SCOPE", None, 200, {"scopeName": "SCOPE"}),
    ("HEAD", "scopes/SCOPE", None, 200, None),
    ("GET", "scopes/missing", None, 404, None),
    ("GET", "scopes/a%20b", None, 404, None),
    ("POST", "scopes/SCOPE", {}, 405, None),
    ("GET", "nothing", None, 404, None),
    # ---- streams
    ("GET", "scopes/SCOPE/streams", None, 200, {"streams": []}),
    ("GET", "scopes/missing/streams", None, 404, None),
    ("POST", "scopes/SCOPE/streams", {"streamName": "s1", "scalingPolicy": FIXED}, 201, S1),
    ("POST", "scopes/SCOPE/streams", {"streamName": "s1", "scalingPolicy": FIXED}, 409, None),
    ("POST", "scopes/missing/streams", {"streamName": "s1", "scalingPolicy": FIXED}, 404, None),
    ("POST", "scopes/SCOPE/streams", {"streamName": "a b", "scalingPolicy": FIXED}, 400, None),
    ("POST", "scopes/SCOPE/streams", {"streamName": "_s", "scalingPolicy": FIXED}, 400, None),
    ("POST", "scopes/SCOPE/streams", new("s2", S2), 201, S2),
    ("POST", "scopes/SCOPE/streams", new("s3", S3), 201, S3),
    ("POST", "scopes/SCOPE/streams", new("s4", S4), 201, S4),
    ("GET", "scopes/SCOPE/streams/s2", None, 200, S2),
    ("GET", "scopes/SCOPE/streams/s3", None, 200, S3),
    ("GET", "scopes/SCOPE/streams/s4", None, 200, S4),
    ("GET", "scopes/SCOPE/streams/missing", None, 404, None),
    ("GET", "scopes/missing/streams/missing", None, 404, None),
    ("GET", "scopes/SCOPE/streams", None, 200, {"streams": [S1, S2, S3, S4]}),
    ("GET", "scopes/SCOPE/streams?filter_type=tag&filter_value=t2", None, 200, {"streams": [S2]}),
    ("GET", "scopes/SCOPE/streams?filter_type=tag&filter_value=t", None, 200, {"streams": []}),
    ("GET", "scopes/missing/streams?filter_type=tag&filter_value=t", None, 404, None),
    ("PUT", "scopes/SCOPE/streams/missing", {"scalingPolicy": FIXED}, 404, None),
    ("PUT", "scopes/missing/streams/missing", {"scalingPolicy": FIXED}, 404, None),
    # ---- scaling
    ("GET", f"scopes/SCOPE/streams/s1/scaling-events?{ALL}", None, 200, [event(HALVES, 0, 0)]),
    ("PUT", "scopes/SCOPE/streams/s1", new("s1", WIDER), 200, WIDER),
    ("GET", "scopes/SCOPE/streams/s1", None, 200, WIDER),
    (
        *("GET", f"scopes/SCOPE/streams/s1/scaling-events?{ALL}", None, 200),
        [event(HALVES, 0, 0), event(THIRDS, 2, 1)],
    ),
    ("GET", "scopes/SCOPE/streams/s1/scaling-events?from=99999999999998&to=99999999999999", None, 200, ["last"]),
    ("GET", "scopes/SCOPE/streams/s1/scaling-events?from=0&to=1", None, 200, []),
    ("GET", "scopes/SCOPE/streams/s1/scaling-events?from=0", None, 400, None),
    ("GET", "scopes/SCOPE/streams/s1/scaling-events?from=5&to=1", None, 400, None),
    ("GET", "scopes/SCOPE/streams/s1/scaling-events?from=-5&to=1", None, 400, None),
    ("GET", f"scopes/SCOPE/streams/missing/scaling-events?{ALL}", None, 404, None),
    # ---- sealing and deleting
    ("PUT", "scopes/SCOPE/streams/s1/state", {"streamState": "OPEN"}, 400, None),
    ("PUT", "scopes/SCOPE/streams/missing/state", {"streamState": "SEALED"}, 404, None),
    ("GET", "scopes/SCOPE/streams/s1/state", None, 405, None),
    ("DELETE", "scopes/SCOPE/streams/s1", None, 412, None),
    ("PUT", "scopes/SCOPE/streams/s1/state", {"streamState": "SEALED"}, 200, {"streamState": "SEALED"}),
    ("PUT", "scopes/SCOPE/streams/s1/state", {"streamState": "SEALED"}, 200, {"streamState": "SEALED"}),
    ("DELETE", "scopes/SCOPE/streams/s1", None, 204, None),
    ("DELETE", "scopes/SCOPE/streams/s1", None, 404, None),
    ("DELETE", "scopes/SCOPE", None, 412, None),
    ("DELETE", "scopes/missing", None, 404, None),
    # ---- reader groups
    ("GET", "scopes/SCOPE/readergroups", None, 200, {}),
    ("GET", "scopes/missing/readergroups", None, 404, None),
    ("POST", "scopes/SCOPE/readergroups", {}, 405, None),
    ("GET", "scopes/SCOPE/readergroups/missing", None, 404, None),
    ("DELETE", "scopes/SCOPE/readergroups/missing", None, 404, None),
    # ---- health
    ("GET", "health", None, 200, {"name": "", **UP}),
    *(("GET", f"health/{part}", None, 200, value) for part, value in UP.items()),
    ("GET", "health/missing", None, 404, None),
    ("GET", "ping", None, 404, None),
]
"""Requests below /v1, with the status and the JSON of the answers; None for JSON that is not compared."""

Server = tuple[int, int]
"""The ports of gRPC and REST."""


@pytest.fixture(scope="module", params=["gateway", pytest.param("pravega", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "gateway":
        with running_gateway(CONFIG) as gateway:
            yield gateway.controller_port, gateway.controller_port
        return
    with PravegaStandalone() as pravega:
        assert pravega.controller is not None
        rest = pravega.rest_port
        wait_until(lambda: ask(rest, "GET", "/v1/health/readiness") == (200, True))  # it looks every ten seconds
        yield pravega.controller[1], rest


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Return the status of the answer, and its JSON if it is no error."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {} if body is None else {"content-type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if not data or answer.status >= 400:
        return answer.status, None
    assert answer.getheader("content-type") == "application/json"
    return answer.status, json.loads(data)


def compared(found: Any, scope: str) -> Any:
    """Return an answer as it stands in the story: times by their epochs, listings in order, no names of services."""
    if isinstance(found, list) and found:
        times = {segment["epoch"]: segment["start"] for one in found for segment in one["segments"]}
        for one in found:
            assert abs(one["timestamp"] / 1000 - time.time()) < 600
            [epoch] = {epoch for epoch, at in times.items() if at == one["timestamp"]}
            one["timestamp"] = f"epoch {epoch}"
            for segment in one["segments"]:
                segment["start"] = f"epoch {segment['epoch']}"
    if isinstance(found, dict):
        found.pop("children", None)
        if "streams" in found:
            found["streams"].sort(key=lambda one: one["streamName"])
    return json.loads(re.sub(rf"\b{scope}\b", "SCOPE", json.dumps(found)))


def test_the_story_of_a_scope(server: Server) -> None:
    scope, differences = unique("Rest"), []
    for method, path, body, status, expected in STORY:
        sent = None if body is None else json.loads(json.dumps(body).replace("SCOPE", scope))
        found = ask(server[1], method, "/v1/" + path.replace("SCOPE", scope), sent)
        answer = compared(found[1], scope)
        if expected == ["last"]:
            expected = [event(THIRDS, 0, 0)]
        if (found[0], answer if expected is not None else None) != (status, expected):
            differences.append(f"{method} {path}: {found[0]} {answer}\n   instead of {status} {expected}")
    assert not differences, "\n".join(differences)
    assert {"scopeName": scope} in ask(server[1], "GET", "/v1/scopes")[1]["scopes"]
    assert ask(server[1], "GET", "/ping") == (200, None)
    for name in ("s2", "s3", "s4"):
        path = f"/v1/scopes/{scope}/streams/{name}"
        assert ask(server[1], "PUT", f"{path}/state", {"streamState": "SEALED"})[0] == 200
        assert ask(server[1], "DELETE", path)[0] == 204
    assert ask(server[1], "DELETE", f"/v1/scopes/{scope}")[0] == 204
    assert ask(server[1], "GET", f"/v1/scopes/{scope}")[0] == 404


def test_reader_groups_of_the_java_client(server: Server, tmp_path: Path) -> None:
    """The names of the readers are those of the readers that are there now."""
    grpc, rest = server
    scope = unique("Groups")
    groups = f"/v1/scopes/{scope}/readergroups"
    one = {"scopeName": scope, "readerGroupName": "one", "streamList": [f"{scope}/s"]}

    def online(names: list[str]) -> None:
        until = time.monotonic() + 60
        while (found := ask(rest, "GET", f"{groups}/one")) != (200, {**one, "onlineReaderIds": names}):
            assert time.monotonic() < until, found
            time.sleep(0.2)

    with running_java(PROJECT, "Peer", tmp_path, f"tcp://127.0.0.1:{grpc}") as java:
        assert java.ask("scope", scope) == ["ok", "true"]
        assert java.ask("stream", scope, "s", 2) == ["ok", "true"]
        for name in ("one", "two"):
            assert java.ask("group", scope, name, "s") == ["ok"]
        listed = ask(rest, "GET", groups)[1]["readerGroups"]
        assert sorted(each["readerGroupName"] for each in listed) == ["one", "two"]
        online([])
        reading = threading.Thread(target=lambda: java.ask("read", scope, "s", "one", "reader-A", 1, 10_000))
        reading.start()
        online(["reader-A"])
        reading.join()
        online([])
    assert ask(rest, "DELETE", f"{groups}/one") == (204, None)
    assert ask(rest, "GET", f"{groups}/one") == (404, None)
    assert ask(rest, "GET", groups) == (200, {"readerGroups": [{"readerGroupName": "two"}]})
