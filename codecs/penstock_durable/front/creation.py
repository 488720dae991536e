"""PUT: streams are created, empty, with their first data, or as forks (protocol, 5.1; forks: the conformance suite).

A fork is a copy of its source's records up to an offset. So it costs what it holds; in return clients of all protocols
read it like any stream, on any back, and no stream depends on another.
"""

from __future__ import annotations

import msgspec
import trio

from penstock.core.back import Back
from penstock.core.clock import Clock
from penstock.model.byte_operations import GetByteStreamInfo, Seal
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.features import Feature, feature_of
from penstock.model.operations import Append, CheckTail, CreateStream, FromSeqNum, Read
from penstock.model.records import NO_HEADERS, Headers, RecordBatch, StreamRef, metered_size
from penstock.model.table_operations import NOT_EXISTS
from penstock_durable.codec import DEFAULT_TYPE, CreateRequest, Fork, essence, is_json, split_messages
from penstock_durable.front.catalog import DurableCatalog, KnownStream, StreamMeta, asked_name
from penstock_durable.names import DurableNames

__all__ = ["PreconditionFailed", "StreamCreation"]


class PreconditionFailed(OperationFailed):
    """A stream exists, or does not, against the condition of the request."""


class StreamCreation:
    """Creates streams."""

    def __init__(self, back: Back, catalog: DurableCatalog, names: DurableNames, clock: Clock) -> None:
        self._back = back
        self._catalog = catalog
        self._names = names
        self._clock = clock

    async def ensure(
        self, ref: StreamRef, request: CreateRequest, expires_text: str | None, body: bytes
    ) -> tuple[KnownStream, bool]:
        """Create a stream; return it, and whether it is new.

        Raises RESOURCE_ALREADY_EXISTS if the name belongs to a stream that differs, or to a deleted one; INVALID for a
        fork beyond its source; whatever `DurableCatalog.find` raises for the source; PreconditionFailed.
        """
        async with self._catalog.alone(ref):
            try:
                existing = await self._catalog.find(ref, locked=True)
            except OperationFailed as error:
                if error.failure.code is FailureCode.STREAM_DELETION_PENDING:
                    raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, error.failure.message) from None
                if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                    raise
                if request.exists:
                    raise PreconditionFailed(error.failure) from None
            else:
                if request.exists is False:
                    message = f"stream {ref} exists"
                    raise PreconditionFailed(Failure(FailureCode.RESOURCE_ALREADY_EXISTS, message))
                self._compare(existing, request, expires_text)
                return existing, False
            return await self._create(ref, request, expires_text, body), True

    def _compare(self, existing: KnownStream, request: CreateRequest, expires_text: str | None) -> None:
        """Raise RESOURCE_ALREADY_EXISTS unless the stream is as the request wants it."""
        meta, fork = existing.meta, request.fork
        kind = request.content_type or (meta.content_type if fork is not None else DEFAULT_TYPE)
        differences = {
            "content-type": essence(kind) != essence(meta.content_type),
            "stream-ttl": request.ttl != meta.ttl and not (fork is not None and request.ttl is None),
            "stream-expires-at": expires_text != meta.expires_text and not (fork is not None and expires_text is None),
            "stream-closed": request.closed != existing.closed,
        }
        if fork is not None:
            sources = self._catalog.names(self._names.to_stream(fork.source))
            same = meta.source in sources and (fork.offset, fork.sub_offset) == (meta.fork_offset, meta.fork_sub_offset)
            differences["stream-forked-from"] = not same
        if named := [name for name, differs in differences.items() if differs]:
            raise fail(
                FailureCode.RESOURCE_ALREADY_EXISTS, f"stream {existing.ref} exists with another {', '.join(named)}"
            )

    async def _create(
        self, ref: StreamRef, request: CreateRequest, expires_text: str | None, body: bytes
    ) -> KnownStream:
        fork, source = request.fork, None
        if fork is not None:
            source = await self._source(fork)
        name = self._catalog.names(ref)[0]
        meta = self._meta(request, expires_text, source)
        if (client_name := asked_name(ref)) != name:
            meta = msgspec.structs.replace(meta, asked=client_name)
        bodies = split_messages(body) if body and is_json(meta.content_type) else [body] if body else []
        end = 0
        if fork is not None and source is not None:
            end = await self._end(source, fork)
        version = await self._catalog.put(name, meta, NOT_EXISTS)
        try:
            if source is not None:
                await self._catalog.add_fork(source, name)
            await self._back.perform(CreateStream(ref))
            info = await self._back.perform(GetByteStreamInfo(ref))
            # From here on the entry says which stream is its own; if it stays unfinished, that stream is deleted.
            meta = msgspec.structs.replace(meta, incarnation=info.incarnation)
            version = await self._catalog.put(name, meta, version)
            if fork is not None and source is not None:
                await self._copy(source, fork, end, ref)
            if bodies:
                await self._back.perform(Append(ref, bodies, metered_size(bodies, NO_HEADERS), create_if_missing=False))
            if request.closed:
                await self._back.perform(Seal(ref))
            info = await self._back.perform(GetByteStreamInfo(ref))
            meta = msgspec.structs.replace(meta, state="live", used_at=self._clock())
            return KnownStream(ref, name, meta, await self._catalog.put(name, meta, version), info)
        except BaseException as error:
            exists = isinstance(error, OperationFailed) and error.failure.code is FailureCode.RESOURCE_ALREADY_EXISTS
            with trio.CancelScope(shield=True):  # a process that ends here leaves it to `DurableCatalog.find`
                await self._catalog.clear(ref, name, meta, records=not exists and await self._created(ref, meta))
            raise

    async def _created(self, ref: StreamRef, meta: StreamMeta) -> bool:
        """Return whether a creation that has failed made the stream that is there. If the failure came too early to
        know, an empty stream is taken for its own: a moment ago there was none."""
        info = await self._catalog.info(ref)
        if info is None or meta.incarnation:
            return info is not None and info.incarnation == meta.incarnation
        return (await self._back.perform(CheckTail(ref, create_if_missing=False))).seq_num == 0

    def _meta(self, request: CreateRequest, expires_text: str | None, source: KnownStream | None) -> StreamMeta:
        """Return the properties of a new stream; a fork inherits what its request leaves out."""
        ttl, expires_at, origin = request.ttl, request.expires_at, source.meta if source is not None else None
        kind = request.content_type
        if origin is not None and kind is not None and essence(kind) != essence(origin.content_type):
            reason = f"a fork has the content type of its source, which is {origin.content_type}"
            raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, reason)
        if origin is not None and ttl is None and expires_at is None:
            ttl, expires_at, expires_text = origin.ttl, origin.expires_at, origin.expires_text
        fork = request.fork
        return StreamMeta(
            content_type=kind or (DEFAULT_TYPE if origin is None else origin.content_type),
            state="creating",
            ttl=ttl,
            expires_at=expires_at,
            expires_text=expires_text,
            used_at=self._clock(),
            source=None if source is None else source.name,
            fork_offset=None if fork is None else fork.offset,
            fork_sub_offset=0 if fork is None else fork.sub_offset,
        )

    # ---- forks -------------------------------------------------------------------------------------------------------

    async def _source(self, fork: Fork) -> KnownStream:
        try:
            return await self._catalog.find(self._names.to_stream(fork.source))
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_DELETION_PENDING:
                raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, error.failure.message) from None
            raise

    async def _end(self, source: KnownStream, fork: Fork) -> int:
        """Return the sequence number before which whole records are copied. Raises INVALID for one beyond the tail."""
        tail = (await self._back.perform(CheckTail(source.ref, create_if_missing=False))).seq_num
        end = tail if fork.offset is None else fork.offset
        if is_json(source.meta.content_type):
            end += fork.sub_offset
        if end > tail or (fork.sub_offset and fork.offset == tail):
            raise fail(FailureCode.INVALID, f"the fork's offset lies beyond the end of stream {source.ref}")
        if fork.sub_offset and end == fork.offset:
            await self._cut(source, end, fork.sub_offset)
        return end

    async def _cut(self, source: KnownStream, number: int, length: int) -> bytes:
        """Return the first bytes of a record. Raises INVALID if it has fewer."""
        read = Read(source.ref, FromSeqNum(number), count=1, wait=0, create_if_missing=False)
        async with self._back.read_session(read) as session:
            batch = await session.next()
        body = batch.columns.bodies[0] if isinstance(batch, RecordBatch) else b""
        if len(body) < length:
            reason = f"stream-fork-sub-offset: the append at that offset has {len(body)} bytes, not {length}"
            raise fail(FailureCode.INVALID, reason)
        return body[:length]

    async def _copy(self, source: KnownStream, fork: Fork, end: int, ref: StreamRef) -> None:
        """Append copies of the records before `end`, and of the part of the next one. Command records are left out."""
        if end:
            read = Read(source.ref, FromSeqNum(0), clamp=True, count=end, wait=0, create_if_missing=False)
            async with self._back.read_session(read) as session:
                while isinstance(batch := await session.next(), RecordBatch):
                    if (append := _append_of(batch, end, ref)) is not None:
                        await self._back.perform(append)
                    if batch.next_seq_num >= end:
                        break
        if fork.sub_offset and not is_json(source.meta.content_type):
            bodies = [await self._cut(source, end, fork.sub_offset)]
            await self._back.perform(Append(ref, bodies, metered_size(bodies, NO_HEADERS), create_if_missing=False))


def _append_of(batch: RecordBatch, end: int, ref: StreamRef) -> Append | None:
    """Return the append of a batch's records before `end`; None for none."""
    bodies: list[bytes] = []
    timestamps: list[int] = []
    headers: dict[int, Headers] = {}
    for record in batch.records():
        if record.seq_num >= end or feature_of(record.headers, record.body) is Feature.COMMAND:
            continue
        if record.headers:
            headers[len(bodies)] = record.headers
        bodies.append(record.body)
        timestamps.append(record.timestamp)
    if not bodies:
        return None
    return Append(
        ref, bodies, metered_size(bodies, headers), headers=headers, timestamps=timestamps, create_if_missing=False
    )
