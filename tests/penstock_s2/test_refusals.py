"""Refusals that S2's specification leaves open, their words, and parts of the API that are this gateway's own."""

from collections.abc import Iterator

import pytest
from support.process import CONFIG, running_gateway
from support.s2.client import S2Client, stream_path
from support.s2.frames import append_input

JSON = {"content-type": "application/json"}
TAIL = "/v1/streams/s/records/tail"


@pytest.fixture(scope="module")
def with_tokens() -> Iterator[S2Client]:
    """A client of a gateway that wants one of two tokens, and has a default basin, which is not there yet."""
    keys = '\nauth_tokens = ["secret-one", "secret-two"]\ndefault_basin = "token-basin"'
    with running_gateway(CONFIG.replace("[listeners.s2]", f"[listeners.s2]{keys}")) as process:
        yield S2Client(("127.0.0.1", process.s2_port))


def test_a_token_is_demanded_where_there_are_tokens(with_tokens: S2Client) -> None:
    refused = with_tokens.request("GET", TAIL)
    refused.fails(401, "authn")
    assert refused.headers["www-authenticate"] == "Bearer"
    for wrong in ("Bearer wrong", "Basic secret-one"):
        with_tokens.request("GET", TAIL, None, {"authorization": wrong}).fails(401, "authn")
    with_tokens.append_json("s", {"records": [{"body": "x"}]}).fails(401, "authn")
    right = {"authorization": "Bearer secret-two"}
    with_tokens.send_json("PUT", "/v1/basins/token-basin", {}, right).json(201)
    with_tokens.request("GET", TAIL, None, right).fails(404, "stream_not_found")
    assert with_tokens.request("GET", "/health").status == 200


@pytest.mark.parametrize("value", ["Bearer anything", "garbage"])
def test_tokens_are_ignored_where_there_are_none(s2: S2Client, stream: str, value: str) -> None:
    assert s2.request("GET", stream_path(stream) + "/records/tail", None, {"authorization": value}).status == 200


@pytest.mark.parametrize(
    ("method", "header"),
    [("POST", "if-match"), ("POST", "if-none-match"), ("PUT", "if-none-match"), ("DELETE", "if-unmodified-since")],
)
def test_a_precondition_is_refused_and_nothing_is_done(s2: S2Client, stream: str, method: str, header: str) -> None:
    """S2 has none of HTTP's: a client that sends one relies on it."""
    path = stream_path(stream) + ("/records" if method == "POST" else "")
    body = b'{"records":[{"body":"x"}]}' if method == "POST" else b'{"storage_class":"standard"}'
    assert header in s2.request(method, path, body, {**JSON, header: "*"}).fails(400, "bad_header")
    assert s2.tail(stream)["seq_num"] == 0
    assert s2.request("GET", stream_path(stream)).json()["storage_class"] == "express"
    assert s2.read(stream, {"if-none-match": '"x"'}, seq_num=0, count=0).status == 200


def test_storage_classes_are_any_text(own_basin: S2Client) -> None:
    own_basin.ensure_stream("s", storage_class="gold")
    assert own_basin.request("GET", stream_path("s")).json()["storage_class"] == "gold"


@pytest.mark.parametrize("path", ["/v1/access-tokens", "/v1/access-tokens/id"])
def test_access_tokens_are_not_implemented_without_access(s2: S2Client, path: str) -> None:
    for method in ("DELETE",) if path.endswith("id") else ("GET", "POST"):
        assert s2.of(None).request(method, path).fails(501, "not_implemented") == "Not implemented"


def test_the_gateway_is_one_location(s2: S2Client) -> None:
    client = s2.of(None)
    here = client.request("GET", "/v1/locations/default").json()
    assert here == {
        "name": "penstock",
        "is_private": True,
        "storage_classes": ["express", "standard"],
        "default_storage_class": "express",
    }
    assert client.request("GET", "/v1/locations").json() == [here]
    assert client.send_json("PUT", "/v1/locations/default", "penstock").json() == here
    client.send_json("PUT", "/v1/locations/default", "aws:us-east-1").fails(422, "invalid")
    client.send_json("PUT", "/v1/locations/default", {"name": "penstock"}).fails(400, "bad_json")
    elsewhere = {"basin": "served-elsewhere", "location": "aws:us-east-1"}
    client.send_json("POST", "/v1/basins", elsewhere).fails(422, "invalid")
    made = client.send_json("POST", "/v1/basins", {"basin": "served-here", "location": "penstock"}).json(201)
    assert made["location"] == "penstock"


def test_words(s2: S2Client, stream: str) -> None:
    """The codecs' tests have all others."""
    records = stream_path(stream) + "/records"
    answer = s2.request("POST", records, b'{"records":[]}', {"content-type": "text/plain"})
    assert answer.fails(400, "bad_json") == "Expected request with `Content-Type: application/json`"
    message = s2.append_proto(stream, b"\xff").fails(400, "bad_proto")
    assert "s2.v1.AppendInput" in message and "penstock" not in message
    answer = s2.read(stream, seq_num=0, tail_offset=1)
    assert answer.fails(422, "invalid") == "only one of seq_num, timestamp, or tail_offset can be provided"
    assert s2.append_proto(stream, append_input(b"x")).status == 200
    small = s2.read(stream, {"accept-encoding": "gzip"}, seq_num=0)
    assert (small.status, small.headers.get("content-encoding")) == (200, None)
