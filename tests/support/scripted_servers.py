"""Servers of segments that answer as a script says, each on a port of loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.wire.codec import Pull
from penstock_pravega.codec import SegmentServer, released

__all__ = ["Answer", "Fixed", "ScriptedServer", "segment_store"]

Answer = Callable[[Any], Any]
"""Returns the answer to a request: a reply, a list of them, raw bytes, or None to close the connection."""


class Talk(Protocol):
    """One connection: bytes in, bytes out; None ends it."""

    def hear(self, data: bytes) -> bytes | None: ...


class Fixed:
    """A server that answers any input with the same bytes; with `closes` the connection then ends."""

    def __init__(self, says: bytes, closes: bool = False) -> None:
        self.says = says
        self.closes = closes

    def hear(self, _data: bytes) -> bytes:
        return self.says


class ScriptedServer:
    """A thread for each connection, which `talk` makes a conversation for."""

    def __init__(self, talk: Callable[[], Talk]) -> None:
        self._talk = talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        talk = self._talk()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                answer = talk.hear(data)
                if answer is None:
                    return
                connection.sendall(answer)
                if isinstance(talk, Fixed) and talk.closes:
                    return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class _Codec:
    """With a codec's server role; `greeting` answers what is no request of the script's."""

    def __init__(self, codec: Any, answer: Answer, greeting: Answer) -> None:
        self._codec = codec
        self._answer = answer
        self._greeting = greeting

    def hear(self, data: bytes) -> bytes | None:
        self._codec.receive(data)
        said = b""
        while not isinstance(request := self._codec.next_event(), Pull):
            answer = self._greeting(request) or self._answer(request)
            if answer is None:
                return None
            if isinstance(answer, bytes):
                said += answer
            else:
                replies = answer if isinstance(answer, list) else [answer]
                said += b"".join(piece for reply in replies for piece in self._codec.send(reply))
        return said


def segment_store(answer: Answer) -> ScriptedServer:
    """Requests of the released protocol in, replies out. Hello is said by itself."""

    def greeting(request: Any) -> Any:
        return released.Hello(16, 5) if isinstance(request, released.Hello) else None

    return ScriptedServer(lambda: _Codec(SegmentServer(), answer, greeting))
