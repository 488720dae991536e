"""Clients for whom the server is shown different tokens: none does anything, or sees anything, by another's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from support.s2.model import ModelServer, model_server
from support.store import STREAM, acknowledged, sending

from penstock.backends.byte_view import open_bytes_on_records
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back
from penstock.core.identity import CLIENT, Client
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import ReadBytes
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Operation
from penstock.net.http.exchange import Exchange
from penstock.net.upstream import Credentials, CredentialsMode
from penstock_s2.back.back import open_s2
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.sse import open_s2_sse

SWAP = Credentials(back="far", mode=CredentialsMode.SWAP, by_identity={"a": "token-a", "b": "token-b"})


@asynccontextmanager
async def opened(state: EmbeddedBack) -> AsyncIterator[tuple[ModelServer, Back]]:
    async with model_server() as server:
        server.back.make(STREAM)
        async with (
            open_s2(S2BackSettings(), server.far.upstream(SWAP)) as s2,
            open_bytes_on_records(s2, "far", state) as back,
        ):
            yield server, back


def shown(server: ModelServer, method: str) -> list[str]:
    """The tokens of sessions, in order."""
    return [
        dict(request.headers)["authorization"].removeprefix("Bearer ")
        for request in server.requests
        if request.method == method and request.path.endswith("/records")
    ]


async def as_(identity: str, back: Back, operation: Operation[Any]) -> Any:
    CLIENT.set(Client(identity))
    return await back.perform(operation)


async def test_bytes_are_appended_by_the_token_of_who_appends_them(state: EmbeddedBack) -> None:
    async with opened(state) as (server, back):
        for identity in ("a", "b", "b", "a"):
            await as_(identity, back, sending(identity.encode()))
        assert shown(server, "POST") == ["token-a", "token-b", "token-a"]
        assert [record.body for record in server.back.streams[STREAM].records] == [b"a", b"b", b"b", b"a"]


async def test_many_at_once_keep_their_order_and_their_tokens(state: EmbeddedBack) -> None:
    async with opened(state) as (server, back), trio.open_nursery() as nursery:
        for index in range(20):
            nursery.start_soon(as_, "ab"[index // 3 % 2], back, sending(b"%d" % index))
            await trio.testing.wait_all_tasks_blocked()
    bodies = [record.body for record in server.back.streams[STREAM].records]
    assert sorted(bodies, key=int) == bodies and len(bodies) == 20
    assert set(shown(server, "POST")) == {"token-a", "token-b"}


async def test_who_is_refused_is_refused_alone(state: EmbeddedBack) -> None:
    """The server refuses one client; the others, which wait behind it, append."""
    async with opened(state) as (server, back):
        handle, codes = server.front.handle, {}

        async def handled(exchange: Exchange) -> None:
            if dict(exchange.request.headers)["authorization"] == "Bearer token-a":
                await exchange.respond(403, [("content-type", "application/json")], b'{"message": "not you"}')
            else:
                await handle(exchange)

        async def append(identity: str) -> None:
            try:
                await as_(identity, back, sending(identity.encode()))
            except OperationFailed as error:
                codes[identity] = error.failure.code

        await as_("b", back, sending(b"first"))
        server.front.handle = handled  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            for identity in ("a", "b", "a", "b"):
                nursery.start_soon(append, identity)
        assert codes == {"a": FailureCode.PERMISSION_DENIED}
        assert [record.body for record in server.back.streams[STREAM].records] == [b"first", b"b", b"b"]


async def test_who_has_no_token_appends_nothing(state: EmbeddedBack) -> None:
    async with opened(state) as (server, back):
        await as_("a", back, sending(b"a"))
        with pytest.raises(OperationFailed) as caught:
            await as_("c", back, sending(b"c"))
        assert caught.value.failure.code is FailureCode.PERMISSION_DENIED
        async with back.append_session(STREAM, create_if_missing=False) as session:
            await session.send(sending(b"c"))
            session.close()
            with pytest.raises(OperationFailed) as caught:
                await acknowledged(session, 1)
        assert caught.value.failure.code is FailureCode.PERMISSION_DENIED
        await as_("b", back, sending(b"b"))
        assert [record.body for record in server.back.streams[STREAM].records] == [b"a", b"b"]


@pytest.mark.parametrize("kind", ["s2", "s2-sse"])
async def test_bytes_are_read_by_the_token_of_who_reads_them(kind: str, state: EmbeddedBack) -> None:
    open_back: Any = open_s2 if kind == "s2" else open_s2_sse
    async with opened(state) as (server, back):
        await as_("a", back, sending(b"x"))
        async with (
            open_back(S2BackSettings(), server.far.upstream(SWAP)) as records,
            open_bytes_on_records(records, "again", state) as reader,
        ):
            server.requests.clear()
            for identity in ("a", "b", "a", "b"):
                read = await as_(identity, reader, ReadBytes(STREAM, 0, 100, 0.0))
                assert read.data == join_events([b"x"])
            assert list(dict.fromkeys(shown(server, "GET"))) == ["token-a", "token-b"]
            with pytest.raises(OperationFailed) as caught:
                await as_("c", reader, ReadBytes(STREAM, 0, 100, 0.0))
            assert caught.value.failure.code is FailureCode.PERMISSION_DENIED
