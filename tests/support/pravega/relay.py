"""A relay between clients and a gateway, which records, can swallow replies, and outlives the gateway.

Pravega's clients wait up to 10 s before they retry a connection that was refused several times. The relay never refuses
one: while there is no listener at the target, connections wait.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self

__all__ = ["NO_TARGET", "Relay"]

PIECE = 1 << 16
RETRY_SECONDS = 0.005
NO_TARGET = 0
"""A target that never listens."""


class Relay:
    """A relay that listens at `port` from the start and connects clients to `target`; use it as a context manager."""

    def __init__(self, target: int = NO_TARGET) -> None:
        self.target = target
        self.said: list[bytearray] = []
        """Bytes from clients, by connection, in the order in which they connected."""
        self.answered: list[bytearray] = []
        """Bytes to clients, by connection."""
        self.swallows = False
        """Set to lose replies."""
        self.flows = threading.Event()
        """While it is cleared, nothing more is taken from clients: a server that is slow without end."""
        self.flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._closed = False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._open.add(client)
                said, answered = bytearray(), bytearray()
                self.said.append(said)
                self.answered.append(answered)
                threading.Thread(target=self._serve, args=(client, said, answered), daemon=True).start()

    def _serve(self, client: socket.socket, said: bytearray, answered: bytearray) -> None:
        """One connection, until either end closes it."""
        with client, contextlib.suppress(OSError), self._connected() as server:
            self._open.add(server)
            threading.Thread(target=self._answer, args=(server, client, answered), daemon=True).start()
            while data := client.recv(PIECE):
                self.flows.wait()
                said += data
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)
        self._open.discard(client)

    def _answer(self, server: socket.socket, client: socket.socket, answered: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(PIECE):
                answered += data
                if not self.swallows:
                    client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        self._open.discard(server)

    def _connected(self) -> socket.socket:
        """Connect to the target as soon as it listens."""
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.target))
            except ConnectionRefusedError:
                if self._closed:
                    raise
                time.sleep(RETRY_SECONDS)

    def cut(self) -> None:
        """Close all current connections, both ends at once; later connections are relayed again."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        self.flows.set()
        self._listener.close()
        self.cut()
