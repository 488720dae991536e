"""What a method of a gRPC service is, and how one call of it is carried out."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from penstock_codecs.failures import OperationFailed
from penstock_codecs.grpc import Code, GrpcError, error_of

__all__ = ["GrpcContext", "Method", "perform"]

Q = TypeVar("Q", bound=Message)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GrpcContext:
    """What a call says beside its message.

    `authority`: host and port that the client asked for. `metadata`: all headers of the request, names in lower case;
    values of names that end in -bin are left in base64. `deadline`: when the client stops waiting, in trio's time.
    """

    authority: str
    metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # it may have secrets
    deadline: float = math.inf

    def value(self, name: str) -> str | None:
        """The first value of `name`, or None."""
        return next((value for key, value in self.metadata if key == name), None)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q]):
    """One method: the class of its request, and what answers it.

    The handler gives the message to answer with. It may raise GrpcError, and OperationFailed, which becomes the
    status that says it. It is cancelled when the client goes away, resets the call or has waited as long as it said.
    """

    request: type[Q]
    handler: Callable[[Q, GrpcContext], Awaitable[Message]]


async def perform(path: str, method: Method[Any], message: bytes, context: GrpcContext) -> bytes:
    """The answer of one call. Raises GrpcError, and nothing else: what is wrong with a handler is logged."""
    try:
        request = method.request.FromString(message)
    except DecodeError:
        name = method.request.DESCRIPTOR.full_name
        raise GrpcError(Code.INTERNAL, f"the message is not a {name}") from None
    try:
        answer = await method.handler(request, context)
        return answer.SerializeToString()
    except GrpcError:
        raise
    except OperationFailed as error:
        raise error_of(error.failure) from error
    except Exception as error:
        _log.exception("call_failed", path=path)
        raise GrpcError(Code.INTERNAL, "the gateway failed to carry out this call") from error
