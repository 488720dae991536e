"""Both sides of an HTTP/2 connection, told apart into exchanges, which have the numbers of their streams (RFC 9113)."""

from __future__ import annotations

from typing import Final

from penstock_codecs.capture import Sender
from penstock_codecs.dialogue.http.exchanges import Exchanges
from penstock_codecs.dialogue.http.frames import plausible
from penstock_codecs.dialogue.http.side2 import Side2
from penstock_codecs.dialogue.http.streams import Streams
from penstock_codecs.dialogue.http.telling import Fault, Teller

__all__ = ["Http2Listener", "seems_http2"]


def seems_http2(data: memoryview) -> bool:
    """Whether a chunk from the middle of a conversation looks like frames of HTTP/2."""
    return plausible(data)


class Http2Listener:
    """See `Listener`.

    `in_middle`: the beginning was not recorded. What the heads of either side refer to is not known then, so that
    frames are told by their types.
    """

    def __init__(self, teller: Teller, exchanges: Exchanges, *, in_middle: bool = False) -> None:
        self._teller = teller
        streams = Streams(teller, exchanges)
        client, server = (Side2(sender, teller, exchanges, streams) for sender in Sender)
        client.peer, server.peer = server, client
        self._sides: Final = {Sender.CLIENT: client, Sender.SERVER: server}
        self._streams = streams
        if in_middle:
            self.lost(Sender.CLIENT)

    def hear(self, sender: Sender, data: memoryview, offset: int, time_ns: int) -> None:
        """The next bytes of a side."""
        self._sides[sender].hear(data, offset, time_ns)

    def closed(self, sender: Sender, time_ns: int) -> None:
        """A side has finished sending."""
        self._sides[sender].finish(time_ns)

    def lost(self, sender: Sender) -> None:
        """What the heads of either side refer to is not known any more."""
        del sender
        self._streams.forget()
        for side in self._sides.values():
            side.seek()

    def end(self, time_ns: int) -> None:
        """The recording has ended."""
        for sender, side in self._sides.items():
            side.tell_skipped(time_ns)
            if side.half:
                fault = Fault(side.offset, "the recording ends amid a frame", "")
                self._teller.fault(sender, time_ns, fault, fatal=False)
