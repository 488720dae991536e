"""S2 checklist, group A: routing and headers (S2 fact sheet, section 10)."""

import gzip
import json
import socket
from collections.abc import Iterator

import pytest
from support.http.h2_client import H2Connection
from support.process import BASIN, CONFIG, running_gateway
from support.s2.client import Address, S2Client, open_stream, stream_path


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_item_01_health(s2: S2Client, path: str) -> None:
    answer = s2.of(None).request("GET", path)
    assert (answer.status, answer.body) == (200, b"OK")


def test_item_02_tail_of_an_empty_stream(s2: S2Client, stream: str) -> None:
    answer = s2.request("GET", stream_path(stream) + "/records/tail")
    assert answer.json() == {"tail": {"seq_num": 0, "timestamp": 0}}


def test_item_03_missing_basin(s2: S2Client, stream: str) -> None:
    answer = s2.of(None).request("GET", stream_path(stream) + "/records/tail")
    assert answer.fails(400, "bad_header") == "Missing header `s2-basin`"


def test_item_04_invalid_basin(s2: S2Client, stream: str) -> None:
    answer = s2.of("AB").request("GET", stream_path(stream) + "/records/tail")
    assert answer.fails(400, "bad_header").startswith("Invalid header `s2-basin`: ")


def test_item_05_unknown_basin(s2: S2Client, stream: str) -> None:
    unknown = s2.of("unknown-basin")
    unknown.read(stream, seq_num=0).fails(404, "basin_not_found")
    unknown.append_json(stream, {"records": [{"body": "x"}]}).fails(404, "basin_not_found")
    unknown.request("GET", stream_path(stream) + "/records/tail").fails(404, "basin_not_found")


def test_item_06_unknown_stream(s2: S2Client) -> None:
    s2.request("GET", "/v1/streams/nope/records/tail").fails(404, "stream_not_found")


def test_item_07_raw_slash_is_no_route(s2: S2Client) -> None:
    s2.ensure_stream("a/b")
    answer = s2.request("GET", "/v1/streams/a/b/records")
    assert (answer.status, answer.body) == (404, b"")
    assert s2.request("GET", "/v1/streams/a%2Fb/records/tail").status == 200


NAMES = ["a b", "per%cent", "what?", "naïve/ströme", "流れ", "#hash&amp;=+", "%2F", "x" * 512, "a//b/", "..."]


def test_item_07_names_round_trip(own_basin: S2Client) -> None:
    for name in NAMES:
        own_basin.ensure_stream(name)
        own_basin.append(name, name)
    listed = [info["name"] for info in own_basin.request("GET", "/v1/streams").json()["streams"]]
    assert listed == sorted(NAMES, key=lambda name: name.encode())
    assert [own_basin.bodies(name, seq_num=0) for name in NAMES] == [[name] for name in NAMES]


@pytest.mark.parametrize("name", [".", "..", "x" * 513, "%FF", "a\0b"])
def test_item_07_names_that_are_refused(s2: S2Client, name: str) -> None:
    raw = name if name == "%FF" else stream_path(name).removeprefix("/v1/streams/").replace(".", "%2E")
    s2.request("GET", f"/v1/streams/{raw}/records/tail").fails(400, "bad_path")


def test_item_08_method_not_allowed(s2: S2Client, stream: str) -> None:
    answer = s2.request("DELETE", stream_path(stream) + "/records")
    assert (answer.status, answer.body) == (405, b"")
    assert {method.strip() for method in answer.headers["allow"].split(",")} >= {"GET", "HEAD", "POST"}


def test_item_08_head_has_no_body(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    answer = s2.request("HEAD", stream_path(stream) + "/records", seq_num=0)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "application/json"


def test_unknown_routes_have_an_empty_body(s2: S2Client) -> None:
    for path in ("/", "/v2/streams", "/v1/streams/", "/v1/streams/x/records/tail/", "/v1"):
        answer = s2.request("GET", path)
        assert (answer.status, answer.body) == (404, b""), path


@pytest.mark.parametrize("value", [None, "Bearer anything", "garbage"])
def test_item_09_authorization_is_ignored_when_disabled(s2: S2Client, stream: str, value: str | None) -> None:
    headers = {} if value is None else {"authorization": value}
    assert s2.request("GET", stream_path(stream) + "/records/tail", None, headers).status == 200


def test_item_10_both_http_versions_on_one_port(s2: S2Client, stream: str) -> None:
    target = stream_path(stream) + "/records/tail"
    for carrier in ("h1", "h2"):
        exchange = open_stream(s2.address, carrier, "GET", target, s2.head())
        assert exchange.status == 200
        assert json.loads(exchange.receive()) == {"tail": {"seq_num": 0, "timestamp": 0}}
        exchange.close()


def test_item_10_many_requests_on_one_connection(s2: S2Client, stream: str) -> None:
    """HTTP/1.1 keep-alive with pipelining, and concurrent HTTP/2 streams."""
    target = stream_path(stream) + "/records/tail"
    with socket.create_connection(s2.address, timeout=10) as connection:
        head = f"GET {target} HTTP/1.1\r\nhost: localhost\r\ns2-basin: {s2.basin}\r\n\r\n".encode()
        connection.sendall(head * 20)
        received = b""
        while received.count(b'{"tail":{"seq_num":0,"timestamp":0}}') < 20:
            received += connection.recv(65536)
        assert received.count(b"HTTP/1.1 200") == 20
    h2 = H2Connection(s2.address)
    exchanges = [h2.open("GET", target, s2.head()) for _ in range(50)]
    assert {(exchange.status, exchange.receive()) for exchange in exchanges} == {
        (200, b'{"tail":{"seq_num":0,"timestamp":0}}')
    }
    h2.close()


ORIGIN = "https://app.example"


@pytest.fixture(scope="module")
def with_pages() -> Iterator[S2Client]:
    """A client of a gateway that pages of ORIGIN may use."""
    with running_gateway(CONFIG.replace("[listeners.s2]", f'[listeners.s2]\ncors_origins = ["{ORIGIN}"]')) as gateway:
        yield S2Client(("127.0.0.1", gateway.s2_port), BASIN)


def test_item_11_preflight(with_pages: S2Client, stream: str) -> None:
    asked = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "s2-basin,content-type,authorization",
    }
    answer = with_pages.of(None).request("OPTIONS", stream_path(stream) + "/records", None, asked)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert allowed >= {"s2-basin", "content-type", "authorization"}


def test_item_11_answers_name_the_origin(with_pages: S2Client, stream: str) -> None:
    s2, origin = with_pages, {"origin": ORIGIN}
    for answer in (
        s2.read(stream, origin, seq_num=9),
        s2.read("n" * 600, origin),
        s2.read(stream, origin, seq_num="x"),
    ):
        assert answer.headers["access-control-allow-origin"] == ORIGIN, answer
    s2.append(stream, "x")
    events = s2.events(stream, headers=origin, seq_num=0, count=1)
    assert events.stream.headers["access-control-allow-origin"] == ORIGIN
    events.close()


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_item_11_other_origins_are_refused(with_pages: S2Client, s2: S2Client, stream: str, method: str) -> None:
    """They are told so without permission to read it."""
    headers = {"origin": "https://other.example", "access-control-request-method": "POST"}
    for client in (with_pages, s2):
        answer = client.request(method, stream_path(stream) + "/records", None, headers)
        assert "cors_origins" in answer.fails(403, "permission_denied")
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "host", ["other.example", "other.example:8080", "127.0.0.1.other.example", "localhost.example"]
)
def test_requests_by_foreign_hosts_are_refused(s2: S2Client, stream: str, host: str) -> None:
    """A page can let its name resolve to this machine (DNS rebinding)."""
    answer = s2.read(stream, {"host": host}, seq_num=0)
    assert f"{host!r} is not allowed here" in answer.fails(403, "permission_denied")


def test_item_12_compressed_answers(s2: S2Client, stream: str) -> None:
    body = "compress me " * 1000
    s2.append(stream, body)
    plain = s2.read(stream, seq_num=0)
    assert "content-encoding" not in plain.headers
    packed = s2.read(stream, {"accept-encoding": "gzip"}, seq_num=0)
    assert packed.headers.get("content-encoding") in ("gzip", None)
    assert "content-encoding" not in packed.headers or gzip.decompress(packed.body) == plain.body
    small = s2.request("GET", stream_path(stream) + "/records/tail", None, {"accept-encoding": "gzip"})
    assert "content-encoding" not in small.headers


@pytest.mark.parametrize("carrier", ["h1", "h2"])
def test_item_12_sessions_are_never_content_encoded(s2: S2Client, stream: str, carrier: str) -> None:
    s2.append(stream, "compress me " * 1000)
    headers = {"accept-encoding": "gzip"}
    for session in (
        s2.events(stream, carrier, headers, seq_num=0, count=1),
        s2.read_session(stream, carrier, headers, seq_num=0, count=1),
    ):
        assert "content-encoding" not in session.stream.headers
        session.rest()
        session.close()


def test_item_09_authorization_is_required_when_enabled(s2_with_tokens: S2Client) -> None:
    path = "/v1/streams/s/records/tail"
    refused = s2_with_tokens.request("GET", path)
    refused.fails(401, "authn")
    assert refused.headers["www-authenticate"] == "Bearer"
    s2_with_tokens.request("GET", path, None, {"authorization": "Bearer wrong"}).fails(401, "authn")
    s2_with_tokens.request("GET", path, None, {"authorization": "Basic secret-one"}).fails(401, "authn")
    s2_with_tokens.append_json("s", {"records": [{"body": "x"}]}).fails(401, "authn")
    right = {"authorization": "Bearer secret-one"}
    s2_with_tokens.send_json("PUT", "/v1/basins/token-basin", {}, right).json(201)
    s2_with_tokens.request("GET", path, None, right).fails(404, "stream_not_found")
    assert s2_with_tokens.of(None).request("GET", "/health").status == 200


def _tail_by(address: Address, stream: str, host: str = "", query: str = "") -> tuple[int, bytes]:
    exchange = open_stream(
        address, "h1", "GET", stream_path(stream) + "/records/tail" + query, {"host": host} if host else {}
    )
    found = exchange.status, exchange.receive()
    exchange.close()
    return found


def test_basin_by_host_for_browsers(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    status, body = _tail_by(s2.address, stream, f"{s2.basin}.localhost:{s2.address[1]}")
    assert status == 200
    assert json.loads(body)["tail"]["seq_num"] == 1
    assert _tail_by(s2.address, stream, "unknown-basin.localhost")[0] == 404
    assert _tail_by(s2.address, stream, "localhost")[0] == 400


def test_basin_by_query_for_browsers(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    status, body = _tail_by(s2.address, stream, query=f"?s2-basin={s2.basin}")
    assert status == 200
    assert json.loads(body)["tail"]["seq_num"] == 1
    assert _tail_by(s2.address, stream, query="?s2-basin=unknown-basin")[0] == 404


def test_basin_by_query_for_event_source(s2: S2Client, stream: str) -> None:
    """A browser's EventSource sends no header of ours, but Last-Event-ID on reconnection."""
    s2.append(stream, "x", "y")
    anonymous = s2.of(None)
    with anonymous.events(stream, seq_num=0, **{"s2-basin": s2.basin}) as events:
        first = events.batch()
        assert [record["body"] for record in first.json()["records"]] == ["x", "y"]
    assert first.id is not None
    s2.append(stream, "z")
    again = {"last-event-id": first.id}
    with anonymous.events(stream, headers=again, seq_num=0, **{"s2-basin": s2.basin}) as events:
        assert [record["body"] for record in events.batch().json()["records"]] == ["z"]


@pytest.mark.parametrize(
    ("method", "header"),
    [("POST", "if-match"), ("POST", "if-none-match"), ("PUT", "if-none-match"), ("DELETE", "if-unmodified-since")],
)
def test_a_precondition_is_refused_and_nothing_is_done(s2: S2Client, stream: str, method: str, header: str) -> None:
    """S2 has none of HTTP's: a client that sends one relies on it."""
    path = stream_path(stream) + ("/records" if method == "POST" else "")
    head = {"content-type": "application/json", header: "*"}
    body = b'{"records":[{"body":"x"}]}' if method == "POST" else b'{"storage_class":"standard"}'
    assert header in s2.request(method, path, body, head).fails(400, "bad_header")
    assert s2.tail(stream)["seq_num"] == 0
    assert s2.request("GET", stream_path(stream)).json()["storage_class"] == "express"
    assert s2.read(stream, {"if-none-match": '"x"'}, seq_num=0, count=0).status == 200
