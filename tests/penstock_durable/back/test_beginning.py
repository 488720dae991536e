"""A server cuts a stream's beginning between two known offsets: where the stream begins then, and what is read."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.durable import CLOSE, SETTINGS, ref
from support.store import Fails, appending, eventually
from trio.testing import MockClock

from penstock.core.marks import Mark
from penstock.core.native import Scanned
from penstock.model.failures import FailureCode
from penstock.model.limits import MIB
from penstock.model.operations import FromSeqNum, Trim
from penstock.model.records import NO_HEADERS, Header
from penstock_durable.codec import RECORDS_TYPE, RecordContent, spell_offset
from penstock_durable.front import DurableFront

STREAM = ref("orders")
OURS = ("content-type", RECORDS_TYPE)
ONE, TWO = 20, 32
"""Sizes of answers that hold one small append, and two."""
TWENTY = [b"%02d" % number for number in range(20)]


def encoded(*records: bytes) -> bytes:
    return RecordContent().encode(records, NO_HEADERS)


def pages_of(server: Any, size: int) -> None:
    """Let the server end answers after so many bytes."""
    settings = replace(SETTINGS, max_read_bytes=size)
    server.service.front = DurableFront(server.service.back, server.service.back, settings, server.service.wall)


async def append(server: Any, *bodies: bytes) -> None:
    """Make appends on the server, each with such a body."""
    for some in (bodies[at : at + 20] for at in range(0, len(bodies), 20)):
        await server.service.back.perform(appending(*some, stream=STREAM))


async def cut(server: Any, appends: int) -> None:
    """Remove so many of the first appends on the server."""
    await server.service.back.perform(Trim(STREAM, FromSeqNum(appends)))


async def scan(native: Any, start: int, most: int = 1000, size: int = MIB) -> Scanned:
    found = await native.scan(STREAM, Mark(0, 0, 0, start), max_records=most, max_bytes=size, wait=0.0)
    assert found.offsets is not None and found.offsets[0] == start and len(found.offsets) == len(found.bodies) + 1
    return found


async def scan_all(native: Any, start: int) -> list[bytes]:
    found: list[bytes] = []
    while (some := await scan(native, start)).bodies:
        assert some.offsets is not None
        found += some.bodies
        start = some.offsets[-1]
    return found


async def beginning(native: Any, start: int = 0) -> int:
    """Return the first position that is left, as a read of one that is gone is told."""
    with Fails(FailureCode.OFFSET_TRUNCATED) as failed:
        await scan(native, start)
    return int(str(failed.failure.details["offset"]))


@pytest.mark.parametrize("times", [1, 30_000], ids=["many to an answer", "one to an answer"])
async def test_what_is_left_is_read(server: Any, clock: MockClock, times: int) -> None:
    records = [body * times for body in TWENTY]
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, records))
        assert await scan_all(native, 0) == records
        await cut(server, 7)
        first = await beginning(native)
        assert first == len(encoded(*records[:7])) == await beginning(native, len(encoded(*records[:6])))
        assert await scan_all(native, first) == records[7:]
        assert await scan_all(native, len(encoded(*records[:12]))) == records[12:]
        found = await scan(native, first, most=3)
        assert (found.bodies, found.at_tail) == (records[7:10], False)
        assert (await scan(native, first, size=1)).bodies == [records[7]]
        with Fails(FailureCode.UPSTREAM_FAULT, "no record begins where one did before"):
            await scan(native, first + 1)


async def test_messages_of_json(server: Any, clock: MockClock) -> None:
    messages = [b'{"n": %d}' % number for number in range(20)]
    async with server.native(create_type="application/json") as native:
        await native.create(STREAM)
        await append(server, *messages)
        assert await scan_all(native, 0) == messages
        await cut(server, 7)
        assert await beginning(native) == 7
        assert await scan_all(native, 7) == messages[7:]
        assert await scan_all(native, 9) == messages[9:]


async def test_offsets_are_not_noted_for_counts(server: Any, clock: MockClock) -> None:
    """A count from the server's beginning is no position. The table has a gap: the first answer was large."""
    messages = [b"%d" % number for number in range(3000)]
    async with server.native(create_type="application/json") as native:
        await native.create(STREAM)
        pages_of(server, MIB)
        await append(server, *messages)
        assert await scan_all(native, 0) == messages
        await cut(server, 700)
        pages_of(server, 1200)
        assert await beginning(native) == 700
        assert (await scan(native, 1200)).bodies == messages[1200:2200]
        assert await scan_all(native, 2900) == messages[2900:]


async def test_headers_are_kept(server: Any, clock: MockClock) -> None:
    headers = {1: (Header(b"k", b"v"),)}
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, encoded(b"a"), RecordContent().encode([b"b", b"c", b"d"], headers))
        await scan_all(native, 0)
        await cut(server, 1)
        found = await scan(native, len(encoded(b"a", b"b")))
        assert (found.bodies, found.headers) == ([b"c", b"d"], {0: headers[1]})


async def test_a_cut_at_a_known_offset(server: Any, clock: MockClock) -> None:
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, TWENTY[:7]))
        assert await scan_all(native, 0) == TWENTY[:7]
        await append(server, *map(encoded, TWENTY[7:]))
        await cut(server, 7)
        first = await beginning(native)
        assert first == len(encoded(*TWENTY[:7]))
        assert await scan_all(native, first) == TWENTY[7:]


async def test_all_is_cut(server: Any, clock: MockClock) -> None:
    """The stream goes on where it ended."""
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, TWENTY))
        await scan_all(native, 0)
        await cut(server, 20)
        first = await beginning(native)
        assert first == len(encoded(*TWENTY))
        await append(server, encoded(b"more"))
        assert await scan_all(native, first) == [b"more"]


async def test_a_closed_stream_is_cut(server: Any, clock: MockClock) -> None:
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, TWENTY))
        await scan_all(native, 0)
        await server.service.ask("POST", "orders", CLOSE)
        await cut(server, 7)
        first = await beginning(native)
        assert first == len(encoded(*TWENTY[:7]))
        found = await scan(native, first)
        assert (found.bodies, found.at_tail, found.end) == (TWENTY[7:], False, False)
        found = await scan(native, first + len(encoded(*found.bodies)))
        assert (found.bodies, found.at_tail, found.end) == ([], True, True)


@pytest.mark.parametrize("times", [1, 30_000], ids=["within the first answer", "beyond"])
async def test_a_stream_of_another_client_is_cut(server: Any, clock: MockClock, times: int) -> None:
    """The gateway does not know the offset of its beginning, so the server answers as if nothing had happened."""
    records = [body * times for body in TWENTY]
    await server.service.ask("PUT", "orders", OURS)
    await append(server, *map(encoded, records))
    async with server.native() as native:
        assert await scan_all(native, 0) == records
    async with server.native() as native:
        assert await scan_all(native, 0) == records
        await cut(server, 7)
        first = await beginning(native)
        assert first == len(encoded(*records[:7]))
        assert await scan_all(native, first) == records[7:]


async def test_a_shorter_stream_takes_the_place_of_another_clients(server: Any, clock: MockClock) -> None:
    """It ends before the first known offset, which is not asked for again and again."""
    await server.service.ask("PUT", "orders", OURS)
    await append(server, *map(encoded, TWENTY))
    async with server.native() as native:
        assert await scan_all(native, 0) == TWENTY
        await server.service.ask("DELETE", "orders")
        await server.service.ask("PUT", "orders", OURS)
        await append(server, *map(encoded, TWENTY[:5]))
        server.requests.clear()
        assert await scan_all(native, 0) == TWENTY[:5]
        assert len(server.requests) < 10


async def test_no_known_offset_is_left(server: Any, clock: MockClock) -> None:
    """Positions cannot be counted then: the stream counts as another one."""
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, TWENTY[:5]))
        await scan_all(native, 0)
        await append(server, *map(encoded, TWENTY[5:]))
        await cut(server, 7)
        with Fails(FailureCode.STREAM_NOT_FOUND, "no offset"):
            await scan(native, 0)
        assert await scan_all(native, 0) == TWENTY[7:]


@pytest.mark.slow
@pytest.mark.parametrize(("times", "size"), [(1, TWO), (25_000, 110_000)], ids=["answers", "bytes"])
async def test_too_much_is_left_to_count(server: Any, clock: MockClock, times: int, size: int) -> None:
    """Answers hold two records each, so those from a cut at an odd record on never end at a known offset.

    The first known offset counts then: records before it are left, and not read.
    """
    records = [b"%02d" % number * times for number in range(300 if times == 1 else 160)]
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, records[:10]))
        pages_of(server, size)
        assert await scan_all(native, 0) == records[:10]
        await append(server, *map(encoded, records[10:]))
        await cut(server, 7)
        first = await beginning(native)
        assert first == len(encoded(*records[:10]))
        assert await scan_all(native, first) == records[10:]


async def test_answers_end_within_records(server: Any, clock: MockClock) -> None:
    """As a server may end them that does not know of records. If it cuts there, the next known offset counts."""
    content = encoded(*TWENTY)
    size = len(encoded(b"00"))
    async with server.native() as native:
        await native.create(STREAM)
        pages_of(server, ONE)
        await append(server, *[content[at : at + 4] for at in range(0, len(content), 4)])
        assert await scan_all(native, 0) == TWENTY
        await cut(server, size)
        assert await beginning(native) == 4 * size
        for start in (4, 5, 19):
            assert await scan_all(native, start * size) == TWENTY[start:]
        await cut(server, size + 1)
        assert await beginning(native) == len(content)


async def test_what_is_left_looks_like_a_record(server: Any, clock: MockClock) -> None:
    """The server cuts within a record, where a long one seems to begin: the next known offset counts."""
    content = encoded(b"\n\xff\x3f")
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, content[:-3], content[-3:], encoded(b"known"))
        await scan_all(native, 0)
        await append(server, encoded(b"more"))
        await cut(server, 1)
        assert await beginning(native) == len(content + encoded(b"known"))


async def test_the_server_cuts_again_meanwhile(server: Any, clock: MockClock) -> None:
    """The first position is counted anew."""
    pages_of(server, ONE)
    cuts = [13]

    async def cut_again(query: str) -> None:
        if query == f"offset={spell_offset(8)}" and cuts:
            await cut(server, cuts.pop())

    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, TWENTY))
        await scan_all(native, 0)
        await cut(server, 7)
        server.before_read = cut_again
        first = await beginning(native)
        assert not cuts and first == len(encoded(*TWENTY[:13]))
        assert await scan_all(native, first) == TWENTY[13:]


@pytest.mark.parametrize("times", [1, 10], ids=["shorter", "longer"])
async def test_another_stream_took_its_place(server: Any, clock: MockClock, times: int) -> None:
    """It ends before the offsets that are known, or has more before them."""
    others = [b"other" * times] * 10 * times
    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, TWENTY))
        await scan_all(native, 0)
        await server.service.ask("DELETE", "orders")
        await server.service.ask("PUT", "orders", OURS)
        await append(server, *map(encoded, others))
        await cut(server, 7)
        with Fails(FailureCode.STREAM_NOT_FOUND, "another"):
            await scan(native, 0)
        assert await scan_all(native, 0) == others[7:]


@pytest.mark.parametrize("number", [3, 4])
async def test_a_scan_is_given_up(server: Any, clock: MockClock, number: int) -> None:
    """It leaves no request behind, neither of the read from the beginning nor of the other."""
    reads: list[str] = []
    given_up = trio.Event()

    async def wait(query: str) -> None:
        reads.append(query)
        if len(reads) == number:
            await given_up.wait()

    async with server.native() as native:
        await native.create(STREAM)
        await append(server, *map(encoded, TWENTY[:8]))
        await scan_all(native, 0)
        pages_of(server, TWO)
        await append(server, *map(encoded, TWENTY[8:]))
        await cut(server, 7)
        server.before_read = wait
        with trio.move_on_after(1) as scope:
            await scan(native, 0)
        assert scope.cancelled_caught and len(reads) == number
        given_up.set()
        await eventually(lambda: server.far.open == 0)
        assert await beginning(native) == len(encoded(*TWENTY[:7]))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
async def test_any_cut(server: Any, clock: MockClock, seed: int) -> None:
    """With appends and answers of all sizes, and any known offsets, a read gets the records from its position on, or is
    told the first position that is left."""
    dice = random.Random(seed)
    records = [b"%d" % number * dice.randint(1, 9) for number in range(40)]
    positions = list(accumulate((len(encoded(record)) for record in records), initial=0))
    begins = sorted({0, *dice.sample(range(40), 25)})  # of appends
    appends = [encoded(*records[begin:end]) for begin, end in zip(begins, [*begins[1:], 40], strict=True)]
    async with server.native() as native:
        await native.create(STREAM)
        seen = dice.randrange(2, len(appends))
        await append(server, *appends[:seen])
        await scan_all(native, 0)
        await append(server, *appends[seen:])
        pages_of(server, (max(map(len, appends)) + 8) * dice.choice([1, 2, 5, 100]))
        gone = dice.randint(1, seen)
        await cut(server, gone)
        first = begins[gone] if gone < len(begins) else 40
        for start in dice.sample(range(40), 10):
            if start < first:
                assert await beginning(native, positions[start]) == positions[first], (start, first)
            else:
                assert await scan_all(native, positions[start]) == records[start:]
