"""Cases about streams and basins: creating, configuring, listing and deleting them (S2 fact sheet, 1.3, 1.4)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import trio

from penstock.net.http.client import Response
from penstock.protocols.conformance import Cases, require, require_equal
from penstock_s2.conformance.session import ACCOUNT, JSON, S2TestSession, position, value_of

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()
_DEFAULTS: Final = {
    "retention_policy": {"age": 604_800},
    "timestamping": {"mode": "client-prefer", "uncapped": False},
    "delete_on_empty": {"min_age_secs": 0},
}
"""The configuration of a stream that nothing is said of, but for its storage class."""
_RETRY_SECONDS: Final = 0.1
"""Between tries of what a server does some time after it has answered."""


def _result(response: Response) -> tuple[int, str | None]:
    return response.status, response.header("s2-provision-result")


async def _ensure(session: S2TestSession, path: str, body: object) -> tuple[int, str | None]:
    """PUT; return the status and s2-provision-result."""
    return _result(await session.request("PUT", path, body, ACCOUNT if path.startswith("/v1/basins") else ()))


async def _config(session: S2TestSession, method: str = "GET", body: object = None) -> dict[str, Any]:
    """Return the stream's configuration without its storage class, after a change of it."""
    config: dict[str, Any] = await session.expect(200, method, session.path(), body)
    require(isinstance(config.pop("storage_class", None), str), "a storage class", config)
    return config


def _require_info(info: dict[str, Any], expected: dict[str, object]) -> None:
    """Check the description of a stream or a basin; the time of its creation must have a zone."""
    created = datetime.fromisoformat(info.pop("created_at"))
    require(created.tzinfo is not None, "a time with a zone", created)
    require_equal(info, expected)


@CASES.case("streams")
async def create_a_stream(session: S2TestSession) -> None:
    """PUT of a new stream is status 201, and of the same again 200, and s2-provision-result tells them apart; POST of
    one that exists is status 409."""
    response = await session.request("PUT", session.path(), {})
    require_equal(_result(response), (201, "created"))
    _require_info(value_of(response.body), {"name": session.stream, "deleted_at": None, "cipher": None})
    change = {"retention_policy": {"age": 60}}
    for body, result in (({}, "noop"), (None, "noop"), (b"{}", "noop"), (change, "updated"), (change, "noop")):
        require_equal(await _ensure(session, session.path(), body), (200, result))
    await session.append("kept")
    infinite: dict[str, Any] = {"retention_policy": {"infinite": {}}}
    require_equal(await _ensure(session, session.path(), infinite), (200, "updated"))
    require_equal((await _config(session))["retention_policy"], {"infinite": {}})
    require_equal(await session.bodies(seq_num=0), ["kept"])
    await session.expect_refusal("409 resource_already_exists", "POST", "/v1/streams", {"stream": session.stream})


@CASES.case("streams")
async def repeated_creation(session: S2TestSession) -> None:
    """POST with the token and the configuration of the first one is status 201 again; any other is 409."""
    token = [("s2-request-token", session.stream)]
    value = {"stream": session.stream, "config": {"retention_policy": {"age": 60}}}
    for result in ("created", "noop"):
        require_equal(_result(await session.request("POST", "/v1/streams", value, token)), (201, result))
    bare = {"stream": session.stream}
    for body, head in ((value, []), (value, [("s2-request-token", "other")]), (bare, token)):
        await session.expect_refusal("409 resource_already_exists", "POST", "/v1/streams", body, head)


@CASES.case("streams")
async def list_streams(session: S2TestSession) -> None:
    """A list is sorted, and bounded by prefix, start_after and limit, of which 0 and more than 1000 are 1000."""
    await session.make_basin()
    names = ["A", "a/1", "a/10", "a/2", "b/1", "c"]
    for name in ("b/1", "a/2", "a/1", "a/10", "c", "A"):
        await session.expect(201, "POST", "/v1/streams", {"stream": name})
    for query, expected in (
        *(("", names), ("limit=0", names), ("limit=5000", names), ("prefix=a/", names[1:4]), ("prefix=zzz", [])),
        *(("start_after=a/10", names[3:]), ("prefix=a/&start_after=a/1", names[2:4]), ("limit=2", names[:2])),
        *(("limit=2&start_after=b/1", names[5:]), ("limit=3&prefix=a/", names[1:4]), ("prefix=a&start_after=z", [])),
    ):
        page = await session.expect(200, "GET", f"/v1/streams?{query}")
        require_equal((query, [each["name"] for each in page["streams"]]), (query, expected))
        require_equal((set(page), page["has_more"]), ({"streams", "has_more"}, query == "limit=2"))


@CASES.case("streams")
async def delete_a_stream(session: S2TestSession) -> None:
    """DELETE is status 202 without a body, and the records cannot be read any more, nor others appended; a new stream
    of the name is empty."""
    for when in ("read", "append"):
        await session.needs_create(f"create_stream_on_{when}")
    await session.create("a", {"headers": [["", "fence"]], "body": "token"})
    response = await session.request("DELETE", session.path())
    require_equal((response.status, response.body, response.header("content-length")), (202, b"", "0"))
    again = (await session.request("DELETE", session.path())).status
    require(again in (202, 404), "status 202 or 404", again)
    refusals = {(404, "stream_not_found"), (409, "stream_deletion_pending")}
    for method, body in (("GET", None), ("POST", {"records": [{"body": "y"}]})):
        response = await session.request(method, session.records, body)
        refusal = response.status, value_of(response.body).get("code")
        require(refusal in refusals, "status 404 or 409", refusal)
    response = await session.request("PUT", session.path(), {})
    if response.status != 409:
        require_equal(_result(response), (201, "created"))
        require_equal(await session.tail(), position(0))
        await session.append("new", fencing_token="", match_seq_num=0)


@CASES.case("streams")
async def configure_a_stream(session: S2TestSession) -> None:
    """A stream's configuration is read as it was set, with the defaults for the rest; PATCH changes what it
    names, and null is the default."""
    await session.create(retention_policy={"age": 3600}, timestamping={"mode": "arrival", "uncapped": True})
    expected = {
        **_DEFAULTS,
        "retention_policy": {"age": 3600},
        "timestamping": {"mode": "arrival", "uncapped": True},
    }
    require_equal(await _config(session), expected)
    require_equal(await _config(session, "PATCH", {}), expected)
    expected |= {"retention_policy": {"age": 7200}, "timestamping": {"mode": "client-prefer", "uncapped": True}}
    change = {"retention_policy": {"age": 7200}, "timestamping": {"mode": None}}
    require_equal(await _config(session, "PATCH", change), expected)
    require_equal(await _config(session), expected)
    reset = {"retention_policy": None, "timestamping": None, "delete_on_empty": {"min_age_secs": 5}}
    require_equal(await _config(session, "PATCH", reset), {**_DEFAULTS, "delete_on_empty": {"min_age_secs": 5}})


@CASES.case("basins")
async def create_a_basin(session: S2TestSession) -> None:
    """PUT and POST of a basin, whose name has 8 to 48 characters, are as those of a stream."""
    name, token = session.server.new_name(), [*ACCOUNT, ("s2-request-token", session.stream)]
    path = f"/v1/basins/{name}"
    await session.make_basin()
    session.will_delete(name)
    value = {"basin": name, "config": {"create_stream_on_read": True}}
    response = await session.request("POST", "/v1/basins", value, token)
    require_equal(_result(response), (201, "created"))
    info = value_of(response.body)
    info.pop("location")
    _require_info(info, {"name": name, "deleted_at": None, "state": "active"})
    require_equal(_result(await session.request("POST", "/v1/basins", value, token)), (201, "noop"))
    await session.expect_refusal("409 resource_already_exists", "POST", "/v1/basins", value, ACCOUNT)
    require_equal((await session.expect(200, "GET", path, None, ACCOUNT))["create_stream_on_read"], True)
    change = {"config": {"create_stream_on_append": True}}
    for body, result in ((change, "updated"), (change, "noop")):
        require_equal(await _ensure(session, path, body), (200, result))
    require_equal((await session.expect(200, "GET", path, None, ACCOUNT))["create_stream_on_append"], True)
    for name in (session.basin[-8:], f"{session.basin}-{'x' * 48}"[:48]):
        session.will_delete(name)
        require_equal(await _ensure(session, f"/v1/basins/{name}", None), (201, "created"))


@CASES.case("basins")
async def configure_a_basin(session: S2TestSession) -> None:
    """PATCH changes what it names, also within the defaults for streams, and null resets."""
    await session.make_basin(
        {"create_stream_on_append": True, "default_stream_config": {"retention_policy": {"age": 60}}}
    )
    path = f"/v1/basins/{session.basin}"

    async def reconfigure(change: object) -> dict[str, Any]:
        await session.expect(200, "PATCH", path, change, ACCOUNT)
        config: dict[str, Any] = await session.expect(200, "GET", path, None, ACCOUNT)
        keys = {"default_stream_config", "stream_cipher", "create_stream_on_append", "create_stream_on_read"}
        require_equal(set(config), keys)
        return config

    config = await reconfigure({"create_stream_on_read": True})
    require_equal((config["create_stream_on_append"], config["create_stream_on_read"]), (True, True))
    require_equal(config["default_stream_config"]["retention_policy"], {"age": 60})
    defaults = (await reconfigure({"default_stream_config": {"timestamping": {"uncapped": True}}}))[
        "default_stream_config"
    ]
    require_equal((defaults["retention_policy"], defaults["timestamping"]["uncapped"]), ({"age": 60}, True))
    reset = (await reconfigure({"default_stream_config": None}))["default_stream_config"] or {}
    require(reset.get("retention_policy") in (None, {"age": 604_800}), "the default retention", reset)
    await session.expect_refusal("400 bad_json", "PATCH", path, b"", [*ACCOUNT, ("content-type", JSON)])


@CASES.case("basins")
async def defaults_of_a_basin(session: S2TestSession) -> None:
    """A new stream has the defaults of its basin; a later change of them is for later streams."""
    defaults = {"retention_policy": {"age": 90}, "timestamping": {"mode": "arrival"}}
    await session.make_basin({"default_stream_config": defaults})
    await session.create(timestamping={"uncapped": True})
    expected = {**_DEFAULTS, "retention_policy": {"age": 90}, "timestamping": {"mode": "arrival", "uncapped": True}}
    require_equal(await _config(session), expected)
    change = {"default_stream_config": {"retention_policy": {"age": 5}}}
    await session.expect(200, "PATCH", f"/v1/basins/{session.basin}", change, ACCOUNT)
    require_equal(await _config(session), expected)
    config = await session.expect(200, "GET", session.path())
    require_equal(await _ensure(session, session.path(), config), (200, "noop"))
    session.stream += "-later"
    await session.create()
    require_equal((await _config(session))["retention_policy"], {"age": 5})


@CASES.case("basins")
async def list_basins(session: S2TestSession) -> None:
    """A list is sorted, and bounded by prefix, start_after and limit."""
    await session.make_basin()
    prefix = session.basin
    for name in ("-b", "-a"):
        session.will_delete(prefix + name)
        await session.expect(201, "POST", "/v1/basins", {"basin": prefix + name}, ACCOUNT)
    for query, expected in (("", ["", "-a", "-b"]), ("&limit=1", [""]), (f"&start_after={prefix}-a", ["-b"])):
        page = await session.expect(200, "GET", f"/v1/basins?prefix={prefix}{query}", None, ACCOUNT)
        require_equal([each["name"].removeprefix(prefix) for each in page["basins"]], expected)
        require_equal((set(page), page["has_more"]), ({"basins", "has_more"}, query == "&limit=1"))


@CASES.case("basins")
async def delete_a_basin(session: S2TestSession) -> None:
    """DELETE is status 202 without a body, and its streams are gone, at once or a moment later."""
    await session.make_basin()
    await session.create()
    path = f"/v1/basins/{session.basin}"
    response = await session.request("DELETE", path, None, ACCOUNT)
    require_equal((response.status, response.body, response.header("content-length")), (202, b"", "0"))
    append = ("POST", session.records, {"records": [{"body": "x"}]})
    response = await session.request(*append)
    with trio.move_on_after(session.server.patience):
        while response.status == 200:
            await trio.sleep(_RETRY_SECONDS)
            response = await session.request(*append)
    code = value_of(response.body).get("code")
    codes = ("basin_not_found", "basin_deletion_pending", "stream_deletion_pending")
    require(code in codes, "no basin", (response.status, code))
