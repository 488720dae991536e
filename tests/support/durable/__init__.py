"""A front of Durable Streams over a real store, and requests to it over memory streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from support.http.client import Answer, HttpClient, serving
from support.store import BASIN, Wall

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.model.failures import OperationFailed
from penstock.model.operations import CreateBasin
from penstock.model.records import StreamRef
from penstock_durable.front import DurableFront, DurableSettings
from penstock_durable.names import DurableNames

TEXT = ("content-type", "text/plain")
JSON = ("content-type", "application/json")
CLOSE = ("stream-closed", "true")
SETTINGS = DurableSettings(names=DurableNames("/v1/stream/", BASIN))


def ref(name: str) -> StreamRef:
    """The stream that clients call `name`."""
    return StreamRef(BASIN, name)


def producer(epoch: int, seq: int, name: str = "p") -> tuple[tuple[str, str], ...]:
    """The headers of a producer's append."""
    return (("producer-id", name), ("producer-epoch", str(epoch)), ("producer-seq", str(seq)))


class Service:
    """A front, its store, and the time of day, which stands still until it is told otherwise."""

    def __init__(self, back: EmbeddedBack, wall: Wall, settings: DurableSettings, through: Back | None = None) -> None:
        self.back = back
        self.wall = wall
        self.front = DurableFront(through or back, through or back, settings, wall)

    def connected(self) -> AbstractAsyncContextManager[HttpClient]:
        """A connection."""
        return serving(self.front.handle, "http/1.1")

    async def ask(
        self, method: str, name: str, *headers: tuple[str, str], body: bytes = b"", query: str = ""
    ) -> Answer:
        """Send one request on a connection of its own; return its answer."""
        async with self.connected() as client:
            return await client.ask(method, f"/v1/stream/{name}{query}", list(headers), body)

    async def read(self, name: str, query: str = "") -> bytes:
        """Return the body of a read that succeeds."""
        answer = await self.ask("GET", name, query=query)
        assert answer.status == 200, answer
        return answer.body


@asynccontextmanager
async def running(
    directory: Path, settings: DurableSettings = SETTINGS, wall: Wall | None = None
) -> AsyncIterator[Service]:
    """A service on the store in `directory`."""
    wall = wall or Wall()
    async with open_embedded(EmbeddedSettings(directory=directory), wall) as back:
        with suppress(OperationFailed):  # it is there
            await back.perform(CreateBasin(BASIN))
        yield Service(back, wall, settings)


async def events(client: HttpClient, stream_id: int, until: bytes) -> bytes:
    """Return the bytes of an event stream up to the event that holds `until`."""
    received = b""
    while until not in received or not received.endswith(b"\n\n"):
        event = await client.next(stream_id)
        assert hasattr(event, "data"), (received, event)
        received += event.data
    return received


def changed(**options: Any) -> DurableSettings:
    """Return the settings with changes."""
    return replace(SETTINGS, **options)
