"""Live requests over HTTP, answered from a recording.

An answer is sent in the steps in which it was recorded: each of its parts when the client has sent what it had sent by
then. A client that goes on differently before any of the answer's body was sent is a miss like any other; later, its
answer ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import trio

from penstock.capture.dialogue.http.exchanges import stream_asked_for
from penstock.capture.pcapng import Conversation, Side, SocketAddress
from penstock.model.failures import LocalProtocolError, OperationFailed
from penstock.model.limits import MIB
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion
from penstock.net.http.client.connection import HttpStream
from penstock.net.http.exchange import Exchange
from penstock.net.upstream import Upstream
from penstock.tools.mock.answers import RecordedAnswer, Undecided, same_bytes
from penstock.tools.mock.exchanges import HOP_BY_HOP, PartKind, request_head
from penstock.tools.mock.state import MockState
from penstock.wire.http import RequestHead

__all__ = ["HttpMock"]

MOST_HELD = 64 * MIB
"""Bytes of a request that are held until it is known what answers it. A longer one is a miss."""
_NOT_PASSED = HOP_BY_HOP | {"date", "host"}
"""Headers that are not passed on; both sides make their own."""
_NOWHERE = SocketAddress("0.0.0.0", 0)


class _Deviated(Exception):
    """Raised when a client goes on differently than the recorded one."""


class _LiveRequest:
    """The body of a request as far as it has come. `sent`: bytes that the client sent and that may still be needed;
    `at`: how many of them were compared."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._changed = trio.lowlevel.ParkingLot()
        self.sent = bytearray()
        self.at = 0
        self.whole = False

    async def fill(self) -> None:
        """Receive the body until its end."""
        while piece := await self._exchange.receive():
            self.sent += piece
            self._changed.unpark_all()
            while len(self.sent) > MOST_HELD:
                await self._changed.park()
        self.whole = True
        self._changed.unpark_all()

    async def more(self) -> None:
        """Wait until more has come."""
        await self._changed.park()

    async def expect(self, recorded: bytes) -> None:
        """Wait for bytes like the recorded ones. Raises _Deviated."""
        end = self.at + len(recorded)
        while len(self.sent) < end and not self.whole:
            if not (b"***" in recorded or recorded.startswith(self.sent[self.at :])):
                raise _Deviated
            await self.more()
        if not same_bytes(recorded, bytes(self.sent[self.at : end])):
            raise _Deviated
        self.at = end

    async def expect_end(self) -> None:
        """Wait for the end. Raises _Deviated."""
        while not self.whole:
            if len(self.sent) > self.at:
                raise _Deviated
            await self.more()
        if len(self.sent) > self.at:
            raise _Deviated

    def forget(self) -> None:
        """Drop what was compared."""
        del self.sent[: self.at]
        self.at = 0
        self._changed.unpark_all()

    async def next(self) -> bytes:
        """Return what has come and was not taken yet; b"" at the end."""
        while not self.sent and not self.whole:
            await self.more()
        data = bytes(self.sent)
        self.sent.clear()
        self._changed.unpark_all()
        return data


class HttpMock:
    """Answers requests over HTTP in one protocol."""

    def __init__(self, state: MockState, protocol: str) -> None:
        self._state = state
        self._protocol = protocol
        self._conversation = Conversation(0, _NOWHERE, _NOWHERE, Side.FRONT, protocol=protocol)

    async def handle(self, exchange: Exchange) -> None:
        """Answer a request. A `Handler` of `penstock.net.http`."""
        request = exchange.request
        target = f"{request.path}?{request.query}" if request.query else request.path
        head = RequestHead(0, request.method, target, request.headers, request.authority)
        live = _LiveRequest(exchange)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live.fill)
            await _Answering(self._state, self._protocol, exchange, live, head).run(
                self._state.fork_of(self._protocol, stream_asked_for(head, self._conversation))
            )
            nursery.cancel_scope.cancel()


class _Answering:
    """The answer to one request. `test`: the one that asks."""

    def __init__(
        self, state: MockState, protocol: str, exchange: Exchange, live: _LiveRequest, head: RequestHead
    ) -> None:
        self._state = state
        self._protocol = protocol
        self._exchange = exchange
        self._live = live
        self._head = head
        self._title = f"{head.method} {head.target}"
        self._test = state.test
        self._status: int | None = None  # of the head that was sent

    async def run(self, fork: Upstream | None) -> None:
        if fork is not None:
            await self._pass_and_count(fork, self._state.report.forks)
            return
        answer = await self._choose()
        if answer is not None:
            self._state.report.answered += 1
            try:
                await self._play(answer)
                return
            except _Deviated:
                self._state.report.answered -= 1
                self._title = f"{self._title} (recorded, but the client went on differently)"
        await self._missed()

    async def _choose(self) -> RecordedAnswer | None:
        live = self._live
        head = request_head(self._head.method, self._head.target, self._head.headers)
        while True:
            recorded = self._state.book.choose(self._test, self._protocol, head, bytes(live.sent), live.whole)
            if isinstance(recorded, RecordedAnswer):
                return recorded
            if recorded is Undecided.MISS or len(live.sent) > MOST_HELD:
                return None
            await live.more()

    async def _play(self, answer: RecordedAnswer) -> None:
        """Send the answer. Raises _Deviated if the client deviates before any of its body was sent."""
        exchange, live, sending = self._exchange, self._live, False
        try:
            for part in self._state.book.parts(answer):
                match part.kind:
                    case PartKind.ASKED:
                        await live.expect(part.data)
                    case PartKind.ASKED_ALL:
                        await live.expect_end()
                    case PartKind.HEAD:
                        self._status, headers = json.loads(part.text)
                        await exchange.start(self._status, [tuple(pair) for pair in headers])
                    case PartKind.ANSWER:
                        sending = True
                        await exchange.send([part.data])
                    case PartKind.END:
                        await exchange.finish([tuple(pair) for pair in json.loads(part.text)])
                        return
                if sending:
                    live.forget()
        except _Deviated:
            if not sending:
                raise
            self._state.report.miss(self._test, f"{self._title} (the client went on differently)")
            await self._end()
            return
        if part.kind is PartKind.RESET:
            await self._end()
        else:
            await trio.sleep_forever()  # the recorded client left; so will this one

    async def _end(self) -> None:
        """End an answer that has begun."""
        with suppress(LocalProtocolError):  # a content-length promised more
            await self._exchange.finish()

    # ---- misses ------------------------------------------------------------------------------------------------------

    async def _missed(self) -> None:
        origin = await self._state.origin(self._protocol, self._test)
        if origin is None:
            self._state.report.miss(self._test, self._title)
            await self._refuse(400, "not_recorded", f"{self._title} is not in the recording")
            return
        await self._pass_and_count(origin, lambda: self._state.report.passes(self._test, self._title))

    async def _pass_and_count(self, upstream: Upstream, count: Callable[[], None]) -> None:
        """Have a server answer, and count its answer; or refuse."""
        try:
            await self._pass_to(upstream, count)
        except OperationFailed as error:
            self._state.report.miss(self._test, f"{self._title}: {error.failure.message}")
            await self._refuse(502, "unavailable", error.failure.message)

    async def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error, or end the answer that has begun."""
        if self._status is not None:
            await self._end()
            return
        body = json.dumps({"code": code, "message": f"penstock mock: {message}"}).encode()
        await self._exchange.respond(status, [("content-type", "application/json")], body)

    async def _pass_to(self, upstream: Upstream, count: Callable[[], None]) -> None:
        """Have a server answer. `count` is called when it has begun to. Raises OperationFailed if it does not."""
        head, live = self._head, self._live
        headers = [(name, value) for name, value in head.headers if name not in _NOT_PASSED]
        two = self._exchange.request.http_version == "2" and upstream.settings.tls is None
        settings = HttpClientSettings(version=HttpVersion.H2 if two else HttpVersion.AUTO)
        if head.method in ("GET", "HEAD", "DELETE", "OPTIONS"):
            while not live.whole and not live.sent:
                await live.more()
        asks_more = bool(live.sent) or not live.whole
        failure: OperationFailed | None = None
        async with (
            HttpClient(upstream, settings) as client,
            client.open(head.method, head.target, headers, body=asks_more) as stream,
            trio.open_nursery() as nursery,
        ):
            if asks_more:
                nursery.start_soon(self._send_on, stream)
            try:
                await self._pass_answer(stream, count)
            except OperationFailed as error:  # raised again outside of the nursery, which would wrap it in a group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _send_on(self, stream: HttpStream) -> None:
        with suppress(OperationFailed):  # receiving raises it, too
            while piece := await self._live.next():
                await stream.send([piece])
            await stream.finish()

    async def _pass_answer(self, stream: HttpStream, count: Callable[[], None]) -> None:
        answer = await stream.receive_head()
        count()
        if self._status is None:
            self._status = answer.status
            await self._exchange.start(answer.status, [pair for pair in answer.headers if pair[0] not in _NOT_PASSED])
        elif self._status != answer.status:
            await self._end()
            return
        while piece := await stream.receive():
            await self._exchange.send([piece])
        await self._exchange.finish(stream.trailers)
