"""Passing a session through: where client and server speak the same protocol, its bytes need not be understood.

A front that speaks S2S asks its back whether the stream lives on a server that does too. Then the frames of a session
go back and forth as they are. What the gateway would add, it leaves to the client, as if that spoke to the server:
after a lost connection the client asks again by its own retry policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from penstock_codecs.http import Buffer, ResponseHead
from penstock_codecs.model import StreamRef

__all__ = ["PassesS2S", "RawSession", "S2SPassage", "s2s_passage"]

HeaderList = Sequence[tuple[str, str]]


class RawSession(Protocol):
    """One S2S session on the server, as the two bodies of an HTTP exchange.

    All methods raise OperationFailed where the server is lost. One task sends and another receives.
    """

    async def send(self, pieces: Sequence[Buffer]) -> None:
        """More of the request's body. Waits for a slow server; where it is cancelled then, the pieces go out all the
        same: never a part of them."""

    async def finish(self) -> None:
        """The request's body is complete."""

    async def receive_head(self) -> ResponseHead:
        """The head of the answer."""

    async def receive_pieces(self, least: int) -> Sequence[Buffer]:
        """More of the answer's body, at least so many bytes (up to 512 KiB can be asked for), fewer at its end or where
        the server is lost; none behind it. Not calling it is the back-pressure."""


class S2SPassage(Protocol):
    """The S2S sessions of one stream."""

    def open(self, method: str, query: str, headers: HeaderList) -> AbstractAsyncContextManager[RawSession]:
        """Begin a session: GET reads, POST appends. `headers` are the client's that matter to the server; the basin's
        name and the credentials are added. Leaving it early ends the session on the server too."""


@runtime_checkable
class PassesS2S(Protocol):
    """A back that may know such a server."""

    def s2s_passage(self, stream: StreamRef) -> S2SPassage | None:
        """The way to the stream's server; None where its sessions cannot be passed through: another protocol is spoken
        there, or something must look at the records on their way (a mirror, a seal)."""


def s2s_passage(back: object, stream: StreamRef) -> S2SPassage | None:
    """What `back` says, if it is one of these."""
    return back.s2s_passage(stream) if isinstance(back, PassesS2S) else None
