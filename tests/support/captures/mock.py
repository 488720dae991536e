"""Recorded servers in memory, for tests of mocks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio
import trio.testing
from support.captures.dialogues import CLIENT, Said

from penstock.tools.mock.report import MockReport
from penstock.tools.mock.script import Script
from penstock.tools.mock.serving import MockConnection
from penstock_analysis.capture import CaptureEvent
from penstock_codecs.s3p import Command, encode_command

__all__ = ["Mock", "asked", "exactly", "mock", "say_again"]


class Mock:
    def __init__(self, script: Script, nursery: trio.Nursery, **settings: object) -> None:
        self.script = script
        self.report = MockReport()
        self.open = 0
        self.taken: list[bytes] = []
        self._nursery = nursery
        self._settings = settings

    def connect(self) -> trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]:
        self.report.connections += 1
        client, server = trio.testing.memory_stream_pair()
        connection = MockConnection(server, self.script, self.report, **self._settings)  # type: ignore[arg-type]

        async def run() -> None:
            self.open += 1
            await connection.run()
            self.open -= 1

        self._nursery.start_soon(run)
        self._server = server
        return client  # type: ignore[return-value]

    def slow(self, seconds: float) -> None:
        """Delay output on the last connection by `seconds` from now on, and put it into `taken` instead of sending."""

        async def send_all(data: bytes) -> None:
            await trio.sleep(seconds)
            self.taken.append(data)

        self._server.send_stream.send_all = send_all  # type: ignore[method-assign]


@asynccontextmanager
async def mock(recorded: Iterable[CaptureEvent], **settings: object) -> AsyncIterator[Mock]:
    with Script() as script:
        script.load(recorded)
        async with trio.open_nursery() as nursery:
            yield Mock(script, nursery, **settings)
            nursery.cancel_scope.cancel()


async def exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    got = b""
    while len(got) < size and (data := await stream.receive_some(size - len(got))):
        got += data
    return got


async def say_again(stream: trio.abc.HalfCloseableStream, said: Said) -> None:
    """Replay a recorded client: send its bytes, each part once all earlier replies are here, and check that replies are
    equal.
    """
    async with stream:
        for sender, data in said:
            if sender is CLIENT:
                await stream.send_all(data)
            else:
                assert await exactly(stream, len(data)) == data
        await stream.send_eof()
        assert await exactly(stream, 1) == b""


def asked(*commands: Command) -> bytes:
    return b"".join(b"".join(encode_command(command)) for command in commands)
