"""Python's grpcio as a client of the gRPC front, over a real socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue, DoubleValue, Int32Value, StringValue
from support.grpc_service import NAME, Calls, serving_grpc

from penstock.net.grpc import GrpcService
from penstock.net.grpc.health import HealthService, ServingStatus, is_health
from penstock.net.http.exchange import Exchange

Call = Callable[[Message], Any]
SECONDS = 20

ANSWERS: dict[str, type[Message]] = {
    "Echo": BytesValue,
    "Fail": Empty,
    "FailBack": Empty,
    "Crash": Empty,
    "Wait": Empty,
    "Tell": StringValue,
    "None": Empty,
}


class Stub:
    """The test service's methods on one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def __getattr__(self, method: str) -> Any:
        return self._channel.unary_unary(
            f"/{NAME}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=ANSWERS[method].FromString,
        )


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def port(calls: Calls) -> Iterator[int]:
    with serving_grpc(calls.service()) as port:
        yield port


@pytest.fixture
def stub(port: int) -> Iterator[Stub]:
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield Stub(channel)


def ended(call: Call, request: Message, **options: Any) -> grpc.RpcError:
    """The error that a call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, **{"timeout": SECONDS, **options})
    return caught.value


def test_a_thousand_calls(stub: Stub) -> None:
    for n in range(1000):
        assert stub.Echo(BytesValue(value=b"%d" % n), timeout=SECONDS).value == b"%d" % n


def test_parallel_calls_on_one_channel(stub: Stub) -> None:
    sizes = [n * 1000 for n in range(200)]
    with ThreadPoolExecutor(32) as pool:
        answers = pool.map(lambda size: stub.Echo(BytesValue(value=bytes(size)), timeout=SECONDS), sizes)
        assert [len(answer.value) for answer in answers] == sizes
    futures = [stub.Wait.future(DoubleValue(value=0.2), timeout=SECONDS) for _ in range(90)]
    assert all(future.result() == Empty() for future in futures)


def test_a_large_message(stub: Stub) -> None:
    message = BytesValue(value=bytes(range(256)) * 16_000)
    assert stub.Echo(message, timeout=SECONDS) == message
    error = ended(stub.Echo, BytesValue(value=bytes(4 << 20)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert stub.Echo(message, timeout=SECONDS) == message


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_status_codes(stub: Stub, code: grpc.StatusCode) -> None:
    error = ended(stub.Fail, Int32Value(value=code.value[0]))
    assert error.code() is code
    assert error.details() == f"100% of {code.name}: \u00e9"


def test_failures(stub: Stub) -> None:
    error = ended(stub.FailBack, StringValue(value="resource_already_exists"))
    assert (error.code(), error.details()) == (grpc.StatusCode.ALREADY_EXISTS, "what the back says")
    assert ended(stub.Crash, Empty()).code() is grpc.StatusCode.INTERNAL
    assert ended(getattr(stub, "None"), Empty()).code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.NoCompression])
def test_compressed_requests(stub: Stub, compression: grpc.Compression) -> None:
    message = BytesValue(value=b"again and " * 100_000)
    assert stub.Echo(message, timeout=SECONDS, compression=compression) == message


def test_an_encoding_that_is_not_known(stub: Stub) -> None:
    error = ended(stub.Echo, BytesValue(value=bytes(1000)), compression=grpc.Compression.Deflate)
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "identity,gzip" in error.details()


def test_a_cancelled_call(stub: Stub, calls: Calls) -> None:
    future = stub.Wait.future(DoubleValue(value=60), timeout=SECONDS)
    assert calls.waiting.acquire(timeout=SECONDS)
    future.cancel()
    assert calls.cancelled.acquire(timeout=SECONDS)
    assert stub.Echo(BytesValue(value=b"still here"), timeout=SECONDS).value == b"still here"


def test_a_deadline(stub: Stub, calls: Calls) -> None:
    error = ended(stub.Wait, DoubleValue(value=60), timeout=0.2)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert calls.cancelled.acquire(timeout=SECONDS)


def test_metadata(stub: Stub, port: int) -> None:
    def tell(name: str) -> str:
        answer = stub.Tell(StringValue(value=name), timeout=SECONDS, metadata=[("authorization", "Basic abc")])
        assert isinstance(answer, StringValue)
        return answer.value

    assert tell(":authority") == f"127.0.0.1:{port}"
    assert tell("authorization") == "Basic abc"
    assert tell("user-agent").startswith("grpc-python/")


# ---- the health service ----


def test_health_is_checked_and_watched() -> None:
    """The messages of grpc.health.v1 have the bytes of a string's and a number's wrapper."""
    health = HealthService([NAME])

    class Drained(GrpcService):
        """The health service, which drains when another one is called, in the server's thread."""

        async def handle(self, exchange: Exchange) -> None:
            if is_health(exchange.request.path):
                await health.handle(exchange)
            else:
                health.drain()
                await super().handle(exchange)

    with (
        serving_grpc(Drained(NAME, {})) as port,
        grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel,
    ):
        coding = {
            "request_serializer": lambda message: message.SerializeToString(),
            "response_deserializer": Int32Value.FromString,
        }
        check = channel.unary_unary("/grpc.health.v1.Health/Check", **coding)
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch", **coding)
        for name in ("", NAME, "grpc.health.v1.Health"):
            assert check(StringValue(value=name), timeout=SECONDS).value == ServingStatus.SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            check(StringValue(value="other"), timeout=SECONDS)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        ours, others = (watch(StringValue(value=name), timeout=SECONDS) for name in (NAME, "other"))
        assert next(ours).value == ServingStatus.SERVING
        assert next(others).value == ServingStatus.SERVICE_UNKNOWN
        with pytest.raises(grpc.RpcError) as late:
            list(watch(StringValue(value=NAME), timeout=0.2))
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(f"/{NAME}/Drain", **coding)(Empty(), timeout=SECONDS)
        assert next(ours).value == ServingStatus.NOT_SERVING
        assert check(StringValue(value=NAME), timeout=SECONDS).value == ServingStatus.NOT_SERVING
        for ended in (ours, others):
            with pytest.raises(grpc.RpcError) as unavailable:
                next(ended)
            assert unavailable.value.code() is grpc.StatusCode.UNAVAILABLE
