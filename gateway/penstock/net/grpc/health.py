"""gRPC's health service, `grpc.health.v1.Health` (the document "GRPC Health Checking Protocol").

Its messages are a string and an enumeration, which wrappers spell in the same bytes: so no schema is registered, which
a process could have registered already.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from enum import IntEnum
from typing import Any, Final

import trio
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from penstock.net.draining import SHUTTING_DOWN
from penstock.net.grpc.call import GrpcContext, Method, StreamingMethod
from penstock.net.grpc.service import GrpcService
from penstock.net.http.exchange import Exchange
from penstock.wire.grpc import Code, GrpcError, error_of

__all__ = ["HealthService", "ServingStatus", "is_health"]

_NAME: Final = "grpc.health.v1.Health"


class ServingStatus(IntEnum):
    """The statuses of a service; the last one is only for `Watch`."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def is_health(path: str) -> bool:
    """Return whether the path of a request is a call of the health service."""
    return path.startswith(f"/{_NAME}/")


class HealthService:
    """The health of the services of one listener: they are served until it drains.

    Clients are not authenticated: those that check health, such as load balancers, have no credentials.
    """

    def __init__(self, services: Iterable[str]) -> None:
        """`services`: full names. The whole listener has the name ""."""
        self._services = frozenset(("", _NAME, *services))
        self._draining = trio.Event()
        methods: dict[str, Method[Any] | StreamingMethod[Any]] = {
            "Check": Method(StringValue, self._check),
            "Watch": StreamingMethod(StringValue, self._watch),
        }
        self._service = GrpcService(_NAME, methods, max_message=1024, admits=False)

    async def handle(self, exchange: Exchange) -> None:
        """Answer one call."""
        await self._service.handle(exchange)

    def drain(self) -> None:
        """Say NOT_SERVING from now on, and end all watches."""
        self._draining.set()

    async def _check(self, request: StringValue, _context: GrpcContext) -> Int32Value:
        """Return the status of a service. Raises NOT_FOUND for an unknown one."""
        if request.value not in self._services:
            raise GrpcError(Code.NOT_FOUND, f"there is no service {request.value!r:.100}")
        return Int32Value(value=self._status(request.value))

    async def _watch(self, request: StringValue, _context: GrpcContext) -> AsyncGenerator[Int32Value, None]:
        """Yield the status of a service, and each change of it."""
        status = self._status(request.value)
        yield Int32Value(value=status)
        await self._draining.wait()
        if status is ServingStatus.SERVING:
            yield Int32Value(value=ServingStatus.NOT_SERVING)
        raise error_of(SHUTTING_DOWN)

    def _status(self, service: str) -> ServingStatus:
        if service not in self._services:
            return ServingStatus.SERVICE_UNKNOWN
        return ServingStatus.NOT_SERVING if self._draining.is_set() else ServingStatus.SERVING
