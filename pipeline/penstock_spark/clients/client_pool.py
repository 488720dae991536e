"""Ask the same question about many streams, several at a time, since each answer takes a round trip to the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final, TypeVar

from penstock_spark.clients.client import StreamClient

__all__ = ["ClientPool"]

T = TypeVar("T")

_MOST_CLIENTS: Final = 16
_STREAMS_EACH: Final = 16
"""Number of streams from which one more client is worth its connection."""


class ClientPool:
    """Clients of one server, made by `connect` on first use and kept until `close`. Each is used by one thread at a
    time."""

    def __init__(self, connect: Callable[[], StreamClient]) -> None:
        self._connect = connect
        self._clients = [connect()]

    @property
    def first(self) -> StreamClient:
        """The client for questions about a single stream."""
        return self._clients[0]

    def ask(self, question: Callable[[StreamClient, str], T], streams: Sequence[str]) -> dict[str, T]:
        """Return the answers by stream, in the order of `streams`. Raises what a question raises; no further question
        is asked then."""
        lanes = max(1, min(_MOST_CLIENTS, len(streams) // _STREAMS_EACH))
        if lanes == 1:
            return {stream: question(self.first, stream) for stream in streams}
        while len(self._clients) < lanes:
            self._clients.append(self._connect())
        over = Event()

        def run(lane: int) -> dict[str, T]:
            answers = {}
            try:
                for stream in streams[lane::lanes]:
                    if over.is_set():
                        break
                    answers[stream] = question(self._clients[lane], stream)
            except BaseException:
                over.set()
                raise
            return answers

        with ThreadPoolExecutor(lanes, "penstock-clients") as pool:
            answers = {stream: answer for some in pool.map(run, range(lanes)) for stream, answer in some.items()}
        return {stream: answers[stream] for stream in streams}

    def close(self) -> None:
        """Close all clients."""
        while self._clients:
            self._clients.pop().close()
