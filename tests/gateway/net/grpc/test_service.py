"""A gRPC service over memory streams: the headers, frames and trailers that clients see."""

import gzip

import pytest
import trio
import trio.testing
from google.protobuf.wrappers_pb2 import BytesValue, DoubleValue, Int32Value, StringValue
from structlog.testing import capture_logs
from support.grpc_service import NAME, Calls
from support.http.client import Answer, HttpClient, serving

from penstock.net.grpc import Code, GrpcService
from penstock.wire.grpc import frame
from penstock.wire.http import Body, Data, End, Reset, ResponseHead

Clock = trio.testing.MockClock
HEADERS = [("te", "trailers"), ("content-type", "application/grpc")]
HELLO = BytesValue(value=b"hello").SerializeToString()


async def call(
    client: HttpClient, method: str, message: bytes, *more: tuple[str, str], headers: list[tuple[str, str]] = HEADERS
) -> Answer:
    return await client.ask("POST", f"/{NAME}/{method}", [*headers, *more], frame(message))


def status(answer: Answer) -> tuple[Code, str]:
    """Return the status of a call, from its trailers or from the headers of a response that has nothing else."""
    said = answer.trailers or answer.headers
    return Code(int(said["grpc-status"])), said.get("grpc-message", "")


# ---- answers -----------------------------------------------------------------------------------------------------


async def test_an_answer_is_headers_one_message_and_trailers(autojump_clock: Clock) -> None:
    async with serving(Calls().service().handle, "h2") as client:
        for _ in range(3):
            answer = await call(client, "Echo", HELLO)
            assert answer.status == 200
            assert answer.headers["content-type"] == "application/grpc"
            assert answer.headers["grpc-accept-encoding"] == "identity,gzip"
            assert "content-length" not in answer.headers
            assert answer.body == frame(HELLO)
            assert answer.trailers == {"grpc-status": "0"}


async def test_an_error_is_headers_only(autojump_clock: Clock) -> None:
    async with serving(Calls().service().handle, "h2") as client:
        answer = await call(client, "Fail", Int32Value(value=Code.NOT_FOUND).SerializeToString())
        assert answer.status == 200
        assert (answer.body, answer.trailers) == (b"", {})
        assert answer.headers["content-type"] == "application/grpc"
        assert "content-length" not in answer.headers
        assert status(answer) == (Code.NOT_FOUND, "100%25 of NOT_FOUND: %C3%A9")


async def test_the_head_of_an_error_ends_its_stream(autojump_clock: Clock) -> None:
    async with serving(Calls().service().handle, "h2") as client:
        stream_id = await client.open("POST", f"/{NAME}/None", HEADERS)
        head = await client.head(stream_id)
        assert ("grpc-status", "12") in head.headers
        assert await client.next(stream_id) == End(stream_id)


async def test_a_failure_of_a_back_becomes_its_status(autojump_clock: Clock) -> None:
    async with serving(Calls().service().handle, "h2") as client:
        answer = await call(client, "FailBack", StringValue(value="stream_not_found").SerializeToString())
        assert status(answer) == (Code.NOT_FOUND, "what the back says")


async def test_a_crash_is_logged_once_hidden_from_the_client_and_leaves_the_connection_alive(
    autojump_clock: Clock,
) -> None:
    with capture_logs() as logs:
        async with serving(Calls().service().handle, "h2") as client:
            answer = await call(client, "Crash", b"")
            assert status(answer)[0] is Code.INTERNAL
            assert "secret" not in str(answer)
            assert (await call(client, "Echo", HELLO)).body == frame(HELLO)
    assert [(log["event"], log["path"]) for log in logs] == [("call_failed", f"/{NAME}/Crash")]


async def test_the_context_tells_authority_and_metadata(autojump_clock: Clock) -> None:
    async def ask(name: str) -> str:
        answer = await call(client, "Tell", StringValue(value=name).SerializeToString(), ("x-key", "of the call"))
        return StringValue.FromString(answer.body[5:]).value

    async with serving(Calls().service().handle, "h2") as client:
        assert [await ask(name) for name in (":authority", "x-key", "x-none")] == ["test:1", "of the call", "None"]


# ---- requests ----------------------------------------------------------------------------------------------------


async def test_a_message_split_anywhere(autojump_clock: Clock) -> None:
    message = frame(HELLO)
    async with serving(Calls().service().handle, "h2") as client:
        for size in (1, 2, 3, 6):
            stream_id = await client.open("POST", f"/{NAME}/Echo", HEADERS)
            for at in range(0, len(message), size):
                await client.say(Body(stream_id, [message[at : at + size]]))
                await trio.sleep(0.1)
            await client.say(End(stream_id))
            assert (await client.answer(stream_id)).body == message


async def test_a_compressed_request(autojump_clock: Clock) -> None:
    packed = gzip.compress(BytesValue(value=bytes(100_000)).SerializeToString())
    prefixed = b"\1" + len(packed).to_bytes(4, "big") + packed
    async with serving(Calls().service().handle, "h2") as client:
        answer = await client.ask("POST", f"/{NAME}/Echo", [*HEADERS, ("grpc-encoding", "gzip")], prefixed)
        assert len(answer.body) > 100_000
        assert status(answer)[0] is Code.OK
        answer = await client.ask("POST", f"/{NAME}/Echo", [*HEADERS, ("grpc-encoding", "snappy")], prefixed)
        assert status(answer)[0] is Code.UNIMPLEMENTED
        assert answer.headers["grpc-accept-encoding"] == "identity,gzip"


@pytest.mark.parametrize(
    "method, body, code",
    [
        ("Echo", b"", Code.INTERNAL),
        ("Echo", frame(HELLO)[:-1], Code.INTERNAL),
        ("Echo", frame(HELLO) * 2, Code.INTERNAL),
        ("Echo", frame(b"\xff\xff\xff"), Code.INTERNAL),
        ("Echo", b"\0\xff\xff\xff\xff", Code.RESOURCE_EXHAUSTED),
        ("Echo/", frame(HELLO), Code.UNIMPLEMENTED),
        ("echo", frame(HELLO), Code.UNIMPLEMENTED),
    ],
)
async def test_bad_requests_get_a_status(method: str, body: bytes, code: Code, autojump_clock: Clock) -> None:
    async with serving(Calls().service().handle, "h2") as client:
        answer = await client.ask("POST", f"/{NAME}/{method}", HEADERS, body)
        assert (answer.status, status(answer)[0]) == (200, code)
        assert (await call(client, "Echo", HELLO)).body == frame(HELLO)


async def test_a_request_that_ends_by_trailers(autojump_clock: Clock) -> None:
    async with serving(Calls().service().handle, "h2") as client:
        stream_id = await client.open("POST", f"/{NAME}/Echo", HEADERS)
        await client.say(Body(stream_id, [frame(HELLO)]), End(stream_id, [("x", "y")]))
        assert (await client.answer(stream_id)).body == frame(HELLO)


async def test_what_is_no_call_of_grpc(autojump_clock: Clock) -> None:
    async with serving(Calls().service().handle, "h2") as client:
        path = f"/{NAME}/Echo"
        assert (await client.ask("GET", path, HEADERS)).status == 405
        for content_type in ([], [("content-type", "application/grpc+json")], [("content-type", "text/html")]):
            assert (await client.ask("POST", path, content_type, frame(HELLO))).status == 415
        bare = await call(client, "Echo", HELLO, headers=[("content-type", "application/grpc+proto")])
        assert bare.body == frame(HELLO)
    async with serving(Calls().service().handle, "http/1.1") as client:
        answer = await client.ask("POST", path, HEADERS, frame(HELLO))
        assert answer.status == 505
        assert b"HTTP/2" in answer.body


async def test_requests_that_are_held_are_bounded_over_all_connections(autojump_clock: Clock) -> None:
    """Large unfinished requests hold no more than 16 MiB; further ones are refused."""
    service = Calls().service()
    piece = b"\0" + (4 << 20).to_bytes(4, "big") + bytes((4 << 20) - 100)
    refused = 0
    async with serving(service.handle, "h2") as client, serving(service.handle, "h2") as other:
        for n in range(8):
            one = (client, other)[n % 2]
            stream_id = await one.open("POST", f"/{NAME}/Echo", HEADERS)
            await one.say(Body(stream_id, [piece]))
            while one.codec.unsent(stream_id):
                await one.pump()
            await trio.testing.wait_all_tasks_blocked()
            assert service._held <= 16 << 20
            heads = [event for events in one._events.values() for event in events if isinstance(event, ResponseHead)]
            refused += len(heads)
        assert refused
    await trio.testing.wait_all_tasks_blocked()
    assert service._held == 0


# ---- time --------------------------------------------------------------------------------------------------------


async def test_a_deadline_ends_the_handler(autojump_clock: Clock) -> None:
    calls = Calls()
    async with serving(calls.service().handle, "h2") as client:
        for timeout, seconds in (("2S", 2.0), ("250m", 0.25), ("0n", 0.0)):
            before = trio.current_time()
            message = DoubleValue(value=60).SerializeToString()
            answer = await call(client, "Wait", message, ("grpc-timeout", timeout))
            assert status(answer)[0] is Code.DEADLINE_EXCEEDED
            assert trio.current_time() - before == pytest.approx(seconds)
        in_time = await call(client, "Wait", DoubleValue(value=1).SerializeToString(), ("grpc-timeout", "2S"))
        assert status(in_time)[0] is Code.OK
        assert status(await call(client, "Echo", HELLO, ("grpc-timeout", "soon")))[0] is Code.INTERNAL


async def test_a_request_must_come_in_time(autojump_clock: Clock) -> None:
    async with serving(Calls().service(body_seconds=5).handle, "h2") as client:
        stream_id = await client.open("POST", f"/{NAME}/Echo", HEADERS)
        await client.say(Body(stream_id, [frame(HELLO)[:-1]]))
        answer = await client.answer(stream_id)
        assert status(answer)[0] is Code.DEADLINE_EXCEEDED
        assert trio.current_time() == pytest.approx(5)


async def test_a_reset_cancels_the_handler(autojump_clock: Clock) -> None:
    calls = Calls()
    async with serving(calls.service().handle, "h2") as client:
        stream_id = await client.open("POST", f"/{NAME}/Wait", HEADERS)
        await client.say(Body(stream_id, [frame(DoubleValue(value=60).SerializeToString())], end=True))
        await trio.testing.wait_all_tasks_blocked()
        await client.say(Reset(stream_id))
        await trio.testing.wait_all_tasks_blocked()
        assert calls.cancelled.acquire(blocking=False)
        assert (await call(client, "Echo", HELLO)).body == frame(HELLO)


async def test_a_drain_refuses_new_calls_and_lets_others_end(autojump_clock: Clock) -> None:
    service: GrpcService = Calls().service()
    async with serving(service.handle, "h2") as client:
        stream_id = await client.open("POST", f"/{NAME}/Wait", HEADERS)
        await client.say(Body(stream_id, [frame(DoubleValue(value=1).SerializeToString())], end=True))
        await trio.testing.wait_all_tasks_blocked()
        service.drain()
        assert status(await call(client, "Echo", HELLO))[0] is Code.UNAVAILABLE
        assert status(await client.answer(stream_id))[0] is Code.OK


async def test_an_answer_of_any_size(autojump_clock: Clock) -> None:
    message = BytesValue(value=bytes(4_000_000)).SerializeToString()
    async with serving(Calls().service().handle, "h2") as client:
        stream_id = await client.open("POST", f"/{NAME}/Echo", HEADERS)
        await client.say(Body(stream_id, [frame(message)], end=True))
        head = await client.head(stream_id)
        assert head.status == 200
        size = 0
        while isinstance(event := await client.next(stream_id), Data):
            size += len(event.data)
        assert size == len(message) + 5
        assert event == End(stream_id, (("grpc-status", "0"),))
