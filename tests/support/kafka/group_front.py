"""A Kafka front over a real store, with clients on memory streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio
from support.kafka.front import Client
from support.store import BASIN, Wall

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back, BackWrapper
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CheckTail, CreateBasin, CreateStream, DeleteStream, ListStreams, Page
from penstock.model.records import StreamRef
from penstock.tables.struct_table import StructTable
from penstock_kafka.codec import KafkaMessage
from penstock_kafka.codec.group_messages import (
    FetchedOffset,
    GroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetsToCommit,
    OffsetToCommit,
    SyncGroupAssignment,
    SyncGroupRequest,
    WantedGroup,
    WantedOffsets,
)
from penstock_kafka.front import KafkaFront, KafkaSettings
from penstock_kafka.names import KafkaNames

SUBSCRIPTION = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff"
"""Of a consumer that has subscribed to the topic `orders`."""


class GroupClient(Client):
    """One connection to the front."""

    async def ask(self, message: KafkaMessage, version: int | None = None) -> Any:
        """Send a request, by default in its newest version, or the last one by the names of topics; return the
        response."""
        await self.send(message, version)
        return await self.response()

    async def join(self, group: str = "g", member: str = "", version: int = 9, **options: Any) -> JoinGroupResponse:
        """Join a group; from version 4 on twice, for the id that it is given."""
        options = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"} | options
        protocols = [GroupProtocol(name="range", metadata=SUBSCRIPTION)]
        request = JoinGroupRequest(group_id=group, member_id=member, protocols=protocols, **options)
        found: JoinGroupResponse = await self.ask(request, version)
        if found.error_code == 79:
            return await self.join(group, found.member_id, version, **options)
        return found

    async def sync(self, joined: JoinGroupResponse, assignments: dict[str, bytes] | None = None) -> Any:
        """Ask for an assignment; the leader brings those of all."""
        given = [SyncGroupAssignment(member_id=one, assignment=data) for one, data in (assignments or {}).items()]
        request = SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=given
        )
        return await self.ask(request)

    async def commit(
        self, offset: int, partition: int = 0, topic: str = "orders", group: str = "g", **options: Any
    ) -> int:
        """Commit an offset; return the error."""
        one = OffsetToCommit(
            partition_index=partition, committed_offset=offset, committed_metadata=options.pop("text", "")
        )
        request = OffsetCommitRequest(group_id=group, topics=[OffsetsToCommit(name=topic, partitions=[one])], **options)
        return int((await self.ask(request)).topics[0].partitions[0].error_code)

    async def committed(self, partition: int = 0, topic: str = "orders", group: str = "g") -> FetchedOffset:
        """Return a committed offset."""
        wanted = WantedOffsets(name=topic, partition_indexes=[partition])
        request = OffsetFetchRequest(groups=[WantedGroup(group_id=group, topics=[wanted])])
        found: FetchedOffset = (await self.ask(request)).groups[0].topics[0].partitions[0]
        return found


class GroupFront:
    """A front, its store, and the time of day, which stands still until it is told otherwise."""

    def __init__(
        self, back: EmbeddedBack, wall: Wall, through: Back | None = None, table: StructTable | None = None
    ) -> None:
        """`through`: the back that the front uses. `table`: of its groups, if it is not one of that back."""
        self.back = back
        self.wall = wall
        self.front = KafkaFront(through or back, KafkaSettings(names=KafkaNames(BASIN)), table)
        self.front.groups._clock = wall

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[GroupClient]:
        """A connection."""
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.front.serve, theirs)
            yield GroupClient(ours)
            await ours.aclose()

    async def create(self, *streams: str) -> None:
        """Create streams, each as a topic or a partition of one."""
        for stream in streams:
            await self.back.perform(CreateStream(StreamRef(BASIN, stream)))

    async def delete(self, stream: str) -> None:
        """Delete a stream."""
        await self.back.perform(DeleteStream(StreamRef(BASIN, stream)))


@asynccontextmanager
async def running(directory: Path, wall: Wall | None = None) -> AsyncIterator[GroupFront]:
    """A front on the store in `directory`, with the topic `orders`."""
    wall = wall or Wall()
    async with open_embedded(EmbeddedSettings(directory=directory), wall) as back:
        found = GroupFront(back, wall)
        with suppress(OperationFailed):  # it is there
            await back.perform(CreateBasin(BASIN))
            await found.create("orders")
        async with trio.open_nursery() as nursery:
            await nursery.start(found.front.groups.run)
            yield found
            nursery.cancel_scope.cancel()


class Unlisted(BackWrapper):
    """A back of which a look for streams finds none if they are `hidden`, or ends with `failure` after `seconds`.
    `denied`: streams that the client may not read."""

    def __init__(self, inner: Back) -> None:
        super().__init__(inner)
        self.hidden = False
        self.failure: FailureCode | None = None
        self.seconds = 0.0
        self.denied: set[str] = set()

    async def perform(self, operation: Any) -> Any:
        if self.failure is not None and isinstance(operation, ListStreams | CheckTail):
            await trio.sleep(self.seconds)
            raise fail(self.failure, "no")
        if self.hidden and isinstance(operation, ListStreams):
            return Page([], has_more=False)
        return await super().perform(operation)

    def require(self, stream: StreamRef, needs: Any) -> None:
        if stream.stream in self.denied:
            raise fail(FailureCode.PERMISSION_DENIED, "no")
        super().require(stream, needs)


@asynccontextmanager
async def through_unlisted(front: GroupFront) -> AsyncIterator[tuple[GroupFront, Unlisted]]:
    """A second front over the store of a first one, through a back whose listings fail on demand."""
    back = Unlisted(front.back)
    found = GroupFront(front.back, front.wall, back)
    async with trio.open_nursery() as nursery:
        await nursery.start(found.front.groups.run)
        yield found, back
        nursery.cancel_scope.cancel()
