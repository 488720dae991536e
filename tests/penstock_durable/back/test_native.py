"""A server of Durable Streams as a back: records on its streams, their numbers, and what is not carried."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.durable import CLOSE, JSON, TEXT
from support.store import BASIN, Fails, acknowledged, appending, bodies, command, records
from trio.testing import MockClock

from penstock.core.marks import Mark
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    Capability,
    CheckTail,
    CreateStream,
    DeleteStream,
    FromSeqNum,
    FromTailOffset,
    ListStreams,
    Read,
    Trim,
)
from penstock.model.records import Header, StreamRef
from penstock_durable.codec import RECORDS_TYPE, RecordContent, content_of

STREAM = StreamRef(BASIN, "orders")
KEY = (Header(b"k", b"v"),)
OURS = ("content-type", RECORDS_TYPE)


def batch(*bodies: bytes, **options: Any) -> Any:
    return appending(*bodies, stream=STREAM, **options)


async def read(back: Any, start: int = 0) -> list[bytes]:
    return await bodies(back, FromSeqNum(start), stream=STREAM)


async def test_records_keep_their_boundaries_and_headers(server: Any) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await back.perform(CreateStream(STREAM))
        first = await back.perform(batch(b"a", b"", b"\r\n\0\xff", headers={1: KEY}))
        assert (first.start.seq_num, first.end.seq_num) == (0, 3)
        assert (await back.perform(batch(b"x" * 1000))).start.seq_num == 3
        found = await records(back, FromSeqNum(0), stream=STREAM)
        assert [(record.body, record.headers) for record in found] == [
            (b"a", ()),
            (b"", KEY),
            (b"\r\n\0\xff", ()),
            (b"x" * 1000, ()),
        ]
        assert await read(back, 2) == [b"\r\n\0\xff", b"x" * 1000]
    answer = await server.service.ask("GET", "orders")
    assert answer.headers["content-type"] == RECORDS_TYPE


async def test_an_append_whose_number_does_not_rise_is_never_stored(server: Any) -> None:
    """Not by another run of the gateway either."""
    for run in (0, 10):
        async with server.back() as back:
            if not run:
                await back.perform(CreateStream(STREAM))
            for number in (run + 2, run + 9):
                assert (await back.perform(batch(b"%d" % number, writer_seq=number))).end.seq_num
            for number in (run, run + 9):
                with Fails(FailureCode.SEQ_NUM_MISMATCH):
                    await back.perform(batch(b"late", writer_seq=number))
            await back.perform(batch(b"other"))
            assert await read(back) == [b"2", b"9", b"other", b"12", b"19", b"other"][: 3 + 3 * bool(run)]


async def test_records_of_other_clients_lie_between(server: Any) -> None:
    """A second gateway, or any client that knows the content type, appends to the same stream."""
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a"))
        await server.service.ask("POST", "orders", OURS, body=RecordContent().encode([b"b", b"c"], {}))
        appended = await back.perform(batch(b"d"))
        assert (appended.start.seq_num, appended.end.seq_num) == (3, 4)
        assert await read(back) == [b"a", b"b", b"c", b"d"]


async def test_a_stream_of_json(server: Any) -> None:
    await server.service.ask("PUT", "orders", JSON, body=b'[{"n": 1}, [2]]')
    async with server.back() as back:
        assert await read(back) == [b'{"n": 1}', b"[2]"]
        assert (await back.perform(batch(b'"three"', b" 4"))).start.seq_num == 2
        for refused in (batch(b"not JSON"), batch(b""), batch(b"5", headers={0: KEY})):
            with Fails(FailureCode.NOT_REPRESENTABLE, "record 1 of the batch"):
                await back.perform(refused)
        assert await read(back) == [b'{"n": 1}', b"[2]", b'"three"', b"4"]
    assert await server.service.read("orders") == b'[{"n": 1},[2],"three",4]'


@pytest.mark.parametrize("create_type", [RECORDS_TYPE, "application/json"])
async def test_headers_are_dropped(server: Any, create_type: str) -> None:
    """On streams of both kinds, so that the capabilities hold for each; bodies and commands are refused as before."""
    async with server.back(create_type=create_type, create_streams=True, drop_headers=True) as back:
        assert Capability.HEADERS not in back.capabilities
        assert (await back.perform(batch(b"1", b"2", headers={1: KEY}))).end.seq_num == 2
        with Fails(FailureCode.NOT_REPRESENTABLE, "a command"):
            await back.perform(command(b"fence", b"t", stream=STREAM))
        if create_type != RECORDS_TYPE:
            with Fails(FailureCode.NOT_REPRESENTABLE, "record 1 of the batch is not JSON"):
                await back.perform(batch(b"", headers={0: KEY}))
        stored = await records(back, FromSeqNum(0), stream=STREAM)
        assert [(record.body, record.headers) for record in stored] == [(b"1", ()), (b"2", ())]
    content = content_of(create_type)
    assert content is not None
    assert await server.service.read("orders") == content.join([content.encode([b"1", b"2"], {})])


async def test_headers_that_other_clients_wrote_are_read_nevertheless(server: Any) -> None:
    async with server.back(create_streams=True, drop_headers=True) as back:
        await back.perform(batch(b"ours", headers={0: KEY}))
        await server.service.ask("POST", "orders", OURS, body=RecordContent().encode([b"theirs"], {0: KEY}))
        stored = await records(back, FromSeqNum(0), stream=STREAM)
        assert [(record.body, record.headers) for record in stored] == [(b"ours", ()), (b"theirs", KEY)]


async def test_streams_of_json_are_created(server: Any) -> None:
    async with server.back(create_type="application/json", create_streams=True) as back:
        await back.perform(batch(b"1", b"2"))
    assert await server.service.read("orders") == b"[1,2]"


async def test_other_streams_of_bytes_are_left_alone(server: Any) -> None:
    await server.service.ask("PUT", "orders", TEXT, body=b"some text")
    async with server.back(create_streams=True) as back:
        for operation in (CheckTail(STREAM), batch(b"x")):
            with Fails(FailureCode.NOT_REPRESENTABLE, "content type text/plain: bytes without boundaries"):
                await back.perform(operation)
    assert await server.service.read("orders") == b"some text"


async def test_what_the_protocol_lacks(server: Any) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a"))
        for operation in (ListStreams(BASIN), batch(b"b", match=1), batch(b"b", token="t")):
            with Fails(FailureCode.NOT_IMPLEMENTED):
                await back.perform(operation)
        with Fails(FailureCode.NOT_REPRESENTABLE, "a command"):
            await back.perform(command(b"fence", b"t", stream=STREAM))
        assert await read(back) == [b"a"]


async def test_trimmed_records_are_hidden_and_stay_on_the_server(server: Any) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a", b"b", b"c"))
        assert (await back.perform(Trim(STREAM, FromSeqNum(2)))).seq_num == 2
        assert await read(back) == [b"c"]
        assert (await back.perform(batch(b"d"))).start.seq_num == 3
    async with server.back() as back:
        assert [record.seq_num for record in await records(back, FromSeqNum(0), stream=STREAM)] == [2, 3]
    assert b"a" in await server.service.read("orders")


async def test_a_session_is_pipelined(server: Any) -> None:
    """Appends that wait for the one in flight are sent together."""
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        async with back.append_session(STREAM) as session:
            for number in range(500):
                await session.send(batch(b"%d" % number))
            acks = await acknowledged(session, 500)
        assert [one.start.seq_num for one in acks] == list(range(500))
        assert await read(back) == [b"%d" % number for number in range(500)]
    assert sum(request.startswith("POST") for request in server.requests) < 50


async def test_sessions_share_the_stream(server: Any) -> None:
    """Each record is there once, each session's are in order, and acknowledgements say where they are."""
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        places: dict[bytes, int] = {}

        async def append(name: bytes) -> None:
            async with back.append_session(STREAM) as session:
                for number in range(20):
                    await session.send(batch(b"%b %d" % (name, number)))
                for number, ack in enumerate(await acknowledged(session, 20)):
                    places[b"%b %d" % (name, number)] = ack.start.seq_num

        async with trio.open_nursery() as nursery:
            for name in (b"a", b"b", b"c"):
                nursery.start_soon(append, name)
        found = await read(back)
    assert {body: seq_num for seq_num, body in enumerate(found)} == places
    assert [body for body in found if body.startswith(b"a")] == [b"a %d" % number for number in range(20)]


async def test_following_waits_by_long_polls(server: Any, clock: MockClock) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a"))
        async with back.read_session(Read(STREAM, FromTailOffset(0))) as session:
            await session.next()
            await trio.sleep(100)
            await server.service.ask("POST", "orders", OURS, body=RecordContent().encode([b"later"], {}))
            found = await session.next()
        assert (found.first_seq_num, found.columns.bodies) == (1, [b"later"])
    polls = [request for request in server.requests if "live=long-poll" in request]
    assert 5 <= len(polls) <= 8  # of 20 s, the server's own time


async def test_the_end_of_an_old_answer_is_not_the_tail(server: Any, clock: MockClock) -> None:
    """It was the tail when the server began to answer."""
    async with server.native() as native:
        await native.create(STREAM)
        await server.service.ask("POST", "orders", OURS, body=RecordContent().encode([b"a"], {}))
        bounds = {"max_records": 10, "max_bytes": 1000, "wait": 0.0}
        server.held = trio.Event()
        first = await native.scan(STREAM, Mark(0, 0, 0, 0), **bounds)
        assert (first.bodies, first.at_tail) == ([b"a"], False)
        server.held.set()
        await server.service.ask("POST", "orders", OURS, body=RecordContent().encode([b"b"], {}))
        assert (await native.scan(STREAM, Mark(1, 0, 0, first.offsets[-1]), **bounds)).bodies == [b"b"]


async def test_a_closed_stream_is_sealed(server: Any) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a"))
        await server.service.ask("POST", "orders", CLOSE)
        with Fails(FailureCode.STREAM_SEALED):
            await back.perform(batch(b"b"))
        assert await read(back) == [b"a"]


async def test_a_stream_is_deleted_and_created_again(server: Any) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(*[b"%d" % number for number in range(100)]))
        await back.perform(DeleteStream(STREAM))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(CheckTail(STREAM))
        await back.perform(CreateStream(STREAM))
        assert (await back.perform(batch(b"new"))).start.seq_num == 0
        await server.service.ask("DELETE", "orders")
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await read(back)


async def test_another_client_replaces_the_stream(server: Any) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(*[b"%d" % number for number in range(100)]))
        assert len(await read(back)) == 100
    await server.service.ask("DELETE", "orders")
    await server.service.ask("PUT", "orders", OURS, body=RecordContent().encode([b"new"], {}))
    async with server.back() as back:
        assert await read(back) == [b"new"]


async def test_a_stream_of_another_content_type_takes_its_place(server: Any) -> None:
    async with server.back() as back:
        await back.perform(CreateStream(STREAM))
        await back.perform(batch(b"a"))
        await server.service.ask("DELETE", "orders")
        await server.service.ask("PUT", "orders", JSON, body=b'["new", 2]')
        with Fails(FailureCode.STREAM_NOT_FOUND, "another"):
            await read(back)
        assert await read(back) == [b'"new"', b"2"]


async def test_content_that_is_no_records(server: Any) -> None:
    """A stream whose content is not what its content type says."""
    await server.service.ask("PUT", "orders", OURS, body=b"no records")
    async with server.back() as back:
        with Fails(FailureCode.UPSTREAM_FAULT, "byte 0x6e where a record's tag"):
            await read(back)


async def test_a_stream_that_is_forgotten_while_it_is_read_is_no_other(server: Any) -> None:
    other = StreamRef(BASIN, "other")
    for name in ("orders", "other"):
        await server.service.ask("PUT", name, OURS, body=b"no records")
    async with server.native(known_streams=1) as native:
        server.before_read = lambda _: native.bounds(other)
        with Fails(FailureCode.UPSTREAM_FAULT):
            await native.scan(STREAM, Mark(0, 0, 0, 0), max_records=1, max_bytes=1, wait=0)


@pytest.mark.parametrize("large", [1 << 20, (1 << 20) - 8])
async def test_what_is_too_large_is_refused(server: Any, large: int) -> None:
    async with server.back(max_append_bytes=1 << 20) as back:
        await back.perform(CreateStream(STREAM))
        with Fails(FailureCode.LIMIT_EXCEEDED):
            await back.perform(batch(b"x" * large))
        await back.perform(batch(b"small"))
        assert await read(back) == [b"small"]
