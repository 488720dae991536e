"""S2 checklist, group G: the control plane (S2 fact sheet, section 10 and 1.3)."""

import datetime
import itertools
from dataclasses import replace

import pytest
from support.http.h2_client import H2Connection
from support.s2.client import Answer, S2Client, stream_path

_numbers = itertools.count()

DEFAULTS = {
    "storage_class": "express",
    "retention_policy": {"age": 604_800},
    "timestamping": {"mode": "client-prefer", "uncapped": False},
    "delete_on_empty": {"min_age_secs": 0},
}


@pytest.fixture(params=["h1", "h2"])
def s2(s2: S2Client, request: pytest.FixtureRequest) -> S2Client:
    """Every item over either HTTP version."""
    return replace(s2, carrier=request.param)


@pytest.fixture
def basin_name() -> str:
    return f"ctl-basin-{next(_numbers)}"


def provisioned(answer: Answer) -> tuple[int, str]:
    """Status and what header `s2-provision-result` says."""
    return answer.status, answer.headers["s2-provision-result"]


def is_time(text: object) -> bool:
    """RFC 3339 with a zone."""
    return datetime.datetime.fromisoformat(str(text)).tzinfo is not None


def test_item_79_ensure_basin(s2: S2Client, basin_name: str) -> None:
    path = f"/v1/basins/{basin_name}"
    account = s2.of(None)
    made = account.send_json("PUT", path, {})
    assert provisioned(made) == (201, "created")
    info = made.json(201)
    assert set(info) == {"name", "location", "created_at", "deleted_at", "state"}
    assert (info["name"], info["deleted_at"], info["state"]) == (basin_name, None, "active")
    assert is_time(info["created_at"])
    assert provisioned(account.send_json("PUT", path, {})) == (200, "noop")
    change = {"config": {"create_stream_on_append": True}}
    assert provisioned(account.send_json("PUT", path, change)) == (200, "updated")
    assert provisioned(account.send_json("PUT", path, change)) == (200, "noop")
    assert account.request("GET", path).json()["create_stream_on_append"] is True


def test_item_79_ensure_without_a_body(s2: S2Client, basin_name: str) -> None:
    account = s2.of(None)
    assert provisioned(account.request("PUT", f"/v1/basins/{basin_name}")) == (201, "created")
    assert provisioned(s2.of(basin_name).request("PUT", "/v1/streams/s")) == (201, "created")


def test_item_79_ensure_stream(s2: S2Client, new_name: str) -> None:
    path = stream_path(new_name)
    made = s2.send_json("PUT", path, {})
    assert provisioned(made) == (201, "created")
    info = made.json(201)
    assert {name: value for name, value in info.items() if name != "created_at"} == {
        "name": new_name,
        "deleted_at": None,
        "cipher": None,
    }
    assert is_time(info["created_at"])
    assert provisioned(s2.send_json("PUT", path, {})) == (200, "noop")
    change = {"retention_policy": {"age": 60}}
    assert provisioned(s2.send_json("PUT", path, change)) == (200, "updated")
    assert provisioned(s2.send_json("PUT", path, change)) == (200, "noop")
    s2.append(new_name, "kept")
    assert provisioned(s2.send_json("PUT", path, {"retention_policy": {"infinite": {}}})) == (200, "updated")
    assert s2.request("GET", path).json()["retention_policy"] == {"infinite": {}}
    assert s2.bodies(new_name, seq_num=0) == ["kept"]


def test_item_80_create_stream(s2: S2Client, new_name: str) -> None:
    value = {"stream": new_name, "config": {"retention_policy": {"age": 60}}}
    token = {"s2-request-token": f"token-{new_name}"}
    assert provisioned(s2.send_json("POST", "/v1/streams", value, token)) == (201, "created")
    assert provisioned(s2.send_json("POST", "/v1/streams", value, token)) == (201, "noop")
    s2.send_json("POST", "/v1/streams", value).fails(409, "resource_already_exists")
    other_token = {"s2-request-token": "another"}
    s2.send_json("POST", "/v1/streams", value, other_token).fails(409, "resource_already_exists")
    s2.send_json("POST", "/v1/streams", {"stream": new_name}, token).fails(409, "resource_already_exists")
    long_token = {"s2-request-token": "t" * 37}
    s2.send_json("POST", "/v1/streams", value, long_token).fails(400, "bad_header")
    s2.of("unknown-basin").send_json("POST", "/v1/streams", value).fails(404, "basin_not_found")


def test_item_80_create_basin(s2: S2Client, basin_name: str) -> None:
    account = s2.of(None)
    value = {"basin": basin_name, "config": {"create_stream_on_read": True}}
    token = {"s2-request-token": basin_name}
    made = account.send_json("POST", "/v1/basins", value, token)
    assert provisioned(made) == (201, "created")
    assert made.json(201)["name"] == basin_name
    assert provisioned(account.send_json("POST", "/v1/basins", value, token)) == (201, "noop")
    account.send_json("POST", "/v1/basins", value).fails(409, "resource_already_exists")
    assert account.request("GET", f"/v1/basins/{basin_name}").json()["create_stream_on_read"] is True


def test_item_81_defaults_are_resolved(s2: S2Client, stream: str) -> None:
    assert s2.request("GET", stream_path(stream)).json() == DEFAULTS


def test_item_81_basin_defaults_shine_through(s2: S2Client, basin_name: str) -> None:
    basin = s2.ensure_basin(
        basin_name, default_stream_config={"retention_policy": {"age": 90}, "timestamping": {"mode": "arrival"}}
    )
    basin.ensure_stream("plain")
    basin.ensure_stream("own", timestamping={"uncapped": True})
    expected = {**DEFAULTS, "retention_policy": {"age": 90}, "timestamping": {"mode": "arrival", "uncapped": False}}
    assert basin.request("GET", "/v1/streams/plain").json() == expected
    expected["timestamping"] = {"mode": "arrival", "uncapped": True}
    assert basin.request("GET", "/v1/streams/own").json() == expected


def test_item_81_a_new_default_of_the_basin_is_for_new_streams(s2: S2Client, basin_name: str) -> None:
    basin = s2.ensure_basin(basin_name)
    basin.ensure_stream("before")
    basin.append("before", "kept")
    change = {"default_stream_config": {"retention_policy": {"age": 5}}}
    s2.of(None).send_json("PATCH", f"/v1/basins/{basin_name}", change).json()
    config = basin.request("GET", "/v1/streams/before").json()
    assert config == DEFAULTS
    assert provisioned(basin.send_json("PUT", "/v1/streams/before", config)) == (200, "noop")
    basin.ensure_stream("after")
    assert basin.request("GET", "/v1/streams/after").json() == {**DEFAULTS, "retention_policy": {"age": 5}}


def test_item_81_storage_classes_are_the_servers_words(s2: S2Client, new_name: str) -> None:
    s2.ensure_stream(new_name, storage_class="gold")
    assert s2.request("GET", stream_path(new_name)).json()["storage_class"] == "gold"


def test_item_81_patch_stream(s2: S2Client, new_name: str) -> None:
    path = stream_path(new_name)
    s2.ensure_stream(new_name, retention_policy={"age": 60}, timestamping={"mode": "arrival", "uncapped": True})
    changed = s2.send_json("PATCH", path, {"retention_policy": {"age": 120}, "timestamping": {"mode": None}}).json()
    expected = {
        **DEFAULTS,
        "retention_policy": {"age": 120},
        "timestamping": {"mode": "client-prefer", "uncapped": True},
    }
    assert changed == expected == s2.request("GET", path).json()
    assert s2.send_json("PATCH", path, {}).json() == expected
    reset = s2.send_json("PATCH", path, {"retention_policy": None, "timestamping": None}).json()
    assert reset == DEFAULTS
    deleted_when_empty = s2.send_json("PATCH", path, {"delete_on_empty": {"min_age_secs": 5}}).json()
    assert deleted_when_empty["delete_on_empty"] == {"min_age_secs": 5}
    s2.request("PATCH", path, None, {"content-type": "application/json"}).fails(400, "bad_json")
    s2.send_json("PATCH", stream_path("nope"), {}).fails(404, "stream_not_found")
    s2.of("unknown-basin").send_json("PATCH", stream_path("nope"), {}).fails(404, "basin_not_found")


def test_item_81_patch_basin(s2: S2Client, basin_name: str) -> None:
    account = s2.of(None)
    path = f"/v1/basins/{basin_name}"
    s2.ensure_basin(basin_name, create_stream_on_append=True, default_stream_config={"retention_policy": {"age": 60}})
    account.send_json("PATCH", path, {"create_stream_on_read": True}).json()
    config = account.request("GET", path).json()
    assert set(config) == {"default_stream_config", "stream_cipher", "create_stream_on_append", "create_stream_on_read"}
    assert (config["create_stream_on_append"], config["create_stream_on_read"]) == (True, True)
    assert config["default_stream_config"]["retention_policy"] == {"age": 60}
    nested = account.send_json("PATCH", path, {"default_stream_config": {"storage_class": "standard"}}).json()
    assert nested["default_stream_config"]["retention_policy"] == {"age": 60}
    assert nested["default_stream_config"]["storage_class"] == "standard"
    config = account.send_json("PATCH", path, {"default_stream_config": None}).json()
    assert (config["default_stream_config"] or {}).get("retention_policy") in (None, DEFAULTS["retention_policy"])
    account.request("PATCH", path, None, {"content-type": "application/json"}).fails(400, "bad_json")
    account.send_json("PATCH", "/v1/basins/unknown-basin", {}).fails(404, "basin_not_found")
    account.request("GET", "/v1/basins/unknown-basin").fails(404, "basin_not_found")


def names(answer: Answer, kind: str) -> tuple[list[str], bool]:
    """The names of a listing's page, and whether there are more."""
    page = answer.json()
    assert set(page) == {kind, "has_more"}
    return [info["name"] for info in page[kind]], page["has_more"]


def test_item_82_list_streams(own_basin: S2Client) -> None:
    for name in ("b/1", "a/2", "a/1", "a/10", "c", "A"):
        own_basin.ensure_stream(name)

    def page(**query: object) -> tuple[list[str], bool]:
        return names(own_basin.request("GET", "/v1/streams", **query), "streams")

    everything = ["A", "a/1", "a/10", "a/2", "b/1", "c"]
    assert page() == (everything, False)
    assert page(prefix="a/") == (["a/1", "a/10", "a/2"], False)
    assert page(start_after="a/10") == (["a/2", "b/1", "c"], False)
    assert page(prefix="a/", start_after="a/1") == (["a/10", "a/2"], False)
    assert page(limit=2) == (everything[:2], True)
    assert page(limit=2, start_after="b/1") == (["c"], False)
    assert page(limit=3, prefix="a/") == (["a/1", "a/10", "a/2"], False)
    assert page(limit=0) == page(limit=5000) == (everything, False)
    assert page(prefix="zzz") == ([], False)
    assert page(prefix="a", start_after="zzz") == ([], False)
    own_basin.request("GET", "/v1/streams", limit="x").fails(400, "bad_query")


@pytest.mark.parametrize("name", ["prefix", "start_after"])
@pytest.mark.parametrize("value", ["a" * 513, "a\0"])
def test_item_82_bounds_that_no_name_can_have(s2: S2Client, name: str, value: str) -> None:
    s2.request("GET", "/v1/streams", **{name: value}).fails(400, "bad_query")
    s2.of(None).request("GET", "/v1/basins", **{name: value}).fails(400, "bad_query")


def test_item_82_a_repeated_parameter(s2: S2Client, stream: str) -> None:
    s2.request("GET", "/v1/streams?limit=1&limit=2").fails(400, "bad_query")
    s2.request("GET", f"{stream_path(stream)}/records?seq_num=0&seq_num=1").fails(400, "bad_query")
    assert s2.request("GET", "/v1/streams?other=1&other=2&limit=1").status == 200, "it means nothing"


@pytest.mark.parametrize("media", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_said_to_be_json(s2: S2Client, new_name: str, media: str | None) -> None:
    """As it comes from a page of another origin, which a browser lets send it unasked."""
    headers = {} if media is None else {"content-type": media}
    s2.request("POST", "/v1/streams", b'{"stream":"%s"}' % new_name.encode(), headers).fails(400, "bad_json")
    s2.ensure_stream(new_name)
    s2.request("PATCH", stream_path(new_name), b"{}", headers).fails(400, "bad_json")
    ensured = s2.request("PUT", stream_path(new_name), b"{}", headers)
    if media is None:
        assert provisioned(ensured) == (200, "noop")
    else:
        ensured.fails(400, "bad_json")


def test_item_82_list_streams_of_an_unknown_basin(s2: S2Client) -> None:
    s2.of("unknown-basin").request("GET", "/v1/streams").fails(404, "basin_not_found")
    s2.of("unknown-basin").request("GET", "/v1/streams", prefix="a").fails(404, "basin_not_found")


def test_item_82_list_of_more_than_a_thousand(s2: S2Client, basin_name: str) -> None:
    """limit=0 and limit=5000 behave as 1000."""
    basin = s2.ensure_basin(basin_name)
    connection = H2Connection(s2.address)
    expected = [f"s{number:04}" for number in range(1001)]
    for first in range(0, len(expected), 50):
        exchanges = []
        for name in expected[first : first + 50]:
            exchange = connection.open("POST", "/v1/streams", {**basin.head(), "content-type": "application/json"})
            exchange.send(b'{"stream":"%b"}' % name.encode())
            exchange.end()
            exchanges.append(exchange)
        assert {exchange.status for exchange in exchanges} == {201}
    connection.close()
    for query in ({}, {"limit": 0}, {"limit": 5000}, {"limit": 1000}):
        assert names(basin.request("GET", "/v1/streams", **query), "streams") == (expected[:1000], True)
    rest = basin.request("GET", "/v1/streams", start_after=expected[999])
    assert names(rest, "streams") == (expected[1000:], False)


def test_item_82_list_basins(s2: S2Client) -> None:
    for name in ("list-basin-b", "list-basin-a", "list-basin-c"):
        s2.ensure_basin(name)

    def page(**query: object) -> tuple[list[str], bool]:
        return names(s2.of(None).request("GET", "/v1/basins", **query), "basins")

    assert page(prefix="list-basin-") == (["list-basin-a", "list-basin-b", "list-basin-c"], False)
    assert page(prefix="list-basin-", limit=1) == (["list-basin-a"], True)
    assert page(prefix="list-basin-", start_after="list-basin-a") == (["list-basin-b", "list-basin-c"], False)
    assert "conf-basin-01" in page()[0]


def test_item_83_delete_stream(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    gone = s2.request("DELETE", stream_path(stream))
    assert (gone.status, gone.body, gone.headers["content-length"]) == (202, b"", "0")
    assert "json" not in gone.headers.get("content-type", "")
    again = s2.request("DELETE", stream_path(stream))
    assert again.status == 202, "its client may not have had the answer"
    s2.request("GET", stream_path(stream)).fails(404, "stream_not_found")
    s2.request("DELETE", stream_path("never made")).fails(404, "stream_not_found")


def test_item_83_delete_basin(s2: S2Client, basin_name: str) -> None:
    basin = s2.ensure_basin(basin_name)
    basin.ensure_stream("s")
    gone = s2.of(None).request("DELETE", f"/v1/basins/{basin_name}")
    assert (gone.status, gone.body, gone.headers["content-length"]) == (202, b"", "0")
    again = s2.of(None).request("DELETE", f"/v1/basins/{basin_name}")
    assert again.status == 202, "its client may not have had the answer"
    s2.of(None).request("DELETE", "/v1/basins/unknown-basin").fails(404, "basin_not_found")
    late = basin.append_json("s", {"records": [{"body": "x"}]})
    assert late.json(late.status)["code"] in ("basin_not_found", "basin_deletion_pending")


def test_item_83_a_new_stream_of_the_same_name_is_empty(s2: S2Client, stream: str) -> None:
    s2.append(stream, "old")
    s2.fence(stream, "tok").json()
    s2.request("DELETE", stream_path(stream))
    made = s2.send_json("PUT", stream_path(stream), {})
    if made.status == 409:
        made.fails(409, "stream_deletion_pending")
        return
    assert provisioned(made) == (201, "created")
    assert s2.tail(stream) == {"seq_num": 0, "timestamp": 0}
    s2.append(stream, "new", fencing_token="", match_seq_num=0)
    assert s2.bodies(stream, seq_num=0) == ["new"]


def test_item_84_retention_age_0(s2: S2Client, new_name: str) -> None:
    zero = {"retention_policy": {"age": 0}}
    s2.send_json("PUT", stream_path(new_name), zero).fails(422, "invalid")
    s2.send_json("POST", "/v1/streams", {"stream": new_name, "config": zero}).fails(422, "invalid")
    s2.read(new_name, seq_num=0).fails(404, "stream_not_found")
    s2.ensure_stream(new_name)
    s2.send_json("PATCH", stream_path(new_name), zero).fails(422, "invalid")


@pytest.mark.parametrize("name", ["short-7", "x" * 49, "Upper-Case", "-begins-badly", "ends-badly-", "under_score_"])
def test_item_84_basin_names(s2: S2Client, name: str) -> None:
    account = s2.of(None)
    account.send_json("POST", "/v1/basins", {"basin": name}).fails(400, "bad_json")
    account.send_json("PUT", f"/v1/basins/{name}", {}).fails(400, "bad_path")
    account.request("GET", f"/v1/basins/{name}").fails(400, "bad_path")
    s2.of(name).request("GET", "/v1/streams").fails(400, "bad_header")


def test_item_84_basin_names_of_8_and_48(s2: S2Client) -> None:
    for name in ("8-chars8", "x" * 48):
        assert s2.of(None).send_json("PUT", f"/v1/basins/{name}", {}).status in (200, 201)


def test_item_84_stream_names_in_bodies(s2: S2Client) -> None:
    for name in ("", ".", "..", "x" * 513, "ü" * 257):
        s2.send_json("POST", "/v1/streams", {"stream": name}).fails(400, "bad_json")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/access-tokens"),
        ("POST", "/v1/access-tokens"),
        ("DELETE", "/v1/access-tokens/id"),
    ],
)
def test_item_85_not_implemented(s2: S2Client, method: str, path: str) -> None:
    assert s2.of(None).request(method, path).fails(501, "not_implemented") == "Not implemented"


def test_the_gateway_is_one_location(s2: S2Client, basin_name: str) -> None:
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
    elsewhere = {"basin": basin_name, "location": "aws:us-east-1"}
    client.send_json("POST", "/v1/basins", elsewhere).fails(422, "invalid")
    made = client.send_json("POST", "/v1/basins", {"basin": basin_name, "location": "penstock"}).json(201)
    assert made["location"] == "penstock"


def test_storage_classes_are_any_text(own_basin: S2Client) -> None:
    made = own_basin.send_json("POST", "/v1/streams", {"stream": "s", "config": {"storage_class": "gold"}})
    assert made.status == 201
    assert own_basin.request("GET", stream_path("s")).json()["storage_class"] == "gold"


def test_unknown_ciphers_are_refused(s2: S2Client, basin_name: str) -> None:
    """Plain text must not be stored where a cipher was asked for (5.5)."""
    config = {"config": {"stream_cipher": "rot13"}}
    s2.of(None).send_json("PUT", f"/v1/basins/{basin_name}", config).fails(400, "bad_json")
    s2.of(None).send_json("POST", "/v1/basins", {"basin": basin_name, **config}).fails(400, "bad_json")
    s2.of(None).request("GET", f"/v1/basins/{basin_name}").fails(404, "basin_not_found")


def test_bad_configurations(s2: S2Client, new_name: str) -> None:
    for bad in (
        b"[]",
        b"{",
        b'{"retention_policy":{"age":-1}}',
        b'{"retention_policy":{"age":"x"}}',
        b'{"timestamping":{"mode":"sometimes"}}',
        b'{"delete_on_empty":{"min_age_secs":-5}}',
    ):
        s2.request("PUT", stream_path(new_name), bad, {"content-type": "application/json"}).fails(400, "bad_json")
    s2.read(new_name).fails(404, "stream_not_found")
