"""One request in progress, as its handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.core.address import Address
from penstock.observe.metrics.clients import count_error
from penstock.protocols.kafka.front.link import KafkaLink
from penstock_codecs.failures import Failure
from penstock_codecs.kafka import KafkaError, KafkaMessage, KafkaRequest, error_of

__all__ = ["NODE_ID", "NO_NODE", "Broker", "KafkaCall", "KafkaHandler", "KafkaHandlers"]

NODE_ID: Final = 1
"""The node id of a gateway that is the only broker that its clients see."""
NO_NODE: Final = -1


class Broker(NamedTuple):
    """A gateway as clients see it."""

    node_id: int
    address: Address


class KafkaCall(msgspec.Struct):
    """A request, the connection that it came on, and the gateways. `leader`: the one that serves all clients, None if
    none does now. `list_brokers` returns all of them: a client that knew the leader alone would not find its successor.
    `refusals`: how many of its parts failed."""

    request: KafkaRequest
    link: KafkaLink
    leader: Broker | None
    list_brokers: Callable[[], Sequence[Broker]]
    refusals: int = 0

    @property
    def leader_id(self) -> int:
        """The node id of the leader, -1 if there is none."""
        return NO_NODE if self.leader is None else self.leader.node_id

    @property
    def version(self) -> int:
        """The version of the request, and of its response."""
        return self.request.version

    def refused(self, failure: Failure) -> KafkaError:
        """Count a failure of a part of the request; return its error code."""
        self.refusals += 1
        count_error(failure.code)
        return error_of(failure)


KafkaHandler = Callable[[Any, KafkaCall], Awaitable[KafkaMessage | None]]
"""Carries out the requests of one API; returns the response, None if the request wants none. Failures of topics and
partitions are error codes in the response; an exception ends the connection."""

KafkaHandlers = Mapping[type[KafkaMessage], KafkaHandler]
"""The handlers of several APIs, by class of request."""
