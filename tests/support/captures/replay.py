"""Recorded conversations for tests of replays and mocks, and a server of S3P that does what a test says."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import trio
import trio.testing

from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Opened, Sender, Side, SocketAddress
from penstock.model.failures import RemoteProtocolError
from penstock.model.records import RecordId
from penstock.net.upstream import Dial
from penstock.tools.replay.replaying import Replay, ReplaySettings
from penstock.tools.replay.report import ReplaySummary
from penstock.tools.target.url import parse_target
from penstock.wire.codec import Pull
from penstock_s3p.codec import (
    AppendedId,
    AppendRecords,
    Command,
    Create,
    ErrorReply,
    Ok,
    ReadRecords,
    Records,
    Reply,
    S3PServer,
    encode_command,
    encode_reply,
)

__all__ = [
    "ACK",
    "FAST",
    "SECOND",
    "Recording",
    "S3PDouble",
    "append",
    "create",
    "played",
    "read",
    "records",
    "talk",
    "two_clients",
]

SECOND = 1_000_000_000
ACK = AppendedId(RecordId(1, 0))
FAST = ReplaySettings(speed=math.inf)
START_NS = 1_700_000_000 * SECOND


def create(name: str = "orders") -> Create:
    return Create(name.encode())


def append(*bodies: bytes, name: str = "orders") -> AppendRecords:
    return AppendRecords(name.encode(), list(bodies))


def read(name: str = "orders", **more: object) -> ReadRecords:
    return ReadRecords(name.encode(), **{"count": 1000, **more})  # type: ignore[arg-type]


class Recording:
    """Events of conversations with an S3P server, as a recorder would have told them; `now`: seconds from the start."""

    def __init__(self) -> None:
        self.events: list[CaptureEvent] = []
        self.now = 0.0
        self._offsets: dict[tuple[int, Sender], int] = {}
        self._conversations: dict[int, Conversation] = {}

    def of(self, number: int = 1, side: Side = Side.FRONT, protocol: str = "s3p") -> Conversation:
        """Return the conversation of this number, which begins when it is named first."""
        if number not in self._conversations:
            made = Conversation(
                number,
                SocketAddress("127.0.0.1", 40_000 + number),
                SocketAddress("127.0.0.1", 7500),
                side,
                "x",
                protocol,
            )
            self._conversations[number] = made
            self.events.append(Opened(made, self._time_ns))
        return self._conversations[number]

    @property
    def _time_ns(self) -> int:
        return START_NS + int(self.now * SECOND)

    def said(self, sender: Sender, data: bytes, number: int = 1) -> None:
        """Bytes of one side."""
        conversation = self.of(number)
        offset = self._offsets.get((number, sender), 0)
        self.events.append(Chunk(conversation, self._time_ns, sender, offset, data))
        self._offsets[number, sender] = offset + len(data)

    def asked(self, *commands: Command, number: int = 1) -> None:
        """Commands, in one chunk."""
        self.said(Sender.CLIENT, b"".join(b"".join(encode_command(command)) for command in commands), number)

    def answered(self, *replies: Reply, number: int = 1) -> None:
        """Replies, in one chunk."""
        self.said(Sender.SERVER, b"".join(map(encode_reply, replies)), number)

    def closed(self, number: int = 1, *, reset: bool = False) -> None:
        """The client leaves, and then the server."""
        self.events.append(Closed(self.of(number), self._time_ns, Sender.CLIENT, reset))
        if not reset:
            self.events.append(Closed(self.of(number), self._time_ns, Sender.SERVER))


def talk(seconds: float = 1.0) -> Recording:
    """Return a recording of a client that sends four commands `seconds` apart, each after the previous reply."""
    recording = Recording()
    for number, (command, reply) in enumerate(
        [(create(), Ok()), (append(b"a"), ACK), (append(b"b", b"c"), ACK), (read(), records(3))]
    ):
        recording.now = number * seconds
        recording.asked(command)
        recording.answered(reply)
    recording.closed()
    return recording


def records(count: int) -> Records:
    return Records.of((RecordId(1, place), b"x") for place in range(count))


def two_clients() -> Recording:
    """Return a recording of two clients: one creates, and once that is answered the other appends."""
    recording = Recording()
    recording.of(1)
    recording.of(2)
    recording.asked(create(), number=1)
    recording.answered(Ok(), number=1)
    recording.asked(append(b"a"), number=2)
    recording.answered(ACK, number=2)
    recording.asked(append(b"b"), number=1)
    recording.answered(ACK, number=1)
    recording.closed(1)
    recording.closed(2)
    return recording


class S3PDouble:
    """A server in memory that takes what it is sent, says when it was, and answers as a test wants."""

    def __init__(self, dial: Dial | None = None) -> None:
        """`dial`: takes the place of its own."""
        self._other = dial
        self.heard: list[tuple[float, Command]] = []
        """Commands received, each with its time in seconds from the first connection."""
        self.connections = 0
        self.delay = 0.0
        """Before every answer, in seconds."""
        self.delays: dict[bytes, float] = {}
        """Before the acknowledgement of a record, in seconds."""
        self.answer: Callable[[Command], Reply | None] = self.usual
        self.records: list[bytes] = []
        self._began: float | None = None

    def usual(self, command: Command) -> Reply | None:
        """Return the reply of a server that has one stream; None for no reply."""
        match command:
            case AppendRecords(bodies=bodies):
                self.records += bodies
                return AppendedId(RecordId(1000, len(self.records) - 1))
            case ReadRecords():
                return Records.of((RecordId(1000, place), body) for place, body in enumerate(self.records))
            case _:
                return Ok()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Dial]:
        """Gives what dials it."""
        async with trio.open_nursery() as nursery:

            async def dial(_host: str, _port: int) -> trio.abc.Stream:
                self.connections += 1
                if self._began is None:
                    self._began = trio.current_time()
                client, server = trio.testing.memory_stream_pair()
                nursery.start_soon(self._serve, server)
                await trio.lowlevel.checkpoint()
                return client

            yield self._other or dial
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.StapledStream[object, object]) -> None:
        codec = S3PServer()
        async with stream:
            while data := await stream.receive_some(65536):
                codec.receive(data)
                try:
                    while not isinstance(command := codec.next_event(), Pull):
                        assert self._began is not None
                        self.heard.append((round(trio.current_time() - self._began, 3), command))
                        bodies = command.bodies if isinstance(command, AppendRecords) else ()
                        await trio.sleep(self.delay + sum(self.delays.get(body, 0.0) for body in bodies))
                        reply = self.answer(command)
                        if reply is not None:
                            await stream.send_all(b"".join(codec.send(reply)))
                except RemoteProtocolError as error:
                    await stream.send_all(b"".join(codec.send(ErrorReply("ERR_BAD_FORMAT", str(error)))))
                    return

    @property
    def commands(self) -> list[Command]:
        """Commands received so far."""
        return [command for _, command in self.heard]

    @property
    def times(self) -> list[float]:
        """Times at which the commands were received."""
        return [time for time, _ in self.heard]


async def played(
    events: Iterable[CaptureEvent], server: S3PDouble, settings: ReplaySettings | None = None
) -> ReplaySummary:
    """Replay these events to a server and return the summary."""
    kept: Sequence[CaptureEvent] = list(events)

    async def again() -> AsyncGenerator[CaptureEvent, None]:
        for event in kept:
            await trio.lowlevel.checkpoint()
            yield event

    async with server.listening() as dial:
        replay = Replay(parse_target("s3p://127.0.0.1:7500"), again, settings, dial)
        return await replay.run()
