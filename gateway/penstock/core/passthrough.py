"""Passthrough: if client and server speak the same protocol, the bytes of a session are forwarded unread.

A front asks its back (`Back.passthrough`) whether the stream lives on a server that speaks the client's wire format.
Then the frames of a session go back and forth as they are. The gateway adds nothing of its own: after a lost connection
the client retries by its own policy, as if it were connected to the server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.wire.http import Buffer, FramePieces, ResponseHead

__all__ = ["HeaderList", "Passthrough", "RawSession"]

HeaderList = Sequence[tuple[str, str]]


class RawSession(Protocol):
    """One session on the server, as the two bodies of an HTTP exchange.

    All methods raise OperationFailed if the connection to the server is lost. One task sends and another receives.
    """

    async def send(self, pieces: FramePieces) -> None:
        """Send whole frames of the request's body. Waits for a slow server; if it is cancelled meanwhile, the pieces
        are still sent, never a part of them."""

    async def finish(self) -> None:
        """End the request's body."""

    async def receive_head(self) -> ResponseHead:
        """Return the head of the response."""

    async def receive_pieces(self, least: int) -> Sequence[Buffer]:
        """Return at least `least` bytes (up to 512 KiB) of the response's body; fewer at its end or if the server is
        lost, and none after that. A caller that does not call it causes back-pressure."""

    def count_batches(self, pieces: Sequence[Buffer]) -> Sequence[int]:
        """Return the number of records of each batch, read or acknowledged, that is complete with these pieces of the
        response's body. It is for metrics and never raises; call it for all pieces, in order."""


class Passthrough(ABC):
    """The undecoded sessions of one stream."""

    @abstractmethod
    def open(self, method: str, query: str, headers: HeaderList) -> AbstractAsyncContextManager[RawSession]:
        """Begin a session: GET reads, POST appends. `headers` are those of the client that matter to the server; the
        basin's name and the credentials are added. Leaving the context early ends the session on the server too."""
