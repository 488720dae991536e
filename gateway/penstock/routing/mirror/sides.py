"""The two sides of a mirrored stream: their tails, and creation and configuration of the secondary's stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from penstock.core.back import Back, Following, ReadSession
from penstock.model.byte_operations import GetByteStreamInfo, Seal
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import (
    Append,
    Capability,
    CheckTail,
    CreateBasin,
    CreateStream,
    FromSeqNum,
    GetBasinConfig,
    GetStreamConfig,
    Read,
    ReconfigureStream,
)
from penstock.model.records import NO_HEADERS, Record, RecordBatch, StreamRef, metered_size
from penstock.model.streams import BasinConfig, StreamConfig, StreamConfigPatch, TimestampingMode
from penstock.routing.mirror.hashing import HashedParts, alone

__all__ = ["NOT_THERE", "MirrorReader", "Sides", "kept_parts", "open_reader"]

NOT_THERE: Final = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND})
_THERE_ALREADY: Final = FailureCode.RESOURCE_ALREADY_EXISTS


def kept_parts(primary: Back, secondary: Back) -> HashedParts:
    """Return the parts of records that both backs keep."""
    able = primary.capabilities & secondary.capabilities
    return HashedParts({Capability.TIMESTAMPS, Capability.STORED_TIMESTAMPS} <= able, Capability.HEADERS in able)


class Sides(msgspec.Struct, frozen=True):
    """One stream on two backs."""

    stream: StreamRef
    primary: Back
    secondary: Back

    def both(self, capability: Capability) -> bool:
        """Return whether both backs have a capability."""
        return capability in self.primary.capabilities and capability in self.secondary.capabilities

    async def primary_tail(self) -> int | None:
        """Return the sequence number of the primary's next record, or None if the stream does not exist."""
        return await _tail(self.primary, self.stream)

    async def secondary_tail(self) -> int:
        """Return the sequence number of the secondary's next record. If the stream does not exist it is created with
        the primary's configuration, except that it keeps given timestamps."""
        tail = await _tail(self.secondary, self.stream)
        if tail is None:
            await self._create()
            return 0
        await self._keep_timestamps()
        return tail

    async def copy_seal(self, by_bytes: bool) -> None:
        """Seal the secondary's stream if the primary's is sealed. A primary that is not byte-based itself is asked only
        about streams that clients append bytes to (`by_bytes`), the only ones that it can know to be sealed."""
        may_be_sealed = by_bytes or Capability.TABLES in self.primary.capabilities
        if not (may_be_sealed and self.both(Capability.BYTES)):
            return
        if (await self.primary.perform(GetByteStreamInfo(self.stream))).sealed:
            await self.secondary.perform(Seal(self.stream))

    async def is_another(self, back: Back, seq_num: int, last: str, parts: HashedParts) -> bool:
        """Return whether the record at `seq_num` differs from the compared one, whose hash alone is `last`. False if
        the record is gone, since that cannot be decided."""
        read = Read(self.stream, FromSeqNum(seq_num), count=1, wait=0, create_if_missing=False)
        try:
            async with back.read_session(read) as session:
                while isinstance(event := await session.next(), Following):
                    pass
        except OperationFailed as error:
            if error.failure.code is FailureCode.RANGE_NOT_SATISFIABLE:  # all records are gone
                return False
            raise
        if event is None or event.first_seq_num != seq_num:
            return False
        return alone(next(iter(event.records())), parts) != last

    async def byte_shift(self) -> int:
        """Return by how many bytes the secondary's stream is shorter, 0 unless both backs know lengths in bytes."""
        if not self.both(Capability.BYTES):
            return 0
        length = (await self.primary.perform(GetByteStreamInfo(self.stream))).length
        return length - (await self.secondary.perform(GetByteStreamInfo(self.stream))).length

    async def give_configuration(self) -> None:
        """Configure the secondary's stream for a cut-over, to stamp records as the primary's does. The old primary's is
        configured to keep given timestamps by the next `secondary_tail`."""
        if not self.both(Capability.STREAM_CONFIG):
            return
        config = await self.primary.perform(GetStreamConfig(self.stream))
        patch = StreamConfigPatch(
            timestamping_mode=config.timestamping_mode, timestamping_uncapped=config.timestamping_uncapped
        )
        await self.secondary.perform(ReconfigureStream(self.stream, patch))

    async def append(self, records: Sequence[Record], expected: int) -> int:
        """Append records to the secondary at sequence number `expected`, and return its next one.

        Raises SEQ_NUM_MISMATCH if another client has appended to it.
        """
        headers = {index: tuple(record.headers) for index, record in enumerate(records) if record.headers}
        bodies = [record.body for record in records]
        able = self.secondary.capabilities
        append = Append(
            self.stream,
            bodies,
            metered_size(bodies, headers),
            headers=headers or NO_HEADERS,
            timestamps=[record.timestamp for record in records] if Capability.TIMESTAMPS in able else None,
            match_seq_num=expected if Capability.MATCH_SEQ_NUM in able else None,
            writer_seq=expected,
            create_if_missing=False,
        )
        done = await self.secondary.perform(append)
        if done.start.seq_num != expected:
            reason = f"the secondary gave record {expected} number {done.start.seq_num}: another client appends there"
            raise fail(FailureCode.SEQ_NUM_MISMATCH, reason, seq_num_mismatch=done.end.seq_num)
        return done.end.seq_num

    async def _create(self) -> None:
        config = StreamConfig()
        if self.both(Capability.STREAM_CONFIG):
            found = await self.primary.perform(GetStreamConfig(self.stream))
            config = StreamConfig(
                retention=found.retention,
                retention_bytes=found.retention_bytes or None,
                timestamping_mode=TimestampingMode.CLIENT_PREFER,
                timestamping_uncapped=True,
                delete_on_empty_seconds=found.delete_on_empty_seconds,
            )
        try:
            await self.secondary.perform(CreateStream(self.stream, config))
        except OperationFailed as error:
            if error.failure.code is FailureCode.BASIN_NOT_FOUND and Capability.BASINS in self.secondary.capabilities:
                await self._create_basin()
                await self.secondary.perform(CreateStream(self.stream, config))
            elif error.failure.code is not _THERE_ALREADY:
                raise

    async def _create_basin(self) -> None:
        config = BasinConfig()
        if Capability.BASINS in self.primary.capabilities:
            config = await self.primary.perform(GetBasinConfig(self.stream.basin))
        try:
            await self.secondary.perform(CreateBasin(self.stream.basin, config))
        except OperationFailed as error:
            if error.failure.code is not _THERE_ALREADY:
                raise

    async def _keep_timestamps(self) -> None:
        if Capability.STREAM_CONFIG not in self.secondary.capabilities:
            return
        config = await self.secondary.perform(GetStreamConfig(self.stream))
        if config.timestamping_mode is TimestampingMode.ARRIVAL or not config.timestamping_uncapped:
            patch = StreamConfigPatch(timestamping_mode=TimestampingMode.CLIENT_PREFER, timestamping_uncapped=True)
            await self.secondary.perform(ReconfigureStream(self.stream, patch))


async def _tail(back: Back, stream: StreamRef) -> int | None:
    try:
        return (await back.perform(CheckTail(stream, create_if_missing=False))).seq_num
    except OperationFailed as error:
        if error.failure.code in NOT_THERE:
            return None
        raise


class MirrorReader:
    """Reader of one stream by sequence number. It starts a new read when one has ended, and holds at most one batch."""

    def __init__(self, back: Back, stream: StreamRef, patience: float) -> None:
        self._back = back
        self._stream = stream
        self._patience = patience
        self._stack = AsyncExitStack()
        self._session: ReadSession | None = None
        self._batch: RecordBatch | None = None

    async def take(self, seq_num: int, most: int) -> list[Record]:
        """Return at least one and at most `most` records, beginning with the first at or after `seq_num`.

        Raises UPSTREAM_TIMEOUT if none arrives within `patience` seconds.
        """
        batch = self._batch
        while batch is None or batch.next_seq_num <= seq_num:
            batch = self._batch = await self._next(seq_num)
        first = max(seq_num - batch.first_seq_num, 0)
        return list(batch.part(first, min(first + most, batch.count)).records())

    async def _next(self, seq_num: int) -> RecordBatch:
        for _ in range(2):  # a read that began long ago may end at once
            if self._session is None:
                read = Read(self._stream, FromSeqNum(seq_num), wait=self._patience, create_if_missing=False)
                self._session = await self._stack.enter_async_context(self._back.read_session(read))
            while (event := await self._session.next()) is not None:
                if not isinstance(event, Following):
                    return event
            await self.close()
        reason = f"record {seq_num} of stream {self._stream} was acknowledged and cannot be read back"
        raise fail(FailureCode.UPSTREAM_TIMEOUT, f"{reason} after {self._patience:g} s")

    async def close(self) -> None:
        """End the read."""
        self._session = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()


@asynccontextmanager
async def open_reader(back: Back, stream: StreamRef, patience: float) -> AsyncIterator[MirrorReader]:
    """Provide a `MirrorReader` and close it at the end of the block."""
    reader = MirrorReader(back, stream, patience)
    try:
        yield reader
    finally:
        await reader.close()
