"""The S3P front: commands in order, pipelined or not, from one client or many."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.s3p.front import BASIN, Client, Connect, error_code, serving
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.model.failures import OperationFailed
from penstock.model.operations import CheckTail
from penstock.model.records import RecordId, StreamRef
from penstock_s3p.codec import AppendedId, AppendRecords, Create, Delete, Ok, ReadRecords, Records, TrimRecords
from penstock_s3p.front import S3PFront, S3PSettings
from penstock_s3p.names import BasinInName

S = b"s"


async def test_a_conversation(connect: Connect, clock: MockClock) -> None:
    client = connect()
    replies = await client.call(
        Create(S),
        Create(S),
        AppendRecords(S, [b"a", b"b"], 100),
        ReadRecords(S),
        TrimRecords(S, RecordId(100, 1)),
        ReadRecords(S),
        Delete(S),
        ReadRecords(S),
        Delete(S),
    )
    assert [error_code(reply) for reply in (replies[1], *replies[7:])] == [
        "ERR_STREAM_EXISTS",
        "ERR_UNKNOWN_STREAM",
        "ERR_UNKNOWN_STREAM",
    ]
    assert replies[0] == replies[4] == replies[6] == Ok()
    assert replies[2] == AppendedId(RecordId(100, 1))
    assert replies[3] == Records([100, 100], [0, 1], [b"a", b"b"])
    assert replies[5] == Records([100], [1], [b"b"])


async def test_only_create_creates(connect: Connect, back: EmbeddedBack, clock: MockClock) -> None:
    """Section 8, in a basin that creates streams on append and on read for those who want it."""
    append = AppendRecords(S, [b"x"])
    replies = await connect().call(append, ReadRecords(S), TrimRecords(S, RecordId(0, 0)), append, append, append)
    assert [error_code(reply) for reply in replies] == ["ERR_UNKNOWN_STREAM"] * 6
    with pytest.raises(OperationFailed):
        await back.perform(CheckTail(StreamRef(BASIN, "s"), create_if_missing=False))


async def test_pipelined_appends_behave_as_if_run_one_by_one(connect: Connect, clock: MockClock) -> None:
    """Sections 12 and 13: the failure of one is nothing to those behind it, and reads see what stands before them."""
    replies = await connect().call(
        Create(S),
        AppendRecords(S, [b"a"], 10),
        AppendRecords(S, [b"b", b"c"], 10),
        AppendRecords(S, [b"no"], 9),
        AppendRecords(S, [b"no"], 8),
        AppendRecords(S, [b"d"], 11),
        AppendRecords(S, [b"no"], 10),
        ReadRecords(S),
        AppendRecords(S, [b"e"], 11),
        TrimRecords(S, RecordId(11, 0)),
        AppendRecords(S, [b"f"], 2**64 - 1),
        AppendRecords(S, [b"no"]),
        ReadRecords(S),
    )
    assert replies[1:3] == [AppendedId(RecordId(10, 0)), AppendedId(RecordId(10, 2))]
    assert [error_code(replies[index]) for index in (3, 4, 6)] == ["ERR_NON_MONOTONIC_ID"] * 3
    assert replies[5] == AppendedId(RecordId(11, 0))
    assert isinstance(replies[7], Records) and replies[7].bodies == [b"a", b"b", b"c", b"d"]
    assert replies[10] == AppendedId(RecordId(2**64 - 1, 0))
    assert replies[11] == AppendedId(RecordId(2**64 - 1, 1)), "12: a clock behind the last id continues it"
    assert isinstance(replies[12], Records) and replies[12].bodies == [b"d", b"e", b"f", b"no"]


async def test_pipelined_appends_to_several_streams(connect: Connect, clock: MockClock) -> None:
    client = connect()
    appends = [AppendRecords(b"%d" % (n % 3), [b"%d" % n], n) for n in range(60) for _ in range(2)]
    replies = await client.call(Create(b"0"), Create(b"2"), *appends)
    for append, reply in zip(appends, replies[2:], strict=True):
        if append.name == b"1":
            assert error_code(reply) == "ERR_UNKNOWN_STREAM"
        else:
            assert isinstance(reply, AppendedId) and reply.record_id.ms == append.ms
    for name in (b"0", b"2"):
        (found,) = await client.call(ReadRecords(name))
        assert isinstance(found, Records)
        assert found.bodies == [append.bodies[0] for append in appends if append.name == name]


async def test_many_pipelined_appends_are_grouped(back: EmbeddedBack, clock: MockClock) -> None:
    """Their replies come in few writes, and all of them are right."""
    ours, theirs = trio.testing.memory_stream_pair()
    writes: list[None] = []

    async def count() -> None:
        writes.append(None)

    theirs.send_stream.send_all_hook = count
    async with trio.open_nursery() as nursery:
        nursery.start_soon(S3PFront(back).serve, theirs)
        client = Client(ours)
        replies = await client.call(Create(S), *(AppendRecords(S, [b"%d" % n], 5) for n in range(3000)))
        assert replies[1:] == [AppendedId(RecordId(5, n)) for n in range(3000)]
        assert len(writes) < 20
        nursery.cancel_scope.cancel()


async def test_ids_increase_under_concurrency(connect: Connect, clock: MockClock) -> None:
    """Section 12: strictly, over all clients, and every client's own appends in its order."""
    await connect().call(Create(S))
    own: dict[int, list[RecordId]] = {}

    async def append(number: int) -> None:
        replies = await connect().call(*(AppendRecords(S, [b"%d" % number] * 3) for _ in range(40)))
        own[number] = [reply.record_id for reply in replies if isinstance(reply, AppendedId)]

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(append, number)
    (found,) = await connect().call(ReadRecords(S, 1000))
    assert isinstance(found, Records)
    ids = [record_id for record_id, _ in found.pairs()]
    assert len(ids) == 8 * 40 * 3 and ids == sorted(set(ids))
    for number, last_ids in own.items():
        mine = [record_id for record_id, body in found.pairs() if body == b"%d" % number]
        assert mine[2::3] == last_ids


async def test_replies_wait_for_nothing(connect: Connect, clock: MockClock) -> None:
    """A reply is sent although the next command has only begun to arrive."""
    client = connect()
    await client.send(Create(S), raw=b"*3\r\n$6\r\nCRE")
    assert await client.reply() == Ok()


async def test_names_of_any_bytes(connect: Connect, clock: MockClock) -> None:
    """Section 6, and section 10: names differ by case."""
    client = connect()
    names = [b"a \r\nb\x00\xff", b"%", b"%25", b".", b"..", b"Ab", b"aB", "caf\xe9".encode(), b"/", b"n" * 256]
    for number, name in enumerate(names):
        assert await client.call(Create(name), AppendRecords(name, [b"x"], number)) == [
            Ok(),
            AppendedId(RecordId(number, 0)),
        ]
    replies = await client.call(Create(b"\x00" * 200), AppendRecords(b"\x00" * 200, [b"x"]))
    assert [error_code(reply) for reply in replies] == ["ERR_NOT_REPRESENTABLE"] * 2, "600 bytes once escaped"


async def test_names_with_a_basin(back: EmbeddedBack, clock: MockClock) -> None:
    async with serving(S3PFront(back, S3PSettings(names=BasinInName()))) as connect:
        replies = await connect().call(
            Create(b"penstock/a/b"),
            AppendRecords(b"penstock/a/b", [b"x"], 1),
            Create(b"no-such-basin/a"),
            AppendRecords(b"a", [b"x"]),
            AppendRecords(b"a", [b"x"]),
            ReadRecords(b"BASIN/a"),
        )
        assert replies[:2] == [Ok(), AppendedId(RecordId(1, 0))]
        assert [error_code(reply) for reply in replies[2:]] == ["ERR_UNKNOWN_STREAM"] + ["ERR_NOT_REPRESENTABLE"] * 3
        tail = await back.perform(CheckTail(StreamRef(BASIN, "a/b"), create_if_missing=False))
        assert tail == (1, 1)
