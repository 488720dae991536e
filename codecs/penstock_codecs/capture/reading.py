"""From the bytes of a capture file to capture events, in bounded memory, whatever the size of the file.

Reads what `writing` wrote and what tcpdump, dumpcap and Wireshark write: any byte order, several sections, IPv4 and IPv6
over raw IP, Ethernet, Linux cooked and loopback links; segments out of order or sent twice are put in order as far as
`window` bytes for each side go, and what stays missing is `Lost`. A file that ends in the middle of a block, as one does
whose writer was killed, gives all that is whole, and `damage` says what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock_codecs.capture.events import CaptureEvent
from penstock_codecs.limits import MIB

__all__ = ["WINDOW_BYTES", "CaptureReader"]

WINDOW_BYTES: Final = 1 * MIB
"""How much of one side is held while bytes before it are missing."""


class CaptureReader:
    """One file: bytes in, events out. Never raises for what a file holds; see `damage`."""

    def __init__(self, window: int = WINDOW_BYTES) -> None:
        self.damage: str | None = None
        """What is wrong with the file, and the byte where; None: nothing so far. Nothing comes after it."""
        raise NotImplementedError

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes of the file in order; b"" says that it has ended."""
        raise NotImplementedError

    def events(self) -> Iterator[CaptureEvent]:
        """What can be said of the bytes received so far; to be exhausted before more is received."""
        raise NotImplementedError
