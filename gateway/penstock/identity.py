"""Who asks: set by a front for the task that serves a client, read by routes and by backs that pass credentials on.

A context variable, because what lies between a front and a back need not know of it; trio gives every child task the
context of its parent.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

__all__ = ["ANYBODY", "CLIENT", "Client"]


@dataclass(frozen=True, slots=True)
class Client:
    """One client. `identity`: the configured name that it proved or that its address has, "" for nobody's.

    `token`: the bearer token that it sent, for backs whose credentials are passed through. `listener`: the name of the
    listener that it came by, as `listeners.s2`.
    """

    identity: str = ""
    token: str | None = None
    address: str = ""
    listener: str = ""


ANYBODY: Final = Client()
CLIENT: ContextVar[Client] = ContextVar("penstock.client", default=ANYBODY)
"""The client that the current task works for; `ANYBODY` where the gateway works for itself."""
