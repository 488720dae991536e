"""One S3P connection, sans-IO: `S3PServer` receives commands and sends replies, `S3PClient` the reverse.

Legal messages in each state (S3P 0.2.0):

| state | may receive | may send | section |
|---|---|---|---|
| open | command / reply | the reply to the oldest unanswered command, or an error / any command | 4, 13 |
| broken by the peer | nothing | server: replies still owed, then one unrecoverable error | 9, 13 |
| after an unrecoverable error | nothing (PAUSED) | nothing | 9 |
| peer finished between messages | nothing (PAUSED) | replies still owed | 13 |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Final, Generic, NoReturn, TypeVar

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.model.limits import MIB
from penstock.wire.codec import NEED_DATA, PAUSED, Pull
from penstock_s3p.codec.commands import parse_commands
from penstock_s3p.codec.encoding import encode_command, encode_reply
from penstock_s3p.codec.errors import S3PFault
from penstock_s3p.codec.events import Command, ErrorReply, Reply, reply_type
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.codec.replies import parse_replies
from penstock_s3p.codec.source import InputBuffer

__all__ = ["MAX_REPLY_BYTES", "S3PClient", "S3PServer"]

Received = TypeVar("Received")

DEFAULT_LIMITS: Final = S3PLimits()
MAX_REPLY_BYTES: Final = 64 * MIB
"""Default of the most bytes that a client holds of one READ reply; servers may send less than COUNT."""


class _Conversation(Generic[Received]):
    """Shared base of both roles: bytes in, messages out, and the end of the conversation."""

    __slots__ = ("_failure", "_finished", "_number", "_parser", "_source", "_starved")

    _message: str  # name of the peer's messages
    _gone: FailureCode  # failure if the peer goes away within one

    def __init__(self, source: InputBuffer, parser: Generator[Received | Pull, None, NoReturn]) -> None:
        self._source = source
        self._parser = parser
        self._number = 1  # number of the current message, from 1
        self._starved = True
        self._finished = False
        self._failure: Failure | None = None

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer; b"" means that the peer has finished sending."""
        if self._failure is None and not self._finished:
            self._source.receive(data)

    def _next(self) -> Received | Pull:
        if self._failure is not None:
            raise RemoteProtocolError(self._failure)
        while not self._finished:
            if self._starved and not self._source.refill():
                return self._at_end() if self._source.ended else NEED_DATA
            try:
                event = next(self._parser)
            except S3PFault as fault:
                raise self._broken(fault.code, f"{fault.message} ({self._where()}, byte {fault.at})") from None
            if not isinstance(event, Pull):
                self._starved = False
                self._number += 1
                return event
            self._starved = True
        return PAUSED

    def _at_end(self) -> Pull:
        if self._source.held:
            raise self._broken(self._gone, f"the connection ended after {self._source.held} bytes of {self._where()}")
        return PAUSED

    def _where(self) -> str:
        return f"{self._message} {self._number}"

    def _broken(self, code: FailureCode, message: str) -> RemoteProtocolError:
        self._failure = Failure(code, message)
        self._source.drop()
        return RemoteProtocolError(self._failure)

    def _finish(self) -> None:
        self._finished = True
        self._source.drop()

    @property
    def buffered(self) -> int:
        """Bytes received and not yet delivered as a whole message."""
        return 0 if self._finished or self._failure is not None else self._source.held


class S3PServer(_Conversation[Command]):
    """The server's end: commands in, replies out, in the order of the commands.

    A pipelining peer's commands are pulled one at a time; the caller chooses whether to pull the next one before the
    last was answered. After RemoteProtocolError the caller sends the replies that it still owes, and then the error
    itself (`error_reply(failure)`), unless the peer just went away (CLIENT_HANGUP).
    """

    __slots__ = ("_unanswered",)

    _message = "command"
    _gone = FailureCode.CLIENT_HANGUP

    def __init__(self, limits: S3PLimits = DEFAULT_LIMITS) -> None:
        source = InputBuffer()
        super().__init__(source, parse_commands(source, limits))
        self._unanswered: list[Command] = []  # an empty deque takes 600 bytes

    def next_event(self) -> Command | Pull:
        """Return the next command, NEED_DATA, or PAUSED once the peer has finished. Raises RemoteProtocolError."""
        event = self._next()
        if not isinstance(event, Pull):
            self._unanswered.append(event)
        return event

    def refuse(self, message: str) -> RemoteProtocolError:
        """Stop reading because the client exceeds a limit (ERR_LIMITS); return the error that `next_event` raises from
        now on."""
        return self._broken(FailureCode.LIMIT_EXCEEDED, message)

    def send(self, event: Reply) -> list[bytes]:
        """Return the bytes of the reply to the oldest unanswered command. Raises LocalProtocolError if it does not
        fit."""
        if self._finished:
            raise LocalProtocolError("no reply can follow an unrecoverable error")
        if self._unanswered:
            command = self._unanswered[0]
            if not isinstance(event, (ErrorReply, reply_type(command))):
                raise LocalProtocolError(f"{type(event).__name__} does not answer {type(command).__name__}")
        elif self._failure is None or not (isinstance(event, ErrorReply) and event.fatal):
            raise LocalProtocolError(f"{type(event).__name__} answers no command")
        data = encode_reply(event)
        if self._unanswered:
            del self._unanswered[0]
        if isinstance(event, ErrorReply) and event.fatal:
            self._unanswered.clear()
            self._finish()
        return [data]


class S3PClient(_Conversation[Reply]):
    """The client's end: commands out, replies in, matched in order.

    `observer`: replies are accepted without a command having been sent, as when reading a capture from its middle.
    """

    __slots__ = ("_expected",)

    _message = "reply"
    _gone = FailureCode.UNAVAILABLE

    def __init__(
        self,
        limits: S3PLimits = DEFAULT_LIMITS,
        *,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        observer: bool = False,
    ) -> None:
        source = InputBuffer()
        super().__init__(source, parse_replies(source, limits, max_reply_bytes))
        self._expected: deque[type] | None = None if observer else deque()

    def next_event(self) -> Reply | Pull:
        """Return the next reply, NEED_DATA, or PAUSED once the server has finished. Raises RemoteProtocolError."""
        event = self._next()
        if isinstance(event, Pull):
            if event is PAUSED and self._expected and not self._finished:
                raise self._broken(self._gone, f"the connection ended with {len(self._expected)} replies outstanding")
            return event
        if self._expected is not None:
            wanted = self._expected.popleft() if self._expected else None
            if wanted is None or not isinstance(event, (ErrorReply, wanted)):
                name = "nothing" if wanted is None else wanted.__name__
                self._number -= 1
                raise self._broken(
                    FailureCode.BAD_FORMAT, f"{type(event).__name__} came where {name} was expected ({self._where()})"
                )
        if isinstance(event, ErrorReply) and event.fatal:
            self._finish()
        return event

    def send(self, event: Command) -> list[bytes]:
        """Return the bytes of a command. Raises LocalProtocolError for what S3P cannot express, and once the
        conversation is over."""
        if self._finished or self._failure is not None:
            raise LocalProtocolError("the conversation has ended")
        pieces = encode_command(event)
        if self._expected is not None:
            self._expected.append(reply_type(event))
        return pieces
