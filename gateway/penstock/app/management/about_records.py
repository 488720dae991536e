"""The management endpoints for the records of one stream: a part of them, those that match a text, those that come, and
one more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from itertools import repeat
from typing import Any, Final

import msgspec
import trio

from penstock.app.management.about_streams import as_client
from penstock.app.management.overview import ListenerView, Overview
from penstock.app.management.positions import query_of
from penstock.app.management.settings import ManagementSettings
from penstock.app.management.words import Answer, Endpoints, read_json, whole_number
from penstock.app.streams.formats import PARSERS, BadInput, json_record
from penstock.app.streams.positions import BadPosition, parse_position
from penstock.app.streams.reading import ReadSettings, batches_of
from penstock.model.failures import FailureCode, fail
from penstock.model.limits import KIB, MIB
from penstock.model.operations import Append, CheckTail, Start
from penstock.model.records import RecordBatch, StreamRef, metered_size
from penstock.net.http.exchange import Exchange

__all__ = ["AboutRecords"]

_MOST: Final = 500
_COUNT: Final = "50"
_MOST_TEXT: Final = 500
_MOST_BODY: Final = 16 * KIB
"""Bytes of a body that are shown."""
_MOST_ANSWER: Final = 4 * MIB
"""About the most bytes of bodies in one answer."""
_MOST_SCANNED: Final = 20_000
_MOST_SCANNED_BYTES: Final = 64 * MIB
"""Bounds of one search: its answer says where to go on."""
_APPEND_BYTES: Final = 2 * MIB
"""Most bytes of JSON that one record is sent as; servers allow records of 1 MiB."""
_NAMES: Final = ("stream", "listener", "identity")
_READ: Final = (*_NAMES, "from", "text")
_PAUSE_SECONDS: Final = 0.1
"""Pause between two batches of events to a follower."""


class _Found(msgspec.Struct):
    """The records that a request asks for. `next`: the sequence number to go on at. `scanned`: the number of records
    that were looked at."""

    text: bytes
    records: list[dict[str, Any]] = msgspec.field(default_factory=list)
    next: int | None = None
    scanned: int = 0
    _scanned_bytes: int = 0
    _shown_bytes: int = 0

    def take(self, batch: RecordBatch, most: int) -> bool:
        """Take records of a batch, up to `most` in all. Returns whether there is room for more."""
        ids = repeat(None) if batch.first_id is None else batch.record_ids()
        for record, record_id in zip(batch.records(), ids, strict=False):
            if self._full(most):
                return False
            self.next = record.seq_num + 1
            self.scanned += 1
            self._scanned_bytes += len(record.body)
            if self.text in record.body or any(self.text in part for header in record.headers for part in header):
                shown = json_record(record._replace(body=record.body[:_MOST_BODY]), record_id)
                self.records.append(shown | {"body_bytes": len(record.body)})
                self._shown_bytes += min(len(record.body), _MOST_BODY)
        return not self._full(most)

    def _full(self, most: int) -> bool:
        """Return whether a bound is reached."""
        return (
            len(self.records) >= most
            or self._shown_bytes >= _MOST_ANSWER
            or self.scanned >= _MOST_SCANNED
            or self._scanned_bytes >= _MOST_SCANNED_BYTES
        )


class AboutRecords:
    """The endpoints; see docs/management.md."""

    def __init__(self, overview: Overview, settings: ManagementSettings) -> None:
        self._overview = overview
        self._settings = settings
        self._followers: set[trio.CancelScope] = set()
        self._draining = False
        self.endpoints: Endpoints = {
            ("records",): {"GET": self._read, "POST": self._append},
            ("records", "follow"): {"GET": self._follow},
        }

    def drain(self) -> None:
        """End the streams of followers: the gateway is about to stop."""
        self._draining = True
        for scope in self._followers:
            scope.cancel()

    async def _read(self, exchange: Exchange, _name: str) -> Answer:
        query = query_of(exchange.request.query, (*_READ, "count"))
        stream, start, text = _stream(query), _start(query, "start"), _text(query)
        most = whole_number("count", query.get("count", _COUNT), _MOST)
        matches = _Found(text)
        with as_client(self._overview, query) as listener:
            back = listener.back
            tail = await back.perform(CheckTail(stream, create_if_missing=False))
            settings = ReadSettings(start=start, count=None if text else most)
            async with aclosing(batches_of(back, stream, settings)) as batches:
                async for batch in batches:
                    if not matches.take(batch, most):
                        break
        return 200, {
            "stream": str(stream),
            "listener": listener.name,
            "records": matches.records,
            "scanned": matches.scanned,
            "next": tail.seq_num if matches.next is None else matches.next,
            "has_more": matches.next is not None and matches.next < tail.seq_num,
            "tail": {"seq_num": tail.seq_num, "timestamp": tail.timestamp},
        }

    async def _follow(self, exchange: Exchange, _name: str) -> None:
        query = query_of(exchange.request.query, _READ)
        stream, start, text = _stream(query), _start(query, "tail"), _text(query)
        last = exchange.request.header("last-event-id") or ""
        if last:  # a follower that lost its connection
            start = _position("last-event-id", last)
        head = [("content-type", "text/event-stream"), ("cache-control", "no-store")]
        with as_client(self._overview, query) as listener:
            await listener.back.perform(CheckTail(stream, create_if_missing=False))
            if exchange.request.method == "HEAD":
                await exchange.respond(200, head)
                return
            await exchange.start(200, head)
            await exchange.send([b"retry: 1000\n\n"])
            with trio.CancelScope() as scope:
                self._followers.add(scope)
                try:
                    if not self._draining:
                        await _send_all(exchange, listener, stream, start, text)
                finally:
                    self._followers.discard(scope)
            await exchange.finish()

    async def _append(self, exchange: Exchange, _name: str) -> Answer:
        query = query_of(exchange.request.query, _NAMES)
        stream = _stream(query)
        line = await read_json(exchange, self._settings.body_seconds, _APPEND_BYTES)
        parser = PARSERS["json"]()
        try:
            records = [*parser.receive(line.replace(b"\n", b" ").replace(b"\r", b" ")), *parser.end()]
        except BadInput as error:
            raise fail(FailureCode.BAD_JSON, str(error)) from None
        if not records:
            raise fail(FailureCode.BAD_JSON, 'expected a record, such as {"body": "text"}')
        (record,) = records
        headers = {0: record.headers} if record.headers else {}
        timestamps = None if record.timestamp is None else [record.timestamp]
        size = metered_size([record.body], headers)
        with as_client(self._overview, query) as listener:
            done = await listener.back.perform(
                Append(stream, [record.body], size, headers, timestamps, create_if_missing=False)
            )
        return 200, {
            "stream": str(stream),
            "listener": listener.name,
            "seq_num": done.start.seq_num,
            "timestamp": done.start.timestamp,
            "record_id": None if done.last_id is None else str(done.last_id),
        }


async def _send_all(exchange: Exchange, listener: ListenerView, stream: StreamRef, start: Start, text: bytes) -> None:
    """Send the records from `start` as events, and go on with those that come. Raises OperationFailed, which ends the
    connection, as the stream may be gone."""
    async with aclosing(batches_of(listener.back, stream, ReadSettings(start=start, follow=True))) as batches:
        async for batch in batches:
            for events in _events(batch, text):
                await exchange.send(events)
                await trio.sleep(_PAUSE_SECONDS)


def _events(batch: RecordBatch, text: bytes) -> Iterator[list[bytes]]:
    """Yield server-sent events for the records that match, up to some MiB at a time; an event's ID is the next record's
    sequence number."""
    taken = 0
    while taken < batch.count:
        matches = _Found(text)
        matches.take(batch.part(taken, batch.count), batch.count)
        taken += matches.scanned
        if matches.records:
            yield [
                b"id: %d\nevent: record\ndata: %b\n\n" % (record["seq_num"] + 1, msgspec.json.encode(record))
                for record in matches.records
            ]


def _stream(query: Mapping[str, str]) -> StreamRef:
    basin, slash, name = query.get("stream", "").partition("/")
    if not (basin and slash and name):
        raise fail(FailureCode.BAD_QUERY, f"stream: expected BASIN/STREAM, got {query.get('stream', '')!r:.80}")
    return StreamRef(basin, name)


def _start(query: Mapping[str, str], default: str) -> Start:
    return _position("from", query.get("from", default))


def _position(name: str, text: str) -> Start:
    try:
        return parse_position(text, time.time())
    except BadPosition as error:
        raise fail(FailureCode.BAD_QUERY, f"{name}: {error}"[:200]) from None


def _text(query: Mapping[str, str]) -> bytes:
    text = query.get("text", "")
    if len(text) > _MOST_TEXT:
        raise fail(FailureCode.BAD_QUERY, f"text: more than {_MOST_TEXT} characters")
    return text.encode("utf-8", "surrogateescape")
