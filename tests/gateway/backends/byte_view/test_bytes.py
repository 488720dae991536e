"""Bytes of another server's records: appended bytes are read again, from any offset."""

from __future__ import annotations

from support.records_only import RecordsOnly
from support.store import BASIN, STREAM, Fails, appending, bodies, sending
from support.store import records as all_records

from penstock.backends.byte_view import BytesOnRecords, BytesSettings, open_bytes_on_records
from penstock.backends.byte_view.labels import LABEL, PIECE
from penstock.backends.embedded import EmbeddedBack
from penstock.model.byte_events import join_events
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import AppendBytes, GetByteStreamInfo, ReadBytes
from penstock.model.envelope import wrap
from penstock.model.failures import FailureCode
from penstock.model.operations import Capability, FromSeqNum
from penstock.model.records import Header, StreamRef


async def content(back: BytesOnRecords, step: int = 1 << 20, stream: StreamRef = STREAM) -> bytes:
    info = await back.perform(GetByteStreamInfo(stream))
    data, at = b"", info.start_offset
    while at < info.length:
        read = await back.perform(ReadBytes(stream, at, step))
        assert 0 < len(read.data) <= step
        data, at = data + read.data, at + len(read.data)
        assert read.at_tail == (at == info.length)
    return data


class TestAppended:
    async def test_an_event_is_a_plain_record(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        await server.perform(appending(b"first"))
        assert (await back.perform(sending(b"ab", b"c", position=2))).offset == 13 + 10 + 9
        found = await all_records(server, FromSeqNum(0))
        assert [(record.headers, record.body) for record in found] == [((), b"first"), ((), b"ab"), ((), b"c")]
        assert await content(back) == join_events([b"first", b"ab", b"c"])

    async def test_what_is_no_event_is_labelled(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        raw = join_events([b"whole"]) + b"\0\0\0"
        await back.perform(AppendBytes(STREAM, raw))
        await back.perform(sending(b"", b"x"))
        found = await all_records(server, FromSeqNum(0))
        assert [(record.headers, record.body) for record in found] == [
            ((Header(LABEL, b"1 raw"),), raw),
            ((Header(LABEL, b"1 event"),), b""),
            ((), b"x"),
        ]
        assert await content(back, 5) == raw + join_events([b"", b"x"])

    async def test_large_ones(self, back: BytesOnRecords, server: EmbeddedBack) -> None:
        data = join_events([bytes(range(256)) * 12_000, b"after"])
        assert (await back.perform(AppendBytes(STREAM, data))).offset == len(data)
        assert await content(back, 1_000_003) == data
        assert max(map(len, await bodies(server, FromSeqNum(0)))) <= PIECE

    async def test_without_headers_at_the_server_it_is_refused(self, server: EmbeddedBack, state: EmbeddedBack) -> None:
        plain = RecordsOnly(server, frozenset({Capability.HEADERS}))
        async with open_bytes_on_records(plain, "plain", state) as back:
            with Fails(FailureCode.NOT_REPRESENTABLE, "headers in its loss table refuses or drops them"):
                await back.perform(AppendBytes(STREAM, b"\0\0\0"))
            assert (await back.perform(sending(b"x"))).offset == 9

    async def test_an_envelope_whose_headers_the_server_would_lose_is_refused(
        self, server: EmbeddedBack, state: EmbeddedBack
    ) -> None:
        """Readers would get fewer bytes than the acknowledged offset says."""
        plain = RecordsOnly(server, frozenset({Capability.HEADERS}))
        settings = BytesSettings(envelopes=Layout.ENVELOPE_HEADERS)
        async with open_bytes_on_records(plain, "plain", state, settings) as back:
            with Fails(FailureCode.NOT_REPRESENTABLE, "contain an envelope with headers"):
                await back.perform(sending(b"x", wrap((Header(b"k", b"v"),), b"y")))
            assert (await back.perform(sending(b"x"))).offset == 9

    async def test_a_lot_of_small_ones(self, back: BytesOnRecords) -> None:
        events = [b"%05d" % number for number in range(2500)]
        assert (await back.perform(sending(*events))).offset == 2500 * 13
        assert await content(back, 4097) == join_events(events)

    async def test_nothing_that_is_not_there(self, back: BytesOnRecords) -> None:
        other = StreamRef(BASIN, "other")
        for operation in (sending(b"x", stream=other), ReadBytes(other, 0, 10), GetByteStreamInfo(other)):
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await back.perform(operation)
