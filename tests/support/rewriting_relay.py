"""A relay between a client and a server that plants faults: it rewrites what either says, or keeps its end from it."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio

__all__ = ["Fault", "frames", "kafka_frames", "relayed"]

Rewrite = Callable[[bytes], bytes]
Cut = Callable[[trio.SocketStream], AsyncGenerator[bytes, None]]


def _unchanged(data: bytes) -> bytes:
    return data


@dataclass(frozen=True, slots=True)
class Fault:
    """A planted fault. `request`, `reply`: what becomes of a piece of bytes. `holds_open`: the server's end of the
    connection does not reach the client."""

    request: Rewrite = _unchanged
    reply: Rewrite = _unchanged
    holds_open: bool = False
    cut: Cut | None = None
    """Cuts the bytes of one side into pieces; None: a piece is what was read at once."""


@asynccontextmanager
async def relayed(port: int, planted: Fault | Callable[[], Fault]) -> AsyncIterator[int]:
    """Listen, and relay each connection to a server on this machine; `planted` may make a fault for each connection.
    Gives the port."""

    async def serve(client: trio.SocketStream) -> None:
        fault = planted if isinstance(planted, Fault) else planted()
        async with await trio.open_tcp_stream("127.0.0.1", port) as server, trio.open_nursery() as nursery:
            nursery.start_soon(_copy, server, client, fault.reply, fault)
            await _copy(client, server, fault.request, fault)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def _copy(source: trio.SocketStream, target: trio.SocketStream, rewrite: Rewrite, fault: Fault) -> None:
    try:
        async with aclosing((fault.cut or _as_read)(source)) as pieces:
            async for piece in pieces:
                if rewritten := rewrite(bytes(piece)):
                    await target.send_all(rewritten)
        if not (fault.holds_open and rewrite is fault.reply):
            await target.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # one of them has gone


async def _as_read(source: trio.SocketStream) -> AsyncGenerator[bytes, None]:
    async for piece in source:
        yield bytes(piece)


async def frames(source: trio.SocketStream) -> AsyncGenerator[bytes, None]:
    """Yield the messages of the segment protocol; whatever is no message, as it comes."""
    held = b""
    async for piece in source:
        held += piece
        while len(held) >= 8 and (size := 8 + struct.unpack_from(">i", held, 4)[0]) >= 8 and len(held) >= size:
            yield held[:size]
            held = held[size:]
        if len(held) >= 8 and not 0 <= struct.unpack_from(">i", held, 4)[0] < 1 << 24:
            yield held
            held = b""
    if held:
        yield held


async def kafka_frames(source: trio.SocketStream) -> AsyncGenerator[bytes, None]:
    """Yield the messages of Kafka with their lengths; whatever is no message, as it comes."""
    held = b""
    async for piece in source:
        held += piece
        while len(held) >= 4 and 0 <= (size := int.from_bytes(held[:4], "big", signed=True)) <= len(held) - 4:
            yield held[: 4 + size]
            held = held[4 + size :]
        if len(held) >= 4 and not 0 <= int.from_bytes(held[:4], "big", signed=True) < 1 << 24:
            yield held
            held = b""
    if held:
        yield held
