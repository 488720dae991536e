"""Connection to a Kafka client."""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from penstock.model.limits import KIB
from penstock.net.draining import Draining
from penstock.net.limits.work import Work
from penstock.protocols.links import FrontLink
from penstock_kafka.codec import KafkaMessage, KafkaRequest, KafkaResponse, KafkaServer
from penstock_kafka.codec.sasl import ScramServer
from penstock_kafka.front.decoded import DecodedBatches
from penstock_kafka.front.settings import KafkaSettings

__all__ = ["KafkaLink", "SaslLogin"]

STEPS_FROM: Final = 4 * KIB
"""Bytes of a request from which on it is decoded in steps; a smaller one takes less than 2 ms."""


class SaslLogin(msgspec.Struct):
    """The state of a connection's authentication. `mechanism`: the one that the client has chosen, "" for none.
    `scram`: an exchange of SCRAM that waits for its second message."""

    mechanism: str = ""
    scram: ScramServer | None = None
    done: bool = False


class KafkaLink(FrontLink[KafkaRequest]):
    """One client's connection. `decoded`: the batches that are being appended. Requests in progress at the same time
    are answered one after the other: `pipelined` is their number while one task receives further ones."""

    __slots__ = ("_codec", "decoded", "login", "pipelined")

    def __init__(self, stream: trio.abc.Stream, settings: KafkaSettings, draining: Draining) -> None:
        self._codec = KafkaServer(
            max_frame=settings.max_request_bytes, max_items=settings.max_request_items, steps_from=STEPS_FROM
        )
        self.login = SaslLogin()
        super().__init__(
            stream,
            self._codec,
            draining,
            send_timeout=settings.send_timeout_seconds,
            idle_timeout=settings.idle_timeout_seconds,
        )
        self.decoded = DecodedBatches(settings.max_batch_bytes, self.quota)
        self.pipelined = 0

    def is_busy(self) -> bool:
        return self.pipelined > 0

    def leave_pipeline(self) -> None:
        """Record that a request is no longer in progress."""
        self.pipelined -= 1
        if not (self.pipelined or self._incoming.buffered):
            self.quota.rest(trio.current_time())

    async def send(self, request: KafkaRequest, message: KafkaMessage | None, work: Work) -> None:
        """Respond to the oldest unanswered request, on which `work` was done; None: it wants no response."""
        response = KafkaResponse(request, message)
        if work.turns:  # what took long to make may take long to encode
            pieces = await work.finish(self._codec.send_in_steps(response))
        else:
            pieces = self._codec.send(response)
        await self.put(pieces)
