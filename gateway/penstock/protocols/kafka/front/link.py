"""Connection to a Kafka client."""

from __future__ import annotations

import msgspec
import trio

from penstock.net.draining import Draining
from penstock.protocols.front_link import FrontLink
from penstock.protocols.kafka.front.settings import KafkaSettings
from penstock.protocols.kafka.front.unknown import unknown_tags
from penstock_codecs.kafka import KafkaMessage, KafkaRequest, KafkaResponse, KafkaServer
from penstock_codecs.kafka.sasl import ScramServer

__all__ = ["KafkaLink", "SaslLogin"]


class SaslLogin(msgspec.Struct):
    """The state of a connection's authentication. `mechanism`: the one that the client has chosen, "" for none.
    `scram`: an exchange of SCRAM that waits for its second message."""

    mechanism: str = ""
    scram: ScramServer | None = None
    done: bool = False


class KafkaLink(FrontLink[KafkaRequest]):
    """One client's connection, used by one task."""

    __slots__ = ("_codec", "login")

    def __init__(self, stream: trio.abc.Stream, settings: KafkaSettings, draining: Draining) -> None:
        self._codec = KafkaServer(max_frame=settings.max_request_bytes)
        self.login = SaslLogin()
        super().__init__(
            stream,
            self._codec,
            draining,
            send_timeout=settings.send_timeout_seconds,
            idle_timeout=settings.idle_timeout_seconds,
        )

    async def send(self, request: KafkaRequest, message: KafkaMessage | None) -> None:
        """Respond to the oldest unanswered request; None: it wants no response."""
        unknown = None if message is None else unknown_tags(request, message)
        await self.put(self._codec.send(KafkaResponse(request, message)), unknown)
