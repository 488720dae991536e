"""The controller's front, on any back: Pravega's ControllerService over gRPC, and its REST API on the same port.

The handler of an HTTP server is `handle`. Beside it `run` must run for as long as the gateway does: it finishes what
the process before did not, and ends transactions whose time is over. `drain` begins to shut down.

Clients are not authenticated, unless the front issues delegation tokens: then each call needs Basic credentials. The
path of a request tells gRPC and REST apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from penstock.model.failures import OperationFailed
from penstock.net.grpc import GrpcContext, GrpcService, Method
from penstock.net.grpc.health import HealthService, is_health
from penstock.net.http.exchange import Exchange, Request
from penstock.wire.grpc import error_of
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.front.admission import authenticate
from penstock_pravega.controller.front.calls import CallContext, CallHandler, Calls
from penstock_pravega.controller.front.groups import GROUPS
from penstock_pravega.controller.front.key_value_tables import KEY_VALUE_TABLES
from penstock_pravega.controller.front.rest import RestFront, is_rest
from penstock_pravega.controller.front.scopes import SCOPES
from penstock_pravega.controller.front.segments import SEGMENTS
from penstock_pravega.controller.front.streams import STREAMS
from penstock_pravega.controller.front.transactions import TRANSACTIONS
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["CALLS", "ControllerFront"]

CALLS: Final[Calls] = {**SCOPES, **STREAMS, **SEGMENTS, **TRANSACTIONS, **GROUPS, **KEY_VALUE_TABLES}
"""All calls of the schema."""

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ControllerService"]


class ControllerFront:
    """The server of Pravega's controller."""

    def __init__(self, controller: Controller) -> None:
        self._settings = controller.settings
        self._controller = controller
        self._service = GrpcService(_SERVICE.full_name, self._methods(), admit=self._admit)
        self._health = HealthService([_SERVICE.full_name])
        self._rest = RestFront(controller, controller.settings)

    async def handle(self, exchange: Exchange) -> None:
        """Answer one call."""
        path = exchange.request.path
        server = self._health if is_health(path) else self._rest if is_rest(path) else self._service
        await server.handle(exchange)

    async def run(self) -> None:
        """Run the controller's background work until cancelled."""
        await self._controller.run()

    async def _admit(self, request: Request) -> None:
        """Authenticate the client, if delegation tokens are configured. Raises GrpcError(UNAUTHENTICATED)."""
        try:
            await authenticate(request, self._settings)
        except OperationFailed as error:
            raise error_of(error.failure) from None

    def drain(self) -> None:
        """Begin to shut down: new calls are refused as UNAVAILABLE, or with 503."""
        self._service.drain()
        self._health.drain()
        self._rest.drain()

    def _methods(self) -> Mapping[str, Method[Any]]:
        return {
            method.name: Method(GetMessageClass(method.input_type), self._handler(method.name))
            for method in _SERVICE.methods
        }

    def _handler(self, name: str) -> Callable[[Any, GrpcContext], Awaitable[Message]]:
        return partial(self._answer, CALLS[name])

    async def _answer(self, handler: CallHandler, request: Message, context: GrpcContext) -> Message:
        return await handler(CallContext(self._controller, self._settings, context), request)
