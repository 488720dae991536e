"""Builds a back for each server that a configuration names; each back handles both records and bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

from penstock.app.bootstrap.store import ENVELOPES
from penstock.app.bootstrap.upstreams import credentials, secret_in, upstream_settings
from penstock.app.config import BackTable, S2Back, S2SseBack, S3PBack, SegmentBack, SegmentLoss
from penstock.backends.byte_view import BytesSettings, SourceBacks, open_bytes_on_records
from penstock.backends.combined import Combined
from penstock.backends.sequence_numbering import IndexedSettings, open_indexed
from penstock.core.back import Back
from penstock.core.delivery import Delivery
from penstock.core.names import s3p_names
from penstock.core.segment_names import INTERNAL_BASIN, SegmentNames
from penstock.net.http.client.settings import HttpVersion
from penstock.net.upstream import Upstream, Watch, unwatched
from penstock.protocols.s2.back.back import open_s2
from penstock.protocols.s2.back.cuts import Cuts
from penstock.protocols.s2.back.settings import BasinStyle, S2BackSettings
from penstock.protocols.s2.back.sse import open_s2_sse
from penstock.protocols.s3p.back import S3PBackSettings, open_s3p
from penstock.protocols.segment.back import SegmentBackSettings, open_segment
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock.routing.target import Target
from penstock_codecs.byte_layout import Layout
from penstock_codecs.compression import Compression
from penstock_codecs.limits import S3PLimits
from penstock_codecs.model import StreamRef
from penstock_codecs.segment import Dialect

__all__ = [
    "bytes_settings",
    "indexed_settings",
    "open_target",
    "s2_back_settings",
    "s3p_back_settings",
    "segment_back_settings",
]


class _Sources(SourceBacks):
    """Keeps transactions in the embedded store, for servers that have none."""

    def __init__(self, embedded: Back) -> None:
        self._embedded = embedded

    def back_of(self, stream: StreamRef) -> Back | None:
        return self._embedded if stream.basin == INTERNAL_BASIN else None


def open_target(
    name: str, table: BackTable, embedded: Back, losses: tuple[SegmentLoss, ...], watch: Watch = unwatched
) -> AbstractAsyncContextManager[Target]:
    """Open a back until the block ends. `losses`: those of the segment listeners, whose clients see records as bytes.
    `watch` is called with each connection to a server.

    Raises CannotStart for files that cannot be used. Connections are opened on first use.
    """
    match table:
        case S3PBack():
            return _s3p(name, table, embedded, bytes_settings(losses), watch)
        case SegmentBack():
            return _segment(name, table, embedded, watch)
        case S2Back():
            return _s2(name, table, embedded, bytes_settings(losses), watch)
        case S2SseBack():
            return _s2_sse(name, table, embedded, bytes_settings(losses), watch)


@asynccontextmanager
async def _s2(name: str, table: S2Back, embedded: Back, settings: BytesSettings, watch: Watch) -> AsyncIterator[Target]:
    server = Upstream(upstream_settings(name, table, table.address, "s2"), credentials(name, table), watch=watch)
    async with (
        open_s2(s2_back_settings(table), server, cuts=Cuts(embedded, name)) as records,
        open_bytes_on_records(records, name, embedded, settings, _Sources(embedded)) as back,
    ):
        yield Target(name, "s2", back, table.delivery, breaker=server.breaker)


@asynccontextmanager
async def _s2_sse(
    name: str, table: S2SseBack, embedded: Back, settings: BytesSettings, watch: Watch
) -> AsyncIterator[Target]:
    server = Upstream(upstream_settings(name, table, table.address, "s2"), credentials(name, table), watch=watch)
    async with (
        open_s2_sse(s2_back_settings(table), server) as records,
        open_bytes_on_records(records, name, embedded, settings, _Sources(embedded)) as back,
    ):
        yield Target(name, "s2-sse", back, "refuse", breaker=server.breaker)


@asynccontextmanager
async def _s3p(
    name: str, table: S3PBack, embedded: Back, settings: BytesSettings, watch: Watch
) -> AsyncIterator[Target]:
    server = Upstream(upstream_settings(name, table, table.address, "s3p"), watch=watch)
    async with (
        open_s3p(server, s3p_back_settings(table)) as native,
        open_indexed(native, name, embedded, indexed_settings(table)) as records,
        open_bytes_on_records(records, name, embedded, settings, _Sources(embedded)) as back,
    ):
        yield Target(name, "s3p", back, table.delivery, breaker=server.breaker)


@asynccontextmanager
async def _segment(name: str, table: SegmentBack, embedded: Back, watch: Watch) -> AsyncIterator[Target]:
    settings = segment_back_settings(name, table)
    async with (
        open_segment(settings, watch=watch) as back,
        open_indexed(back.native, name, embedded, indexed_settings(table)) as records,
    ):
        combined = Combined(records, back.direct)
        yield Target(name, "segment", combined, table.delivery, settings.names, back.breaker)


def bytes_settings(losses: tuple[SegmentLoss, ...]) -> BytesSettings:
    """Return the settings of byte operations over records. What any segment listener wants enveloped is enveloped for
    all."""
    layouts = [
        layout for key, (_, layout) in ENVELOPES.items() if any(getattr(loss, key) == "envelope" for loss in losses)
    ]
    return BytesSettings(envelopes=reduce(or_, layouts, Layout.PLAIN))


_COMPRESSION: Final = {"none": Compression.NONE, "zstd": Compression.ZSTD, "gzip": Compression.GZIP}


def s2_back_settings(table: S2Back | S2SseBack) -> S2BackSettings:
    """Return the settings of a client of an S2 server."""
    settings = S2BackSettings(
        http=HttpVersion(table.http),
        basin_style=BasinStyle(table.basin_style),
        basin_authority=table.basin_authority,
        recover_seconds=table.recover_seconds,
    )
    if isinstance(table, S2SseBack):
        return replace(settings, sse_dialect=table.sse_dialect)
    return replace(settings, delivery=Delivery(table.delivery), compression=_COMPRESSION[table.compression])


def indexed_settings(table: S3PBack | SegmentBack) -> IndexedSettings:
    """Return the settings for numbering a server's records."""
    return IndexedSettings(
        create_streams=table.create_streams, exclusive=table.exclusive, recover_seconds=table.recover_seconds
    )


def s3p_back_settings(table: S3PBack) -> S3PBackSettings:
    """Return the settings of a client of an S3P server."""
    limits, loss = table.limits, table.loss
    return S3PBackSettings(
        names=s3p_names(table.names, table.basin),
        limits=replace(
            S3PLimits(),
            max_records_per_append=limits.max_records_per_append,
            max_record_bytes=limits.max_record_bytes,
            max_append_bytes=limits.max_append_bytes,
        ),
        loss=LossPolicy(Loss(loss.headers), Loss(loss.empty_body), Loss(loss.command_records)),
        delivery=Delivery(table.delivery),
        split_appends=table.split_appends,
        trim_keeps_last=table.trim_keeps_last,
        recover_seconds=table.recover_seconds,
    )


def segment_back_settings(name: str, table: SegmentBack) -> SegmentBackSettings:
    """Return the settings of a client of a segment store. Raises CannotStart for files that cannot be used."""
    loss = table.loss
    keep = loss.empty_body == "keep"
    file = table.password_file
    return SegmentBackSettings(
        store=None if table.address is None else upstream_settings(name, table, table.address, "segment"),
        controller=None if table.controller is None else upstream_settings(name, table, table.controller, "controller"),
        username=table.username,
        password="" if file is None else secret_in(f"backs.{name}.password_file", file),
        names=SegmentNames(table.basin),
        dialect=Dialect(table.dialect),
        loss=LossPolicy(Loss(loss.headers), Loss.REFUSE if keep else Loss(loss.empty_body), Loss(loss.command_records)),
        keep_empty=keep,
        delivery=Delivery(table.delivery),
        recover_seconds=table.recover_seconds,
    )
