"""A server of Kafka (our own front over a store) that answers as tests say, and backs over it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.s3p.front import BASIN
from support.upstreams import Far, far_server
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.core.address import Address
from penstock.core.clock import wall_clock
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_kafka.back import KafkaBack, KafkaBackSettings, open_kafka
from penstock_kafka.codec import KafkaClient, KafkaMessage, KafkaRequest, KafkaResponse, KafkaServer
from penstock_kafka.codec.record_messages import ProduceRequest
from penstock_kafka.front import KafkaFront, KafkaSettings
from penstock_kafka.names import KafkaNames

Answer = Callable[[KafkaRequest], KafkaMessage | None]
"""Makes an answer in place of the server's; None: the server answers."""


def _first(answers: list[Answer], request: KafkaRequest) -> KafkaMessage | None:
    return next((found for make in answers if (found := make(request)) is not None), None)


class Cluster:
    """The server. `requests`: those that came. `answers`: tried before the server is asked; `belied`: tried in place of
    its answer, when it has carried the request out. `lost`: how many of the next requests of the kind `losing` are
    carried out, and their answers lost with the connection; `before`: the same, but they do not arrive. `held`:
    requests of that kind are carried out only after this event. `clock`: of its clients."""

    def __init__(self, store: EmbeddedBack) -> None:
        self.store = store
        self.front = KafkaFront(
            store, KafkaSettings(names=KafkaNames(BASIN), advertise=Address("example", 1), partitions=1)
        )
        self.requests: deque[KafkaMessage] = deque()
        self.answers: list[Answer] = []
        self.belied: list[Answer] = []
        self.lost = self.before = 0
        self.losing: type[KafkaMessage] = ProduceRequest
        self.held: trio.Event | None = None
        self.clock = wall_clock
        self.far: Far

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve a connection: relay each request, unless it is answered or lost here."""
        ours, theirs = trio.testing.memory_stream_pair()
        server, client = KafkaServer(), KafkaClient()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.front.serve, theirs)
            while (request := server.next_event()) is not PAUSED:
                if request is NEED_DATA:
                    server.receive(await stream.receive_some(1 << 16))
                    continue
                assert isinstance(request, KafkaRequest)
                self.requests.append(request.message)
                loses = isinstance(request.message, self.losing)
                if loses and self.held is not None:
                    await self.held.wait()
                if loses and self.before:
                    self.before -= 1
                    break
                answer = _first(self.answers, request)
                if answer is None:
                    await ours.send_all(b"".join(client.send(request)))
                    while (event := client.next_event()) is NEED_DATA:
                        client.receive(await ours.receive_some(1 << 16))
                    assert isinstance(event, KafkaResponse)
                    answer = _first(self.belied, request) or event.message
                if loses and self.lost:
                    self.lost -= 1
                    break
                await stream.send_all(b"".join(server.send(KafkaResponse(request, answer))))
            nursery.cancel_scope.cancel()

    def asked(self, kind: type[KafkaMessage]) -> int:
        """Return how many requests of this kind came."""
        return sum(isinstance(one, kind) for one in self.requests)

    @asynccontextmanager
    async def back(self, **options: Any) -> AsyncIterator[KafkaBack]:
        """A client of the server, which keeps creation times in the server's store."""
        settings = replace(KafkaBackSettings(names=KafkaNames(BASIN), create_streams=True), **options)
        first = self.far.upstream(breaker_failures=1000)

        def server(settings: UpstreamSettings) -> Upstream:
            raise AssertionError(f"there is one broker only, and no {settings.where}")

        async with open_kafka([first], self.store, settings, server, self.clock) as back:
            yield back


@pytest.fixture
async def cluster(clock: MockClock, back: EmbeddedBack) -> AsyncIterator[Cluster]:
    made = Cluster(back)
    async with far_server(made.serve) as far:
        made.far = far
        yield made
