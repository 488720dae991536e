"""Unary appends and reads, and the tail (S2 fact sheet 1.2, 5.2, 5.4)."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.back import Back, Following, ReadSession
from penstock.core.rereading import BatchExtent, join_batches, read_again
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import Append, CheckTail
from penstock.model.records import RecordBatch, StreamRef
from penstock.net.draining import SHUTTING_DOWN, Draining
from penstock_s2.codec import json_records, protobuf
from penstock_s2.codec.media import Media
from penstock_s2.codec.validation import validate_append
from penstock_s2.front.call import JSON, PROTOBUF, S2Call
from penstock_s2.front.parameters import accepted, media_of, read_of

__all__ = ["RecordEndpoints"]


class RecordEndpoints:
    """Unary endpoints of the data plane over one back."""

    def __init__(self, back: Back, draining: Draining) -> None:
        self._back = back
        self._draining = draining

    async def check_tail(self, call: S2Call) -> None:
        """GET /v1/streams/{stream}/records/tail"""
        tail = await self._back.perform(CheckTail(call.stream()))
        await call.respond(200, json_records.encode_tail(tail), JSON)

    async def append(self, call: S2Call) -> None:
        """POST /v1/streams/{stream}/records"""
        stream, config = call.stream(), call.create_config()
        append = await self._append_input(call, stream)
        validate_append(append)
        if config is not None:
            append = replace(append, create_config=config)
        appended = await self._back.perform(append)
        if accepted(call.request) is Media.PROTOBUF:
            await call.respond(200, protobuf.encode_append_ack(appended), PROTOBUF)
        else:
            await call.respond(200, json_records.encode_append_ack(appended), JSON)

    async def _append_input(self, call: S2Call, stream: StreamRef) -> Append:
        media = media_of(call.request)
        if media is Media.PROTOBUF:
            return protobuf.decode_append_input(await call.body(FailureCode.BAD_PROTO), stream)
        if media is not Media.JSON:
            raise fail(FailureCode.BAD_JSON, "Expected request with `Content-Type: application/json`")
        data_format = call.data_format()
        return json_records.decode_append_input(await call.body(FailureCode.BAD_JSON), data_format, stream)

    async def read(self, call: S2Call) -> None:
        """GET /v1/streams/{stream}/records: up to 1000 available records and 1 MiB, waiting up to 60 s for the first"""
        read = read_of(call.stream(), call.query(), call.create_config(), unary=True)
        data_format = call.data_format()
        await call.exchange.room()
        async with self._back.read_session(read) as session:
            batches = await self._what_there_is(call, session)
        content_type = PROTOBUF if accepted(call.request) is Media.PROTOBUF else JSON
        extents = [BatchExtent.of(batch) for batch in batches]

        def encode(batches: list[RecordBatch]) -> bytes:
            batch = join_batches(batches) if batches else None
            if content_type is JSON:
                return json_records.encode_read_batch(batch, data_format)
            return b"" if batch is None else protobuf.encode_read_batch(batch)

        async def reproduce() -> bytes:
            return encode(await read_again(self._back, read, extents))

        response = call.respond(200, encode(batches), content_type, reproduce=reproduce if batches else None)
        del batches  # not to be kept while it waits for the client
        await response

    async def _what_there_is(self, call: S2Call, session: ReadSession) -> list[RecordBatch]:
        """Return the records up to the tail or the bounds (fact sheet 5.4).

        If there are none, wait for the first batch. A drain ends the wait; nothing is lost, as nothing was read.
        """
        batches: list[RecordBatch] = []
        while isinstance(event := await session.next(), RecordBatch):
            batches.append(event)
        if event is None or batches:
            return batches
        await call.exchange.room(False)
        while isinstance(event, Following):
            with self._draining.interrupts() as scope:
                event = await session.next()
            if scope.cancelled_caught:
                raise OperationFailed(SHUTTING_DOWN)
        if event is None:
            return []
        await call.exchange.room()  # the batch is shared by all who waited, the answer is not
        return [event]
