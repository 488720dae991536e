"""What an HTTP connection writes, at a server or at a client: at once where the kernel takes it, else by a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from penstock.wire import TooSlow, Wire
from penstock_codecs.http import HttpCodec
from penstock_codecs.limits import KIB

__all__ = ["WIRE_ROOM", "Outflow"]

WIRE_ROOM: Final = 512 * KIB
"""HTTP/2 frames are made while less than this waits for the socket, so that streams take turns."""


class Outflow:
    """From a codec to a wire. The codec's calls are synchronous, so a cancelled user never leaves half a frame behind.

    `patience`: seconds for which the peer may take nothing. `filled` is called when the codec was asked for more,
    `moved` when something was written, `lost` with TooSlow or what broke the connection; none of them may wait.
    """

    def __init__(
        self,
        wire: Wire,
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
        """Take from the codec what there is room for."""
        self._wire.put(self._codec.output(max(0, WIRE_ROOM - self._wire.pending)))
        self._filled()

    def flush(self, nursery: trio.Nursery, alone: bool) -> None:
        """Write what there is to write, as far as that goes without waiting; a task in `nursery` does the rest.

        Unless an exchange is `alone` on its connection, the task joins what several have to say into one write.
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
