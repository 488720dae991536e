"""What a handler of a call is given and gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from penstock.controller.controller import Controller
from penstock.controller.settings import ControllerSettings
from penstock.fronts.grpc import GrpcContext

__all__ = ["Call", "Calls", "Handler"]


@dataclass(frozen=True, slots=True)
class Call:
    """What is there for a call beside its message."""

    controller: Controller
    settings: ControllerSettings
    context: GrpcContext


Handler = Callable[[Call, Any], Awaitable[Message]]
"""Answers one call: the message is of the class that the schema says, and so is the answer."""

Calls = Mapping[str, Handler]
"""Handlers by the names of the schema."""
