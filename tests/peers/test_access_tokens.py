"""Access tokens with real clients: the official Python SDK and curl. Refused requests change nothing."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest
import s2_sdk as s2
from support.access import ALL, CLOSED, TokensOf, closed_gateway, scope
from support.captures.redaction import leaks
from support.peers import Curl, finish
from support.process import BASIN, GatewayProcess

from penstock.model.access_tokens import ResourceSet


def run_by_asyncio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The SDK knows no other event loop."""

    @functools.wraps(test)
    def run(*given: object, **named: object) -> None:
        finish(test(*given, **named))

    return run


BODY = '{"records":[{"body":"x"}]}'


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, TokensOf]]:
    directory = tmp_path_factory.mktemp("closed")
    recorder = f'[recorder]\ndirectory = "{directory}/recorded"\nstart = true\n'
    with closed_gateway(directory, CLOSED + recorder) as running:
        yield running


@pytest.fixture
def gateway(closed: tuple[GatewayProcess, TokensOf]) -> GatewayProcess:
    return closed[0]


@pytest.fixture
def tokens(closed: tuple[GatewayProcess, TokensOf]) -> TokensOf:
    return closed[1]


@pytest.fixture(scope="module")
def admin(closed: tuple[GatewayProcess, TokensOf]) -> str:
    return closed[1].issue("admin")


@asynccontextmanager
async def sdk(gateway: GatewayProcess, token: str) -> AsyncIterator[s2.S2]:
    endpoints = s2.Endpoints(gateway.s2_url, gateway.s2_url)
    async with s2.S2(token, endpoints=endpoints) as client:
        yield client


def asked(curl: Curl, gateway: GatewayProcess, token: str | None, path: str, *more: str) -> tuple[int, Any]:
    """Status and JSON, by curl."""
    shown = () if token is None else ("-H", f"authorization: Bearer {token}")
    answer = curl("-w", "\n%{http_code}", "-H", f"s2-basin: {BASIN}", *shown, *more, gateway.s2_url + path)
    body, _, status = answer.stdout.rpartition(b"\n")
    return int(status), json.loads(body) if body else None


def test_a_token_that_is_revoked_meanwhile_issues_none(gateway: GatewayProcess, tokens: TokensOf) -> None:
    """A client whose token is revoked between its request's head and its body is refused."""
    body = json.dumps({"id": "late", "scope": {"ops": ["read"]}}).encode()
    said = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nexpect: 100-continue\r\n"
    head = f"authorization: Bearer {tokens.issue('slow')}\r\n{said}"
    with socket.create_connection(("127.0.0.1", gateway.s2_port), timeout=20) as client:
        client.sendall(f"POST /v1/access-tokens HTTP/1.1\r\nhost: a\r\n{head}\r\n".encode())
        assert client.recv(1024).startswith(b"HTTP/1.1 100 ")
        tokens.revoke("slow")
        client.sendall(body)
        assert client.recv(1024).startswith(b"HTTP/1.1 401 ")
    tokens.issue("late")  # else its id would be taken
    tokens.revoke("late")


def tail(curl: Curl, gateway: GatewayProcess, admin: str, stream: str) -> int:
    status, answer = asked(curl, gateway, admin, f"/v1/streams/{stream}/records/tail")
    assert status == 200, answer
    return int(answer["tail"]["seq_num"])


def append(curl: Curl, gateway: GatewayProcess, token: str | None, stream: str, body: str = BODY) -> tuple[int, Any]:
    json_body = ("-H", "content-type: application/json", "--data-binary", body)
    return asked(curl, gateway, token, f"/v1/streams/{stream}/records", *json_body)


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_wrong_expired_and_revoked_tokens_change_nothing(
    curl: Curl, gateway: GatewayProcess, tokens: TokensOf, admin: str, version: str
) -> None:
    """Not the stream, and not the basins: neither an append nor the creation of a basin or a stream."""
    stream = f"untouched{version}"
    assert append(curl, gateway, admin, stream)[0] == 200
    gone = tokens.issue("gone")
    tokens.revoke("gone")
    refused = {
        None: (401, "authn"),
        "nonsense": (401, "authn"),
        f"pst_{'0' * 16}_{'A' * 43}": (401, "authn"),
        admin[:-1] + ("A" if admin[-1] != "A" else "B"): (401, "authn"),
        gone: (401, "authn"),
        tokens.issue(f"old{version}", seconds=-1): (403, "permission_denied"),
    }
    create = ("-H", "content-type: application/json", "-d")
    before = asked(curl, gateway, admin, "/v1/basins")[1], asked(curl, gateway, admin, "/v1/streams")[1]
    for token, (status, code) in refused.items():
        for answer in (
            append(curl, gateway, token, stream),
            append(curl, gateway, token, "not-there-yet"),
            asked(curl, gateway, token, f"/v1/streams/{stream}/records?seq_num=0", version),
            asked(curl, gateway, token, f"/v1/streams/{stream}", version, "-X", "DELETE"),
            asked(curl, gateway, token, "/v1/basins", version, *create, '{"basin":"of-nobody"}'),
            asked(curl, gateway, token, f"/v1/basins/{BASIN}", version, "-X", "DELETE"),
            asked(curl, gateway, token, "/v1/access-tokens", version, *create, '{"id":"x","scope":{}}'),
        ):
            assert (answer[0], answer[1]["code"]) == (status, code), token
    assert tail(curl, gateway, admin, stream) == 1
    assert (asked(curl, gateway, admin, "/v1/basins")[1], asked(curl, gateway, admin, "/v1/streams")[1]) == before


@pytest.mark.parametrize("token", ["nonsense", f"pst_{'0' * 16}_{'A' * 43}"])
def test_nothing_is_read_of_a_request_that_is_refused(gateway: GatewayProcess, token: str) -> None:
    """The answer comes though the body does not; it is the same for a basin that is not there."""
    for basin in (BASIN, "no-such-basin"):
        lines = ("POST /v1/streams/s/records HTTP/1.1", "host: h", f"s2-basin: {basin}", "content-length: 2000000")
        head = "\r\n".join((*lines, f"authorization: Bearer {token}", "content-type: application/json", "", ""))
        with socket.create_connection(("127.0.0.1", gateway.s2_port), timeout=20) as connection:
            connection.sendall(head.encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_a_revocation_holds_at_the_next_request(
    curl: Curl, gateway: GatewayProcess, tokens: TokensOf, admin: str
) -> None:
    token = tokens.issue("soon-gone")
    assert append(curl, gateway, token, "revoked")[0] == 200
    tokens.revoke("soon-gone")
    assert append(curl, gateway, token, "revoked")[0] == 401
    again = tokens.issue("soon-gone")
    assert append(curl, gateway, token, "revoked")[0] == 401, "the same id is another token"
    assert append(curl, gateway, again, "revoked")[0] == 200
    assert tail(curl, gateway, admin, "revoked") == 2


def test_scopes(curl: Curl, gateway: GatewayProcess, tokens: TokensOf, admin: str) -> None:
    reader = tokens.issue("reader", scope("read", "check-tail", streams=ResourceSet(prefix="in-")))
    writer = tokens.issue("writer", scope("append", streams=ResourceSet(exact="in-a")))
    elsewhere = tokens.issue("elsewhere", scope("append", "read", basins=ResourceSet(exact="another-basin")))
    assert append(curl, gateway, writer, "in-a")[0] == 200
    for token, stream in ((writer, "in-b"), (reader, "in-a"), (elsewhere, "in-a")):
        assert append(curl, gateway, token, stream)[1]["code"] == "permission_denied"
    read = "/v1/streams/{}/records?seq_num=0"
    assert asked(curl, gateway, reader, read.format("in-a"))[0] == 200
    for token, stream in ((reader, "out"), (writer, "in-a"), (elsewhere, "in-a")):
        assert asked(curl, gateway, token, read.format(stream))[0] == 403
    assert tail(curl, gateway, admin, "in-a") == 1
    names = [one["name"] for one in asked(curl, gateway, admin, "/v1/streams?prefix=in-")[1]["streams"]]
    assert names == ["in-a"], "what was refused created no stream"


def test_commands_are_operations_of_their_own(
    curl: Curl, gateway: GatewayProcess, tokens: TokensOf, admin: str
) -> None:
    writer = tokens.issue("no-commands", scope("append"))
    fencer = tokens.issue("fencer", scope("append", "fence"))
    fence = '{"records":[{"headers":[["","fence"]],"body":"mine"}]}'
    assert append(curl, gateway, writer, "commands", fence)[0] == 403
    assert append(curl, gateway, writer, "commands")[0] == 200
    assert append(curl, gateway, fencer, "commands", fence)[0] == 200
    assert tail(curl, gateway, admin, "commands") == 2


@run_by_asyncio
async def test_the_sdk_issues_lists_and_revokes(gateway: GatewayProcess, admin: str) -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    groups = s2.OperationGroupPermissions(stream=s2.Permission.READ_WRITE, basin=s2.Permission.READ)
    wanted = s2.AccessTokenScope(
        basins=s2.ExactMatch(BASIN), streams=s2.PrefixMatch("sdk/"), op_groups=groups, ops=[s2.Operation.LIST_BASINS]
    )
    async with sdk(gateway, admin) as client:
        token = await client.issue_access_token("of-the-sdk", scope=wanted, expires_at=ends)
        with pytest.raises(s2.S2ServerError) as taken:
            await client.issue_access_token("of-the-sdk", scope=wanted)
        assert taken.value.code == "resource_already_exists"
        (found,) = (await client.list_access_tokens(prefix="of-the")).items
        assert (found.id, found.scope, found.expires_at) == ("of-the-sdk", wanted, ends)
        async with sdk(gateway, token) as limited:
            assert [one.name for one in (await limited.list_basins()).items] == [BASIN]
            stream = limited.basin(BASIN).stream("sdk/a")
            assert (await stream.append(s2.AppendInput([s2.Record(b"1")]))).end.seq_num == 1
            with pytest.raises(s2.S2ServerError) as refused:
                await limited.basin(BASIN).stream("other").append(s2.AppendInput([s2.Record(b"1")]))
            assert refused.value.code == "permission_denied"
            with pytest.raises(s2.S2ServerError):
                await limited.list_access_tokens()
        await client.revoke_access_token("of-the-sdk")
        with pytest.raises(s2.S2ServerError) as missing:
            await client.revoke_access_token("of-the-sdk")
        assert missing.value.code == "access_token_not_found"
        assert (await client.list_access_tokens(prefix="of-the")).items == []
    async with sdk(gateway, token) as revoked:
        with pytest.raises(s2.S2ServerError) as unknown:
            await revoked.basin(BASIN).stream("sdk/a").check_tail()
        assert unknown.value.code == "authn"


def issue(curl: Curl, gateway: GatewayProcess, token: str, **said: Any) -> tuple[int, Any]:
    body = ("-H", "content-type: application/json", "--data-binary", json.dumps(said))
    return asked(curl, gateway, token, "/v1/access-tokens", *body)


def test_tokens_as_the_rust_library_asks_for_them(curl: Curl, gateway: GatewayProcess, admin: str) -> None:
    """It says null for all that is not given."""
    names = {"basins": {"prefix": ""}, "streams": {"prefix": ""}, "access_tokens": None}
    groups = {"account": None, "basin": None, "stream": {"read": True, "write": None}}
    said = {"expires_at": None, "auto_prefix_streams": False}
    assert issue(curl, gateway, admin, id="rust", scope={**names, "op_groups": groups, "ops": None}, **said)[0] == 201
    status, answer = issue(curl, gateway, admin, id="no", scope={**names, "op_groups": None, "ops": None}, **said)
    assert (status, answer["code"]) == (422, "invalid")
    assert answer["message"] == "Access token permissions cannot be empty"
    past = issue(curl, gateway, admin, id="past", scope={"ops": ["read"]}, expires_at="2020-01-01T00:00:00Z")
    assert (past[0], past[1]["code"]) == (422, "invalid")


def test_listing_and_revoking_tokens_are_operations(
    curl: Curl, gateway: GatewayProcess, tokens: TokensOf, admin: str
) -> None:
    reader = scope("read")
    lister = msgspec.structs.replace(reader, access_tokens=ALL)
    assert asked(curl, gateway, tokens.issue("no-lister", lister), "/v1/access-tokens")[0] == 403
    assert asked(curl, gateway, tokens.issue("no-revoker", lister), "/v1/access-tokens/admin", "-X", "DELETE")[0] == 403
    assert asked(curl, gateway, admin, "/v1/access-tokens")[0] == 200


@run_by_asyncio
async def test_an_issuer_gives_no_more_than_it_has(gateway: GatewayProcess, admin: str) -> None:
    every = s2.PrefixMatch("")
    scope_of_issuer = s2.AccessTokenScope(
        basins=s2.ExactMatch(BASIN),
        streams=s2.PrefixMatch("tenant/"),
        access_tokens=s2.PrefixMatch("tenant/"),
        op_groups=s2.OperationGroupPermissions(stream=s2.Permission.READ),
        ops=[s2.Operation.ISSUE_ACCESS_TOKEN, s2.Operation.REVOKE_ACCESS_TOKEN, s2.Operation.LIST_ACCESS_TOKENS],
    )
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    async with sdk(gateway, admin) as client:
        issuer = await client.issue_access_token("tenant/issuer", scope=scope_of_issuer, expires_at=ends)

    def wants(**said: Any) -> s2.AccessTokenScope:
        read = {"op_groups": s2.OperationGroupPermissions(stream=s2.Permission.READ)}
        names = {"basins": s2.ExactMatch(BASIN), "streams": s2.PrefixMatch("tenant/x/")}
        return s2.AccessTokenScope(**{**names, **read, **said})

    async with sdk(gateway, issuer) as client:
        await client.issue_access_token("tenant/fine", scope=wants())
        assert {one.id: one.expires_at for one in (await client.list_access_tokens()).items}["tenant/fine"] == ends
        for token_id, more, late in (
            ("other/id", wants(), None),
            ("tenant/a", wants(streams=every), None),
            ("tenant/b", wants(basins=every), None),
            ("tenant/c", wants(ops=[s2.Operation.APPEND]), None),
            ("tenant/d", wants(access_tokens=every), None),
            ("tenant/e", wants(), ends + timedelta(hours=1)),
        ):
            with pytest.raises(s2.S2ServerError) as refused:
                await client.issue_access_token(token_id, scope=more, expires_at=late)
            assert refused.value.code == "permission_denied", token_id
        with pytest.raises(s2.S2ServerError):
            await client.revoke_access_token("admin")
        assert [one.id for one in (await client.list_access_tokens()).items] == ["tenant/fine", "tenant/issuer"]


@run_by_asyncio
async def test_names_are_prefixed(gateway: GatewayProcess, tokens: TokensOf, admin: str) -> None:
    allowed = scope("create-stream", "append", "read", "list-streams", streams=ResourceSet(prefix="tenants/7/"))
    token = tokens.issue("tenant", allowed, auto_prefix=True)
    async with sdk(gateway, admin) as all_powerful, sdk(gateway, token) as tenant:
        own, whole = tenant.basin(BASIN), all_powerful.basin(BASIN)
        assert (await own.create_stream("a")).name == "a"
        await own.stream("b").append(s2.AppendInput([s2.Record(b"1")]))
        async with own.stream("b").append_session() as session:
            ticket = await session.submit(s2.AppendInput([s2.Record(b"2")]))
            assert (await ticket).end.seq_num == 2
        assert [one.name for one in (await own.list_streams()).items] == ["a", "b"]
        assert [one.name for one in (await own.list_streams(start_after="a")).items] == ["b"]
        there = [one.name for one in (await whole.list_streams(prefix="tenants/")).items]
        assert there == ["tenants/7/a", "tenants/7/b"]
        batch = await own.stream("b").read(start=s2.SeqNum(0))
        assert [record.body for record in batch.records] == [b"1", b"2"]


@run_by_asyncio
async def test_sessions_end_when_their_token_does(gateway: GatewayProcess, tokens: TokensOf, admin: str) -> None:
    """An append session and a read that follows: both end by the protocol's own refusal."""
    token = tokens.issue("of-a-session")
    async with sdk(gateway, admin) as client, sdk(gateway, token) as leaving, asyncio.timeout(20):
        stream = leaving.basin(BASIN).stream("long")
        acknowledged = 0
        with pytest.raises(s2.S2ServerError) as ended:
            async with stream.append_session() as session:
                while True:
                    ticket = await session.submit(s2.AppendInput([s2.Record(b"1")]))
                    acknowledged = (await ticket).end.seq_num
                    if acknowledged == 1:
                        tokens.revoke("of-a-session")
        assert ended.value.code == "authn"
        assert (await client.basin(BASIN).stream("long").check_tail()).seq_num == acknowledged > 0

        token = tokens.issue("of-a-session")
        async with sdk(gateway, token) as reading:
            bodies = []
            with pytest.raises(s2.S2ServerError) as ended:
                async for batch in reading.basin(BASIN).stream("long").read_session(start=s2.SeqNum(0)):
                    if not bodies:  # a second batch may be on its way
                        tokens.revoke("of-a-session")
                    bodies += batch.records
            assert ended.value.code == "authn"
            assert bodies[0].body == b"1"


def test_secrets_are_nowhere(gateway: GatewayProcess, tokens: TokensOf, admin: str) -> None:
    """Neither in the log nor in recordings, nor in the tokens' file, nor in what the management listener shows."""

    async def issue() -> str:
        async with sdk(gateway, admin) as client:
            read = s2.AccessTokenScope(ops=[s2.Operation.READ])
            return await client.issue_access_token("of-a-secret", scope=read)

    issued = finish(issue())
    with urlopen(f"http://127.0.0.1:{gateway.management_port}/config") as answer:
        places = [answer.read(), gateway.log_path.read_bytes()]
    recorded = list((gateway.directory / "recorded").glob("*.pcapng"))
    assert recorded
    places += [file.read_bytes() for file in (*recorded, *tokens.path.parent.glob("access.sqlite3*"))]
    for secret in (admin, issued):
        for place in places:
            assert not leaks(place, secret.split("_", 2)[2].encode())
