"""POST: data is appended, and streams are closed (protocol, 5.2; closing: the conformance suite, "Stream Closure").

The place of an idempotent producer is that of a writer of the stream, one for each of its epochs, so it is stored with
the records in one step. The epoch is written down before its first append. What a producer has sent before is
acknowledged again, whatever its body is.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, NamedTuple
from uuid import UUID, uuid5

import msgspec

from penstock.core.back import Back
from penstock.model.byte_layout import Layout, to_bytes
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    AppendBytes,
    GetAttribute,
    Seal,
    UpdateAttribute,
    WriterPosition,
)
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended, CheckTail
from penstock.model.records import NO_HEADERS, Columns, StreamRef, metered_size
from penstock.tables.struct_table import Conflict
from penstock_durable.codec import AppendRequest, Producer, essence, is_json, split_messages
from penstock_durable.front.catalog import DurableCatalog, KnownStream

__all__ = ["AppendOutcome", "AppendRefused", "Appends", "StreamClosed"]

_PRODUCERS: Final = UUID("6f1d0e5e-6a5e-4d37-9f0c-3a2b3c0c7a10")
"""Namespace of the ids of producers' writers."""


class AppendOutcome(NamedTuple):
    """The effect of an append. `next_seq`: the offset behind it. `seq`: the last number of the producer that is stored,
    None without one. `new`: data was stored for a producer now, and not before."""

    next_seq: int
    closed: bool
    producer: Producer | None = None
    seq: int | None = None
    new: bool = False


class AppendRefused(OperationFailed):
    """An append that the protocol answers with headers. `status`: that of the answer."""

    def __init__(self, status: int, reason: str, headers: list[tuple[str, str]]) -> None:
        super().__init__(fail(FailureCode.STALE_WRITER_POSITION, reason).failure)
        self.status = status
        self.headers = headers


class StreamClosed(OperationFailed):
    """An append to a closed stream. `next_seq`: its end."""

    def __init__(self, ref: StreamRef, next_seq: int) -> None:
        super().__init__(fail(FailureCode.STREAM_SEALED, f"stream {ref} is closed").failure)
        self.next_seq = next_seq


class Appends:
    """Appends to streams."""

    def __init__(self, back: Back, catalog: DurableCatalog) -> None:
        self._back = back
        self._catalog = catalog

    async def append(self, ref: StreamRef, request: AppendRequest, body: bytes) -> AppendOutcome:
        """Carry out a POST. Raises AppendRefused, StreamClosed, and OperationFailed."""
        async with self._ordered(ref, request):
            stream = await self._catalog.find(ref, locked=_needs_order(request))
            bodies = _bodies(stream, request, body)
            if request.producer is None:
                outcome = await self._plain(stream, request, bodies)
            else:
                outcome = await self._produced(stream, request, request.producer, bodies)
            await self._catalog.used(await self._catalog.find(ref, locked=True) if request.seq else stream)
            return outcome

    def _ordered(self, ref: StreamRef, request: AppendRequest) -> AbstractAsyncContextManager[None]:
        if request.closed:
            return self._catalog.closing(ref)
        return self._catalog.alone(ref) if request.seq is not None else nullcontext()

    # ---- without a producer ------------------------------------------------------------------------------------------

    async def _plain(self, stream: KnownStream, request: AppendRequest, bodies: list[bytes]) -> AppendOutcome:
        if stream.closed:
            end = await self._tail(stream.ref)
            if bodies:
                raise StreamClosed(stream.ref, end)
            return AppendOutcome(end, closed=True)
        if not bodies:
            return AppendOutcome(await self._close(stream.ref), closed=True)
        await self._advance(stream, request)
        append = Append(stream.ref, bodies, metered_size(bodies, NO_HEADERS), create_if_missing=False)
        end = (await self._performed(stream, append, request)).end.seq_num
        if request.closed:
            end = await self._close(stream.ref)
        return AppendOutcome(end, request.closed)

    async def _performed(self, stream: KnownStream, append: Append | AppendBytes, request: AppendRequest) -> Appended:
        if not request.closed:
            await self._catalog.settled(append.stream)  # no append comes between the last one and the close
        if request.producer is not None:
            # A newer epoch may have begun since the look at the table. There is no checkpoint before the append.
            _check_fence(request.producer, self._catalog.newest_epoch(stream.name, request.producer.id))
        try:
            return await self._back.perform(append)
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_SEALED:  # by a client of another protocol, just now
                raise StreamClosed(append.stream, await self._tail(append.stream)) from None
            raise

    async def _close(self, ref: StreamRef) -> int:
        """Seal a stream and return its final tail, which only a sealed stream tells: clients of other protocols append
        until then, also behind the data of the request that closes."""
        await self._back.perform(Seal(ref))
        self._catalog.gate(ref).changed()
        return await self._tail(ref)

    async def _tail(self, ref: StreamRef) -> int:
        return (await self._back.perform(CheckTail(ref, create_if_missing=False))).seq_num

    async def _advance(self, stream: KnownStream, request: AppendRequest) -> None:
        """Write down the writer sequence of an append that follows. Raises AppendRefused unless it is above the last.

        Whether that append was made shows in the tail, should the process not survive it.
        """
        if request.seq is None:
            return
        meta, tail = stream.meta, await self._tail(stream.ref)
        last = meta.seq if tail > meta.seq_at else meta.seq_before
        if last is not None and request.seq <= last:
            raise AppendRefused(409, f"stream-seq {request.seq!r:.80} is not after {last!r:.80}", [])
        meta = msgspec.structs.replace(meta, seq=request.seq, seq_before=last, seq_at=tail)
        try:
            await self._catalog.put(stream.name, meta, stream.version)
        except Conflict:  # a reader extended its life
            await self._advance(await self._catalog.find(stream.ref, locked=True), request)

    # ---- with a producer ---------------------------------------------------------------------------------------------

    async def _produced(
        self, stream: KnownStream, request: AppendRequest, producer: Producer, bodies: list[bytes]
    ) -> AppendOutcome:
        ref = stream.ref
        await self._check_epoch(stream, producer, locked=_needs_order(request))
        writer = uuid5(_PRODUCERS, f"{producer.epoch} {producer.id}").bytes
        if stream.closed or request.seq is not None or not bodies:
            last = await self._last(ref, writer)
            if producer.seq <= last:
                return await self._repeated(stream, request, producer, last)
            if stream.closed:
                raise StreamClosed(ref, await self._tail(ref))
            _check_gap(producer, last)
        after = producer.seq - 1 if producer.seq else NO_ATTRIBUTE
        if bodies:
            await self._advance(stream, request)
            columns = Columns(range(len(bodies)), [0] * len(bodies), bodies)
            position = WriterPosition(writer, producer.seq, after)
            try:
                end = (
                    await self._performed(stream, AppendBytes(ref, to_bytes(columns, Layout.PLAIN), position), request)
                ).end.seq_num
            except AppendRefused:
                raise
            except OperationFailed as error:
                if error.failure.code is not FailureCode.STALE_WRITER_POSITION:
                    raise
                last = max(_number(error.failure.details.get("position")), -1)
                if producer.seq <= last:
                    return await self._repeated(stream, request, producer, last)
                _check_gap(producer, last)
                raise
            if not request.closed:
                return AppendOutcome(end, False, producer, producer.seq, new=True)
        else:
            await self._back.perform(UpdateAttribute(ref, writer, producer.seq, after))
        end = await self._close(ref)
        return AppendOutcome(end, True, producer, producer.seq, new=bool(bodies))

    async def _repeated(
        self, stream: KnownStream, request: AppendRequest, producer: Producer, last: int
    ) -> AppendOutcome:
        """Return the outcome of an append that is stored already. Its first try may have failed before it closed the
        stream, so the producer's last append closes it now."""
        closes = request.closed and producer.seq == last
        if closes and not stream.closed:
            await self._close(stream.ref)
        return AppendOutcome(await self._tail(stream.ref), stream.closed or closes, producer, last)

    async def _check_epoch(self, stream: KnownStream, producer: Producer, *, locked: bool) -> None:
        """Raise AppendRefused for an epoch that a newer one has replaced, and INVALID for a new one that does not begin
        at 0; write down a new one."""
        epoch = await self._catalog.epoch(stream.name, producer.id)
        _check_fence(producer, epoch)
        if producer.epoch == epoch or stream.closed:
            return
        if epoch is None:
            _check_gap(producer, -1)
        elif producer.seq:
            raise fail(FailureCode.INVALID, f"producer-seq: a new epoch begins at 0, not at {producer.seq}")
        if locked:
            await self._catalog.set_epoch(stream.name, producer.id, producer.epoch)
            return
        async with self._catalog.alone(stream.ref):
            await self._catalog.set_epoch(stream.name, producer.id, producer.epoch)

    async def _last(self, ref: StreamRef, writer: bytes) -> int:
        return max(await self._back.perform(GetAttribute(ref, writer)), -1)


def _needs_order(request: AppendRequest) -> bool:
    """Return whether no other append of this front may come between the steps of a request."""
    return request.closed or request.seq is not None


def _check_fence(producer: Producer, epoch: int | None) -> None:
    if epoch is not None and producer.epoch < epoch:
        reason = f"producer {producer.id!r:.80} is at epoch {epoch}, so epoch {producer.epoch} is over"
        raise AppendRefused(403, reason, [("producer-epoch", str(epoch))])


def _check_gap(producer: Producer, last: int) -> None:
    if producer.seq > last + 1:
        reason = f"producer {producer.id!r:.80} is at {last}, so {last + 1} must come next, not {producer.seq}"
        headers = [("producer-expected-seq", str(last + 1)), ("producer-received-seq", str(producer.seq))]
        raise AppendRefused(409, reason, headers)


def _number(value: object) -> int:
    return value if isinstance(value, int) else NO_ATTRIBUTE


def _bodies(stream: KnownStream, request: AppendRequest, body: bytes) -> list[bytes]:
    """Return the bodies of the records to append; none if the stream is only closed.

    Raises BAD_HEADER without a content type, RESOURCE_ALREADY_EXISTS for another than the stream's, INVALID for no
    data, BAD_JSON.
    """
    if not body:
        if request.closed:
            return []
        raise fail(FailureCode.INVALID, "an append needs a body, unless it closes the stream")
    if request.content_type is None:
        raise fail(FailureCode.BAD_HEADER, "content-type: an append must name that of the stream")
    if essence(request.content_type) != essence(stream.meta.content_type):
        reason = f"stream {stream.ref} has content type {stream.meta.content_type}, not {request.content_type}"
        raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, reason)
    if not is_json(stream.meta.content_type):
        return [body]
    if not (messages := split_messages(body)):
        raise fail(FailureCode.INVALID, "the array has no messages")
    return messages
