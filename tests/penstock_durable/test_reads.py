"""Reads, long polls and event streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from msgspec.structs import replace
from support.backs import DecodedBack
from support.durable import CLOSE, JSON, TEXT, Service, changed, events, ref
from support.http.client import Answer, serving
from support.store import appending, fence
from trio.testing import MockClock

from penstock.core.back import Back, Following, ReadSession, ReadSessionWrapper
from penstock.model.byte_operations import Seal
from penstock.model.operations import FromSeqNum, FromTailOffset, Read, Trim
from penstock.model.records import Header, RecordBatch, StreamPosition
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock.wire.http import End
from penstock_durable.codec import spell_offset

NAMED = {0: (Header(b"name", b"value"),)}


class Untold(ReadSessionWrapper):
    """A read that knows nothing before it is asked, nor the tail before it has reached it."""

    _position = StreamPosition(0, 0)

    async def next(self) -> RecordBatch | Following | None:
        event = await super().next()
        if isinstance(event, RecordBatch):
            event.tail, self._position = None, StreamPosition(event.next_seq_num, 0)
        return event

    def behind(self) -> bool:
        return self._position.seq_num > 0 and super().behind()

    def tail(self) -> StreamPosition:
        return self._position


class UntoldBack(DecodedBack):
    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        async with super().read_session(read) as session:
            yield Untold(session)


class _Overtaken(ReadSessionWrapper):
    """A read whose tail moves on while nothing is there."""

    def tail(self) -> StreamPosition:
        return StreamPosition(super().tail().seq_num + 1, 0)


class _MovingBack(DecodedBack):
    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        async with super().read_session(replace(read, start=FromTailOffset(0), wait=None)) as session:
            yield _Overtaken(session)


async def test_the_tail_is_that_of_the_read(service: Service) -> None:
    await service.ask("PUT", "a", TEXT)
    moving = Service(service.back, service.wall, changed(), _MovingBack(service.back))
    answer = await moving.ask("GET", "a", query="?offset=-1")
    assert (answer.headers["stream-next-offset"], answer.headers["stream-up-to-date"]) == (spell_offset(0), "true")


async def test_a_stream_without_any_record_left(service: Service) -> None:
    await service.ask("PUT", "a", TEXT)
    for number in range(3):
        await service.ask("POST", "a", TEXT, body=b"%d" % number)
    await service.back.perform(Trim(ref("a"), FromSeqNum(3)))
    answer = await service.ask("GET", "a", query="?offset=-1")
    assert (answer.headers["stream-next-offset"], answer.headers["stream-up-to-date"]) == (spell_offset(3), "true")
    assert (await service.ask("GET", "a", query=f"?offset={spell_offset(1)}")).status == 410


@pytest.mark.parametrize("wrapped", [lambda back: back, UntoldBack], ids=["tail told", "tail not told"])
async def test_a_long_stream_comes_in_parts(service: Service, wrapped: Callable[[Back], Back]) -> None:
    await service.ask("PUT", "a", TEXT)
    for number in range(10):
        await service.ask("POST", "a", TEXT, body=b"%d" % number * 100)
    small = Service(service.back, service.wall, changed(max_read_bytes=250), wrapped(service.back))
    whole, offset, parts = b"", "-1", 0
    while True:
        answer = await small.ask("GET", "a", query=f"?offset={offset}")
        whole, offset, parts = whole + answer.body, answer.headers["stream-next-offset"], parts + 1
        if "stream-up-to-date" in answer.headers:
            break
    assert whole == await service.read("a") and parts == 5


async def test_offsets_whose_data_is_gone(service: Service) -> None:
    await service.ask("PUT", "a", TEXT, body=b"0")
    for number in range(1, 4):
        await service.ask("POST", "a", TEXT, body=b"%d" % number)
    await service.back.perform(Trim(ref("a"), FromSeqNum(2)))
    for query in (f"?offset={spell_offset(1)}", f"?offset={spell_offset(0)}&live=long-poll"):
        answer = await service.ask("GET", "a", query=query)
        assert (answer.status, spell_offset(2) in answer.body.decode()) == (410, True)
    assert await service.read("a", "?offset=-1") == await service.read("a") == b"23"


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
async def test_offsets_beyond_the_tail(service: Service, live: str) -> None:
    await service.ask("PUT", "a", TEXT, body=b"0")
    assert (await service.ask("GET", "a", query=f"?offset={spell_offset(2)}{live}")).status == 400


async def test_records_that_cannot_be_carried(service: Service) -> None:
    """Records before one of them are delivered; then the answer names it."""
    await service.ask("PUT", "a", TEXT, body=b"first")
    await service.back.perform(appending(b"rich", stream=ref("a"), headers=NAMED))
    await service.back.perform(fence(b"token", stream=ref("a")))
    await service.back.perform(appending(b"", b"last", stream=ref("a")))
    answer = await service.ask("GET", "a")
    assert (answer.status, answer.body, answer.headers["stream-next-offset"]) == (200, b"first", spell_offset(1))
    assert "stream-up-to-date" not in answer.headers
    answer = await service.ask("GET", "a", query=f"?offset={spell_offset(1)}")
    assert answer.status == 422 and "record 1 has headers" in answer.body.decode()
    assert await service.read("a", f"?offset={spell_offset(2)}") == b"last"
    dropping = Service(service.back, service.wall, changed(loss=LossPolicy(Loss.DROP, Loss.DROP, Loss.DROP)))
    assert await dropping.read("a") == b"firstrichlast"
    strict = Service(service.back, service.wall, changed(loss=LossPolicy(Loss.DROP, Loss.REFUSE, Loss.REFUSE)))
    answer = await strict.ask("GET", "a", query=f"?offset={spell_offset(2)}")
    assert answer.status == 422 and "record 2" in answer.body.decode()


async def test_a_record_that_is_no_message(service: Service) -> None:
    await service.ask("PUT", "a", JSON, body=b"[1]")
    await service.back.perform(appending(b"not JSON", stream=ref("a")))
    assert await service.read("a") == b"[1]"
    answer = await service.ask("GET", "a", query=f"?offset={spell_offset(1)}")
    assert answer.status == 422 and "record 1 is not JSON" in answer.body.decode()
    async with service.connected() as client:
        stream = await client.open("GET", "/v1/stream/a?offset=-1&live=sse")
        assert (await client.head(stream)).status == 200
        assert await client.answer_body(stream) == (
            b"event: data\ndata:[1]\n\nevent: control\n"
            b'data:{"streamNextOffset":"%b","streamCursor":"%d"}\n\n'
            % (spell_offset(1).encode(), max(0, (service.wall.now // 1000 - 1_728_432_000) // 20))
        )


@pytest.mark.parametrize(
    ("value", "status"), [("{}", 304), ('"x", {}', 304), ("W/{}", 304), ("*", 304), ('"x"', 200), ("", 200)]
)
async def test_entity_tags(service: Service, value: str, status: int) -> None:
    await service.ask("PUT", "a", TEXT, body=b"x")
    tag = (await service.ask("GET", "a")).headers["etag"]
    answer = await service.ask("GET", "a", ("if-none-match", value.format(tag)))
    assert (answer.status, answer.body) == (status, b"" if status == 304 else b"x")
    await service.ask("POST", "a", CLOSE)
    assert (await service.ask("GET", "a", ("if-none-match", tag))).status == 200  # its end is news


async def test_a_long_poll_without_data(service: Service, clock: MockClock) -> None:
    await service.ask("PUT", "a", TEXT)
    begun = trio.current_time()
    answer = await service.ask("GET", "a", query="?offset=-1&live=long-poll")
    assert (answer.status, answer.headers["cache-control"]) == (204, "no-store")
    assert 20 <= trio.current_time() - begun < 21


@pytest.mark.parametrize("closer", ["us", "another client"])
async def test_a_long_poll_ends_with_the_stream(service: Service, clock: MockClock, closer: str) -> None:
    """At once if the stream is closed here; else when the wait is over."""
    await service.ask("PUT", "a", TEXT)
    answers: list[Answer] = []

    async def poll() -> None:
        answers.append(await service.ask("GET", "a", query="?offset=now&live=long-poll"))

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await trio.sleep(1)
        if closer == "us":
            await service.ask("POST", "a", TEXT, CLOSE, body=b"end")
        else:
            await service.back.perform(Seal(ref("a")))
    if closer == "us":
        assert (answers[0].status, answers[0].body) == (200, b"end")
        assert trio.current_time() - begun < 2
    else:
        assert (answers[0].status, answers[0].headers["stream-closed"]) == (204, "true")


@pytest.mark.parametrize("query", ["?offset=now&live=long-poll", "?offset=now&live=sse"])
async def test_a_drain_ends_reads_that_wait(service: Service, clock: MockClock, query: str) -> None:
    await service.ask("PUT", "a", TEXT)
    answers: list[Answer] = []

    async def read() -> None:
        answers.append(await service.ask("GET", "a", query=query))

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.sleep(1)
        service.front.drain()
    assert answers[0].status == (200 if "sse" in query else 503)
    assert trio.current_time() - begun < 5
    assert (await service.ask("GET", "a")).status == 200, "it was sent before the client could know"
    async with serving(service.front.handle, "h2") as client:
        assert (await client.ask("GET", "/v1/stream/a")).status == 503


async def test_an_event_stream(service: Service, clock: MockClock) -> None:
    """Data with its position; the position again while there is none; the last event when another client closes it."""
    await service.ask("PUT", "a", TEXT, body=b"one")
    async with service.connected() as client:
        stream = await client.open("GET", "/v1/stream/a?offset=-1&live=sse")
        assert (await client.head(stream)).status == 200
        first = await events(client, stream, b"upToDate")
        assert first.startswith(b"event: data\ndata:one\n\nevent: control\n") and first.count(b"control") == 1
        begun = trio.current_time()
        assert (await events(client, stream, b"upToDate")).count(b"event: ") == 1
        assert 5 <= trio.current_time() - begun <= 15
        await service.ask("POST", "a", TEXT, body=b" two")
        assert b"data:  two\n" in await events(client, stream, b"upToDate")
        await service.back.perform(Seal(ref("a")))
        last = await events(client, stream, b"streamClosed")
        assert json.loads(last.rpartition(b"data:")[2]) == {
            "streamNextOffset": spell_offset(2),
            "upToDate": True,
            "streamClosed": True,
        }
        assert isinstance(await client.next(stream), End)


@pytest.mark.parametrize("wrapped", [lambda back: back, UntoldBack], ids=["tail told", "tail not told"])
async def test_an_event_stream_of_a_closed_stream_has_all_its_data(
    service: Service, wrapped: Callable[[Back], Back]
) -> None:
    await service.ask("PUT", "a", TEXT, body=b"one")
    for body in (b"two", b"three"):
        await service.ask("POST", "a", TEXT, body=body)
    await service.ask("POST", "a", CLOSE)
    other = Service(service.back, service.wall, changed(), wrapped(service.back))
    answer = await other.ask("GET", "a", query="?offset=-1&live=sse")
    assert b"".join(
        line[5:] for line in answer.body.split(b"\n") if line.startswith(b"data:") and b"{" not in line
    ) == (b"onetwothree")
    assert answer.body.count(b"streamClosed") == 1 and spell_offset(3).encode() in answer.body


async def test_an_event_stream_ends_in_time(service: Service, clock: MockClock) -> None:
    await service.ask("PUT", "a", TEXT)
    begun = trio.current_time()
    assert (await service.ask("GET", "a", query="?offset=-1&live=sse")).status == 200
    assert 60 <= trio.current_time() - begun < 61


async def test_an_event_stream_whose_stream_is_deleted(service: Service, clock: MockClock) -> None:
    await service.ask("PUT", "a", TEXT)
    async with service.connected() as client:
        stream = await client.open("GET", "/v1/stream/a?offset=-1&live=sse")
        await client.head(stream)
        await events(client, stream, b"upToDate")
        begun = trio.current_time()
        await service.ask("DELETE", "a")
        while not isinstance(await client.next(stream), End):
            pass
        assert trio.current_time() - begun < 5


async def test_a_reader_that_is_slow_gets_the_end_as_well(service: Service, clock: MockClock) -> None:
    """The close comes while it is not waiting."""
    await service.ask("PUT", "a", TEXT, body=b"one")
    async with service.connected() as client:
        stream = await client.open("GET", "/v1/stream/a?offset=-1&live=sse")
        await client.head(stream)
        await service.ask("POST", "a", TEXT, CLOSE, body=b"two")
        rest = await events(client, stream, b"streamClosed")
        assert rest.count(b"event: data") >= 1 and b"two" in rest


async def test_heads_of_forms_of_requests(service: Service) -> None:
    """Methods, paths, pages and preflights."""
    await service.ask("PUT", "a", TEXT)
    refused = await service.ask("PATCH", "a")
    assert (refused.status, refused.headers["allow"]) == (405, "GET,HEAD,PUT,POST,DELETE")
    assert (await service.ask("GET", "%FF")).status == 400
    assert (await service.ask("PUT", "x" * 513, TEXT)).status == 400
    assert (await service.ask("GET", "a", query="?offset=%FF")).status == 400
    page = await service.ask("GET", "a", ("origin", "https://page.example"))
    assert page.status == 403 and "cors_origins" in page.body.decode()
    open_to_pages = Service(service.back, service.wall, changed(cors_origins=frozenset({"*"})))
    page = await open_to_pages.ask("GET", "a", ("origin", "https://page.example"))
    assert page.headers["access-control-allow-origin"] == "*"
    assert "stream-next-offset" in page.headers["access-control-expose-headers"]
    assert page.headers["cross-origin-resource-policy"] == "cross-origin"
    asked = (("origin", "https://page.example"), ("access-control-request-headers", "if-none-match"))
    assert "if-none-match" in (await open_to_pages.ask("OPTIONS", "a", *asked)).headers["access-control-allow-headers"]
