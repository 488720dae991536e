"""A back without faults is itself; the gateway's own work is never met; the same seed gives the same faults."""

from __future__ import annotations

from contextlib import closing, nullcontext
from typing import Any

import pytest
from support.backs import PartialBack
from support.faults import with_faults
from support.process import GatewayProcess
from support.s3p.client import S3PClient
from support.store import appending

from penstock.model.failures import OperationFailed
from penstock.model.operations import CheckTail, FromSeqNum, Read
from penstock.model.records import StreamRef
from penstock.net.cutting import CUT_CONNECTION
from penstock.routing.faults.back import FaultyBack
from penstock.routing.faults.messages import MessageFaults, due_message
from penstock.routing.faults.rule import Action, Fault, FaultDirection, MessageKind
from penstock.routing.faults.rules import Faults

STREAM = StreamRef("penstock", "orders")
REFUSED = Fault(name="no", action=Action.ERROR, direction=FaultDirection.IN)


class Inner(PartialBack):
    """A back that gives what can be recognized."""

    def __init__(self) -> None:
        self.session = nullcontext("a session")

    async def perform(self, operation: object) -> object:
        return operation

    def append_session(self, *_: object, **__: object) -> Any:
        return self.session

    def read_session(self, _: object) -> Any:
        return self.session

    def passthrough(self, *_: object) -> Any:
        return "a passage"


async def test_an_append_has_one_answer_whatever_its_front_asks_afterwards() -> None:
    """Its faults are those of the append; the next request has its own."""
    lost = Fault(name="lost", action=Action.DROP, direction=FaultDirection.OUT, kinds=frozenset({MessageKind.APPEND}))
    back = both(Inner(), Faults([lost]))
    CUT_CONNECTION.set(lambda: None)
    await back.perform(appending(b"x"))
    await back.perform(CheckTail(STREAM))
    assert due_message(answer=True) == MessageFaults(dropped=True)
    await back.perform(CheckTail(STREAM))
    assert due_message(answer=True) is None


def both(inner: Inner, faults: Faults) -> FaultyBack:
    return FaultyBack(inner, faults, "s2", in_sessions=True)


async def test_without_rules_nothing_is_wrapped() -> None:
    inner = Inner()
    back = both(inner, Faults())
    read = Read(STREAM, FromSeqNum(0))
    CUT_CONNECTION.set(lambda: None)
    assert back.read_session(read) is inner.session
    assert back.append_session(STREAM) is inner.session
    assert back.passthrough("s2s", STREAM) == "a passage"
    tail = CheckTail(STREAM)
    assert await back.perform(tail) is tail


async def test_sessions_are_taken_apart_while_there_are_rules() -> None:
    back = both(Inner(), Faults([REFUSED]))
    CUT_CONNECTION.set(lambda: None)
    assert back.passthrough("s2s", STREAM) is None


async def test_what_the_gateway_does_for_itself() -> None:
    back = both(Inner(), Faults([REFUSED]))
    tail = CheckTail(STREAM)
    assert CUT_CONNECTION.get() is None
    assert await back.perform(tail) is tail
    CUT_CONNECTION.set(lambda: None)
    try:
        await back.perform(tail)
    except OperationFailed as error:
        assert error.failure == REFUSED.failure
    else:
        raise AssertionError("it was carried out")


def outcomes(seed: int) -> list[bool]:
    """Return for each of many appends whether it was refused, by a gateway of its own."""
    rule = {"name": "lots", "action": "error", "operations": ["append"], "probability": 0.3, "seed": seed}
    with GatewayProcess(with_faults(rule)) as gateway, closing(S3PClient(("127.0.0.1", gateway.s3p_port))) as client:
        client.create("lots")
        return [not isinstance(client.append("lots", b"x"), bytes) for _ in range(60)]


@pytest.mark.slow
def test_the_same_seed_and_the_same_traffic() -> None:
    first = outcomes(1)
    assert 5 < sum(first) < 40
    assert outcomes(1) == first
    assert outcomes(2) != first
