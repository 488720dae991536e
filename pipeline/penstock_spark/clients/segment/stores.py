"""Segment stores: which one has a segment, and requests to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.segment import SegmentMessage, released
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.patience import Patience
from penstock_spark.clients.pool import Pool
from penstock_spark.clients.segment.connection import BlockingStoreConnection
from penstock_spark.clients.segment.controller import BlockingControllerClient
from penstock_spark.clients.segment.names import StreamSegmentName, first_of, full_name

__all__ = ["EndpointStores", "SegmentLocation"]

M = TypeVar("M", bound=SegmentMessage)
Address = tuple[str, int]
Make = Callable[[int, "SegmentLocation"], SegmentMessage]
"""Builds a request from a request id and the segment's place."""
_MOVED = (FailureCode.STREAM_NOT_FOUND, FailureCode.PERMISSION_DENIED, FailureCode.STREAM_SEALED)
"""Failure codes that, like every retryable one, invalidate the known place and token of a segment."""


class SegmentLocation(NamedTuple):
    """A segment's full name, the connections to the store that serves it, and the delegation token for that store."""

    segment: str
    pool: Pool[BlockingStoreConnection]
    token: str


class EndpointStores:
    """The stores of an endpoint: the endpoint itself, or those that its controller names."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.controller = BlockingControllerClient(endpoint) if endpoint.directory else None
        self._pools: dict[Address, Pool[BlockingStoreConnection]] = {}
        self._places: dict[str, SegmentLocation] = {}
        self._reached = False

    def place(self, stream: str) -> SegmentLocation:
        """Return the place of a stream, which is one segment (see `names`). Cached until `forget`."""
        location = self._places.get(stream)
        if location is None:
            location = self._places[stream] = self._find(stream)
        return location

    def _find(self, stream: str) -> SegmentLocation:
        if self.controller is None:
            address = (self.endpoint.host, self.endpoint.port)
            return SegmentLocation(full_name(stream), self._pool(address), self.endpoint.token)
        name = self.named(stream)
        head = self.controller.head(name.scope, name.stream) if stream == name.owner else []
        segment = first_of(head) or name
        token = self.controller.delegation_token(segment) if self.endpoint.token else ""
        return SegmentLocation(str(segment), self._pool(self.controller.where(segment)), token)

    def named(self, stream: str) -> StreamSegmentName:
        """Return the parts of the name. Raises INVALID if it names neither a stream nor a segment."""
        name = StreamSegmentName.parse(stream)
        if name is None:
            message = f"{self.endpoint}: {stream!r:.80} is neither scope/stream nor scope/stream/NUMBER.#epoch.EPOCH"
            raise fail(FailureCode.INVALID, message)
        return name

    def _pool(self, address: Address) -> Pool[BlockingStoreConnection]:
        pool = self._pools.get(address)
        if pool is None:
            store = replace(self.endpoint, host=address[0], port=address[1], directory=False)
            pool = self._pools[address] = Pool(store, lambda: BlockingStoreConnection(store))
        return pool

    def patience(self) -> Patience:
        """Return a retry budget that all stores share."""
        return Patience(self.endpoint, reached=self._reached)

    def forget(self, stream: str) -> None:
        """Drop the known place of a stream that was created or deleted."""
        self._places.pop(stream, None)

    def failed(self, stream: str, error: OperationFailed) -> None:
        """Handle a store's failure about a stream: drop its known place if that may be wrong."""
        if error.failure.retryable or error.failure.code in _MOVED:
            self.forget(stream)

    def ask(self, kind: type[M], stream: str, make: Make) -> M:
        """Return the reply to a request about a stream, retried while that can help. The request must be idempotent."""

        def attempt() -> M:
            try:
                place = self.place(stream)
                with place.pool.use() as connection:
                    return connection.ask(kind, place.segment, lambda request_id: make(request_id, place))
            except OperationFailed as error:
                self.failed(stream, error)
                raise

        return self.patience().over(attempt)

    def info(self, stream: str) -> released.StreamSegmentInfo:
        """Return offsets and state of a segment. Raises STREAM_NOT_FOUND."""

        def make(request_id: int, place: SegmentLocation) -> Any:
            return released.GetStreamSegmentInfo(request_id, place.segment, place.token)

        segment_info = self.ask(released.StreamSegmentInfo, stream, make)
        if not segment_info.exists or segment_info.is_deleted:
            self.forget(stream)
            raise fail(FailureCode.STREAM_NOT_FOUND, f"{self.endpoint}: there is no segment {segment_info.segment}")
        self._reached = True
        return segment_info

    def close(self) -> None:
        """Close all connections."""
        if self.controller is not None:
            self.controller.close()
        for pool in self._pools.values():
            pool.close()
