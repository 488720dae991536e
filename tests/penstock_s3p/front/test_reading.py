"""The S3P front: READ, its bounds, and its waits."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.s3p.front import Connect, WatchedBack, error_code, serving
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.model.records import RecordId
from penstock_s3p.codec import AppendedId, AppendRecords, Create, Delete, Ok, ReadRecords, Records
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.front import S3PFront

S = b"s"


async def test_read_count_and_start(connect: Connect, clock: MockClock) -> None:
    """Section 8.3: from MIN_ID on, inclusive; up to COUNT; pages join without a gap."""
    client = connect()
    await client.call(Create(S), *(AppendRecords(S, [b"%d.%d" % (ms, n) for n in range(7)], ms) for ms in range(100)))
    replies = await client.call(
        ReadRecords(S, 3, min_id=RecordId(5, 5)),
        ReadRecords(S, 1, min_id=RecordId(5, 7)),
        ReadRecords(S, min_id=RecordId(99, 7)),
        ReadRecords(S, min_id=RecordId(2**64 - 1, 2**64 - 1)),
    )
    assert replies[0] == Records([5, 5, 6], [5, 6, 0], [b"5.5", b"5.6", b"6.0"])
    assert replies[1] == Records([6], [0], [b"6.0"])
    assert replies[2] == replies[3] == Records([], [], [])
    pages: list[bytes] = []
    at = RecordId(0, 0)
    while True:
        (page,) = await client.call(ReadRecords(S, 9, min_id=at))
        assert isinstance(page, Records)
        if not page.bodies:
            break
        pages += page.bodies
        at = RecordId(page.timestamps[-1], page.seqs[-1] + 1)
    assert pages == [b"%d.%d" % (ms, n) for ms in range(100) for n in range(7)]


async def test_read_replies_are_bounded_in_bytes(connect: Connect, clock: MockClock) -> None:
    """Fact 33: a server may return fewer than COUNT, but never none where there are some."""
    client = connect()
    big = b"x" * S3PLimits().max_record_bytes
    await client.call(Create(S), *(AppendRecords(S, [big], ms) for ms in range(5)))
    seen = 0
    while seen < 5:
        (page,) = await client.call(ReadRecords(S, min_id=RecordId(seen, 0)))
        assert isinstance(page, Records) and 1 <= len(page.bodies) <= 2
        assert all(body == big for body in page.bodies)
        seen += len(page.bodies)


async def test_a_wait_ends_with_the_first_record_that_matches(connect: Connect, clock: MockClock) -> None:
    """Section 8.3, facts 31 and 32: with the first, not when COUNT is full; records below MIN_ID do not end it."""
    client, other = connect(), connect()
    await other.call(Create(S))
    await client.send(ReadRecords(S, 10, 5000, RecordId(50, 1)))
    for ms in (5, 50):
        await trio.sleep(1)
        await other.call(AppendRecords(S, [b"too early"], ms))
    await trio.sleep(1)
    began = trio.current_time()
    await other.call(AppendRecords(S, [b"now", b"too"], 50))
    assert await client.reply() == Records([50, 50], [1, 2], [b"now", b"too"])
    assert trio.current_time() - began < 1


async def test_a_wait_expires(connect: Connect, clock: MockClock) -> None:
    """Section 8.3: an empty array after BLOCK ms, no matter what happens below MIN_ID."""
    client = connect()
    await client.call(Create(S), AppendRecords(S, [b"x"], 5))
    began = trio.current_time()
    assert await client.call(ReadRecords(S, block_ms=4000, min_id=RecordId(6, 0))) == [Records([], [], [])]
    assert 3.9 <= trio.current_time() - began <= 5
    began = trio.current_time()
    assert await client.call(ReadRecords(S, min_id=RecordId(6, 0))) == [Records([], [], [])]
    assert trio.current_time() - began < 1, "30: BLOCK 0 does not wait"


async def test_a_wait_ends_when_its_stream_is_deleted(connect: Connect, clock: MockClock) -> None:
    """Fact 34."""
    client = connect()
    await client.call(Create(S))
    await client.send(ReadRecords(S, block_ms=5000))
    await trio.sleep(1)
    began = trio.current_time()
    await connect().call(Delete(S))
    assert await client.reply() == Records([], [], [])
    assert trio.current_time() - began < 1
    assert error_code((await client.call(ReadRecords(S, block_ms=5000)))[0]) == "ERR_UNKNOWN_STREAM"


async def test_commands_behind_a_wait_wait(connect: Connect, clock: MockClock) -> None:
    """Fact 35: one at a time per connection, so the APPEND behind the READ cannot be what it waits for."""
    client = connect()
    replies = await client.call(Create(S), ReadRecords(S, block_ms=2000), AppendRecords(S, [b"x"], 1), ReadRecords(S))
    assert replies == [Ok(), Records([], [], []), AppendedId(RecordId(1, 0)), Records([1], [0], [b"x"])]
    await client.send(ReadRecords(S, block_ms=2000, min_id=RecordId(2, 0)))
    await trio.sleep(0.5)
    assert await client.call(Delete(S)) == [Records([], [], [])], "sent during the wait"
    assert await client.reply() == Ok()


@pytest.mark.parametrize("half", [True, False])
async def test_a_wait_ends_when_its_client_goes(back: EmbeddedBack, clock: MockClock, half: bool) -> None:
    """Fact 36. One that only finished sending still gets its replies."""
    watched = WatchedBack(back)
    async with serving(S3PFront(watched)) as connect:
        client = connect()
        await client.call(Create(S))
        await client.send(ReadRecords(S, block_ms=10_000), Delete(S))
        await trio.sleep(1)
        assert watched.reading == 1
        began = trio.current_time()
        if half:
            await client.stream.send_eof()
            assert [await client.reply(), await client.reply()] == [Records([], [], []), Ok()]
            assert await client.ended()
        else:
            await client.stream.aclose()
        await trio.sleep(0.5)
        assert watched.reading == 0 and trio.current_time() - began < 2
