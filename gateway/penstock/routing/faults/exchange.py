"""HTTP answers with faults. Each piece of a session that a front sends is one message, and so is a whole answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from penstock.net.cutting import cut_connection, silence
from penstock.net.http.exchange import Exchange, HeaderList, Request
from penstock.routing.faults.messages import ON_ONE_ANSWER, MessageFaults, due_message, send_faulty
from penstock.routing.faults.rules import Faults
from penstock.routing.faults.unknown import with_unknown
from penstock_codecs.http import Buffer

__all__ = ["FaultyFront"]


class _Front(Protocol):
    async def handle(self, exchange: Exchange) -> None: ...

    def drain(self) -> None: ...


class FaultyFront:
    """An HTTP front whose answers have faults while there are rules. `own_bodies`: see `with_unknown`."""

    def __init__(self, inner: _Front, faults: Faults, own_bodies: bool = True) -> None:
        self._inner = inner
        self._faults = faults
        self._own_bodies = own_bodies

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """Answer one request."""
        return self._inner.handle(_FaultyExchange(exchange, self._own_bodies) if self._faults.active else exchange)

    def drain(self) -> None:
        """Tell the wrapped front that the gateway is about to stop."""
        self._inner.drain()


class _FaultyExchange:
    """An `Exchange` with faults in its answer."""

    def __init__(self, inner: Exchange, own_bodies: bool) -> None:
        self._inner = inner
        self._own_bodies = own_bodies

    @property
    def request(self) -> Request:
        return self._inner.request

    async def receive(self) -> bytes:
        return await self._inner.receive()

    async def room(self, keep: bool = True) -> None:
        await self._inner.room(keep)

    def send_now(self, encode: Callable[[], Sequence[Buffer]]) -> bool:  # noqa: ARG002 - the interface has it
        """Return False: a fault may delay or drop what is sent, so it must go through `send`."""
        return False

    async def written(self) -> None:
        await self._inner.written()

    async def respond(
        self, status: int, headers: HeaderList, body: bytes = b"", trailers: HeaderList | None = None
    ) -> None:
        said = due_message(ON_ONE_ANSWER, answer=True)
        if said is None:
            await self._inner.respond(status, headers, body, trailers)
        elif not said.copies:
            await silence()
        elif said.unknown and not said.in_transfer:
            headers, body = with_unknown(headers, body, self._own_bodies)
            await self._inner.respond(status, headers, body, trailers)
        else:
            if said.unknown:
                headers, body = with_unknown(headers, body, self._own_bodies)
            await self._respond(said, status, [*headers, ("content-length", str(len(body)))], body)

    async def _respond(self, said: MessageFaults, status: int, headers: HeaderList, body: bytes) -> None:
        """Send a whole answer slowly, or only its beginning."""
        if said.cut_in(len(body)) == 0:
            await cut_connection()
        await self._inner.start(status, headers)
        await send_faulty(said, [body], self._send_one, self._inner.written)
        await self._inner.finish()

    async def start(self, status: int, headers: HeaderList) -> None:
        await self._inner.start(status, headers)

    async def send(self, pieces: Sequence[Buffer]) -> None:
        said = due_message()
        if said is None:
            await self._inner.send(pieces)
        else:
            await send_faulty(said, pieces, self._send_one, self._inner.written)

    async def _send_one(self, data: bytes) -> None:
        await self._inner.send([data])

    async def finish(self, trailers: HeaderList = ()) -> None:
        await self._inner.finish(trailers)
