"""Throttled answers over HTTP have the same head, body and trailers as others."""

from __future__ import annotations

import pytest
import trio
from google.protobuf.wrappers_pb2 import BytesValue
from support.grpc_service import NAME, Calls
from support.http.client import serving
from trio.testing import MockClock

from penstock.net.http.exchange import Exchange, Handler
from penstock.routing.faults.exchange import FaultyFront
from penstock.routing.faults.messages import DUE, DueMessages
from penstock.routing.faults.rule import Action, Fault, FaultDirection, MessageKind, MessageSubject
from penstock.routing.faults.rules import Faults
from penstock.wire.grpc import MessageReader, frame

THROTTLE = Fault(name="slow", action=Action.THROTTLE, direction=FaultDirection.OUT, bytes_per_second=10_000)


class Front:
    """A front whose answers are messages that are due for faults."""

    def __init__(self, faults: Faults, handler: Handler) -> None:
        self._faults = faults
        self._handler = handler

    async def handle(self, exchange: Exchange) -> None:
        DUE.set(DueMessages(self._faults, MessageSubject("s2", MessageKind.CONTROL)))
        await self._handler(exchange)

    def drain(self) -> None: ...


def throttled(handler: Handler) -> Handler:
    """A handler whose answers are throttled."""
    faults = Faults([THROTTLE])
    return FaultyFront(Front(faults, handler), faults).handle


async def test_a_whole_answer_keeps_its_length(autojump_clock: MockClock) -> None:
    body = b"0123456789" * 400
    headers = [("content-type", "text/plain")]
    async with serving(throttled(lambda exchange: exchange.respond(200, headers, body)), "h2") as client:
        began = trio.current_time()
        answer = await client.ask("GET", "/")
        assert trio.current_time() - began == pytest.approx(0.4)
    assert (answer.headers["content-length"], answer.body) == ("4000", body)


async def test_an_answer_of_grpc_keeps_its_status(autojump_clock: MockClock) -> None:
    """It comes in trailers, so the answer has no length; a refusal without a message has it too."""
    headers = [("te", "trailers"), ("content-type", "application/grpc")]
    message = BytesValue(value=b"x" * 4000).SerializeToString()
    async with serving(throttled(Calls().service().handle), "h2") as client:
        began = trio.current_time()
        answer = await client.ask("POST", f"/{NAME}/Echo", headers, frame(message))
        assert trio.current_time() - began > 0.4
        refusal = await client.ask("POST", f"/{NAME}/None", headers, frame(message))
    assert answer.trailers == {"grpc-status": "0"} and "content-length" not in answer.headers
    reader = MessageReader(None)
    reader.receive(answer.body)
    assert reader.finish() == message
    assert ({**refusal.headers, **refusal.trailers}["grpc-status"], refusal.body) == ("12", b"")
