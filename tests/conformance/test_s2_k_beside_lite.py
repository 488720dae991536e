"""Requests with small faults have the same status and code here and at a real `s2 lite` (`make peers`).

docs/protocols/s2.md names what differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from support.real_backs import S2Lite
from support.s2.client import S2Client

_numbers = itertools.count()

JSON = {"content-type": "application/json"}
RECORDS = "/v1/streams/{stream}/records"
STREAM = "/v1/streams/{stream}"
BASIN = "/v1/basins/{basin}"
ONE = '{"records":[{"body":"x"}]}'


@pytest.fixture(
    scope="module", params=["penstock", pytest.param("s2 lite", marks=[pytest.mark.slow, pytest.mark.peer])]
)
def server(request: pytest.FixtureRequest) -> Iterator[S2Client]:
    if request.param == "penstock":
        yield S2Client(("127.0.0.1", request.getfixturevalue("gateway").s2_port))
        return
    with S2Lite() as lite:
        yield S2Client(lite.address)


PATHS = [
    *(("GET", "/v1/streams//records", "400 bad_path"), ("POST", "/v1/streams//records", "400 bad_path")),
    *(("DELETE", "/v1/streams//records", "405"), ("GET", "/v1/streams/", "404"), ("GET", "/v1//streams", "404")),
    *(("GET", "/v1/streams/%zz", "404 stream_not_found"), ("GET", "/v1/streams/%/records", "404 stream_not_found")),
    *(("GET", "/v1/streams/%ff", "400 bad_path"), ("GET", "/v1/streams/%2e/records", "400 bad_path")),
    ("DELETE", "/v1/access-tokens/" + "x" * 97, "400 bad_path"),
    *(("GET", RECORDS + "?seq_num=%2B0", "200"), ("GET", RECORDS + "?seq_num=+0", "400 bad_query")),
    *(("GET", RECORDS + "?seq_num=0&x=%ff", "200"), ("GET", RECORDS + "?seq_num=%ff", "400 bad_query")),
    ("GET", RECORDS + "?seq_num=0&wait=4294967296", "400 bad_query"),
    *(("GET", "/v1/streams?prefix=%ff", "200"), ("GET", "/v1/streams?prefix=%00", "400 bad_query")),
    *(("GET", "/v1/basins?prefix=A", "400 bad_query"), ("GET", "/v1/basins?prefix=a-", "200")),
    *(("GET", "/v1/basins?start_after=-", "400 bad_query"), ("GET", "/v1/basins?prefix=a_b", "400 bad_query")),
]

HEADERS = [
    ("POST", "/v1/streams", '{"stream":"new"}', {"s2-request-token": "caf\xe9"}, "400 bad_header"),
    ("POST", "/v1/streams", "{bad", {"s2-request-token": "x" * 37}, "400 bad_header"),
    ("POST", "/v1/basins", "{bad", {"s2-request-token": "x" * 37}, "400 bad_header"),
    ("PUT", "/v1/streams/.", "{bad", {}, "400 bad_path"),
    ("PATCH", "/v1/basins/AB", "{bad", {}, "400 bad_path"),
    ("POST", RECORDS, ONE, {"content-encoding": ""}, "415"),
    ("POST", RECORDS, ONE, {"s2-stream-config": "{bad"}, "400 bad_header"),
    ("POST", RECORDS, '{"records":[]}', {"s2-stream-config": "null"}, "400 bad_header"),
    ("POST", RECORDS, ONE, {"s2-stream-config": '{"delete_on_empty":{"min_age_secs":null}}'}, "400 bad_header"),
    ("POST", RECORDS, ONE, {"s2-stream-config": '{"storage_class":"a","storage_class":"b"}'}, "400 bad_header"),
]

BODIES = [
    *(("POST", RECORDS, body, "400 bad_json") for body in ("null", "[]", "{}", '{"records":null}', "{bad")),
    ("POST", RECORDS, '{"records":[{"body":"a"}],"records":[{"body":"b"}]}', "400 bad_json"),
    ("POST", RECORDS, '{"records":[{"body":"a","body":"b"}]}', "400 bad_json"),
    ("POST", RECORDS, '{"records":[{"body":"a"}],"match_seq_num":0,"match_seq_num":0}', "400 bad_json"),
    *(("PUT", STREAM, body, "400 bad_json") for body in ("null", "1", '{"storage_class":"a","storage_class":"b"}')),
    *(("PUT", STREAM, body, "200") for body in ("{}", "")),
    ("PUT", STREAM, '{"delete_on_empty":{"min_age_secs":null}}', "400 bad_json"),
    ("PATCH", STREAM, '{"delete_on_empty":{"min_age_secs":null}}', "200"),
    *(("PATCH", STREAM, body, "400 bad_json") for body in ("null", "", '{"retention_policy":{"age":5,"age":6}}')),
    *(("PUT", BASIN, body, "400 bad_json") for body in ("null", '{"config":{},"config":{}}')),
    ("PUT", BASIN, '{"config":{"create_stream_on_append":null}}', "400 bad_json"),
    ("PUT", BASIN, '{"config":{"default_stream_config":{"delete_on_empty":{"min_age_secs":null}}}}', "400 bad_json"),
    *(("PUT", BASIN, f'{{"location":"{name}"}}', "400 bad_json") for name in ("", "a b", "x" * 65)),
    *(("PATCH", BASIN, f'{{"create_stream_on_{when}":null}}', "400 bad_json") for when in ("append", "read")),
    ("PATCH", BASIN, '{"default_stream_config":null,"stream_cipher":null}', "200"),
    ("POST", "/v1/streams", '{"stream":"a","stream":"b"}', "400 bad_json"),
    ("POST", "/v1/basins", '{"basin":"basin-a","basin":"basin-b"}', "400 bad_json"),
]

CASES = [
    *((method, path, "", {}, expected) for method, path, expected in PATHS),
    *HEADERS,
    *((method, path, body, {}, expected) for method, path, body, expected in BODIES),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "expected"), CASES)
def test_status_and_code(
    server: S2Client, method: str, path: str, body: str, headers: dict[str, str], expected: str
) -> None:
    basin = f"beside-{next(_numbers):04}"
    s2 = server.ensure_basin(basin)
    s2.ensure_stream("stream")
    s2.append("stream", "a", "b")
    sends = method in ("POST", "PUT", "PATCH")
    answer = s2.request(
        method,
        path.format(stream="stream", basin=basin),
        body.encode() if sends else None,
        {**(JSON if sends else {}), **headers},
    )
    found = str(answer.status)
    if answer.status >= 400 and answer.body and answer.status != 416:
        found += f" {answer.json(answer.status)['code']}"
    assert found == expected, answer.body


def test_a_repeated_deletion_succeeds(server: S2Client) -> None:
    """While s2-lite has records to remove; here for a minute."""
    s2 = server.ensure_basin(f"beside-{next(_numbers):04}")
    s2.ensure_stream("stream")
    s2.append("stream", "x")
    assert [server.request("DELETE", f"/v1/basins/{s2.basin}").status for _ in range(2)] == [202, 202]
