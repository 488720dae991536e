"""Passthrough: if client and server speak the same protocol, the bytes of a session are forwarded unread.

A front that speaks S2S asks its back whether the stream lives on a server that does too. Then the frames of a session
go back and forth as they are. The gateway adds nothing of its own: after a lost connection the client retries by its
own policy, as if it were connected to the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from penstock_codecs.http import Buffer, ResponseHead
from penstock_codecs.model import StreamRef

__all__ = ["PassesS2S", "RawSession", "S2SPassthrough", "s2s_passage"]

HeaderList = Sequence[tuple[str, str]]


class RawSession(Protocol):
    """One S2S session on the server, as the two bodies of an HTTP exchange.

    All methods raise OperationFailed if the connection to the server is lost. One task sends and another receives.
    """

    async def send(self, pieces: Sequence[Buffer]) -> None:
        """Send more of the request's body. Waits for a slow server; if it is cancelled meanwhile, the pieces are still
        sent, never a part of them."""

    async def finish(self) -> None:
        """End the request's body."""

    async def receive_head(self) -> ResponseHead:
        """Return the head of the response."""

    async def receive_pieces(self, least: int) -> Sequence[Buffer]:
        """Return at least `least` bytes (up to 512 KiB) of the response's body; fewer at its end or if the server is
        lost, and none after that. A caller that does not call it causes back-pressure."""


class S2SPassthrough(Protocol):
    """The S2S sessions of one stream."""

    def open(self, method: str, query: str, headers: HeaderList) -> AbstractAsyncContextManager[RawSession]:
        """Begin a session: GET reads, POST appends. `headers` are those of the client that matter to the server; the
        basin's name and the credentials are added. Leaving the context early ends the session on the server too."""


@runtime_checkable
class PassesS2S(Protocol):
    """A back that may have a server to pass S2S sessions through to."""

    def s2s_passage(self, stream: StreamRef) -> S2SPassthrough | None:
        """Return the passthrough to the stream's server, or None if its sessions cannot be passed through: it speaks
        another protocol, or the gateway must see the records (for a mirror or a seal)."""


def s2s_passage(back: object, stream: StreamRef) -> S2SPassthrough | None:
    """Return the passthrough of a stream if `back` offers one, otherwise None."""
    return back.s2s_passage(stream) if isinstance(back, PassesS2S) else None
