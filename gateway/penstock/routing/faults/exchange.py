"""HTTP answers with faults. Each piece of a session that a front sends is one message, and so is a whole answer."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from penstock.net.cutting import cut_connection, silence
from penstock.net.http.exchange import Exchange, HeaderList, Refetch, Request
from penstock.net.http.front_server import HttpFront
from penstock.routing.faults.messages import due_message, send_faulty
from penstock.routing.faults.rules import Faults
from penstock.wire.http import Buffer

__all__ = ["FaultyFront"]


class FaultyFront:
    """An HTTP front whose answers have faults while there are rules."""

    def __init__(self, inner: HttpFront, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """Answer one request."""
        return self._inner.handle(_FaultyExchange(exchange) if self._faults.active else exchange)

    def drain(self) -> None:
        """Tell the wrapped front that the gateway is about to stop."""
        self._inner.drain()


class _FaultyExchange:
    """An `Exchange` with faults in its answer."""

    def __init__(self, inner: Exchange) -> None:
        self._inner = inner

    @property
    def request(self) -> Request:
        return self._inner.request

    async def receive(self) -> bytes:
        return await self._inner.receive()

    @property
    def arrived(self) -> bool:
        return self._inner.arrived

    @property
    def ended(self) -> bool:
        return self._inner.ended

    def refuse_body(self) -> None:
        self._inner.refuse_body()

    async def room(self, keep: bool = True) -> None:
        await self._inner.room(keep)

    def spare(self) -> int:
        """Return 0: each batch is a message of its own, with faults of its own."""
        return 0

    def send_now(self, piece: bytes) -> bool:  # noqa: ARG002 - the interface has it
        """Return False: a fault may delay or drop what is sent, so it must go through `send`."""
        return False

    async def written(self) -> None:
        await self._inner.written()

    async def respond(
        self,
        status: int,
        headers: HeaderList,
        body: bytes = b"",
        trailers: HeaderList | None = None,
        refetch: Refetch | None = None,
    ) -> None:
        faults = due_message(answer=True)
        if faults is None:
            await self._inner.respond(status, headers, body, trailers, refetch)
            return
        if faults.dropped:
            await silence()
        if faults.cut_in(len(body)) == 0:
            await cut_connection()
        if trailers is None:
            headers = [*headers, ("content-length", str(len(body)))]
        await self._inner.start(status, headers)
        await send_faulty(faults, body, self._send_one, self._inner.written)
        await self._inner.finish(trailers or ())

    async def start(self, status: int, headers: HeaderList) -> None:
        await self._inner.start(status, headers)

    async def send(self, pieces: Sequence[Buffer], refetch: Refetch | None = None) -> None:
        faults = due_message()
        if faults is None:
            await self._inner.send(pieces, refetch)
        else:
            await send_faulty(faults, b"".join(pieces), self._send_one, self._inner.written)

    async def _send_one(self, data: bytes) -> None:
        await self._inner.send([data])

    async def finish(self, trailers: HeaderList = ()) -> None:
        await self._inner.finish(trailers)
