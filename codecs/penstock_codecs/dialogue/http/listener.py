"""What both versions of HTTP have in common for those who listen."""

from __future__ import annotations

from typing import Protocol

from penstock_codecs.capture import Sender

__all__ = ["Listener"]


class Listener(Protocol):
    """Hears both sides of one connection; what it understands goes to `Exchanges`."""

    def hear(self, sender: Sender, data: memoryview, offset: int, time_ns: int) -> None:
        """The next bytes of a side."""

    def closed(self, sender: Sender, time_ns: int) -> None:
        """A side has finished sending."""

    def lost(self, sender: Sender) -> None:
        """Bytes of a side are missing from here on: it is heard again from where a message seems to begin."""

    def end(self, time_ns: int) -> None:
        """The recording has ended."""
