"""Servers that fail on purpose: a relay that cuts, and one that says whatever it is told to say."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

__all__ = ["CuttingRelay", "Scripted"]

_PIECE = 65_536
_RESET = struct.pack("ii", 1, 0)


class _Listening:
    """A thread for each connection to a port of loopback."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        """Number of connections so far."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            number, self.accepted = self.accepted, self.accepted + 1
            threading.Thread(target=self._serve_quietly, args=(near, number), daemon=True).start()

    def _serve_quietly(self, near: socket.socket, number: int) -> None:
        with near, contextlib.suppress(OSError):
            self._serve(near, number)

    def _serve(self, near: socket.socket, number: int) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class CuttingRelay(_Listening):
    """Hands on to another port of loopback. Connection number i is cut, by a reset, when the server has said `cuts[i]`
    bytes on it (None: never), or with `client_says` the client; the ones after those are left alone."""

    def __init__(self, target: int, cuts: Sequence[int | None], *, client_says: bool = False) -> None:
        self._target = target
        self._cuts = cuts
        self._client_says = client_says
        super().__init__()

    def _serve(self, near: socket.socket, number: int) -> None:
        cut = self._cuts[number] if number < len(self._cuts) else None
        far = socket.create_connection(("127.0.0.1", self._target))
        with far:
            client_cut, server_cut = (cut, None) if self._client_says else (None, cut)
            up = threading.Thread(target=self._hand_on, args=(near, far, client_cut), daemon=True)
            up.start()
            self._hand_on(far, near, server_cut)
            up.join()

    def _hand_on(self, source: socket.socket, target: socket.socket, cut: int | None) -> None:
        left = cut
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                if left is not None and len(data) >= left:
                    target.sendall(data[:left])
                    for sock in (source, target):
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                        sock.shutdown(socket.SHUT_RDWR)
                    return
                left = None if left is None else left - len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class Scripted(_Listening):
    """An HTTP server that answers every request with the next of `answers`, unchanged.

    It closes the connection after answers that end with `closing`, and when there are no more. `heads`: the requests'
    heads.
    """

    def __init__(self, answers: Iterable[bytes], closing: bytes = b"!close") -> None:
        self._answers = iter(answers)
        self._closing = closing
        self.heads: list[bytes] = []
        super().__init__()

    def _serve(self, near: socket.socket, number: int) -> None:
        while True:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = near.recv(1)
                if not byte:
                    return
                head += byte
            self.heads.append(head)
            answer = next(self._answers, None)
            if answer is None:
                return
            near.sendall(answer.removesuffix(self._closing))
            if answer.endswith(self._closing):
                return
