"""Appends, producers, writer sequences and closing."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.durable import CLOSE, JSON, TEXT, Service, changed, producer, ref, running
from support.http.client import Answer
from trio.testing import MockClock

from penstock.core.back import BackWrapper
from penstock.model.byte_operations import AppendBytes, Seal
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import Append, FromSeqNum, Operation, Read
from penstock_durable.front.catalog import StreamMeta


async def test_pipelined_appends_of_a_producer_keep_their_order(service: Service) -> None:
    await service.ask("PUT", "a", TEXT)
    answers: list[Answer] = []

    async def send(number: int) -> None:
        answers.append(await service.ask("POST", "a", TEXT, *producer(0, number), body=b"%d" % number))

    assert (await service.ask("POST", "a", TEXT, *producer(0, 0), body=b"0")).status == 200
    for first in range(1, 30, 5):
        async with trio.open_nursery() as nursery:
            for number in range(first, first + 5):
                nursery.start_soon(send, number)
    sent = sorted(int(answer.headers["producer-seq"]) for answer in answers if answer.status == 200)
    assert (await service.read("a")) == b"0" + b"".join(b"%d" % number for number in sent)
    assert all(answer.status in (200, 409) for answer in answers)


async def test_a_producer_goes_on_after_a_restart(clock: MockClock, tmp_path: Path) -> None:
    async with running(tmp_path) as before:
        await before.ask("PUT", "a", TEXT)
        await before.ask("POST", "a", TEXT, *producer(2, 0), body=b"one")
        await before.ask("POST", "a", TEXT, *producer(2, 1), body=b"two")
    async with running(tmp_path, wall=before.wall) as after:
        repeated = await after.ask("POST", "a", TEXT, *producer(2, 1), body=b"other")
        assert (repeated.status, repeated.headers["producer-seq"]) == (204, "1")
        gap = await after.ask("POST", "a", TEXT, *producer(2, 3), body=b"four")
        assert (gap.status, gap.headers["producer-expected-seq"], gap.headers["producer-received-seq"]) == (
            409,
            "2",
            "3",
        )
        stale = await after.ask("POST", "a", TEXT, *producer(1, 0), body=b"zombie")
        assert (stale.status, stale.headers["producer-epoch"]) == (403, "2")
        assert (await after.ask("POST", "a", TEXT, *producer(2, 2), body=b"three")).status == 200
        assert await after.read("a") == b"onetwothree"


async def test_an_epoch_without_its_first_append(service: Service) -> None:
    """The process may end between the two: the append is sent again."""
    await service.ask("PUT", "a", TEXT)
    await service.front._catalog.set_epoch(str(ref("a")), "p", 4)
    assert (await service.ask("POST", "a", TEXT, *producer(3, 0), body=b"x")).status == 403
    assert (await service.ask("POST", "a", TEXT, *producer(4, 1), body=b"x")).status == 409
    assert (await service.ask("POST", "a", TEXT, *producer(4, 0), body=b"x")).status == 200


async def test_an_append_that_was_checked_before_a_newer_epoch_began(service: Service) -> None:
    """It is refused, although its own look at the epoch was earlier."""
    await service.ask("PUT", "a", TEXT)
    await service.ask("POST", "a", TEXT, *producer(0, 0), body=b"0")
    looked, go_on = trio.Event(), trio.Event()
    catalog = service.front._catalog
    look = catalog.epoch

    async def slowly(stream: object, name: str) -> int | None:
        epoch = await look(str(ref("a")), name)
        if not looked.is_set():
            looked.set()
            await go_on.wait()
        return epoch

    catalog.epoch = slowly  # type: ignore[method-assign]
    late: list[Answer] = []

    async def old() -> None:
        late.append(await service.ask("POST", "a", TEXT, *producer(0, 1), body=b"zombie"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(old)
        await looked.wait()
        assert (await service.ask("POST", "a", TEXT, *producer(1, 0), body=b"new")).status == 200
        go_on.set()
    assert (late[0].status, late[0].headers["producer-epoch"]) == (403, "1")
    assert await service.read("a") == b"0new"


async def test_a_producer_and_a_writer_sequence(service: Service) -> None:
    await service.ask("PUT", "a", TEXT)
    both = (*producer(0, 0), ("stream-seq", "b"))
    assert (await service.ask("POST", "a", TEXT, *both, body=b"x")).status == 200
    assert (await service.ask("POST", "a", TEXT, *both, body=b"x")).status == 204
    assert (await service.ask("POST", "a", TEXT, *producer(0, 1), ("stream-seq", "a"), body=b"x")).status == 409
    assert (await service.ask("POST", "a", TEXT, *producer(0, 5), ("stream-seq", "c"), body=b"x")).status == 409
    assert (await service.ask("POST", "a", TEXT, *producer(0, 1), ("stream-seq", "c"), body=b"y")).status == 200
    assert await service.read("a") == b"xy"


async def test_a_writer_sequence_whose_append_was_never_made(service: Service) -> None:
    """The process ended between the two. The tail has not moved, so the sequence before counts."""

    class Ending(BackWrapper):
        async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
            if isinstance(operation, Append):
                raise fail(FailureCode.STORAGE, "it has ended")
            return await super().perform(operation)

    await service.ask("PUT", "a", TEXT)
    await service.ask("POST", "a", TEXT, ("stream-seq", "b"), body=b"x")
    ending = Service(service.back, service.wall, service.front._settings, Ending(service.back))
    assert (await ending.ask("POST", "a", TEXT, ("stream-seq", "d"), body=b"lost")).status == 500
    assert (await service.ask("POST", "a", TEXT, ("stream-seq", "b"), body=b"!")).status == 409
    assert (await service.ask("POST", "a", TEXT, ("stream-seq", "d"), body=b"y")).status == 204
    assert (await service.ask("POST", "a", TEXT, ("stream-seq", "d"), body=b"z")).status == 409
    assert await service.read("a") == b"xy"


async def test_a_writer_sequence_beside_a_reader_that_extends_the_life(service: Service) -> None:
    await service.ask("PUT", "a", TEXT, ("stream-ttl", "100"))
    service.wall.now += 50_000
    async with trio.open_nursery() as nursery:
        for name in "bcd":
            nursery.start_soon(lambda name=name: service.ask("POST", "a", TEXT, ("stream-seq", name), body=b"x"))
            nursery.start_soon(service.ask, "GET", "a")
    assert (await service.ask("POST", "a", TEXT, ("stream-seq", "d"), body=b"x")).status == 409
    service.wall.now += 100_000
    assert (await service.ask("HEAD", "a")).status == 200


async def test_no_append_comes_between_the_last_one_and_the_close(service: Service) -> None:
    await service.ask("PUT", "a", TEXT)
    statuses: list[int] = []

    async def append(body: bytes, *headers: tuple[str, str]) -> None:
        statuses.append((await service.ask("POST", "a", TEXT, *headers, body=body)).status)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(append, b"x")
            if number == 5:
                nursery.start_soon(append, b"END", CLOSE)
    body = await service.read("a")
    assert body.endswith(b"END") and body.count(b"x") == statuses.count(204) - 1, (body, statuses)


@pytest.mark.parametrize("sender", [(), producer(0, 0)])
@pytest.mark.parametrize("body", [b"END", b""])
async def test_a_close_tells_the_end_that_readers_come_to(
    service: Service, sender: tuple[tuple[str, str], ...], body: bytes
) -> None:
    """Clients of other protocols append until the stream is sealed, and their records are acknowledged."""

    class Busy(BackWrapper):
        async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
            if isinstance(operation, Seal):
                for number in b"12":
                    await super().perform(Append(ref("a"), [bytes([number])], 9))
            return await super().perform(operation)

    await service.ask("PUT", "a", TEXT, body=b"0")
    busy = Service(service.back, service.wall, service.front._settings, Busy(service.back))
    closed = await busy.ask("POST", "a", TEXT, *sender, CLOSE, body=body)
    assert (closed.status, closed.headers["stream-closed"]) == (200 if sender and body else 204, "true")
    assert await service.read("a") == b"0" + body + b"12"
    assert closed.headers["stream-next-offset"] == (await service.ask("HEAD", "a")).headers["stream-next-offset"]


@pytest.mark.parametrize("body", [b"END", b""])
async def test_a_repeated_append_closes_a_stream_that_its_first_try_left_open(service: Service, body: bytes) -> None:
    """The process ended between the append and the close."""

    class Ending(BackWrapper):
        async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
            if isinstance(operation, Seal):
                raise fail(FailureCode.STORAGE, "it has ended")
            return await super().perform(operation)

    await service.ask("PUT", "a", TEXT)
    await service.ask("POST", "a", TEXT, *producer(0, 0), body=b"0")
    ending = Service(service.back, service.wall, service.front._settings, Ending(service.back))
    last = (TEXT, *producer(0, 1), CLOSE)
    assert (await ending.ask("POST", "a", *last, body=body)).status == 500
    early = await service.ask("POST", "a", TEXT, *producer(0, 0), CLOSE, body=b"0")
    assert (early.status, early.headers.get("stream-closed")) == (204, None), "it is not the last append"
    for _ in range(2):
        again = await service.ask("POST", "a", *last, body=body)
        assert (again.status, again.headers.get("stream-closed")) == (204, "true")
        assert again.headers["producer-seq"] == "1"
    assert (await service.ask("HEAD", "a")).headers["stream-closed"] == "true"
    assert await service.read("a") == b"0" + body


async def test_a_stream_that_another_client_closed(service: Service) -> None:
    await service.ask("PUT", "a", TEXT, body=b"x")
    await service.back.perform(Seal(ref("a")))
    refused = await service.ask("POST", "a", TEXT, body=b"y")
    assert (refused.status, refused.headers["stream-closed"]) == (409, "true")
    assert refused.headers["stream-next-offset"] == "0000000000000001_0000000000000000"
    assert (await service.ask("POST", "a", TEXT, *producer(0, 0), body=b"y")).status == 409
    assert (await service.ask("POST", "a", CLOSE)).status == 204


async def test_a_stream_that_is_closed_between_the_look_and_the_append(service: Service) -> None:
    class Closing(BackWrapper):
        async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
            if isinstance(operation, Append | AppendBytes):
                await super().perform(Seal(operation.stream))
            return await super().perform(operation)

    await service.ask("PUT", "a", TEXT)
    closing = Service(service.back, service.wall, service.front._settings, Closing(service.back))
    for headers in ((), producer(0, 0)):
        answer = await closing.ask("POST", "a", TEXT, *headers, body=b"y")
        assert (answer.status, answer.headers["stream-closed"]) == (409, "true")


async def test_messages_of_a_producer_are_records(service: Service) -> None:
    """Other clients see one record for each message, with the bytes that were sent."""
    await service.ask("PUT", "a", JSON)
    await service.ask("POST", "a", JSON, *producer(0, 0), body=b'[ {"a": 1.0}, "\\u00e9" ]')
    async with service.back.read_session(Read(ref("a"), FromSeqNum(0), count=2)) as session:
        batch = await session.next()
    assert [record.body for record in batch.records()] == [b'{"a": 1.0}', b'"\\u00e9"']  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("headers", "body", "status", "words"),
    [
        ((TEXT,), b"x" * 11, 413, "larger than 10 bytes"),
        ((TEXT, ("content-encoding", "gzip")), b"x", 400, "content-encoding"),
        ((), b"x", 400, "content-type: an append must name"),
        ((TEXT,), b"", 400, "needs a body"),
        ((("content-type", "text/html"),), b"x", 409, "has content type text/plain, not text/html"),
    ],
)
async def test_appends_that_are_refused(
    service: Service, headers: tuple[tuple[str, str], ...], body: bytes, status: int, words: str
) -> None:
    await service.ask("PUT", "a", TEXT)
    small = Service(service.back, service.wall, changed(max_append_bytes=10))
    answer = await small.ask("POST", "a", *headers, body=body)
    assert answer.status == status and words in answer.body.decode()
    assert await service.read("a") == b""


@pytest.mark.parametrize(
    ("method", "query", "header", "words"),
    [
        ("POST", "", ("if-match", '"x:0:1"'), "if-match: POST has no such condition"),
        ("POST", "", ("if-none-match", "*"), "if-none-match: POST has no such condition"),
        ("POST", "", ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT"), "if-unmodified-since"),
        ("POST", "", ("stream-expected-offset", "0"), "stream-expected-offset: POST has no such header"),
        ("POST", "?expected_offset=0", None, "expected_offset: POST has no such parameter"),
        ("DELETE", "", ("if-match", '"x"'), "if-match: DELETE has no such condition"),
        ("DELETE", "", ("stream-seq", "a"), "stream-seq: DELETE has no such header"),
        ("PUT", "", ("if-match", '"x"'), "if-match: a stream as a whole has no entity tag"),
        ("PUT", "", ("producer-seq", "0"), "producer-seq: PUT has no such header"),
        ("GET", "", ("if-match", "*"), "if-match: GET has no such condition"),
        ("HEAD", "", ("if-unmodified-since", "x"), ""),
    ],
)
async def test_conditions_that_are_not_evaluated(
    service: Service, method: str, query: str, header: tuple[str, str] | None, words: str
) -> None:
    await service.ask("PUT", "a", TEXT, body=b"x")
    more = () if header is None else (header,)
    body = b"y" if method in ("PUT", "POST") else b""
    answer = await service.ask(method, "a", TEXT, *more, body=body, query=query)
    assert answer.status == 400 and words in answer.body.decode()
    assert await service.read("a") == b"x"


async def test_a_creation_on_condition_that_the_stream_exists_or_not(service: Service) -> None:
    new, old = ("if-none-match", "*"), ("if-match", "*")
    assert (await service.ask("PUT", "a", TEXT, old)).status == 412
    assert (await service.ask("PUT", "a", TEXT, new, body=b"x")).status == 201
    assert (await service.ask("PUT", "a", TEXT, new, body=b"y")).status == 412
    assert (await service.ask("PUT", "a", TEXT, old)).status == 200
    assert await service.read("a") == b"x"


def test_the_properties_of_a_stream_take_little_room() -> None:
    import msgspec

    assert len(msgspec.json.encode(StreamMeta("text/plain", "1", used_at=1_700_000_000_000))) < 100
