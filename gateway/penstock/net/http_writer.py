"""The output of an HTTP connection, at a server or a client: written at once if the kernel takes it, else by a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from penstock.net.buffered_socket import BufferedSocket, TooSlow
from penstock_codecs.http import HttpCodec
from penstock_codecs.limits import KIB

__all__ = ["WIRE_ROOM", "HttpWriter"]

WIRE_ROOM: Final = 512 * KIB
"""Bytes that wait for the socket, up to which the codec is asked for more HTTP/2 frames, so that streams take turns."""


class HttpWriter:
    """Moves the output of a codec to a socket. The codec's calls are synchronous, so a cancelled user never leaves half
    a frame behind.

    `patience`: seconds for which the peer may accept nothing. `filled` is called when the codec was asked for output,
    `moved` when something was written, and `lost` with TooSlow or the error that broke the connection. None of them may
    wait.
    """

    def __init__(
        self,
        wire: BufferedSocket,
        codec: HttpCodec,
        patience: float,
        *,
        filled: Callable[[], object],
        moved: Callable[[], object],
        lost: Callable[[Exception], object],
    ) -> None:
        self._wire = wire
        self._codec = codec
        self._patience = patience
        self._filled = filled
        self._moved = moved
        self._lost = lost
        self._writing = False

    def fill(self) -> None:
        """Move output of the codec to the socket's buffer, as far as there is room."""
        self._wire.put(self._codec.output(max(0, WIRE_ROOM - self._wire.pending)))
        self._filled()

    def flush(self, nursery: trio.Nursery, alone: bool) -> None:
        """Write output as far as possible without waiting; a task in `nursery` writes the rest.

        Unless an exchange is `alone` on its connection, all is left to the task, which joins the output of several
        exchanges in one write.
        """
        self.fill()
        if self._writing:
            return
        if self._wire.direct and alone:
            try:
                while self._wire.pending and self._wire.write_now():
                    self.fill()
            except trio.BrokenResourceError as error:
                self._lost(error)
                return
        if self._wire.pending:
            self._writing = True
            nursery.start_soon(self._write)
        self._moved()

    async def _write(self) -> None:
        try:
            while self._wire.pending:
                await self._wire.write(self._patience)
                self.fill()
                if self._wire.pending:
                    self._moved()
        except (trio.BrokenResourceError, trio.ClosedResourceError, TooSlow) as error:
            self._lost(error)
            return
        finally:
            self._writing = False
        self._moved()
