"""The writer of one stream: it makes all appends of this gateway, in the order in which they are handed over.

One POST is in flight at a time, and the appends that wait meanwhile are sent together in the next one, which the server
stores as a whole or not at all. Each POST has the writer's number as an idempotent producer (protocol, 5.2.1), so it
can be sent again after a lost acknowledgement, and is stored once. If it is given up in doubt, the writer begins a new
epoch: then the server refuses what might still arrive of the old one.

A writer of another run is another producer. Against what might still arrive of that one, an append may have a number of
its own among all appends to the stream (`Append.writer_seq`), the protocol's Stream-Seq (5.2): the server never stores
one that is not above the last.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import trio
from msgspec.structs import replace

from penstock.backends.together import GroupingWriter, QueuedAppend, UpstreamName
from penstock.core.delivery import Delivery
from penstock.core.native import NativeAck
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append
from penstock.model.records import NO_HEADERS, StreamRef
from penstock_durable.back.requests import DurableRequests
from penstock_durable.back.settings import DurableBackSettings
from penstock_durable.codec import AppendRequest, Producer, StreamContent

__all__ = ["DurableWriter"]


class DurableWriter(GroupingWriter[bytes, NativeAck]):
    """The writer of one stream; its requests are made in `nursery`."""

    def __init__(
        self,
        requests: DurableRequests,
        stream: StreamRef,
        content_type: str,
        content: StreamContent,
        settings: DurableBackSettings,
        nursery: trio.Nursery,
    ) -> None:
        super().__init__(
            UpstreamName(requests.upstream.name, requests.upstream.where),
            inflight_bytes=settings.append_inflight_bytes,
            together_bytes=settings.max_append_bytes,
            delivery=settings.delivery,
            recover_seconds=settings.recover_seconds,
            nursery=nursery,
        )
        self._requests = requests
        self._stream = stream
        self._content_type = content_type
        self._content = content
        self._settings = settings
        self._producer = Producer(f"penstock-{secrets.token_hex(8)}", 0, 0)

    def encode(self, append: Append) -> tuple[bytes, int]:
        """Return the content of an append; see `GroupingWriter.encode`."""
        headers = NO_HEADERS if self._settings.drop_headers else append.headers
        part = self._content.encode(append.bodies, headers)
        size, most = len(self._content.join([part])), self._settings.max_append_bytes
        if size > most:
            raise fail(FailureCode.LIMIT_EXCEEDED, f"a batch of {size} bytes; the server takes {most} at once")
        return part, size

    def alone(self, queued: QueuedAppend[bytes, NativeAck]) -> bool:
        return queued.append.writer_seq is not None

    async def store(self, appends: Sequence[QueuedAppend[bytes, NativeAck]]) -> None:
        """Make one POST; see `GroupingWriter.store`.

        An acknowledgement does not tell where the records are: the protocol has no positions that can be computed with,
        and other clients may append before and after.
        """
        body = self._content.join([append.part for append in appends])
        producer = None if self._settings.delivery is Delivery.AT_LEAST_ONCE else self._producer
        seq = appends[0].append.writer_seq
        request = AppendRequest(self._content_type, False, producer, None if seq is None else f"{seq:020}")
        try:
            await self._requests.append(self._stream, request, body)
        except OperationFailed as error:
            if seq is None or error.failure.code is not FailureCode.RESOURCE_ALREADY_EXISTS:
                raise
            raise fail(FailureCode.SEQ_NUM_MISMATCH, error.failure.message) from None
        self._producer = replace(self._producer, seq=self._producer.seq + 1)
        for pending_append in appends:
            pending_append.result = NativeAck(len(pending_append.append.bodies))

    def begin_again(self) -> None:
        """Begin a new epoch: the server refuses what might still arrive of the old one."""
        self._producer = Producer(self._producer.id, self._producer.epoch + 1, 0)
