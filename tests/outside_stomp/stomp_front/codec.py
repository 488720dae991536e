"""The codec: frames of STOMP 1.2, for both roles."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import NEED_DATA, PAUSED, Codec, CodecPlugin, Pull, Role

__all__ = ["HEARTBEAT", "MAX_BODY_BYTES", "PLUGIN", "Frame", "StompCodec"]

HEARTBEAT: Final = b"\n"
MAX_BODY_BYTES: Final = 1024 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 100
COMMANDS: Final = {
    Role.SERVER: frozenset(
        (
            "CONNECT",
            "STOMP",
            "SEND",
            "SUBSCRIBE",
            "UNSUBSCRIBE",
            "ACK",
            "NACK",
            "BEGIN",
            "COMMIT",
            "ABORT",
            "DISCONNECT",
        )
    ),
    Role.CLIENT: frozenset(("CONNECTED", "MESSAGE", "RECEIPT", "ERROR")),
}
"""The commands that each role receives."""
_BODIES: Final = frozenset({"SEND", "MESSAGE", "ERROR"})
_PLAIN: Final = frozenset({"CONNECT", "CONNECTED"})
"""Frames whose headers are not escaped, as in STOMP 1.0."""
_HEAD_ENDS: Final = re.compile(rb"\r?\n\r?\n")
_ESCAPES: Final = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_ESCAPED: Final = re.compile(r"[\\\r\n:]")
_UNESCAPED: Final = {escape: text for text, escape in _ESCAPES.items()}
_ESCAPE: Final = re.compile(r"\\.?")


class Frame(NamedTuple):
    """One frame. `headers`: in their order; of two with one name, the first one counts."""

    command: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None."""
        return next((value for key, value in self.headers if key == name), None)


class StompCodec(Codec[Frame, Frame]):
    """One conversation; see `penstock.wire.codec.Codec`. Heartbeats are no events."""

    def __init__(self, role: Role) -> None:
        self._received = COMMANDS[role]
        self._sent = COMMANDS[Role.SERVER if role is Role.CLIENT else Role.CLIENT]
        self._data = bytearray()
        self._searched = 0  # bytes without the end that is searched for
        self._head: tuple[str, tuple[tuple[str, str], ...], int | None] | None = None
        self._finished = False
        self._failure: Failure | None = None

    @property
    def buffered(self) -> int:
        return len(self._data)

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        self._finished = self._finished or not data
        if self._failure is None:
            self._data += data

    def next_event(self) -> Frame | Pull:
        if self._failure is not None:
            raise RemoteProtocolError(self._failure)
        if self._head is None and not self._read_head():
            return self._pull()
        assert self._head is not None
        command, headers, length = self._head
        end = self._data.find(0, self._searched) if length is None else length
        if end > MAX_BODY_BYTES or (end < 0 and len(self._data) > MAX_BODY_BYTES):
            raise self._fail(FailureCode.LIMIT_EXCEEDED, f"a body has more than {MAX_BODY_BYTES} bytes")
        if end < 0 or len(self._data) <= end:
            self._searched = len(self._data)
            return self._pull()
        if self._data[end]:
            raise self._fail(FailureCode.INVALID, f"no NUL after the {end} bytes of a body")
        body = bytes(self._data[:end])
        if body and command not in _BODIES:
            raise self._fail(FailureCode.INVALID, f"{command} has a body")
        del self._data[: end + 1]
        self._head, self._searched = None, 0
        return Frame(command, headers, body)

    def _pull(self) -> Pull:
        if not self._finished:
            return NEED_DATA
        if self._data or self._head is not None:
            raise self._fail(FailureCode.CLIENT_HANGUP, "the end is within a frame")
        return PAUSED

    def _read_head(self) -> bool:
        """Parse command and headers; return False if they are not complete."""
        begins = len(self._data) - len(self._data.lstrip(b"\r\n"))
        if begins:
            del self._data[:begins]
            self._searched = 0
        match = _HEAD_ENDS.search(self._data, max(0, self._searched - 3))
        if match is None and len(self._data) <= MAX_HEAD_BYTES:
            self._searched = len(self._data)
            return False
        if match is None or match.start() > MAX_HEAD_BYTES:
            raise self._fail(FailureCode.LIMIT_EXCEEDED, f"command and headers have more than {MAX_HEAD_BYTES} bytes")
        try:
            lines = [line.removesuffix("\r") for line in self._data[: match.start()].decode().split("\n")]
        except UnicodeDecodeError:
            raise self._fail(FailureCode.INVALID, "command and headers are no UTF-8") from None
        del self._data[: match.end()]
        self._searched = 0
        command = lines[0]
        if command not in self._received:
            raise self._fail(FailureCode.INVALID, f"{command[:32]!r} is no command")
        if len(lines) > MAX_HEADERS:
            raise self._fail(FailureCode.LIMIT_EXCEEDED, f"a frame has more than {MAX_HEADERS} headers")
        headers = tuple(self._header(line, command) for line in lines[1:])
        length = next((value for name, value in headers if name == "content-length"), None)
        if length is not None and not (length.isascii() and length.isdigit() and len(length) < 16):
            raise self._fail(FailureCode.INVALID, f"content-length {length[:32]!r} is no number")
        self._head = command, headers, None if length is None else int(length)
        return True

    def _header(self, line: str, command: str) -> tuple[str, str]:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise self._fail(FailureCode.INVALID, f"{line[:32]!r} is no header")
        if command in _PLAIN:
            return name, value
        for text in (name, value):
            if any(escape not in _UNESCAPED for escape in _ESCAPE.findall(text)):
                raise self._fail(FailureCode.INVALID, f"{line[:32]!r} has an escape that there is not")
        return _unescape(name), _unescape(value)

    def _fail(self, code: FailureCode, message: str) -> RemoteProtocolError:
        self._failure = Failure(code, message)
        self._data.clear()
        return RemoteProtocolError(self._failure)

    def send(self, event: Frame) -> list[bytes]:
        """Return the bytes of a frame, with the length of its body. Raises LocalProtocolError for one of the other
        side."""
        if event.command not in self._sent or (event.body and event.command not in _BODIES):
            raise LocalProtocolError(f"{event.command} is not sent by this side, or has a body")
        headers = event.headers
        if event.command in _BODIES:
            headers = (
                *(header for header in headers if header[0] != "content-length"),
                ("content-length", str(len(event.body))),
            )
        escape = str if event.command in _PLAIN else _escape
        head = "".join(f"{escape(name)}:{escape(value)}\n" for name, value in headers)
        return [f"{event.command}\n{head}\n".encode(), event.body, b"\0"]


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _UNESCAPED[match[0]], text)


def _sample(role: Role, _dialect: str) -> bytes:
    frames = {
        Role.SERVER: (
            Frame("STOMP", (("accept-version", "1.2"), ("host", "penstock"))),
            Frame("SUBSCRIBE", (("id", "0"), ("destination", "/orders"), ("ack", "client"))),
            Frame("SEND", (("destination", "/orders"), ("a:b", "one\ntwo")), b"with a \0 in it"),
        ),
        Role.CLIENT: (
            Frame("CONNECTED", (("version", "1.2"),)),
            Frame("MESSAGE", (("subscription", "0"), ("message-id", "7"), ("destination", "/orders")), b"body"),
            Frame("ERROR", (("message", "no such stream"),)),
        ),
    }
    sender = StompCodec(Role.CLIENT if role is Role.SERVER else Role.SERVER)
    return b"\n".join(b"".join(sender.send(frame)) for frame in frames[role])


PLUGIN: Final = CodecPlugin(
    "stomp", lambda role, _dialect: StompCodec(role), ("1.2",), _sample, limit=MAX_BODY_BYTES + MAX_HEAD_BYTES + 65_536
)
