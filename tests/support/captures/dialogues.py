"""Conversations for tests of dialogues: the bytes of both sides, as the events of a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import trio

from penstock.capture.dialogue import Dialogue, Message, Problem, SeenRecord
from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Opened, Sender, Side, SocketAddress

__all__ = [
    "CLIENT",
    "SERVER",
    "RecordedStream",
    "Said",
    "conversation",
    "cut_up",
    "events",
    "hear",
    "messages",
    "parts",
]

CLIENT = Sender.CLIENT
SERVER = Sender.SERVER
STEP_NS = 1000
"""Between two chunks."""
Said = Sequence[tuple[Sender, bytes]]


def conversation(protocol: str, side: Side = Side.FRONT) -> Conversation:
    return Conversation(
        1, SocketAddress("127.0.0.1", 50000), SocketAddress("127.0.0.1", 7500), side, "listeners.x", protocol
    )


def events(
    of: Conversation, said: Said, *, offsets: tuple[int, int] = (0, 0), closed: Iterable[Sender] = (CLIENT, SERVER)
) -> Iterator[CaptureEvent]:
    """One chunk per thing said; the n-th chunk, from 1, comes at n times STEP_NS."""
    at = {CLIENT: offsets[0], SERVER: offsets[1]}
    now = 0
    yield Opened(of, now, *offsets)
    for sender, data in said:
        now += STEP_NS
        yield Chunk(of, now, sender, at[sender], data)
        at[sender] += len(data)
    for sender in closed:
        now += STEP_NS
        yield Closed(of, now, sender)


def hear(dialogue: Dialogue, of: Iterable[CaptureEvent]) -> list[Message | Problem]:
    """Return the events of a dialogue for a whole conversation."""
    heard = [each for event in of for each in dialogue.receive(event)]
    return [*heard, *dialogue.end()]


def parts(heard: Iterable[Message | Problem]) -> tuple[list[Message], list[Problem], list[SeenRecord]]:
    """Messages, problems, and the records of the messages."""
    every = list(heard)
    told = [each for each in every if isinstance(each, Message)]
    problems = [each for each in every if isinstance(each, Problem)]
    return told, problems, [record for message in told for record in message.records]


def messages(make: Callable[[Conversation], Dialogue], of: Conversation, said: Said) -> list[Message]:
    """Return the messages of a conversation without a problem."""
    told, problems, _ = parts(hear(make(of), events(of, said)))
    assert not problems, problems
    return told


def cut_up(said: Said, size: int) -> list[tuple[Sender, bytes]]:
    """Return the same bytes in chunks of at most `size` bytes."""
    return [(sender, data[at : at + size]) for sender, data in said for at in range(0, len(data), size)]


class RecordedStream(trio.abc.HalfCloseableStream):
    """A client's stream that remembers what went by."""

    def __init__(self, inner: trio.abc.HalfCloseableStream) -> None:
        self._inner = inner
        self.said: list[tuple[Sender, bytes]] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.said.append((CLIENT, bytes(data)))
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._inner.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._inner.receive_some(max_bytes)
        if data:
            self.said.append((SERVER, bytes(data)))
        return data

    async def aclose(self) -> None:
        await self._inner.aclose()
