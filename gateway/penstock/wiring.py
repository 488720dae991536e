"""From a configuration to the parts that it names: the one module that knows both."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final, Protocol

import trio

from penstock.accepting import Listener
from penstock.backs.base import Back
from penstock.backs.embedded import open_embedded
from penstock.config import (
    Address,
    Basin,
    Config,
    ControllerLimits,
    ControllerListener,
    Drain,
    S2Limits,
    S2Listener,
    S3PListener,
    SegmentListener,
    SegmentLoss,
    Store,
)
from penstock.controller.settings import Advertised, ControllerSettings, SegmentsMode
from penstock.errors import CannotStart
from penstock.fronts.controller import ControllerFront
from penstock.fronts.exchange import Exchange
from penstock.fronts.http_server import Drain as HttpDrain
from penstock.fronts.http_server import HttpSettings, serve_http, tls_context, tls_stream
from penstock.fronts.s2 import S2Front, S2Settings
from penstock.fronts.s3p import S3PFront, S3PSettings
from penstock.fronts.segment import SegmentFront, SegmentSettings
from penstock.policy.loss import Loss, LossPolicy
from penstock.routing.names import s3p_names
from penstock.routing.segments import INTERNAL_BASIN, SegmentNames
from penstock.store.settings import StoreSettings
from penstock_codecs.byte_layout import Layout
from penstock_codecs.features import Feature
from penstock_codecs.http import HttpLimits
from penstock_codecs.limits import S3PLimits as CodecS3PLimits
from penstock_codecs.limits import SegmentLimits as CodecSegmentLimits
from penstock_codecs.operations import EnsureBasin
from penstock_codecs.streams import BasinConfig, Retention, StreamConfig, TimestampingMode

__all__ = [
    "check_files",
    "controller_http_settings",
    "controller_settings",
    "http_settings",
    "open_listeners",
    "open_store",
    "s2_settings",
    "s3p_settings",
    "segment_settings",
    "store_settings",
    "tls_of",
]

HANDSHAKE_SECONDS: Final = 30.0
"""A TLS handshake of the segment protocol must be complete within this."""

Secured = S2Listener | SegmentListener | ControllerListener


def check_files(config: Config) -> None:
    """Find out, without listening or opening the store, whether the named files can be used. Raises CannotStart."""
    listeners = config.listeners
    for name, listener in (("s2", listeners.s2), ("segment", listeners.segment), ("controller", listeners.controller)):
        if listener is not None:
            tls_of(name, listener)
    _check_directory(Path(config.store.directory))


def _check_directory(directory: Path) -> None:
    nearest = next((path for path in (directory, *directory.absolute().parents) if path.exists()), directory)
    if not nearest.is_dir():
        raise CannotStart(f"store.directory: {nearest} is not a directory")
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise CannotStart(f"store.directory: cannot write to {nearest}: permission denied")


@asynccontextmanager
async def open_store(config: Config) -> AsyncIterator[Back]:
    """The embedded store, with the configured basins in it. Raises CannotStart."""
    segment = config.listeners.segment
    async with open_embedded(store_settings(config.store, segment.loss if segment else None)) as back:
        if segment is not None:
            await back.perform(EnsureBasin(INTERNAL_BASIN, _FOR_EVER))
        for basin in config.store.basins:
            await back.perform(EnsureBasin(basin.name, _basin_config(basin)))
        yield back


_FOR_EVER: Final = BasinConfig(default_stream_config=StreamConfig(retention=Retention(None)))
"""What Pravega's clients keep for themselves goes when they delete it."""

_ENVELOPES: Final = {
    "headers": (Feature.HEADERS, Layout.ENVELOPE_HEADERS),
    "empty_body": (Feature.EMPTY_BODY, Layout.ENVELOPE_EMPTY),
    "command_records": (Feature.COMMAND, Layout.ENVELOPE_COMMANDS),
}
"""For each key of the segment listener's loss table what it is about, and how that looks to the store."""


def store_settings(store: Store, loss: SegmentLoss | None = None) -> StoreSettings:
    """What the store is told; `loss`: of the segment listener, if there is one."""
    envelopes = [layout for key, (_, layout) in _ENVELOPES.items() if getattr(loss, key, None) == "envelope"]
    return StoreSettings(
        directory=Path(store.directory),
        append_inflight_bytes=store.append_inflight_bytes,
        tail_cache_bytes=store.tail_cache_bytes,
        read_ahead_batches=store.read_ahead_batches,
        cached_streams=store.cached_streams,
        reader_threads=store.reader_threads,
        sweep_interval_seconds=store.sweep_interval_seconds,
        envelopes=reduce(or_, envelopes, Layout.PLAIN),
    )


def _basin_config(basin: Basin) -> BasinConfig:
    return BasinConfig(
        create_stream_on_append=basin.create_stream_on_append,
        create_stream_on_read=basin.create_stream_on_read,
        default_stream_config=StreamConfig(
            retention=Retention(basin.retention_seconds or None),
            timestamping_mode=TimestampingMode(basin.timestamping_mode),
        ),
    )


def open_listeners(config: Config, back: Back) -> list[Listener]:
    """A listener for each protocol that is configured, not yet bound. Raises CannotStart."""
    listeners = []
    if config.listeners.s2 is not None:
        listeners.append(_s2(config.listeners.s2, config.drain, back))
    if config.listeners.s3p is not None:
        listeners.append(_s3p(config.listeners.s3p, back))
    if config.listeners.segment is not None:
        listeners += _pravega(config.listeners.segment, config.listeners.controller, back)
    return listeners


def _s2(listener: S2Listener, drain: Drain, back: Back) -> Listener:
    front = S2Front(back, s2_settings(listener, drain))
    server = _HttpServer("s2", listener, http_settings(listener.limits), front)
    address = Address.parse(listener.bind)
    return Listener("listeners.s2", "s2", address, listener.limits.max_connections, server.serve, server.begin_drain)


class _HttpFront(Protocol):
    async def handle(self, exchange: Exchange) -> None: ...

    def drain(self) -> None: ...


class _HttpServer:
    """The connections of a front that answers HTTP."""

    def __init__(self, name: str, listener: Secured, settings: HttpSettings, front: _HttpFront) -> None:
        self._tls = tls_of(name, listener)
        self._settings = settings
        self._front = front
        self._drain = HttpDrain()

    async def serve(self, stream: trio.abc.Stream) -> None:
        secured = stream if self._tls is None else tls_stream(stream, self._tls)
        await serve_http(secured, self._front.handle, self._settings, self._drain)

    def begin_drain(self) -> None:
        self._front.drain()
        self._drain.begin()


def s2_settings(listener: S2Listener, drain: Drain) -> S2Settings:
    """What the S2 front is told."""
    return S2Settings(
        default_basin=listener.default_basin,
        basin_host_suffixes=listener.basin_host_suffixes,
        cors=listener.cors,
        bearer_tokens=frozenset(listener.auth_tokens),
        sse_dialect=listener.sse_dialect,
        compress=listener.compress,
        drain_grace_seconds=drain.grace_seconds,
    )


def http_settings(limits: S2Limits) -> HttpSettings:
    """What the HTTP server is told."""
    return HttpSettings(
        limits=HttpLimits(max_head=limits.max_head_bytes, max_streams=limits.max_streams),
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
        receive_buffer=limits.receive_buffer_bytes,
        send_buffer=limits.send_buffer_bytes,
        max_unsent=limits.max_unsent_bytes,
    )


def tls_of(name: str, listener: Secured) -> ssl.SSLContext | None:
    """TLS as the files of `listeners.NAME` say; None without files. Raises CannotStart."""
    if listener.tls_certificate is None:
        return None
    protocols = () if isinstance(listener, SegmentListener) else ("h2", "http/1.1")
    try:
        return tls_context(listener.tls_certificate, listener.tls_key, protocols)
    except OSError as error:  # ssl.SSLError is one
        files = f"{listener.tls_certificate} and {listener.tls_key}"
        reason = (
            "they are not a PEM certificate chain and its key" if isinstance(error, ssl.SSLError) else error.strerror
        )
        raise CannotStart(f"listeners.{name}: cannot use {files} for TLS: {reason}") from error


def _s3p(listener: S3PListener, back: Back) -> Listener:
    front = S3PFront(back, s3p_settings(listener))
    return Listener(
        "listeners.s3p",
        "s3p",
        Address.parse(listener.bind),
        listener.limits.max_connections,
        front.serve,
        front.drain,
    )


def s3p_settings(listener: S3PListener) -> S3PSettings:
    """What the S3P front is told."""
    limits, loss = listener.limits, listener.loss
    return S3PSettings(
        names=s3p_names(listener.names, listener.basin),
        limits=CodecS3PLimits(
            max_name_bytes=limits.max_name_bytes,
            max_records_per_append=limits.max_records_per_append,
            max_record_bytes=limits.max_record_bytes,
            max_append_bytes=limits.max_append_bytes,
            default_count=limits.default_count,
            max_count=limits.max_count,
            max_block_ms=limits.max_block_ms,
            max_option_pairs=limits.max_option_pairs,
            max_option_bytes=limits.max_option_bytes,
        ),
        loss=LossPolicy(Loss(loss.headers), Loss(loss.empty_body), Loss(loss.command_records)),
        max_read_bytes=limits.max_read_bytes,
        idle_timeout_seconds=limits.idle_timeout_seconds,
        send_timeout_seconds=limits.send_timeout_seconds,
    )


def _pravega(segment: SegmentListener, controller: ControllerListener | None, back: Back) -> Iterator[Listener]:
    ports: list[int] = []  # of the segment listener, once it is bound
    yield _segment(segment, back, lambda addresses: ports.extend(address.port for address in addresses))
    if controller is not None:
        yield _controller(controller, controller_settings(controller, segment, lambda: ports[0]), back)


def _segment(listener: SegmentListener, back: Back, bound: Callable[[Sequence[Address]], None]) -> Listener:
    front = SegmentFront(back, segment_settings(listener))
    tls = tls_of("segment", listener)

    async def serve(stream: trio.abc.Stream) -> None:
        if tls is not None:
            stream = tls_stream(stream, tls)
            with trio.fail_after(HANDSHAKE_SECONDS):
                await stream.do_handshake()
        await front.serve(stream)

    return Listener(
        "listeners.segment",
        "segment",
        Address.parse(listener.bind),
        listener.limits.max_connections,
        serve,
        front.drain,
        bound,
    )


def _controller(listener: ControllerListener, settings: ControllerSettings, back: Back) -> Listener:
    front = ControllerFront(back, settings)
    server = _HttpServer("controller", listener, controller_http_settings(listener.limits), front)
    return Listener(
        "listeners.controller",
        "controller",
        Address.parse(listener.bind),
        listener.limits.max_connections,
        server.serve,
        server.begin_drain,
        duties=front.run,
    )


def segment_settings(listener: SegmentListener) -> SegmentSettings:
    """What the segment front is told."""
    limits = listener.limits
    return SegmentSettings(
        names=SegmentNames(listener.basin),
        limits=CodecSegmentLimits(max_message_bytes=limits.max_message_bytes, max_writers=limits.max_writers),
        refuse=frozenset(
            feature for key, (feature, _) in _ENVELOPES.items() if getattr(listener.loss, key) == "refuse"
        ),
        max_read_bytes=limits.max_read_bytes,
        read_hold_seconds=limits.read_hold_seconds,
        idle_timeout_seconds=limits.idle_timeout_seconds,
        send_timeout_seconds=limits.send_timeout_seconds,
    )


def controller_settings(
    controller: ControllerListener, segment: SegmentListener, segment_port: Callable[[], int]
) -> ControllerSettings:
    """What the controller is told; `segment_port` gives the port that the segment listener is really bound to."""

    def advertise() -> Advertised:
        if controller.advertise is None:
            return Advertised(None, segment_port())
        return Advertised(*Address.parse(controller.advertise))

    return ControllerSettings(
        names=SegmentNames(segment.basin), segments=SegmentsMode(controller.segments), advertise=advertise
    )


def controller_http_settings(limits: ControllerLimits) -> HttpSettings:
    """What the controller's HTTP server is told."""
    return HttpSettings(
        limits=HttpLimits(max_streams=limits.max_streams),
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
    )
