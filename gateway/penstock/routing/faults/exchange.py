"""HTTP answers with faults. Each piece of a session that a front sends is one message, and so is a whole answer."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

from penstock.net.cutting import cut_connection, silence
from penstock.net.http.exchange import Exchange, HeaderList, Refetch, Request
from penstock.routing.faults.messages import MessageFaults, due_message, send_faulty
from penstock.routing.faults.rules import Faults
from penstock.routing.faults.unknown import UNKNOWN_HEADER, AddField
from penstock_codecs.http import Buffer

__all__ = ["FaultyFront"]


class _Front(Protocol):
    async def handle(self, exchange: Exchange) -> None: ...

    def drain(self) -> None: ...


class FaultyFront:
    """An HTTP front whose answers have faults while there are rules.

    `unknown`: by media type, how a whole answer, or a message of an answer in parts, gets an unknown field.
    """

    def __init__(self, inner: _Front, faults: Faults, unknown: Mapping[str, AddField]) -> None:
        self._inner = inner
        self._faults = faults
        self._unknown = unknown

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """Answer one request."""
        return self._inner.handle(_FaultyExchange(exchange, self._unknown) if self._faults.active else exchange)

    def drain(self) -> None:
        """Tell the wrapped front that the gateway is about to stop."""
        self._inner.drain()


class _FaultyExchange:
    """An `Exchange` with faults in its answer."""

    def __init__(self, inner: Exchange, unknown: Mapping[str, AddField]) -> None:
        self._inner = inner
        self._unknown = unknown
        self._in_parts: AddField | None = None

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
        headers = list(headers)
        said = due_message(answer=True, unknown=self._field(headers) or bytes)  # a header always has a place
        if said is None:
            await self._inner.respond(status, headers, body, trailers, refetch)
            return
        if not said.copies:
            await silence()
        if said.unknown is not None:
            headers, body = [*headers, UNKNOWN_HEADER], said.message([body])
        if said.in_transfer:
            await self._respond(said, status, headers, body, trailers)
        else:
            await self._inner.respond(status, headers, body, trailers)

    async def _respond(
        self, said: MessageFaults, status: int, headers: HeaderList, body: bytes, trailers: HeaderList | None
    ) -> None:
        """Send a whole answer slowly, or only its beginning."""
        if said.cut_in(len(body)) == 0:
            await cut_connection()
        if trailers is None:
            headers = [*headers, ("content-length", str(len(body)))]
        await self._inner.start(status, headers)
        await send_faulty(said, body, self._send_one, self._inner.written)
        await self._inner.finish(trailers or ())

    def _field(self, headers: HeaderList) -> AddField | None:
        """Return how a message in an answer with these headers gets an unknown field, None if it has no place."""
        fields = {name.lower(): value for name, value in headers}
        media = fields.get("content-type", "").partition(";")[0].strip().lower()
        return None if "content-encoding" in fields else self._unknown.get(media)

    async def start(self, status: int, headers: HeaderList) -> None:
        headers = list(headers)
        self._in_parts = self._field(headers)
        await self._inner.start(status, headers)

    async def send(self, pieces: Sequence[Buffer], refetch: Refetch | None = None) -> None:
        said = due_message(unknown=self._in_parts)
        if said is None:
            await self._inner.send(pieces, refetch)
        else:
            await send_faulty(said, said.message(pieces), self._send_one, self._inner.written)

    async def _send_one(self, data: bytes) -> None:
        await self._inner.send([data])

    async def finish(self, trailers: HeaderList = ()) -> None:
        await self._inner.finish(trailers)
