"""One connection of a mock, which sends the recorded server's bytes when the client has said what preceded them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import structlog
import trio

from penstock.tools.mock.client_messages import END, ENDS, ClientMessage, alike, client_message_of
from penstock.tools.mock.report import MockReport
from penstock.tools.mock.script import Script, ScriptPart, ServerBytes, ServerEnd, spoken
from penstock.tools.mock.windows import FlowWindows
from penstock_analysis.capture import CaptureEvent, Chunk, Closed, Conversation, Opened, Sender, Side, SocketAddress
from penstock_analysis.dialogue.choosing import ENOUGH, dialogue_for
from penstock_codecs.http.observer.faults import HttpFault
from penstock_codecs.limits import KIB

__all__ = ["PATIENCE_SECONDS", "MockConnection"]

log = structlog.get_logger()

PATIENCE_SECONDS: Final = 10.0
"""Seconds after which a client is reported that sent other messages and not the recorded one."""
MOST_UNPROCESSED: Final = 10_000
"""Messages of a client beyond the recorded ones, above which it is not read."""
_READ_BYTES: Final = 256 * KIB
_NANOSECONDS: Final = 1_000_000_000
_NO_ENDPOINT: Final = SocketAddress("0.0.0.0", 0)


class _Over(Exception):
    """Raised when the client has left, or must not go on."""


class MockConnection:
    """Serves one client. `strict`: close the connection at the first difference; `speed`: factor for the recorded
    delays, None: no delays; `repeat`: play recorded conversations again once all were played."""

    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream | trio.SSLStream[trio.abc.Stream],
        script: Script,
        report: MockReport,
        *,
        protocol: str = "",
        strict: bool = False,
        speed: float | None = None,
        repeat: bool = False,
    ) -> None:
        self._stream = stream
        self._script = script
        self._report = report
        self._protocol = protocol
        self._strict = strict
        self._speed = speed
        self._repeat = repeat
        self._conversation = Conversation(report.connections, _NO_ENDPOINT, _NO_ENDPOINT, Side.FRONT, protocol=protocol)
        self._dialogue = dialogue_for(self._conversation)
        self._offsets = dict.fromkeys(Sender, 0)
        self._first = b""
        self._received: dict[int, deque[ClientMessage]] = {}
        self._unprocessed = 0
        self._gone = False
        self._changed = trio.lowlevel.ParkingLot()
        self._windows: FlowWindows | None = None
        self._name = f"connection {report.connections}"

    async def run(self) -> None:
        """Serve the connection until it ends, and close it. Never raises for what a client does."""
        self._decode(Opened(self._conversation, 0))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive)
                with suppress(_Over, trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._play()
                nursery.cancel_scope.cancel()
        finally:
            await trio.aclose_forcefully(self._stream)

    # ---- the client ------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        try:
            while data := await self._stream.receive_some(_READ_BYTES):
                if len(self._first) < ENOUGH:
                    self._first += data
                self._record(data)
                self._changed.unpark_all()
                while self._unprocessed > MOST_UNPROCESSED:
                    await self._changed.park()
            self._decode(Closed(self._conversation, 0, Sender.CLIENT))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self._gone = True
        self._changed.unpark_all()

    def _record(self, data: bytes | bytearray) -> None:
        if self._windows is not None:
            self._update(self._windows, data)
        self._bytes(Sender.CLIENT, bytes(data))

    def _update(self, windows: FlowWindows, data: bytes | bytearray) -> None:
        try:
            windows.received(data)
        except HttpFault as fault:
            self._report.differs(f"{self._name}: the client violates HTTP/2: {fault.rule}")
            self._windows = None

    def _bytes(self, sender: Sender, data: bytes) -> None:
        self._decode(Chunk(self._conversation, 0, sender, self._offsets[sender], data))
        self._offsets[sender] += len(data)

    def _decode(self, event: CaptureEvent) -> None:
        for item in self._dialogue.receive(event):
            message = client_message_of(item)
            if message is not None:
                self._received.setdefault(message.exchange, deque()).append(message)
                self._unprocessed += 1

    # ---- the server ------------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        part, done = await self._begin()
        before_ns: int | None = None
        for entry in self._script.entries(part):
            if isinstance(entry, ServerBytes):
                await self._delay(before_ns, entry.time_ns)
                data = entry.data[done:]
                done -= len(entry.data) - len(data)
                await self._send(data)
            elif isinstance(entry, ServerEnd):
                await self._delay(before_ns, entry.time_ns)
                await self._end(entry)
            else:
                await self._expect(entry[1])
            before_ns = entry[0]
        self._report.played += 1
        await self._flush()
        self._unwanted()
        while not self._gone:
            await self._wait()
            self._unwanted()

    def _unwanted(self) -> None:
        """Report messages of the client after the end of the recorded conversation."""
        received, self._received = self._received, {}
        self._processed(self._unprocessed)
        for messages in received.values():
            for message in messages:
                if message.kind not in ENDS:  # a client also resets streams whose data arrives after it has reset them
                    self._differs(message, "nothing more")

    async def _begin(self) -> tuple[ScriptPart, int]:
        """Choose the recorded conversation. Return it, and how many of the server's bytes were sent already."""
        while (speaks := spoken(self._protocol, self._first)) is None:
            await self._wait_while_there()
        if speaks == "h2":
            self._windows = FlowWindows()
            self._update(self._windows, self._first)
        if self._repeat and not self._script.remains(speaks):
            self._script.again()
        opening = self._script.opening(speaks)
        await self._send(opening)
        while not self._received:
            await self._wait_while_there()
        first = next(iter(self._received.values()))[0]
        part = self._script.take(speaks, first)
        if part is None and self._repeat:
            self._script.again()
            part = self._script.take(speaks, first)
        if part is None or not part.opening.startswith(opening):
            self._report.differs(f"{self._name}: no unplayed conversation begins with {first.text}")
            log.warning("no_recorded_conversation", connection=self._report.connections, said=first.text)
            raise _Over
        self._name = f"connection {part.number}"
        return part, len(opening)

    async def _expect(self, wanted: ClientMessage) -> None:
        """Wait until the client sends the recorded message, over HTTP in its exchange."""
        reported = False
        while not (messages := self._waiting(wanted)):
            if self._gone:
                self._differs(None, wanted.text)
                raise _Over
            if self._unprocessed > MOST_UNPROCESSED:  # the client is not read any more
                self._differs(next(self._others()), wanted.text)
                raise _Over
            with trio.move_on_after(PATIENCE_SECONDS) as patience:
                await self._changed.park()
            await self._flush()
            if patience.cancelled_caught and self._unprocessed and not reported:
                reported = True
                self._differs(next(self._others()), wanted.text)
        message = messages.popleft()
        if not messages:
            del self._received[wanted.exchange]
        self._processed(1)
        if not alike(wanted.text, message.text):
            self._differs(message, wanted.text)

    def _others(self) -> Iterator[ClientMessage]:
        """Return the first unexpected message of each exchange."""
        return (messages[0] for messages in self._received.values() if messages)

    def _processed(self, count: int) -> None:
        """Mark `count` messages as processed, so that reading may go on."""
        self._unprocessed -= count
        self._changed.unpark_all()

    def _waiting(self, wanted: ClientMessage) -> deque[ClientMessage] | None:
        """Return the client's pending messages of the exchange, if any, without an END that precedes the recorded
        one."""
        messages = self._received.get(wanted.exchange)
        if messages and messages[0].kind == END != wanted.kind:
            messages.popleft()
            self._processed(1)
        return messages

    def _differs(self, message: ClientMessage | None, wanted: str) -> None:
        """Count a difference; raises _Over in strict mode."""
        got = "it disconnected" if message is None else f"it sent {message.text} (byte {message.offset})"
        self._report.differs(f"{self._name}: {got} where {wanted} was recorded")
        log.warning("client_deviated", connection=self._name, got=got, expected=wanted)
        if self._strict:
            raise _Over

    async def _delay(self, before_ns: int | None, time_ns: int) -> None:
        """Wait as long as the recorded server did, answering the client's pings."""
        if self._speed is None or before_ns is None:
            return
        until = trio.current_time() + (time_ns - before_ns) / _NANOSECONDS / self._speed
        while trio.current_time() < until:
            with trio.move_on_at(until):
                await self._changed.park()
            await self._flush()

    async def _send(self, data: bytes) -> None:
        if self._windows is None:
            await self._write(data)
            return
        self._windows.put(data)
        await self._flush()
        while self._windows is not None and self._windows.blocked:
            await self._wait_while_there()

    async def _flush(self) -> None:
        if self._windows is not None:
            await self._write(self._windows.ready())

    async def _write(self, data: bytes) -> None:
        if not data:
            return
        self._bytes(Sender.SERVER, data)
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._gone = True
            self._differs(None, "an answer")
            raise _Over from None
        self._report.sent += len(data)

    async def _wait(self) -> None:
        await self._changed.park()
        await self._flush()

    async def _wait_while_there(self) -> None:
        if self._gone:
            raise _Over
        await self._wait()

    async def _end(self, ended: ServerEnd) -> None:
        if ended.reset:
            self._report.played += 1
            raise _Over
        if self._windows is not None:
            await self._write(self._windows.rest())
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()
        else:
            await self._stream.aclose()
