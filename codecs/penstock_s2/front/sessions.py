"""S2S sessions: pipelined appends, and reads that follow the tail (S2 fact sheet 2.2 to 2.4)."""

from __future__ import annotations

from functools import partial

import trio

from penstock.core.back import AppendSession, Back
from penstock.core.rereading import read_again
from penstock.model.failures import Failure, OperationFailed, RemoteProtocolError
from penstock.model.records import RecordBatch, StreamPosition
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock.net.http.exchange import Exchange
from penstock.net.http.following import FollowingSession, Heartbeats
from penstock.net.http.paced import PacedBody
from penstock.observe.metrics.clients import count_error
from penstock.observe.metrics.meters import PROTOCOL
from penstock.wire.codec import Pull
from penstock_s2.codec.s2s import PLUGIN
from penstock_s2.codec.s2s.sessions import AppendServer, ReadServer
from penstock_s2.front.call import S2Call
from penstock_s2.front.parameters import read_of
from penstock_s2.front.passthrough import pass_append, pass_read

__all__ = ["S2SSessions"]

_MEDIA_TYPE = "s2s/proto"


class S2SSessions:
    """S2S sessions over one back."""

    def __init__(self, back: Back, draining: Draining, heartbeats: Heartbeats) -> None:
        self._back = back
        self._draining = draining
        self._heartbeats = heartbeats

    async def read(self, call: S2Call) -> None:
        """Run a read session: frames until its bounds are met, or without end."""
        PROTOCOL.set("s2s")
        stream = call.stream()
        passthrough = self._back.passthrough(PLUGIN.name, stream) if call.request.method == "GET" else None
        if passthrough is not None:
            await pass_read(call, passthrough, self._draining)
            return
        read = read_of(stream, call.query(), call.create_config())
        codec = ReadServer(call.compression())
        async with self._back.read_session(read) as session:
            if not await call.start(_MEDIA_TYPE):
                return
            encode = partial(_encoded, codec, self._draining)
            follower = FollowingSession(session, call.exchange, encode, self._heartbeats, self._draining)
            try:
                await follower.deliver(partial(read_again, self._back, read), lambda: encode)
            except OperationFailed as error:
                count_error(error.failure.code)
                await call.exchange.send(codec.send(error.failure))
            await call.exchange.finish()

    async def append(self, call: S2Call) -> None:
        """Run an append session: inputs are applied as they arrive, acknowledgements are sent in order."""
        PROTOCOL.set("s2s")
        stream = call.stream()
        passthrough = self._back.passthrough(PLUGIN.name, stream)
        if passthrough is not None:
            await pass_append(call, passthrough, self._draining)
            return
        config = call.create_config()
        codec = AppendServer(stream, call.compression())
        async with self._back.append_session(stream, config) as session:
            await call.start(_MEDIA_TYPE)
            intake = _Intake(call.exchange, codec, session)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(intake.run)
                nursery.start_soon(self._stop_when_drained, intake)
                failure = await self._acknowledge(call.exchange, codec, session, intake)
                nursery.cancel_scope.cancel()
            if failure is not None:
                count_error(failure.code)
                await call.exchange.send(codec.send(failure))
            await call.exchange.finish()

    async def _acknowledge(
        self, exchange: Exchange, codec: AppendServer, session: AppendSession, intake: _Intake
    ) -> Failure | None:
        """Send acknowledgements until the end; return the failure that ends the session, if any."""
        try:
            while appended := await session.receive():
                codec.reconnect_advised = self._draining.begun
                await exchange.send([piece for each in appended for piece in codec.send(each)])
        except OperationFailed as error:
            return error.failure
        return intake.failure

    async def _stop_when_drained(self, intake: _Intake) -> None:
        await self._draining.wait_over()
        intake.stop(SHUTTING_DOWN)


def _encoded(codec: ReadServer, draining: Draining, event: RecordBatch | StreamPosition) -> list[bytes]:
    codec.reconnect_advised = draining.begun
    return codec.send(event)


class _Intake:
    """Forwards a client's inputs to the back, until the client ends, fails or is stopped."""

    def __init__(self, exchange: Exchange, codec: AppendServer, session: AppendSession) -> None:
        self._exchange = exchange
        self._codec = codec
        self._session = session
        self._scope = trio.CancelScope()
        self.failure: Failure | None = None

    async def run(self) -> None:
        try:
            with self._scope, PacedBody(self._exchange) as body:
                await self._take(body)
        except (RemoteProtocolError, OperationFailed) as error:
            self.failure = error.failure
        finally:
            self._session.close()

    async def _take(self, body: PacedBody) -> None:
        codec = self._codec
        while True:
            event = codec.next_event()
            if event is Pull.NEED_DATA:
                codec.receive(await body.receive(codec.buffered))
            elif isinstance(event, Pull):
                return
            elif isinstance(event, Failure):
                self.failure = event
                return
            else:
                body.complete()
                await self._session.send(event)

    def stop(self, failure: Failure) -> None:
        """Stop receiving; the session ends with `failure` once everything received is acknowledged."""
        self.failure = self.failure or failure
        self._scope.cancel()
