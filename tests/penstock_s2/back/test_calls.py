"""Requests to an S2 server: how they name the basin, and what answers mean that are no S2 answers."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.s2.model import model_server
from support.store import BASIN, STREAM, appending
from support.upstreams import by, far_server

from penstock.model.byte_operations import Seal
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import (
    CheckTail,
    CreateStream,
    EnsureStream,
    FromSeqNum,
    GetStreamConfig,
    ListBasins,
    Locate,
    Read,
    ReconfigureStream,
    Trim,
)
from penstock.model.streams import StreamConfig, StreamConfigPatch
from penstock.net.http.exchange import Exchange
from penstock.net.retries import retry_after
from penstock_s2.back.back import open_s2
from penstock_s2.back.calls import failure_of
from penstock_s2.back.settings import BasinStyle, S2BackSettings
from penstock_s2.front import S2Settings

Clock = trio.testing.MockClock


async def test_the_basin_as_part_of_the_host(autojump_clock: Clock) -> None:
    async with model_server(S2Settings(basin_host_suffixes=(".b.example",))) as server:
        stream = server.back.make(STREAM)
        async with server.opened(basin_style=BasinStyle.HOST, basin_authority="b.example:1") as back:
            await back.perform(appending(b"a"))
            assert await back.perform(CheckTail(STREAM)) == stream.tail
        assert {request.authority for request in server.requests} == {f"{BASIN}.b.example:1"}


async def test_names_are_one_segment_of_the_path(autojump_clock: Clock) -> None:
    odd = STREAM._replace(stream="a/b %?#ü")
    async with model_server() as server, server.opened() as back:
        server.back.make(odd)
        await back.perform(appending(b"a", stream=odd))
        assert (await back.perform(CheckTail(odd))).seq_num == 1


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, b"<html>", FailureCode.UPSTREAM_FAULT),
        (200, b"[5]", FailureCode.UPSTREAM_FAULT),
        (302, b"", FailureCode.UPSTREAM_FAULT),
        (404, b"<html>", FailureCode.UPSTREAM_FAULT),
        (400, b'{"code":"bad_proto","message":"no"}', FailureCode.UPSTREAM_FAULT),
        (502, b"<html>", FailureCode.UNAVAILABLE),
        (401, b'{"code":"authn","message":"no"}', FailureCode.AUTHN),
    ],
)
async def test_servers_that_are_none(status: int, body: bytes, code: FailureCode, autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.respond(status, [("content-type", "text/html")], body)

    async with far_server(by(handler)) as far, open_s2(S2BackSettings(), far.upstream()) as back:
        for operation in (CheckTail(STREAM), GetStreamConfig(STREAM), ListBasins()):
            with pytest.raises(OperationFailed) as failed:
                await back.perform(operation)
            assert failed.value.failure.code is code
        if status != 200:
            with pytest.raises(OperationFailed) as failed:
                async with back.read_session(Read(STREAM, FromSeqNum(0))):
                    raise AssertionError("entered")
            assert failed.value.failure.code is code


async def test_a_refusal_may_say_when_to_come_again() -> None:
    body = b'{"code":"rate_limited","message":"slowly"}'
    assert retry_after(failure_of("back far", 429, body, "1500")) == 1.5
    assert retry_after(failure_of("back far", 429, body, "soon")) == 0
    assert retry_after(failure_of("back far", 429, body, "9" * 50)) == 60


async def test_positions_of_streams_that_are_not_there_create_none(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        for operation in (Locate(STREAM, FromSeqNum(0)), Trim(STREAM, FromSeqNum(0)), CheckTail(STREAM, False)):
            with pytest.raises(OperationFailed) as failed:
                await back.perform(operation)
            assert failed.value.failure.code is FailureCode.STREAM_NOT_FOUND
        paths = {request.path.rsplit("/", 1)[1] for request in server.requests}
        assert paths == {STREAM.stream}


async def test_what_an_s2_server_cannot(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        by_size = StreamConfig(retention_bytes=1)
        for operation in (
            Seal(STREAM),
            CreateStream(STREAM, by_size),
            EnsureStream(STREAM, by_size),
            ReconfigureStream(STREAM, StreamConfigPatch(retention_bytes=1)),
        ):
            with pytest.raises(OperationFailed) as failed:
                await back.perform(operation)
            assert failed.value.failure.code is FailureCode.NOT_IMPLEMENTED
