"""One request in progress, as its handler sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import trio

from penstock.core.address import Address
from penstock.model.failures import Failure
from penstock.net.limits.work import Work
from penstock.observe.metrics.clients import count_error
from penstock_kafka.codec import KafkaError, KafkaMessage, KafkaRequest, error_of
from penstock_kafka.front.link import KafkaLink

__all__ = ["NODE_ID", "NO_NODE", "TASKS_AT_ONCE", "Broker", "KafkaCall", "KafkaHandler", "KafkaHandlers"]

T = TypeVar("T")

NODE_ID: Final = 1
"""The node id of a gateway that is the only broker that its clients see."""
NO_NODE: Final = -1
TASKS_AT_ONCE: Final = 8
"""Tasks for elements of a request that begin in one pass of the scheduler."""


class Broker(NamedTuple):
    """A gateway as clients see it."""

    node_id: int
    address: Address


class KafkaCall(msgspec.Struct):
    """A request, the connection that it came on, and the gateways. `leader`: the one that serves all clients, None if
    none does now. `list_brokers` returns all of them: a client that knew the leader alone would not find its successor.
    `work`: the link's, or its own while other requests of the connection are in progress. `refusals`: how many of its
    parts failed. `appends`: those that have not taken their places yet; `handed_over`: set when there are none."""

    request: KafkaRequest
    link: KafkaLink
    leader: Broker | None
    list_brokers: Callable[[], Sequence[Broker]]
    work: Work
    refusals: int = 0
    appends: int = 0
    handed_over: trio.Event = msgspec.field(default_factory=trio.Event)

    def hand_over_one(self) -> Callable[[], None]:
        """Return a function to be called when one of the appends takes its place among all appends to its stream. Later
        calls of it do nothing."""
        is_waiting = True

        def hand_over() -> None:
            nonlocal is_waiting
            if is_waiting:
                is_waiting = False
                self.appends -= 1
                if not self.appends:
                    self.handed_over.set()

        return hand_over

    @property
    def leader_id(self) -> int:
        """The node id of the leader, -1 if there is none."""
        return NO_NODE if self.leader is None else self.leader.node_id

    @property
    def version(self) -> int:
        """The version of the request, and of its response."""
        return self.request.version

    def each(self, elements: Iterable[T]) -> AsyncIterator[T]:
        """Return elements of the request, with rests between them in which others are served."""
        return self.work.each(elements)

    def refused(self, failure: Failure) -> KafkaError:
        """Count a failure of a part of the request; return its error code."""
        self.refusals += 1
        count_error(failure.code)
        return error_of(failure)


KafkaHandler = Callable[[Any, KafkaCall], Coroutine[Any, Any, KafkaMessage | None]]
"""Carries out the requests of one API; returns the response, None if the request wants none. Failures of topics and
partitions are error codes in the response; an exception ends the connection."""

KafkaHandlers = Mapping[type[KafkaMessage], KafkaHandler]
"""The handlers of several APIs, by class of request."""
