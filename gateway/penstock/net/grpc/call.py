"""Methods of gRPC services, and the execution of one call."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from google.protobuf.message import DecodeError, Message

from penstock.model.failures import OperationFailed
from penstock.wire.grpc import Code, GrpcError, error_of

__all__ = ["GrpcContext", "Method", "StreamingMethod", "perform", "stream"]

Q = TypeVar("Q", bound=Message)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GrpcContext:
    """The metadata of a call.

    `authority`: the host and port that the client addressed. `metadata`: all headers of the request, names in lower
    case; values of names that end in -bin are left in base64. `deadline`: when the client stops waiting, on trio's
    clock.
    """

    authority: str
    metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may contain secrets
    deadline: float = math.inf

    def value(self, name: str) -> str | None:
        """Return the first value of `name`, or None."""
        return next((value for key, value in self.metadata if key == name), None)


class Method(msgspec.Struct, Generic[Q], frozen=True):
    """One method: the class of its request, and its handler.

    The handler returns the response message. It may raise GrpcError, or OperationFailed, which is translated to a
    status. It is cancelled when the client goes away, resets the call, or its deadline passes.
    """

    request: type[Q]
    handler: Callable[[Q, GrpcContext], Awaitable[Message]]


class StreamingMethod(msgspec.Struct, Generic[Q], frozen=True):
    """One method that answers with any number of messages, which its handler yields. See `Method`."""

    request: type[Q]
    handler: Callable[[Q, GrpcContext], AsyncGenerator[Message, None]]


async def perform(path: str, method: Method[Any], message: bytes, context: GrpcContext) -> bytes:
    """Execute one call and return the response, serialized. Raises GrpcError and nothing else: other exceptions of a
    handler are logged."""
    request = _parse(method.request, message)
    with _failures(path):
        response = await method.handler(request, context)
        return response.SerializeToString()


async def stream(
    path: str, method: StreamingMethod[Any], message: bytes, context: GrpcContext
) -> AsyncGenerator[bytes, None]:
    """Execute one call and yield its responses, serialized. Raises as `perform`."""
    request = _parse(method.request, message)
    with _failures(path):
        async with aclosing(method.handler(request, context)) as answers:
            async for response in answers:
                yield response.SerializeToString()


def _parse(kind: type[Q], message: bytes) -> Q:
    try:
        return kind.FromString(message)
    except DecodeError:
        raise GrpcError(Code.INTERNAL, f"the message is not a {kind.DESCRIPTOR.full_name}") from None


@contextmanager
def _failures(path: str) -> Iterator[None]:
    """Raise GrpcError for all that a handler raises."""
    try:
        yield
    except GrpcError:
        raise
    except OperationFailed as error:
        raise error_of(error.failure) from error
    except Exception as error:
        _log.exception("call_failed", path=path)
        raise GrpcError(Code.INTERNAL, "the gateway failed to execute this call") from error
