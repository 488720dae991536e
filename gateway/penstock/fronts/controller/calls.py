"""What a handler of a call is given and gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from penstock.access.delegation import READ, READ_UPDATE
from penstock.controller.controller import Controller
from penstock.controller.settings import ControllerSettings
from penstock.fronts.grpc import GrpcContext
from penstock.identity import CLIENT
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["Call", "Calls", "Handler"]


@dataclass(frozen=True, slots=True)
class Call:
    """What is there for a call beside its message."""

    controller: Controller
    settings: ControllerSettings
    context: GrpcContext

    def delegation_token(self, stream: pb.StreamInfo) -> str:
        """What the client shows the segment listener for this stream; "" where that asks for nothing."""
        delegation = self.settings.delegation
        if delegation is None:
            return ""
        permission = READ if stream.accessOperation == pb.StreamInfo.READ else READ_UPDATE
        return delegation.issue(CLIENT.get().identity, stream.scope, stream.stream, permission)


Handler = Callable[[Call, Any], Awaitable[Message]]
"""Answers one call: the message is of the class that the schema says, and so is the answer."""

Calls = Mapping[str, Handler]
"""Handlers by the names of the schema."""
