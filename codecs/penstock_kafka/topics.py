"""Topics found among streams: their partitions, and the stream of each.

Nothing is remembered: clients of all protocols create and delete streams.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

import structlog

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CheckTail, CreateStream, DeleteStream, ListStreams
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig, StreamInfo
from penstock.net.limits.work import in_turns
from penstock_kafka.names import KafkaNames, topics_of, without_gap

__all__ = ["FirstPartition", "FoundTopic", "KafkaTopics"]

log = structlog.get_logger()
T = TypeVar("T")

MOST_STREAMS: Final = 100_000
"""Most streams of a basin that are looked through for all topics."""
_PAGE: Final = 1000
_ABSENT: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.NOT_REPRESENTABLE})
"""Failures that say that a stream is not there, or cannot be: some servers have no slash in their names."""


class FirstPartition(NamedTuple):
    """The stream of a topic's partition 0, and when it was created, in Unix ms."""

    stream: StreamRef
    created_at: int


class FoundTopic(NamedTuple):
    """A topic in a listing."""

    partitions: int
    first: FirstPartition


class KafkaTopics:
    """The topics of one listener."""

    def __init__(self, back: Back, names: KafkaNames) -> None:
        self._back = back
        self._names = names
        self._conflicts: set[str] = set()

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises STREAM_NOT_FOUND if it does not exist, BAD_PATH."""
        if await self._exists(self._names.to_stream(topic)):
            return 1
        if count := without_gap(await self._numbers(topic)):
            return count
        raise self._unknown(topic)

    async def all(self) -> dict[str, FoundTopic]:
        """Return all topics; none of a server that cannot list its streams. Raises LIMIT_EXCEEDED for too many
        streams."""
        infos = await self._infos("")
        if infos is None:
            log.info("topics_not_listed", basin=self._names.basin)
        times = {info.name: info.created_at async for info in in_turns(infos or ())}
        async for topic in in_turns(times):
            if "/" not in topic and f"{topic}/0" in times and topic not in self._conflicts:
                self._conflicts.add(topic)
                advice = "delete one of the two, or the topic, which deletes both"
                log.warning("topic_hides_partitions", basin=self._names.basin, topic=topic, advice=advice)
        return {
            topic: FoundTopic(count, self._first(topic if topic in times else f"{topic}/0", times))
            async for topic, count in in_turns((await topics_of(times)).items())
        }

    def _first(self, name: str, times: Mapping[str, int]) -> FirstPartition:
        return FirstPartition(StreamRef(self._names.basin, name), times[name])

    async def first_partition(self, topic: str) -> FirstPartition | None:
        """Return the first partition of a topic; None if the server cannot list its streams. Raises STREAM_NOT_FOUND,
        BAD_PATH."""
        for stream in (self._names.to_stream(topic), self._names.member(topic, 0)):
            infos = await self._infos(stream.stream, most=1)
            if infos is None:
                return None
            if infos and infos[0].name == stream.stream:
                return FirstPartition(stream, infos[0].created_at)
        raise self._unknown(topic)

    async def exists(self, first: FirstPartition) -> bool:
        """Return whether a first partition still exists, and was not created again, for a client that may list it."""
        try:
            infos = await self._infos(first.stream.stream, most=1)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.PERMISSION_DENIED:
                raise
            return False
        return any((info.name, info.created_at) == (first.stream.stream, first.created_at) for info in infos or ())

    async def creations(self, topic: str) -> dict[int, tuple[StreamRef, int]]:
        """Return the stream of each partition of a topic, and its creation time in Unix ms, which tells it from earlier
        ones of its name; 0 if the server cannot list its streams. Raises STREAM_NOT_FOUND, BAD_PATH."""
        whole = self._names.to_stream(topic)
        first = await self._infos(topic, most=1)
        if first is None:
            if await self._exists(whole):
                return {0: (whole, 0)}
            return {number: (self._names.member(topic, number), 0) for number in range(await self.partitions(topic))}
        if first and first[0].name == whole.stream:
            return {0: (whole, first[0].created_at)}
        streams = {
            StreamRef(self._names.basin, info.name): info.created_at for info in await self._infos(f"{topic}/") or ()
        }
        members = {
            self._names.from_stream(stream).partition: (stream, at)
            for stream, at in streams.items()
            if self._names.is_member(stream, topic)
        }
        if not members:
            raise self._unknown(topic)
        return members

    async def on(self, topic: str, partition: int, use: Callable[[StreamRef], Awaitable[T]]) -> T:
        """Return `use(stream)` for the stream of a partition. Raises STREAM_NOT_FOUND, BAD_PATH, and what `use` raises.

        `use` must fail with STREAM_NOT_FOUND for a stream that does not exist, and may then be called for another.
        """
        whole = self._names.to_stream(topic)
        if partition < 0:
            raise self._unknown(topic)
        if partition == 0:
            try:
                return await use(whole)
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                    raise
        try:
            return await use(self._names.member(topic, partition))
        except OperationFailed as error:
            if error.failure.code not in _ABSENT:
                raise
            raise self._unknown(topic) from None

    async def create(self, topic: str, partitions: int, config: StreamConfig) -> None:
        """Create a topic. Partition 0 comes last: with it the topic exists.

        Raises RESOURCE_ALREADY_EXISTS, BAD_PATH.
        """
        await self.check_absent(topic)
        try:
            for stream in self._streams(topic, partitions):
                await self._back.perform(CreateStream(stream, config))
        except OperationFailed as error:
            if error.failure.code is FailureCode.INVALID:  # the other shape may have been created meanwhile
                await self.check_absent(topic)
            raise

    async def grow(self, topic: str, first: int, partitions: int, config: StreamConfig) -> None:
        """Create the partitions from `first` on of a topic of several, up to so many, in their order: those before a
        failure are there. Raises RESOURCE_ALREADY_EXISTS, BAD_PATH."""
        for number in range(first, partitions):
            await self._back.perform(CreateStream(self._names.member(topic, number), config))

    async def ensure(self, topic: str, partitions: int) -> None:
        """Create a topic, if its basin creates streams on append and the client may append to it. Raises
        STREAM_NOT_FOUND, PERMISSION_DENIED, BAD_PATH."""
        for stream in self._streams(topic, partitions):
            async with self._back.append_session(stream):
                pass

    async def check_absent(self, topic: str) -> None:
        """Raise RESOURCE_ALREADY_EXISTS if the topic, or a stream of one of its partitions, exists; BAD_PATH."""
        if await self._exists(self._names.to_stream(topic)):
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, f"topic {topic} exists")
        if numbers := await self._numbers(topic):
            reason = f"topic {topic} exists in part: stream {self._names.member(topic, min(numbers))}"
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, reason)

    async def delete(self, topic: str) -> None:
        """Delete a topic in both shapes, or what an interrupted deletion has left of it. Partition 0 goes first:
        without it the topic does not exist. Raises STREAM_NOT_FOUND, BAD_PATH."""
        is_deleted = True
        try:
            await self._back.perform(DeleteStream(self._names.to_stream(topic)))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            is_deleted = False
        try:
            numbers = await self._numbers(topic)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.PERMISSION_DENIED or not is_deleted:
                raise
            return  # a stream and its partitions exist together only if an older gateway created them
        if not numbers and not is_deleted:
            raise self._unknown(topic)
        for number in sorted(numbers):
            await self._back.perform(DeleteStream(self._names.member(topic, number)))

    def _streams(self, topic: str, partitions: int) -> list[StreamRef]:
        if partitions == 1:
            return [self._names.to_stream(topic)]
        return [self._names.member(topic, number) for number in reversed(range(partitions))]

    async def _exists(self, stream: StreamRef) -> bool:
        try:
            await self._back.perform(CheckTail(stream, create_if_missing=False))
        except OperationFailed as error:
            if error.failure.code not in _ABSENT:
                raise
            return False
        return True

    async def _numbers(self, topic: str) -> set[int]:
        """Return the numbers of those partitions of a set that exist; of a server that cannot list its streams, those
        before the first gap."""
        names = await self._listed(f"{topic}/")
        if names is not None:
            members = [StreamRef(self._names.basin, name) for name in names]
            return {
                self._names.from_stream(member).partition for member in members if self._names.is_member(member, topic)
            }
        count = 0
        while await self._exists(self._names.member(topic, count)):
            count += 1
        return set(range(count))

    async def _listed(self, prefix: str) -> list[str] | None:
        """Return the names of streams that begin with `prefix`, none if there is no such basin; None if the server
        cannot list its streams."""
        infos = await self._infos(prefix)
        return None if infos is None else [info.name for info in infos]

    async def _infos(self, prefix: str, most: int = MOST_STREAMS) -> list[StreamInfo] | None:
        """Return the streams that begin with `prefix`, the first `most` of them, as `_listed` does; 1 to look for the
        stream of this name."""
        infos: list[StreamInfo] = []
        while True:
            after = infos[-1].name if infos else ""
            listing = ListStreams(self._names.basin, prefix, after, min(_PAGE, most), exact=most == 1)
            try:
                page = await self._back.perform(listing)
            except OperationFailed as error:
                if error.failure.code is FailureCode.NOT_IMPLEMENTED:
                    return None
                if error.failure.code is not FailureCode.BASIN_NOT_FOUND:
                    raise
                return []
            infos += page.items
            if not page.has_more or most < MOST_STREAMS:
                return infos
            if len(infos) >= MOST_STREAMS:
                reason = f"basin {self._names.basin} has more than {MOST_STREAMS} streams"
                raise fail(FailureCode.LIMIT_EXCEEDED, reason)

    def _unknown(self, topic: str) -> OperationFailed:
        return fail(FailureCode.STREAM_NOT_FOUND, f"topic {topic!r:.80} has no such partition, or does not exist")
