"""A gRPC service for tests, with messages that protobuf ships, and a server for it in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import trio
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue, DoubleValue, Int32Value, StringValue

from penstock.model.failures import FailureCode, fail
from penstock.net.grpc import Code, GrpcContext, GrpcError, GrpcService, Method
from penstock.net.http.serving import serve_http

__all__ = ["NAME", "Calls", "serving_grpc"]

NAME = "penstock.test.Calls"


class Calls:
    """Methods that do what they are told, and what became of those that wait."""

    def __init__(self) -> None:
        self.cancelled = threading.Semaphore(0)
        self.waiting = threading.Semaphore(0)

    def service(self, **options: float) -> GrpcService:
        methods = {
            "Echo": Method(BytesValue, self.echo),
            "Fail": Method(Int32Value, self.fail),
            "FailBack": Method(StringValue, self.fail_back),
            "Crash": Method(Empty, self.crash),
            "Wait": Method(DoubleValue, self.wait),
            "Tell": Method(StringValue, self.tell),
        }
        return GrpcService(NAME, methods, **options)  # type: ignore[arg-type]

    async def echo(self, request: BytesValue, context: GrpcContext) -> Message:
        return BytesValue(value=request.value)

    async def fail(self, request: Int32Value, context: GrpcContext) -> Message:
        raise GrpcError(Code(request.value), f"100% of {Code(request.value).name}: \u00e9")

    async def fail_back(self, request: StringValue, context: GrpcContext) -> Message:
        raise fail(FailureCode(request.value), "what the back says")

    async def crash(self, request: Empty, context: GrpcContext) -> Message:
        raise ValueError("a secret")

    async def wait(self, request: DoubleValue, context: GrpcContext) -> Message:
        self.waiting.release()
        try:
            await trio.sleep(request.value)
        except trio.Cancelled:
            self.cancelled.release()
            raise
        return Empty()

    async def tell(self, request: StringValue, context: GrpcContext) -> Message:
        """Return the context's value for a name, as text."""
        found = context.authority if request.value == ":authority" else context.value(request.value)
        return StringValue(value=str(found))


@contextmanager
def serving_grpc(service: GrpcService) -> Iterator[int]:
    """Serves it on a free port of loopback, in a thread; gives the port."""
    started: queue.Queue[tuple[int, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()

    async def serve() -> None:
        with trio.CancelScope() as scope:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            started.put((listener.socket.getsockname()[1], trio.lowlevel.current_trio_token(), scope))
            await trio.serve_listeners(lambda stream: serve_http(stream, service.handle), [listener])

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    port, token, scope = started.get(timeout=10)
    try:
        yield port
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join(timeout=10)
        assert not thread.is_alive()
