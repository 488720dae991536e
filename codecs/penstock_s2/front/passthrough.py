"""S2S sessions passed through to a server that speaks S2S itself (`penstock.core.passthrough`).

Only whole frames are forwarded, in both directions, so that when one side is lost the other can still be told: the
client by a terminal frame, the server by the end of the body. All other content is between client and server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from penstock.core.passthrough import Passthrough, RawSession
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.limits import KIB
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock.net.http.exchange import Exchange
from penstock.net.http.paced import PacedBody
from penstock.observe.metrics.clients import count_error
from penstock.wire.http import Buffer, ResponseHead
from penstock.wire.http_failures import failure_to_http
from penstock_s2.codec.limits import S2_MAX_UNARY_BODY
from penstock_s2.codec.s2s.frames import FrameError, encode_terminal
from penstock_s2.codec.s2s.whole_frames import WholeFrames, split_at_terminal
from penstock_s2.front.call import JSON, S2Call

__all__ = ["pass_append", "pass_read"]

_MEDIA_TYPE: Final = "s2s/proto"
_MOST_AWAITED: Final = 512 * KIB
"""Most bytes to wait for at once. An incomplete frame cannot be forwarded, so its pieces need not be processed one by
one; but at most half of the largest frame is gathered before they are."""
_REFUSAL_SECONDS: Final = 5.0
"""Seconds to wait for the rest of an answer that refuses a session."""
_PASSED: Final = frozenset({"accept-encoding", "s2-encryption-key", "s2-stream-config"})
"""The client's headers that are forwarded (S2 fact sheet, 1.5 and 2.1)."""


async def pass_read(call: S2Call, passthrough: Passthrough, draining: Draining) -> None:
    """Pass a read session through."""
    async with passthrough.open("GET", call.request.query, _headers(call)) as raw:
        if await _begin(call, raw):
            frames = WholeFrames()
            failure = await _frames_back(call.exchange, raw, frames, draining)
            await _finish(call.exchange, frames, failure)


async def pass_append(call: S2Call, passthrough: Passthrough, draining: Draining) -> None:
    """Pass an append session through."""
    async with passthrough.open("POST", call.request.query, _headers(call)) as raw:
        if not await _begin(call, raw):
            return
        intake, frames = _Intake(call.exchange, raw), WholeFrames()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(intake.run)
            nursery.start_soon(_stop_when_drained, intake, draining)
            failure = await _frames_back(call.exchange, raw, frames, None)
            nursery.cancel_scope.cancel()
        await _finish(call.exchange, frames, failure or intake.failure)


def _headers(call: S2Call) -> list[tuple[str, str]]:
    wanted = _PASSED if call.settings.compress else _PASSED - {"accept-encoding"}
    return [("content-type", _MEDIA_TYPE), *((name, value) for name, value in call.request.headers if name in wanted)]


async def _begin(call: S2Call, raw: RawSession) -> bool:
    """Forward the head. Returns False if that was the whole answer, because the server refused."""
    head = await raw.receive_head()
    if head.status == 200:
        return await call.start(_MEDIA_TYPE)
    body = bytearray()
    with trio.move_on_after(_REFUSAL_SECONDS):  # otherwise the status must suffice
        while len(body) < S2_MAX_UNARY_BODY and (pieces := await raw.receive_pieces(1)):
            body += b"".join(pieces)
    await call.respond(head.status, bytes(body), _content_type(head))
    return False


def _content_type(head: ResponseHead) -> str:
    return next((value for name, value in head.headers if name == "content-type"), JSON)


async def _frames_back(
    exchange: Exchange, raw: RawSession, frames: WholeFrames, draining: Draining | None
) -> Failure | None:
    """Forward the server's frames until they end; return the failure that ended them, if any."""
    try:
        while True:
            await exchange.room(False)
            pieces = await _receive(raw, min(frames.missing, _MOST_AWAITED), draining)
            if pieces is None:
                return SHUTTING_DOWN
            whole, failure = _whole(frames, pieces)
            if whole:
                if not frames.terminal:  # it is the last one: the client must get it even if there is no room
                    await exchange.room(True)
                await exchange.send(whole)
            if failure is not None or not pieces:
                return failure
    except OperationFailed as error:
        return error.failure


def _whole(frames: WholeFrames, pieces: Sequence[Buffer]) -> tuple[list[Buffer], Failure | None]:
    """Return the whole frames in these pieces (none at the end), and the failure of what follows them, if any."""
    whole: list[Buffer] = []
    try:
        for piece in pieces:
            whole += frames.feed(piece)
            frames.check()
        if not pieces:
            frames.finish()
    except FrameError as error:
        if not pieces:
            return whole, Failure(FailureCode.UNAVAILABLE, f"the server behind the gateway disconnected: {error}")
        return whole, Failure(FailureCode.UPSTREAM_FAULT, f"the server behind the gateway broke the protocol: {error}")
    return whole, None


async def _receive(raw: RawSession, least: int, draining: Draining | None) -> Sequence[Buffer] | None:
    """Receive more of the server's frames; return None once the drain's grace time is over."""
    if draining is None:
        return await raw.receive_pieces(least)
    while not draining.over:
        with draining.interrupts():
            return await raw.receive_pieces(least)
    return None


async def _finish(exchange: Exchange, frames: WholeFrames, failure: Failure | None) -> None:
    """End the answer, with a terminal frame for a failure unless one of the server's was among its `frames`."""
    if failure is not None and not frames.terminal:
        count_error(failure.code)
        await exchange.send(encode_terminal(*failure_to_http(failure)))
    await exchange.finish()


async def _stop_when_drained(intake: _Intake, draining: Draining) -> None:
    await draining.wait_over()
    intake.stop(SHUTTING_DOWN)


class _Intake:
    """Forwards the client's frames, until the client ends, sends an invalid frame, or is stopped."""

    def __init__(self, exchange: Exchange, raw: RawSession) -> None:
        self._exchange = exchange
        self._raw = raw
        self._scope = trio.CancelScope()
        self.failure: Failure | None = None

    async def run(self) -> None:
        try:
            with self._scope:
                await self._pass()
            await self._raw.finish()
        except OperationFailed as error:
            self.failure = self.failure or error.failure

    async def _pass(self) -> None:
        frames = WholeFrames()
        try:
            with PacedBody(self._exchange) as body:
                while piece := await body.receive(frames.held):
                    if whole := frames.feed(piece):
                        body.complete()
                        if frames.terminal:
                            before, terminal = split_at_terminal(whole)
                            if terminal.is_success:  # the session ends as with the end of the body
                                if before:
                                    await self._raw.send(before)
                                return
                        await self._raw.send(whole)
                    frames.check()
            frames.finish()
        except FrameError as error:
            self.failure = Failure(FailureCode.BAD_FRAME, f"Failed to decode S2S frame: {error}")
        except OperationFailed as error:  # `run` then ends the body, so that the server acknowledges the frames before
            self.failure = self.failure or error.failure

    def stop(self, failure: Failure) -> None:
        """Stop receiving; the session ends with `failure` once everything received is acknowledged."""
        self.failure = self.failure or failure
        self._scope.cancel()
