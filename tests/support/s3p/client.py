"""An S3P client by hand (S3P 0.2.0, sections 3 and 7), with a reader of replies of its own."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

Address = tuple[str, int]


class S3PError(NamedTuple):
    """An error reply: `-CODE message`."""

    code: str
    message: str


def encode(command: object) -> bytes:
    """Bytes and text become bulk strings, lists and tuples arrays, ints their decimal digits as bulk strings."""
    match command:
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(command), command)
        case str() | int():
            return encode(str(command).encode())
        case list() | tuple():
            return b"*%d\r\n" % len(command) + b"".join(map(encode, command))
    raise TypeError(command)


def options(**values: object) -> list[object]:
    """Return an options array: COUNT=1 becomes [COUNT, 1]."""
    return [part for name, value in values.items() for part in (name, value)]


class S3PClient:
    """One connection."""

    def __init__(self, address: Address, timeout: float = 20) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def send(self, *command: object) -> None:
        """Write a command without waiting for its reply."""
        self.socket.sendall(encode(command))

    def reply(self) -> Any:
        """Return the next reply: `str` for a simple string, `bytes`, `list`, or an `S3PError`."""
        line = self._file.readline()
        if not line:
            raise EOFError("connection closed")
        assert line.endswith(b"\r\n"), line
        kind, text = line[:1], line[1:-2]
        match kind:
            case b"+":
                return text.decode("ascii")
            case b"-":
                code, _, message = text.decode("ascii").partition(" ")
                return S3PError(code, message)
            case b"$":
                body = self._file.read(int(text) + 2)
                if len(body) != int(text) + 2:
                    raise EOFError("connection closed inside a reply")
                assert body.endswith(b"\r\n"), body[-10:]
                return body[:-2]
            case b"*":
                return [self.reply() for _ in range(int(text))]
        raise AssertionError(line)

    def call(self, *command: object) -> Any:
        """Write a command and read its reply."""
        self.send(*command)
        return self.reply()

    def create(self, stream: str | bytes) -> Any:
        return self.call("CREATE", stream, [])

    def append(self, stream: str | bytes, *bodies: bytes, **more: object) -> Any:
        """Return the reply to APPEND: the last record's id as bytes, or an error."""
        return self.call("APPEND", stream, options(**more), list(bodies))

    def read(self, stream: str | bytes, **more: object) -> Any:
        """Return the records as [(id, body), ...], or an error."""
        reply = self.call("READ", stream, options(**more))
        return reply if isinstance(reply, S3PError) else list(zip(reply[::2], reply[1::2], strict=True))

    def read_all(self, stream: str | bytes) -> list[tuple[bytes, bytes]]:
        """Return all records, page by page."""
        found: list[tuple[bytes, bytes]] = []
        while page := self.read(stream, MIN_ID=following(found[-1][0]) if found else b"0-0"):
            assert not isinstance(page, S3PError), page
            found += page
        return found

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> S3PClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse_id(text: bytes) -> tuple[int, int]:
    """`ms-seq` as numbers."""
    ms, seq = text.split(b"-")
    return int(ms), int(seq)


def following(text: bytes) -> bytes:
    """Return the next possible id of the same ms."""
    ms, seq = parse_id(text)
    return b"%d-%d" % (ms, seq + 1)
