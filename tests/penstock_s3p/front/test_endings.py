"""The S3P front: how connections end, and what does not end them."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing
from support.s3p.front import Client, Connect, WatchedBack, error_code, serving
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.model.failures import FailureCode, fail
from penstock.model.records import RecordId
from penstock.wire.codec import NEED_DATA
from penstock_s3p.codec import AppendedId, AppendRecords, Create, Delete, ErrorReply, Ok, ReadRecords, Records
from penstock_s3p.front import S3PFront, S3PSettings

S = b"s"


async def test_an_unrecoverable_error_ends_the_connection(connect: Connect, clock: MockClock) -> None:
    """Sections 9 and 13, fact 13: earlier replies arrive, then the error, then the end; nothing later is run."""
    client = connect()
    bad = b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*2\r\n$5\r\nCOUNT\r\n$4\r\n5000\r\n"
    await client.send(Create(S), AppendRecords(S, [b"a"], 1), AppendRecords(S, [b"b"], 1), raw=bad)
    await client.send(Create(b"later"))
    assert [await client.reply() for _ in range(3)] == [Ok(), AppendedId(RecordId(1, 0)), AppendedId(RecordId(1, 1))]
    assert error_code(await client.reply()) == "ERR_LIMITS"
    assert await client.ended()
    assert error_code((await connect().call(ReadRecords(b"later")))[0]) == "ERR_UNKNOWN_STREAM"


async def test_an_error_line_arrives_although_the_client_is_still_sending(back: EmbeddedBack) -> None:
    """Fact 12, on a real socket: closing with input unread would reset the connection."""
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, S3PFront(back).serve, 0, host="127.0.0.1")
        listener = (await nursery.start(serve))[0]
        async with await trio.open_tcp_stream(*listener.socket.getsockname()[:2]) as client:
            begin = b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*1\r\n$1400000\r\n"
            received = b""
            with trio.fail_after(5):
                async with trio.open_nursery() as sending:
                    sending.start_soon(client.send_all, begin + b"x" * 1_000_000)
                    while data := await client.receive_some(4096):
                        received += data
        assert received.startswith(b"-ERR_LIMITS record 1 of 1400000 bytes exceeds the limit of 1048568 bytes")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("sent", [b"", b"*3\r\n$6\r\nCRE"])
async def test_a_silent_client_is_let_go(back: EmbeddedBack, clock: MockClock, sent: bytes) -> None:
    """Section 11, fact 15: without a reply."""
    async with serving(S3PFront(back, S3PSettings(idle_timeout_seconds=30))) as connect:
        client = connect()
        await client.call(Create(S))
        began = trio.current_time()
        await client.send(raw=sent)
        assert await client.ended()
        assert 29 <= trio.current_time() - began <= 32


async def test_commands_that_follow_each_other_each_have_their_time(connect: Connect, clock: MockClock) -> None:
    """Each piece ends one command and begins the next: the client is never silent, and never slow with any command."""
    client = connect()
    await client.call(Create(S))
    head, rest = b"*3\r\n$4\r\nREAD\r\n", b"$1\r\ns\r\n*0\r\n"
    await client.send(raw=head)
    for _ in range(10):
        await trio.sleep(10)
        await client.send(raw=rest + head)
        assert await client.stream.receive_some() == b"*0\r\n"


async def test_a_client_that_takes_no_replies_is_let_go(back: EmbeddedBack, clock: MockClock) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    front = S3PFront(back, S3PSettings(send_timeout_seconds=5))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(front.serve, theirs)
        client = Client(ours)
        await client.send(Create(S))
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            await client.send(Create(S))
        assert 4 <= trio.current_time() - began <= 7


async def test_a_slow_line_is_no_dead_one(connect: Connect, back: EmbeddedBack, clock: MockClock) -> None:
    """A reply of 1 MB at 64 KiB/s takes 15 s, but no part of it takes long."""
    body = b"x" * 1_000_000
    await connect().call(Create(S), AppendRecords(S, [body], 7))
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(S3PFront(back, S3PSettings(send_timeout_seconds=6)).serve, theirs)
        client = Client(ours)
        await client.send(ReadRecords(S))
        began = trio.current_time()
        while (reply := client.codec.next_event()) is NEED_DATA:
            await trio.sleep(1)
            client.codec.receive(await ours.receive_some(65_536))
        assert reply == Records([7], [0], [body])
        assert trio.current_time() - began > 12
        assert await client.call(Delete(S)) == [Ok()], "the connection goes on"
        await ours.aclose()


async def test_a_drain_answers_what_is_under_way(back: EmbeddedBack, clock: MockClock) -> None:
    front = S3PFront(back)
    async with serving(front) as connect:
        idle, waiting, sending = connect(), connect(), connect()
        await idle.call(Create(S))
        await waiting.send(ReadRecords(S, block_ms=10_000))
        await sending.send(raw=b"*3\r\n$4\r\nREAD\r\n")
        await trio.sleep(1)
        began = trio.current_time()
        front.drain()
        assert await idle.ended()
        assert await waiting.reply() == Records([], [], [])
        assert await waiting.ended()
        await sending.send(raw=b"$1\r\ns\r\n*0\r\n")
        assert await sending.stream.receive_some() == b"*0\r\n"
        assert await sending.ended()
        assert await connect().ended()
        assert trio.current_time() - began < 4


@pytest.mark.parametrize(
    ("code", "spelled"),
    [
        (FailureCode.STORAGE, "ERR_STORAGE"),
        (FailureCode.UNAVAILABLE, "ERR_UNAVAILABLE"),
        (FailureCode.SERVER_DRAINING, "ERR_UNAVAILABLE"),
        (FailureCode.INVALID, "ERR_INVALID"),
        (FailureCode.OTHER, "ERR_INTERNAL"),
    ],
)
async def test_failures_of_the_back_are_recoverable(
    back: EmbeddedBack, clock: MockClock, code: FailureCode, spelled: str
) -> None:
    watched = WatchedBack(back)
    async with serving(S3PFront(watched)) as connect:
        client = connect()
        watched.fails = fail(code, "no\r\nroom")
        assert await client.call(Create(S), AppendRecords(S, [b"x"])) == [ErrorReply(spelled, r"no\r\nroom")] * 2
        watched.fails = None
        assert await client.call(Create(S)) == [Ok()]


async def test_an_append_whose_identifier_is_not_known(back: EmbeddedBack, clock: MockClock) -> None:
    """The client is told that the records are stored, and the connection goes on."""
    watched = WatchedBack(back)
    async with serving(S3PFront(watched)) as connect:
        client = connect()
        await client.call(Create(S))
        watched.identifies = False
        [reply] = await client.call(AppendRecords(S, [b"a", b"b"]))
        assert isinstance(reply, ErrorReply) and reply.code == "ERR_UNAVAILABLE"
        assert "records 0 to 1 are stored" in reply.message
        watched.identifies = True
        assert isinstance((await client.call(AppendRecords(S, [b"c"])))[0], AppendedId)


async def test_a_bug_ends_one_connection(back: EmbeddedBack, clock: MockClock) -> None:
    watched = WatchedBack(back)
    async with serving(S3PFront(watched)) as connect:
        client, other = connect(), connect()
        watched.fails = ZeroDivisionError("a bug")
        await client.send(Create(S))
        assert await client.ended()
        watched.fails = None
        assert await other.call(Create(S)) == [Ok()]


async def test_a_back_without_identifiers_is_refused(back: EmbeddedBack) -> None:
    watched = WatchedBack(back)
    watched.capabilities = frozenset()
    with pytest.raises(ValueError, match="identifiers"):
        S3PFront(watched)
