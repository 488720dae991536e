"""The connections that are open now, of listeners and of backs, each with its tap."""

from __future__ import annotations

from collections.abc import Iterator

import trio

from penstock.recorder.tap import Tap
from penstock_codecs.capture import Side

__all__ = ["Connections"]


class Connections:
    """All of one process. `run`: what tells its captures from those of other processes."""

    run: str

    def accepted(self, stream: trio.abc.Stream, number: int, name: str, protocol: str) -> trio.abc.Stream:
        """A client's connection, above TLS, from now on with a tap: the stream to be used instead. `number`: the log's;
        `name`: of the listener."""

    def dialled(self, stream: trio.abc.Stream, name: str, protocol: str) -> trio.abc.Stream:
        """The same for a connection with a server; `name`: of the back."""

    def __iter__(self) -> Iterator[Tap]:
        """Those that are open, in the order of their numbers."""
