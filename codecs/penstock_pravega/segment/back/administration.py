"""Requests about whole segments: through the controller if it manages the stream, else directly to the store."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from penstock.model.byte_operations import ByteStreamInfo
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import ListBasins, ListStreams, Page
from penstock.model.records import StreamRef
from penstock.model.streams import BasinInfo, StreamInfo
from penstock_pravega.codec import Dialect, released
from penstock_pravega.segment.back.controller import ControllerClient
from penstock_pravega.segment.back.reader import StoreReader
from penstock_pravega.segment.back.stores import SegmentStores
from penstock_pravega.segment.names import SegmentName

__all__ = ["SegmentAdministration"]

_PAUSE: Final = 0.1
"""Seconds between attempts to create a segment that is still being deleted."""
_PATIENCE: Final = 1.0
"""Seconds after which that is given up."""
_INTERNAL: Final = "_"
"""Prefix of the names of the controller's internal scopes and streams."""


class SegmentAdministration:
    """Requests about whole segments. All methods raise OperationFailed."""

    def __init__(self, stores: SegmentStores, reader: StoreReader) -> None:
        self.settings = stores.settings
        self._stores = stores
        self._reader = reader

    async def info(self, stream: StreamRef) -> ByteStreamInfo:
        """Return offsets and state of a stream. Raises STREAM_NOT_FOUND."""
        try:
            return await self._reader.info(await self._stores.segment_of(stream))
        except OperationFailed as error:
            raise await self.explained(stream, error) from None

    async def explained(self, stream: StreamRef, error: OperationFailed) -> OperationFailed:
        """Return the failure with more details: a sealed stream's successors, or where a stream ends."""
        failure = error.failure
        if failure.code is FailureCode.STREAM_NOT_FOUND:
            self._stores.forget_stream(stream)
            return fail(failure.code, f"stream {stream} not found: {failure.message}")
        try:
            if failure.code is FailureCode.STREAM_SEALED:
                return await self._sealed(stream, failure)
            if failure.code is FailureCode.OFFSET_MISMATCH and "offset" not in failure.details:
                end = (await self._reader.info(await self._stores.segment_of(stream))).length
                return OperationFailed(Failure(failure.code, f"{failure.message}, but at {end}", {"offset": end}))
            if failure.code is FailureCode.STALE_WRITER_POSITION:
                info = await self._reader.info(await self._stores.segment_of(stream))
                if info.sealed:
                    return fail(FailureCode.STREAM_SEALED, f"stream {stream} is sealed")
        except OperationFailed:
            pass  # the failure itself is enough
        return error

    async def _sealed(self, stream: StreamRef, failure: Failure) -> OperationFailed:
        if self._stores.controller is None:
            return OperationFailed(failure)
        segment = SegmentName.parse(await self._stores.segment_of(stream), self.settings.names.basin)
        after = await self._stores.controller.successors(segment)
        if not after:
            return OperationFailed(failure)
        streams = ", ".join(str(self.settings.names.to_stream(name)) for name in after)
        return OperationFailed(Failure(failure.code, f"{failure.message}; it was scaled, and goes on in {streams}"))

    # ---- creation and deletion ---------------------------------------------------------------------------------------

    async def create(self, stream: StreamRef) -> bool:
        """Create a stream. Returns False if it existed."""
        name = self._stores.name_of(stream)
        self._stores.forget_stream(stream)
        if self._stores.is_managed(stream, name):
            return await self._controller.create(name.scope, name.stream)
        return await self._create_segment(str(name))

    async def _create_segment(self, segment: str) -> bool:
        """Create a segment. Returns False if it existed. Raises STREAM_DELETION_PENDING.

        A real store claims for a while that a deleted segment exists already, or for ever (release 0.13, if it had been
        appended to).
        """
        until = trio.current_time() + _PATIENCE
        while not await self._created(segment):
            if await self._is_there(segment):
                return False
            if trio.current_time() > until:
                message = f"{self.settings.upstream.where} still has segment {segment}, which was deleted"
                raise fail(FailureCode.STREAM_DELETION_PENDING, message)
            await trio.sleep(_PAUSE)
        return True

    async def _created(self, segment: str) -> bool:
        try:
            await self._stores.ask(
                segment, lambda request_id, token: released.CreateSegment(request_id, segment, 0, 0, token)
            )
        except OperationFailed as error:
            if error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            return False
        return True

    async def _is_there(self, segment: str) -> bool:
        try:
            await self._reader.info(segment)
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            return False
        return True

    async def delete(self, stream: StreamRef) -> None:
        """Delete a stream. Raises STREAM_NOT_FOUND."""
        name = self._stores.name_of(stream)
        try:
            if self._stores.is_managed(stream, name):
                await self._controller.delete(name.scope, name.stream)
                return
            segment = str(name)
            await self._stores.ask(
                segment, lambda request_id, token: released.DeleteSegment(request_id, segment, token)
            )
        finally:
            self._reader.forget(await self._stores.segment_of(stream))
            self._stores.forget_stream(stream)

    async def truncate(self, stream: StreamRef, offset: int) -> int:
        """Remove the bytes before `offset`; return the first offset that is kept.

        Never moves backwards. Raises INVALID beyond the end.
        """
        segment = await self._stores.segment_of(stream)
        if self.settings.dialect is Dialect.DRAFT:  # it has no reply that refuses this
            info = await self.info(stream)
            if offset > info.length:
                raise self._beyond(stream, info.length, offset)
            if offset <= info.start_offset:
                return info.start_offset
        try:
            await self._stores.ask(
                segment,
                lambda request_id, token: released.TruncateSegment(request_id, segment, offset, token),
                idempotent=True,
            )
        except OperationFailed as error:
            if error.failure.code is not FailureCode.OFFSET_TRUNCATED:
                raise await self.explained(stream, error) from None
            info = await self.info(stream)
            if offset > info.length:
                raise self._beyond(stream, info.length, offset) from None
            return info.start_offset
        return offset

    def _beyond(self, stream: StreamRef, length: int, offset: int) -> OperationFailed:
        return fail(FailureCode.INVALID, f"stream {stream} ends at {length}: it cannot be truncated at {offset}")

    async def seal(self, stream: StreamRef) -> int:
        """Seal a stream against further appends and return its final length. Sealing it twice is not an error."""
        segment = await self._stores.segment_of(stream)
        try:
            await self._stores.ask(
                segment, lambda request_id, token: released.SealSegment(request_id, segment, token), idempotent=True
            )
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_SEALED:
                raise await self.explained(stream, error) from None
        return (await self.info(stream)).length

    @property
    def _controller(self) -> ControllerClient:
        assert self._stores.controller is not None, "asked of streams that it manages"
        return self._stores.controller

    # ---- listing -----------------------------------------------------------------------------------------------------

    async def list_basins(self, operation: ListBasins) -> Page[BasinInfo]:
        """List the basins that hold streams of the controller's scopes, by name. Raises NOT_IMPLEMENTED without a
        controller."""
        self._require_controller()
        names = sorted({basin for _, basin in await self._scopes()})
        fitting = [name for name in names if name.startswith(operation.prefix) and name > operation.start_after]
        items = [BasinInfo(name=name, created_at=0) for name in fitting[: operation.limit]]
        return Page(items, has_more=len(fitting) > operation.limit)

    async def list_streams(self, operation: ListStreams) -> Page[StreamInfo]:
        """List a basin's streams by name. Raises NOT_IMPLEMENTED without a controller."""
        self._require_controller()
        names = sorted(await self._names_in(operation.basin))
        fitting = [name for name in names if name.startswith(operation.prefix) and name > operation.start_after]
        items = [StreamInfo(name=name, created_at=0) for name in fitting[: operation.limit]]
        return Page(items, has_more=len(fitting) > operation.limit)

    def _require_controller(self) -> None:
        """Raise NOT_IMPLEMENTED without a controller."""
        if self._stores.controller is None:
            where = self.settings.upstream.where
            raise fail(FailureCode.NOT_IMPLEMENTED, f"{where}: streams can be listed where a controller is configured")

    async def _scopes(self) -> list[tuple[str, str]]:
        """Return the controller's scopes, without its internal ones, each with the basin that holds its streams."""
        scopes = []
        for scope in await self._controller.scopes():
            if not scope.startswith(_INTERNAL):
                with suppress(OperationFailed):  # a name that is no basin's and no stream's
                    scopes.append((scope, self.settings.names.basin_of(scope)[0]))
        return scopes

    async def _names_in(self, basin: str) -> list[str]:
        """Return the streams of a basin's scope.

        The back's own basin also has those of all scopes whose names are not basins'.
        """
        names = self.settings.names
        names_in_scope: list[str] = []
        for scope, holder in await self._scopes():
            if holder != basin:
                continue
            try:
                streams = await self._controller.streams(scope)
            except OperationFailed as error:
                if error.failure.code in (FailureCode.BASIN_NOT_FOUND, FailureCode.NOT_REPRESENTABLE):
                    continue  # deleted meanwhile
                raise
            names_in_scope += [
                names.to_stream(SegmentName(scope, stream)).stream
                for stream in streams
                if not stream.startswith(_INTERNAL)
            ]
        return names_in_scope
