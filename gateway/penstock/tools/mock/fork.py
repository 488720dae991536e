"""Recorded streams up to a position, in an embedded store of their own, so that a test may append on.

The records keep their sequence numbers, timestamps and headers. A stream whose recording does not begin with its first
record is trimmed up to there. Of a protocol without sequence numbers the records are numbered from 0, in the order of
their positions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, NamedTuple

import msgspec

from penstock.app.bootstrap import open_store
from penstock.app.config import Config
from penstock.app.host import HostServices, OpenEmbedded
from penstock.app.streams.appending import divided
from penstock.app.streams.formats import NewRecord
from penstock.capture.dialogue import Message, SeenRecord
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.pcapng import CaptureEvent
from penstock.core.address import Address
from penstock.core.back import Back
from penstock.core.config_fields import DEFAULT_BASIN, check_basin, check_stream
from penstock.core.errors import CannotStart
from penstock.model.failures import OperationFailed
from penstock.model.limits import MIB
from penstock.model.operations import Append, EnsureBasin, EnsureStream, FromSeqNum, Trim
from penstock.model.records import RecordId, StreamRef, metered_size
from penstock.model.streams import BasinConfig, Retention, StreamConfig
from penstock.net.listeners import MANAGEMENT
from penstock.net.upstream import Watch
from penstock.protocols.plugin import listener_kinds
from penstock.tools.comparing.fields import unwrapped_record
from penstock.tools.mock.gateway import open_gateway

__all__ = ["ForkedRecords", "StreamFork", "open_fork", "parse_fork", "stream_recorded_as"]

MOST_BYTES: Final = 1024 * MIB
"""Most metered bytes of the forked records, which are held in memory while the recording is read."""
_AT_ONCE: Final = 500
"""Most records of one append of those that are trimmed."""
_BASIN: Final = BasinConfig(
    default_stream_config=StreamConfig(retention=Retention(None)),
    create_stream_on_append=True,
    create_stream_on_read=True,
)
_BY_NUMBER: Final = 0
_BY_ID: Final = 1
_BY_OFFSET: Final = 2
_BY_ARRIVAL: Final = 3


class StreamFork(NamedTuple):
    """A stream to fork: its records before the sequence number `position`; None: all that were recorded."""

    stream: StreamRef
    position: int | None


def parse_fork(text: str) -> StreamFork:
    """Parse STREAM[@POSITION]; a stream without a basin is in the basin `penstock`. Raises ValueError."""
    name, at, position = text.rpartition("@")
    if not (at and position.isdecimal() and position.isascii()):
        name, position = text, ""
    basin, slash, stream = name.partition("/")
    ref = StreamRef(basin, stream) if slash else StreamRef(DEFAULT_BASIN, name)
    try:
        check_basin("basin", ref.basin)
        check_stream("stream", ref.stream)
    except ValueError as error:
        raise ValueError(f"{text!r} is no stream, as in orders@100 or BASIN/orders@100: {error}") from error
    return StreamFork(ref, int(position) if position else None)


class ForkedRecords(msgspec.Struct):
    """The recorded records of streams to fork, as far as recordings were read."""

    forks: tuple[StreamFork, ...]
    _found: dict[StreamRef, dict[Any, NewRecord]] = msgspec.field(default_factory=dict)
    _size: int = 0

    def load(self, events: Iterable[CaptureEvent]) -> None:
        """Add the records of a recording, appended or read. Raises CannotStart if they are too many."""
        dialogues = Dialogues(lambda conversation: conversation.protocol != MANAGEMENT)
        for event in events:
            for item in dialogues.receive(event):
                if isinstance(item, Message):
                    for record in item.records:
                        self.add(record)

    def add(self, record: SeenRecord) -> None:
        """Add a record, unless it is another stream's, was not acknowledged, or is known. Raises CannotStart if there
        are too many."""
        protocol = "" if record.conversation is None else record.conversation.protocol
        stream = stream_recorded_as(protocol, record.stream)
        if stream is None or not record.acknowledged or all(fork.stream != stream for fork in self.forks):
            return
        record = unwrapped_record(record)
        place, timestamp = _place_of(record)
        body = bytes(record.body)
        records = self._found.setdefault(stream, {})
        if place in records:
            return
        records[place] = NewRecord(body, record.headers, timestamp)
        self._size += metered_size([body], {0: record.headers})
        if self._size > MOST_BYTES:
            raise CannotStart(f"--fork: the recorded records are more than {MOST_BYTES} bytes")

    def of(self, fork: StreamFork) -> tuple[int, list[NewRecord]]:
        """Return the first sequence number and the records of a fork. Raises CannotStart if the recording does not have
        all of them."""
        records = self._found.get(fork.stream)
        if not records:
            raise CannotStart(f"--fork: the recording has no records of {fork.stream}")
        kind = next(iter(records))[0]
        rows = sorted((place, seed) for place, seed in records.items() if place[0] == kind)
        numbers = [place[1] for place, _ in rows] if kind == _BY_NUMBER else list(range(len(rows)))
        first = numbers[0]
        end = numbers[-1] + 1 if fork.position is None else fork.position
        if end > numbers[-1] + 1:
            raise CannotStart(f"--fork: {fork.stream} was recorded up to {numbers[-1] + 1}, not to {end}")
        if end < first:
            raise CannotStart(f"--fork: {fork.stream} was recorded from {first} on, and not before {end}")
        missing = next((first + at for at, number in enumerate(numbers) if number != first + at), end)
        if missing < end:
            raise CannotStart(f"--fork: record {missing} of {fork.stream} is not in the recording")
        return first, [seed for _, seed in rows[: end - first]]


def stream_recorded_as(protocol: str, name: str) -> StreamRef | None:
    """Return the stream for a name in a recording; names without a basin are in the basin `penstock`. None if it is no
    stream."""
    kind = listener_kinds().get(protocol)
    if kind is None:
        basin, slash, stream = name.partition("/")
        return StreamRef(basin, stream) if slash else StreamRef(DEFAULT_BASIN, basin)
    try:
        return kind.recorded_stream(name, DEFAULT_BASIN) if name else None
    except OperationFailed:
        return None


def _place_of(record: SeenRecord) -> tuple[tuple[int, Any], int | None]:
    """Return a record's place among those of its stream, and its timestamp in ms."""
    if record.seq_num is not None:
        return (_BY_NUMBER, record.seq_num), record.timestamp
    if record.record_id is not None:
        number = RecordId.parse(record.record_id.encode())
        assert number is not None, "the dialogue has parsed it"
        return (_BY_ID, number), number.ms
    if record.offset is not None:
        return (_BY_OFFSET, record.offset), record.timestamp
    return (_BY_ARRIVAL, record.time_ns), record.timestamp


# ---- the gateway -----------------------------------------------------------------------------------------------------


def open_fork(records: ForkedRecords) -> AbstractAsyncContextManager[Mapping[str, Address]]:
    """Run a gateway with the forked streams until the block ends; yields the address of each kind of listener.

    Entering raises CannotStart if the recording does not have the records, or nothing can listen.
    """
    return _gateway({fork.stream: records.of(fork) for fork in records.forks})


@asynccontextmanager
async def _gateway(streams: Mapping[StreamRef, tuple[int, list[NewRecord]]]) -> AsyncIterator[Mapping[str, Address]]:
    services = HostServices(open_embedded=_seeded(streams))
    async with open_gateway(services=services) as (_, addresses):
        yield addresses


def _seeded(
    streams: Mapping[StreamRef, tuple[int, list[NewRecord]]],
) -> OpenEmbedded:
    @asynccontextmanager
    async def opened(config: Config, watch: Watch) -> AsyncIterator[Back]:
        async with open_store(config, watch) as back:
            for basin in {DEFAULT_BASIN, *(stream.basin for stream in streams)}:
                await back.perform(EnsureBasin(basin, _BASIN))
            for stream, (first, seeds) in streams.items():
                await back.perform(EnsureStream(stream, StreamConfig(timestamping_uncapped=True)))
                await _fill(back, stream, first, seeds)
            yield back

    return opened


async def _fill(back: Back, stream: StreamRef, first: int, seeds: list[NewRecord]) -> None:
    """Append the records from the sequence number `first` on."""
    for at in range(0, first, _AT_ONCE):
        bodies = [b"-"] * min(_AT_ONCE, first - at)
        await back.perform(Append(stream, bodies, metered_size(bodies, {}), timestamps=[0] * len(bodies)))
    if first:
        await back.perform(Trim(stream, FromSeqNum(first)))
    for batch in divided(seeds):
        bodies = [seed.body for seed in batch]
        headers = {index: seed.headers for index, seed in enumerate(batch) if seed.headers}
        stamps = [seed.timestamp for seed in batch]
        await back.perform(Append(stream, bodies, metered_size(bodies, headers), headers, stamps))
