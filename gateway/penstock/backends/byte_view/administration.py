"""Attributes, seals and merges of streams as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Final, Protocol

from penstock.backends.byte_view.appends import ByteViewAppends
from penstock.backends.byte_view.settings import BytesSettings
from penstock.backends.byte_view.streams import ByteStream, ByteStreams, OffsetCounter
from penstock.core.back import Back
from penstock.model.attributes import updated
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    AppendBytes,
    Attribute,
    GetAttribute,
    GetByteStreamInfo,
    Merge,
    Merged,
    ReadBytes,
    Seal,
    UpdateAttribute,
    WriterPosition,
)
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.model.operations import DeleteStream
from penstock.model.records import StreamRef

__all__ = ["ByteAdministration", "SourceBacks"]

_READ: Final = 1 * MIB


class SourceBacks(Protocol):
    """Finds the backs of a merge's sources, which a router may have sent elsewhere than its target."""

    def back_of(self, stream: StreamRef) -> Back | None:
        """Return the back that has this stream under the same name, or None if that is the target's back."""


class ByteAdministration:
    """Carries out attribute operations, seals and merges for all streams of one back."""

    def __init__(
        self,
        back: Back,
        streams: ByteStreams,
        counter: OffsetCounter,
        appends: ByteViewAppends,
        settings: BytesSettings,
        sources: SourceBacks | None,
    ) -> None:
        self._sources = sources
        self._back = back
        self._streams = streams
        self._counter = counter
        self._appends = appends
        self._settings = settings

    # ---- attributes ------------------------------------------------------------------------------------------------

    async def get_attribute(self, operation: GetAttribute) -> int:
        """Carry out `GetAttribute`, after finding out which unacknowledged appends the back has."""
        stream = await self._streams.find(operation.stream)
        with stream.used():
            await self._appends.settle(stream)
            return await stream.writers.value(operation.attribute)

    async def update_attribute(self, operation: UpdateAttribute) -> bool:
        """Carry out `UpdateAttribute` and return whether the value was as expected."""
        stream = await self._streams.find(operation.stream)
        with stream.used():
            await self._appends.settle(stream)
            async with stream.changing:
                if await stream.writers.value(operation.attribute) != operation.expected:
                    return False
                await stream.writers.change({operation.attribute: operation.value})
                return True

    # ---- seals -----------------------------------------------------------------------------------------------------

    async def seal(self, operation: Seal, now: int) -> int:
        """Carry out `Seal` and return the length. `now` is the time of day in ms.

        The server does not know of the seal: it holds only for appends through gateways with the same state.
        """
        stream = await self._streams.find(operation.stream)
        with stream.used():
            async with stream.changing:
                if stream.row.sealed_at is not None:
                    return stream.row.sealed_at
                stream.sealing = True
                try:
                    if self._streams.several:
                        await stream.save(sealing=True)  # see `ByteStreams.sealed_end`
                    await self._appends.settle(stream)
                    await self._appends.settle_records(stream.ref)
                    await self._counter.catch_up(stream)
                    await stream.offsets.save()
                    end = stream.offsets.end
                    sealed = {"sealed_at": end.offset, "sealed_seq_num": end.seq_num, "sealing": False}
                    await stream.save(**sealed, last_modified=now)
                finally:
                    stream.sealing = stream.row.sealed_at is not None
                return stream.offsets.end.offset

    # ---- merges ----------------------------------------------------------------------------------------------------

    async def merge(self, operation: Merge) -> Merged:
        """Carry out `Merge`.

        All bytes are appended as one append, so the merge is as atomic as an append is. The append has a writer of its
        own, made of the sources' names, so that repeating an interrupted merge appends nothing twice. Attributes are
        changed after the append, and then the sources are deleted.
        """
        target = await self._streams.find(operation.target)
        with target.used():
            places = [self._find(source) for source in operation.sources]
            await self._check(operation, target, places)
            values = await self._updates(operation, target)
            lengths = [await back.perform(Seal(source)) for back, source in places]
            if sum(lengths) > self._settings.max_merge_bytes:
                raise self._too_large(sum(lengths))
            pieces = tuple([await _read(*place, length) for place, length in zip(places, lengths, strict=True)])
            end = await self._append(operation, target, pieces)
            if values:
                await target.writers.change(values)
            for back, source in places:
                await _delete(back, source)
            await self._forget_writer(operation, target)
        total = sum(map(len, pieces))
        return Merged(tuple(accumulate(map(len, pieces), initial=end - total))[1:])

    def _find(self, source: StreamRef) -> tuple[Back, StreamRef]:
        elsewhere = None if self._sources is None else self._sources.back_of(source)
        return elsewhere or self._back, source

    async def _check(self, operation: Merge, target: ByteStream, places: Sequence[tuple[Back, StreamRef]]) -> None:
        """Check the conditions of a merge before anything is changed. Raises OperationFailed as `Merge` says."""
        if len({operation.target, *operation.sources}) <= len(operation.sources):
            raise fail(FailureCode.INVALID, "a stream cannot be merged with itself, nor twice")
        infos = [await back.perform(GetByteStreamInfo(source)) for back, source in places]
        if target.sealing:
            raise fail(FailureCode.STREAM_SEALED, f"stream {target.ref} is sealed")
        total = sum(info.length for info in infos)
        if total > self._settings.max_merge_bytes:
            raise self._too_large(total)
        if any(info.start_offset for info in infos):
            raise fail(FailureCode.INVALID, "a stream to merge was truncated: its first bytes are gone")

    def _too_large(self, total: int) -> OperationFailed:
        allowed = self._settings.max_merge_bytes
        return fail(FailureCode.LIMIT_EXCEEDED, f"{total} bytes to merge, {allowed} are allowed")

    async def _updates(self, operation: Merge, target: ByteStream) -> dict[Attribute, int]:
        """Return the values of the target's attributes after the merge. Raises TRANSACTION_CONFLICT."""
        values: dict[Attribute, int] = {}
        if operation.updates:
            await self._appends.settle(target)
        for update in operation.updates:
            name = update.attribute
            values[name] = updated(update, values[name] if name in values else await target.writers.value(name))
        return values

    async def _append(self, operation: Merge, target: ByteStream, pieces: Sequence[bytes]) -> int:
        """Append the sources' bytes unless an earlier attempt did, and return the length of the target."""
        data = b"".join(pieces)
        if data:
            writer = WriterPosition(_writer_of(operation), len(data), NO_ATTRIBUTE)
            try:
                appended = await self._appends.append_bytes(AppendBytes(target.ref, data, writer), tuple(pieces))
                assert appended.offset is not None
                return appended.offset
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STALE_WRITER_POSITION:
                    raise
        await self._counter.catch_up(target)
        return target.offsets.end.offset

    async def _forget_writer(self, operation: Merge, target: ByteStream) -> None:
        writer = _writer_of(operation)
        if await target.writers.value(writer) != NO_ATTRIBUTE:
            await target.writers.change({writer: NO_ATTRIBUTE})


def _writer_of(operation: Merge) -> Attribute:
    names = "\n".join(map(str, operation.sources))
    return blake2b(names.encode(), digest_size=16, person=b"penstock-merge").digest()


async def _read(back: Back, source: StreamRef, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        bytes_read = await back.perform(ReadBytes(source, len(data), _READ))
        if not bytes_read.data:
            raise fail(FailureCode.STORAGE, f"bytes of {source}, a stream to merge, are missing")
        data += bytes_read.data
    return bytes(data)


async def _delete(back: Back, source: StreamRef) -> None:
    try:
        await back.perform(DeleteStream(source))
    except OperationFailed as error:
        if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
            raise
