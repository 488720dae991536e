"""One request in progress, as its handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.address import Address
from penstock.observe.metrics.clients import count_error
from penstock.protocols.kafka.front.link import KafkaLink
from penstock_codecs.failures import Failure
from penstock_codecs.kafka import KafkaError, KafkaMessage, KafkaRequest, error_of

__all__ = ["NODE_ID", "KafkaCall", "KafkaHandler", "KafkaHandlers"]

NODE_ID: Final = 1
"""The node id of the gateway, the only broker that its clients see."""


@dataclass(slots=True)
class KafkaCall:
    """A request, the connection that it came on, and the address that the client is to connect to. `others`: addresses
    of gateways that can only tell that one. `refusals`: how many of its parts failed."""

    request: KafkaRequest
    link: KafkaLink
    address: Address
    others: tuple[Address, ...] = ()
    refusals: int = 0

    @property
    def brokers(self) -> list[tuple[int, Address]]:
        """The gateways as brokers, by node id. The first one serves all clients; a client that knows that one alone
        would not find its successor."""
        return list(enumerate((self.address, *self.others), NODE_ID))

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
