"""One S3P connection, sans-IO: `S3PServer` hears commands and says replies, `S3PClient` the reverse.

What is legal when (S3P 0.2.0):

| state | may be heard | may be said | section |
|---|---|---|---|
| open | command / reply | the reply to the oldest unanswered command, or an error / any command | 4, 13 |
| broken by the peer | nothing | server: what is still unanswered, then one unrecoverable error | 9, 13 |
| after an unrecoverable error | nothing (PAUSED) | nothing | 9 |
| peer finished between messages | nothing (PAUSED) | what is still unanswered | 13 |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Final, Generic, NoReturn, TypeVar

from penstock_codecs.codec import NEED_DATA, PAUSED, Pull
from penstock_codecs.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock_codecs.limits import MIB, S3PLimits
from penstock_codecs.s3p.commands import parse_commands
from penstock_codecs.s3p.encoding import encode_command, encode_reply
from penstock_codecs.s3p.errors import Fault
from penstock_codecs.s3p.events import Command, ErrorReply, Reply, reply_type
from penstock_codecs.s3p.replies import parse_replies
from penstock_codecs.s3p.source import Source

__all__ = ["MAX_REPLY_BYTES", "S3PClient", "S3PServer"]

Received = TypeVar("Received")

DEFAULT_LIMITS: Final = S3PLimits()
MAX_REPLY_BYTES: Final = 64 * MIB
"""Default of the most bytes that a client holds of one READ reply; servers are free to send less than COUNT."""


class _Conversation(Generic[Received]):
    """What both roles have in common: bytes in, messages out, and how it ends."""

    _message: str  # what the peer sends,
    _gone: FailureCode  # and what it means that it went away in the middle of one

    def __init__(self, source: Source, parser: Generator[Received | Pull, None, NoReturn]) -> None:
        self._source = source
        self._parser = parser
        self._number = 1  # of the message under way, from 1
        self._starved = True
        self._finished = False
        self._failure: Failure | None = None

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer; b"" says that the peer has finished sending."""
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
            except Fault as fault:
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
        """Bytes held: received and not yet delivered as a whole message."""
        return 0 if self._finished or self._failure is not None else self._source.held


class S3PServer(_Conversation[Command]):
    """The server's end: commands in, replies out, in the order of the commands.

    A pipelining peer's commands are pulled one at a time; whether the next is pulled before the last was answered is
    the caller's choice. After RemoteProtocolError the caller answers what it still owes, and then says the error
    itself (`error_reply(failure)`), unless the peer just went away (CLIENT_HANGUP).
    """

    _message = "command"
    _gone = FailureCode.CLIENT_HANGUP

    def __init__(self, limits: S3PLimits = DEFAULT_LIMITS) -> None:
        source = Source()
        super().__init__(source, parse_commands(source, limits))
        self._unanswered: deque[Command] = deque()

    def next_event(self) -> Command | Pull:
        """The next command, or NEED_DATA, or PAUSED once the peer has finished. Raises RemoteProtocolError."""
        event = self._next()
        if not isinstance(event, Pull):
            self._unanswered.append(event)
        return event

    def refuse(self, message: str) -> RemoteProtocolError:
        """Read no further, because the client asks too much (ERR_LIMITS): what `next_event` raises from now on."""
        return self._broken(FailureCode.LIMIT_EXCEEDED, message)

    def send(self, event: Reply) -> list[bytes]:
        """The bytes of a reply to the oldest unanswered command. Raises LocalProtocolError where it does not fit."""
        if self._finished:
            raise LocalProtocolError("nothing can be said after an unrecoverable error")
        if self._unanswered:
            command = self._unanswered[0]
            if not isinstance(event, (ErrorReply, reply_type(command))):
                raise LocalProtocolError(f"{type(event).__name__} does not answer {type(command).__name__}")
        elif self._failure is None or not (isinstance(event, ErrorReply) and event.fatal):
            raise LocalProtocolError(f"{type(event).__name__} answers no command")
        data = encode_reply(event)
        if self._unanswered:
            self._unanswered.popleft()
        if isinstance(event, ErrorReply) and event.fatal:
            self._unanswered.clear()
            self._finish()
        return [data]


class S3PClient(_Conversation[Reply]):
    """The client's end: commands out, replies in, matched in order.

    `observer`: replies are taken without a command having been sent, as when reading a capture from its middle.
    """

    _message = "reply"
    _gone = FailureCode.UNAVAILABLE

    def __init__(
        self,
        limits: S3PLimits = DEFAULT_LIMITS,
        *,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        observer: bool = False,
    ) -> None:
        source = Source()
        super().__init__(source, parse_replies(source, limits, max_reply_bytes))
        self._expected: deque[type] | None = None if observer else deque()

    def next_event(self) -> Reply | Pull:
        """The next reply, or NEED_DATA, or PAUSED once the server has finished. Raises RemoteProtocolError."""
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
        """The bytes of a command. Raises LocalProtocolError for what S3P cannot say, and when it is over."""
        if self._finished or self._failure is not None:
            raise LocalProtocolError("the conversation is over")
        pieces = encode_command(event)
        if self._expected is not None:
            self._expected.append(reply_type(event))
        return pieces
