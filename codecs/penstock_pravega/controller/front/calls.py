"""The types of a call's handler: its parameters and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from google.protobuf.message import Message

from penstock.core.identity import CLIENT
from penstock.net.grpc import GrpcContext
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.settings import ControllerSettings
from penstock_pravega.segment.delegation import READ, READ_UPDATE
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["CallContext", "CallHandler", "Calls"]


class CallContext(msgspec.Struct, frozen=True):
    """The context of a call: everything but its message."""

    controller: Controller
    settings: ControllerSettings
    context: GrpcContext

    def delegation_token(self, stream: pb.StreamInfo) -> str:
        """Return the token for this stream that the client sends to the segment listener; "" if that requires none."""
        delegation = self.settings.delegation
        if delegation is None:
            return ""
        permission = READ if stream.accessOperation == pb.StreamInfo.READ else READ_UPDATE
        return delegation.issue(CLIENT.get().identity, stream.scope, stream.stream, permission)


CallHandler = Callable[[CallContext, Any], Awaitable[Message]]
"""Answers one call: message and answer are of the classes in the schema."""

Calls = Mapping[str, CallHandler]
"""Handlers by the names of calls in the schema."""
