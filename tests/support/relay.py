"""A relay between clients and a server that keeps every byte, for comparison with a recording."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation, Opened, Sender, SocketAddress

__all__ = ["LateRelay", "Relay", "Relayed", "recorded"]

_PIECE = 65_536
_PATIENCE_SECONDS = 20.0


@dataclass(eq=False)
class Relayed:
    """One connection. `near`: the client's end of it, `far`: ours, as the server sees it."""

    near: SocketAddress
    far: SocketAddress
    said: dict[Sender, bytearray] = field(default_factory=lambda: {sender: bytearray() for sender in Sender})


class Relay:
    """Listens on a port of loopback and hands on to another one."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.connections: list[Relayed] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, peer = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            one = Relayed(SocketAddress(*peer), SocketAddress(*far.getsockname()))
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(one)
            self._start(self._relay, near, far, one)

    def _relay(self, near: socket.socket, far: socket.socket, one: Relayed) -> None:
        with near, far:
            answers = threading.Thread(target=self._hand_on, args=(far, near, one.said[Sender.SERVER]), daemon=True)
            answers.start()
            self._hand_on(near, far, one.said[Sender.CLIENT])
            answers.join()

    def _hand_on(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        """Relay until one side ends, whether the other wants it or not."""
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                kept += data
                with contextlib.suppress(OSError):
                    target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def settle(self) -> None:
        """Stop listening and wait until all connections have ended."""
        self._close()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "a connection has not ended"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class LateRelay(Relay):
    """A relay that keeps back, the first time that a client sends `marker`, what the client sends from there on, and
    hands it on after the client has gone."""

    def __init__(self, target: int, marker: bytes) -> None:
        self._marker = marker
        self._late: bytearray | None = None
        self._released = threading.Event()
        super().__init__(target)

    def wait_until_late(self) -> None:
        """Wait until something is kept back."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._late:
            assert time.monotonic() < deadline, f"no client has sent {self._marker!r}"
            time.sleep(0.01)

    def release(self) -> None:
        """Hand on what was kept back, and wait until the server has answered."""
        (answers,) = (one.said[Sender.SERVER] for one in self.connections if one.said[Sender.CLIENT] is self._late)
        before, deadline = len(answers), time.monotonic() + _PATIENCE_SECONDS
        self._released.set()
        while len(answers) == before:
            assert time.monotonic() < deadline, "the server has not answered"
            time.sleep(0.01)

    def _hand_on(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        late = b""
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                kept += data
                if self._late is None and self._marker in data:
                    self._late = kept  # from the marker on: the server has begun to receive, so it waits for the rest
                    begun, late = data[: data.index(self._marker)], data[data.index(self._marker) :]
                    target.sendall(begun)
                elif self._late is kept:
                    late += data
                else:
                    with contextlib.suppress(OSError):
                        target.sendall(data)
        if late:
            self._released.wait(_PATIENCE_SECONDS)
        with contextlib.suppress(OSError):
            target.sendall(late)
            if not late:
                target.shutdown(socket.SHUT_WR)  # otherwise the server would not answer


def recorded(events: Iterable[CaptureEvent]) -> Mapping[Conversation, dict[Sender, tuple[int, bytes]]]:
    """For each conversation what each side said, without gaps, and where that begins."""
    found: dict[Conversation, dict[Sender, tuple[int, bytes]]] = {}
    for event in events:
        if isinstance(event, Opened):
            offsets = {Sender.CLIENT: event.client_offset, Sender.SERVER: event.server_offset}
            found.setdefault(event.conversation, {sender: (offset, b"") for sender, offset in offsets.items()})
        elif isinstance(event, Chunk):
            begin, said = found[event.conversation][event.sender]
            assert event.offset == begin + len(said)
            found[event.conversation][event.sender] = begin, said + bytes(event.data)
    return found
