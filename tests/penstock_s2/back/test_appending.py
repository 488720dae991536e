"""Appends to an S2 server: order, room, failures of one's own, draining servers."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.captures.dialogues import CLIENT as CLIENT_SIDE
from support.captures.dialogues import SERVER, RecordedStream
from support.s2.model import ModelServer, model_server
from support.store import STREAM, appending

from penstock.core.identity import CLIENT, Client
from penstock.model.byte_operations import AppendBytes
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Appended
from penstock.model.streams import StreamConfig
from penstock.net.http.client import HttpVersion
from penstock.net.upstream import Credentials, CredentialsMode

Clock = trio.testing.MockClock


def bodies(server: ModelServer) -> list[bytes]:
    return [record.body for record in server.back.streams[STREAM].records]


async def outcome(doing: Awaitable[Appended]) -> Appended | Failure:
    try:
        return await doing
    except OperationFailed as error:
        return error.failure


async def test_order_is_that_of_handing_over(autojump_clock: Clock) -> None:
    """Over two sessions and appends alone, all of which share one connection."""
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        await back.perform(appending(b"first"))
        async with back.append_session(STREAM) as one, back.append_session(STREAM) as other:
            async with trio.open_nursery() as nursery:
                for index in range(10):
                    await one.send(appending(b"one %d" % index))
                    await other.send(appending(b"other %d" % index))
                    nursery.start_soon(back.perform, appending(b"alone %d" % index))
                    await trio.testing.wait_all_tasks_blocked()
            wanted = [b"%b %d" % (who, index) for index in range(10) for who in (b"one", b"other", b"alone")]
            assert bodies(server)[1:] == wanted
            assert [ack.start.seq_num for ack in await one.receive()] == list(range(1, 31, 3))
        assert len([request for request in server.requests if request.method == "POST"]) == 1


async def test_one_failure_ends_one_session_and_no_other(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        async with back.append_session(STREAM) as one, back.append_session(STREAM) as other:
            await one.send(appending(b"a"))
            await one.send(appending(b"b", match=7))
            await one.send(appending(b"never"))
            for index in range(5):
                await other.send(appending(b"%d" % index))
            assert len(await one.receive()) == 1
            for _ in range(2):
                with pytest.raises(OperationFailed) as failed:
                    await one.receive()
                assert failed.value.failure.details == {"seq_num_mismatch": 1}
            await one.send(appending(b"never"))
            other.close()
            acks = []
            while some := await other.receive():
                acks += some
            assert [ack.start.seq_num for ack in acks] == [1, 2, 3, 4, 5]
        assert bodies(server) == [b"a", *(b"%d" % index for index in range(5))]


async def test_what_is_not_valid_is_not_sent(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        async with back.append_session(STREAM) as session:
            await session.send(appending(b"a"))
            await session.send(appending())
            await session.send(appending(b"never"))
            assert len(await session.receive()) == 1
            with pytest.raises(OperationFailed) as failed:
                await session.receive()
            assert failed.value.failure.code is FailureCode.INVALID
            with pytest.raises(OperationFailed) as failed:
                await session.send(AppendBytes(STREAM, b"x"))
            assert failed.value.failure.code is FailureCode.NOT_IMPLEMENTED
        with pytest.raises(OperationFailed):
            await back.perform(appending())
        assert bodies(server) == [b"a"]


async def test_too_much_in_flight_waits(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened(stream_inflight_bytes=1000) as back:
        server.back.make(STREAM)
        server.back.delays = iter([2.0] * 10)
        async with back.append_session(STREAM) as session:
            for index in range(3):
                with trio.move_on_after(1) as scope:
                    await session.send(appending(b"%d" % index + b"x" * 500))
                assert scope.cancelled_caught is (index > 0)  # and then it never happened
            session.close()
            assert len(await session.receive()) == 1
            assert await session.receive() == []
        assert len(bodies(server)) == 1


async def test_one_stream_does_not_take_the_room_of_others(autojump_clock: Clock) -> None:
    other = STREAM._replace(stream="other")
    async with model_server() as server, server.opened(stream_inflight_bytes=1000, append_inflight_bytes=2000) as back:
        server.back.make(STREAM)
        server.back.make(other)

        def slow() -> Iterator[float]:
            yield from (3.0, 0.0, 3.0, 3.0)

        server.back.delays = slow()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(back.perform, appending(b"x" * 900))
            await trio.sleep(1)
            await back.perform(appending(b"x" * 900, stream=other))
            assert trio.current_time() == 1.0


async def test_a_cancelled_append_that_was_not_sent_never_happens(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened(stream_inflight_bytes=1000) as back:
        server.back.make(STREAM)
        server.back.delays = iter([3.0, 3.0])

        async def patiently(body: bytes, seconds: float) -> None:
            with trio.move_on_after(seconds):
                await back.perform(appending(body * 900))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(patiently, b"a", 1.0)  # sent: it happens
            await trio.sleep(0.1)
            nursery.start_soon(patiently, b"b", 1.0)
            await trio.sleep(0.1)
            nursery.start_soon(patiently, b"c", 60.0)
        assert [body[:1] for body in bodies(server)] == [b"a", b"c"]


async def test_a_draining_server_is_left_without_loss(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        async with back.append_session(STREAM) as session:
            for index in range(60):
                if index == 20:
                    server.front.drain()
                    server.start()
                await session.send(appending(b"%d" % index))
                await trio.sleep(0.2)
            session.close()
            acks = []
            while some := await session.receive():
                acks += some
        assert [ack.start.seq_num for ack in acks] == list(range(60))
        assert bodies(server) == [b"%d" % index for index in range(60)]
        assert len([request for request in server.requests if request.method == "POST"]) == 2


async def test_streams_are_created_as_the_client_wants_them(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        got = await outcome(back.perform(appending(b"a")))
        assert isinstance(got, Failure)
        assert got.code is FailureCode.STREAM_NOT_FOUND
        server.back.create_on_append = True
        forbidden = replace(appending(b"a"), create_if_missing=False)
        got = await outcome(back.perform(forbidden))
        assert isinstance(got, Failure)
        with pytest.raises(OperationFailed) as failed:
            async with back.append_session(STREAM, create_if_missing=False):
                raise AssertionError("entered")
        assert failed.value.failure.code is FailureCode.STREAM_NOT_FOUND
        assert not server.back.streams
        config = StreamConfig(timestamping_uncapped=True)
        async with back.append_session(STREAM, config) as session:
            assert server.back.streams[STREAM].config.timestamping_uncapped
            await session.send(appending(b"a"))
            assert len(await session.receive()) == 1


async def test_a_stream_that_was_made_anew_is_another(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        async with back.append_session(STREAM) as session:
            await session.send(appending(b"a"))
            await session.receive()
            server.back.make(STREAM)
            await session.send(appending(b"b"))
            with pytest.raises(OperationFailed) as failed:
                await session.receive()
            assert failed.value.failure.code is FailureCode.STREAM_NOT_FOUND
        assert bodies(server) == []
        await back.perform(appending(b"c"))
        assert bodies(server) == [b"c"]


async def test_each_token_has_a_connection_of_its_own(autojump_clock: Clock) -> None:
    async with model_server() as server:
        server.back.make(STREAM)
        passing = Credentials(back="far", mode=CredentialsMode.PASS)
        async with server.opened(credentials=passing) as back:
            for token in ("one", "other", "one"):
                CLIENT.set(Client(token=token))
                await back.perform(appending(token.encode()))
        tokens = [request.header("authorization") for request in server.requests if request.method == "POST"]
        assert tokens == ["Bearer one", "Bearer other", "Bearer one"]
        assert bodies(server) == [b"one", b"other", b"one"]


async def test_an_idle_connection_is_closed_and_made_again(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened(http=HttpVersion.H1, linger_seconds=10.0) as back:
        server.back.make(STREAM)
        async with back.append_session(STREAM) as session:
            for pause, posts in ((9, 1), (11, 1), (0, 2)):
                await session.send(appending(b"x"))
                assert len(await session.receive()) == 1
                assert len([request for request in server.requests if request.method == "POST"]) == posts
                await trio.sleep(pause)


async def test_an_open_session_is_ended_in_order_when_the_back_closes(autojump_clock: Clock) -> None:
    """Both bodies have their last chunks: a recording of the connection shows nothing that is cut off."""
    async with model_server() as server:
        server.back.make(STREAM)
        dial, streams = server.far.dial, []

        async def dialled(host: str, port: int) -> trio.abc.Stream:
            streams.append(RecordedStream(await dial(host, port)))  # type: ignore[arg-type]  # of memory
            return streams[-1]

        server.far.dial = dialled  # type: ignore[method-assign]
        async with server.opened(http=HttpVersion.H1, linger_seconds=10.0) as back:
            await back.perform(appending(b"alone"))
            started = trio.current_time()
        assert trio.current_time() == started
        (stream,) = [each for each in streams if any(b"POST" in data for _, data in each.said)]
        for side in (CLIENT_SIDE, SERVER):
            assert b"".join(data for sender, data in stream.said if sender is side).endswith(b"\r\n0\r\n\r\n")


async def test_a_server_that_does_not_answer_keeps_no_back_from_closing(autojump_clock: Clock) -> None:
    async with model_server() as server:
        server.back.make(STREAM)
        server.back.delays = iter([1000.0])
        async with server.opened() as back, trio.open_nursery() as nursery:
            nursery.start_soon(back.perform, appending(b"late"))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            started = trio.current_time()
        assert trio.current_time() - started <= 1.0
