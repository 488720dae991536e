"""Locations of segments, and requests to the stores that have them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import trio
from msgspec.structs import replace

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.records import StreamRef
from penstock.net.retries import RetryPolicy, retrying
from penstock.net.upstream import Upstream, UpstreamSettings
from penstock_pravega.codec import SegmentMessage, draft, released
from penstock_pravega.codec.refusals import refusal
from penstock_pravega.segment.back.controller import ControllerClient, StoreAddress
from penstock_pravega.segment.back.pool import ConnectionPool, ConnectionUse
from penstock_pravega.segment.back.settings import SegmentBackSettings
from penstock_pravega.segment.names import SegmentName

__all__ = ["Make", "SegmentStores"]

T = TypeVar("T")

Make = Callable[[int, str], SegmentMessage]
"""Maker of a request for a request id and a delegation token."""

_MOST_REMEMBERED: Final = 10_000
"""Segments whose location, name or token is remembered; about 300 bytes each."""


class _Remembered(OrderedDict[str, T]):
    """Cache of the most recent entries."""

    def keep(self, key: str, value: T) -> T:
        """Store a value and forget the oldest ones."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > _MOST_REMEMBERED:
            self.popitem(last=False)
        return value


class SegmentStores:
    """All segment stores of a back. Their connections run in `nursery`; `server` makes an `Upstream` for one."""

    def __init__(
        self,
        settings: SegmentBackSettings,
        nursery: trio.Nursery,
        controller: ControllerClient | None,
        server: Callable[[UpstreamSettings], Upstream],
    ) -> None:
        self.settings = settings
        self.nursery = nursery
        self.controller = controller
        self._server = server
        self._pools: dict[StoreAddress, ConnectionPool] = {}
        self._places: _Remembered[StoreAddress] = _Remembered()
        self._tokens: _Remembered[str] = _Remembered()
        self._segments: _Remembered[str] = _Remembered()
        self._policy = RetryPolicy(total_seconds=min(settings.recover_seconds, settings.upstream.request_seconds))

    # ---- names -------------------------------------------------------------------------------------------------------

    async def segment_of(self, stream: StreamRef) -> str:
        """Return a stream's segment; with a controller, the current first segment of the stream.

        Raises NOT_REPRESENTABLE if segment stores have no name for it.
        """
        name = self.name_of(stream)
        if not self.is_managed(stream, name):
            return str(name)
        segment_name = self._segments.get(str(name))
        if segment_name is None:
            assert self.controller is not None, "it manages the stream"
            segment_name = self._segments.keep(str(name), str(await self.controller.first_segment(name)))
        return segment_name

    def name_of(self, stream: StreamRef) -> SegmentName:
        """Return the segment name that a stream's name means. Raises NOT_REPRESENTABLE."""
        if stream.basin == INTERNAL_BASIN:
            return SegmentName.parse(stream.stream, self.settings.names.basin)
        return self.settings.names.from_stream(stream)

    def is_managed(self, stream: StreamRef, name: SegmentName) -> bool:
        """Return whether the controller creates and deletes a stream: a client's, not a single segment of one."""
        return self.controller is not None and stream.basin != INTERNAL_BASIN and name.id == 0

    def forget_stream(self, stream: StreamRef) -> None:
        """Forget what is known about a stream, because it was created or deleted."""
        name = str(self.name_of(stream))
        segment = self._segments.pop(name, name)
        self._places.pop(segment, None)
        self._tokens.pop(segment, None)

    # ---- locations ---------------------------------------------------------------------------------------------------

    async def pool(self, segment: str) -> ConnectionPool:
        """Return the connections to the store that has a segment.

        Raises OperationFailed if the controller fails to tell.
        """
        store = self.settings.store
        if store is not None:
            return self._lines_to(StoreAddress(store.host, store.port))
        place = self._places.get(segment)
        if place is None:
            assert self.controller is not None, "settings have one of the two"
            name = SegmentName.parse(segment, self.settings.names.basin)
            place = self._places.keep(segment, await self.controller.where(name))
        return self._lines_to(place)

    def add(self, upstream: Upstream) -> ConnectionPool:
        """Add a store."""
        settings = upstream.settings
        pool = self._pools[StoreAddress(settings.host, settings.port)] = ConnectionPool(
            upstream, self.settings, self.nursery
        )
        return pool

    def _lines_to(self, place: StoreAddress) -> ConnectionPool:
        pool = self._pools.get(place)
        if pool is None:
            settings = replace(self.settings.upstream, host=place.host, port=place.port, protocol="segment")
            pool = self.add(self._server(settings))
        return pool

    def moved(self, segment: str) -> None:
        """Forget a segment's location: it has moved, or its store cannot be reached."""
        self._places.pop(segment, None)

    async def token(self, segment: str) -> str:
        """Return the delegation token to send with requests about a segment."""
        settings = self.settings
        if settings.delegation_token or settings.username is None or self.controller is None:
            return settings.delegation_token
        delegation_token = self._tokens.get(segment)
        if delegation_token is None:
            name = SegmentName.parse(segment, settings.names.basin)
            delegation_token = self._tokens.keep(segment, await self.controller.token(name))
        return delegation_token

    def failure_of(self, reply: Any, pool: ConnectionPool, segment: str) -> Failure | None:
        """Return the failure in a reply, if any.

        Forgets the segment's location or token if the reply says that they are wrong.
        """
        failure = refusal(reply, pool.upstream.settings.where, segment)
        if isinstance(reply, released.WrongHost | draft.WrongHost):
            self.moved(segment)
        if isinstance(reply, released.AuthTokenCheckFailed):
            self._tokens.pop(segment, None)
        return failure

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def ask(self, segment: str, make: Make, *, idempotent: bool = False) -> Any:
        """Send a request about a segment, and return the reply.

        It is retried if nothing was done, and an `idempotent` request also if that is unknown. Raises OperationFailed
        for refusals.
        """
        attempt = partial(self.ask_once, segment, make)
        return await retrying(attempt, self._policy, idempotent=idempotent, back=self.settings.upstream.name)

    async def length(self, segment: str) -> int:
        """Return a segment's length. Raises OperationFailed."""
        reply = await self.ask(
            segment,
            lambda request_id, token: released.GetStreamSegmentInfo(request_id, segment, token),
            idempotent=True,
        )
        return int(reply.write_offset)

    async def ask_once(
        self, segment: str, make: Make, kind: ConnectionUse = ConnectionUse.CALLS, seconds: float | None = None
    ) -> Any:
        """Do the same as `ask` without retrying, and with another deadline than `request_seconds`."""
        fresh = segment not in self._tokens
        try:
            return await self._ask(segment, make, kind, seconds)
        except OperationFailed as error:
            if error.failure.code is FailureCode.HOT_SERVER:
                self.moved(segment)
            if error.failure.code is FailureCode.PERMISSION_DENIED and not fresh:  # the token may have expired
                return await self._ask(segment, make, kind, seconds)
            raise

    async def _ask(self, segment: str, make: Make, kind: ConnectionUse, seconds: float | None) -> Any:
        token = await self.token(segment)
        pool = await self.pool(segment)
        limit = pool.upstream.settings.request_seconds if seconds is None else seconds
        async with pool.use(kind) as connection:
            reply = await connection.ask(lambda request_id: make(request_id, token), limit)
        failure = self.failure_of(reply, pool, segment)
        if failure is not None:
            raise OperationFailed(failure)
        return reply
