"""Translates configured listeners into the settings of their fronts."""

from __future__ import annotations

from collections.abc import Callable

from penstock.app.bootstrap.store import ENVELOPES
from penstock.app.config import (
    ControllerLimits,
    ControllerListener,
    Drain,
    S2Limits,
    S2Listener,
    S3PListener,
    SegmentListener,
)
from penstock.core.address import Address
from penstock.core.identity import NOBODY, Identities
from penstock.core.names import s3p_names
from penstock.core.segment_names import SegmentNames
from penstock.net.http.serving import HttpSettings
from penstock.protocols.controller.controller.settings import Advertised, ControllerSettings, SegmentsMode
from penstock.protocols.s2.front import S2Settings
from penstock.protocols.s3p.front import S3PSettings
from penstock.protocols.segment.front import SegmentSettings
from penstock.routing.access.authority import Authority
from penstock.routing.access.delegation import Delegation
from penstock.routing.access.passwords import Passwords
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_codecs.http import HttpLimits
from penstock_codecs.limits import S3PLimits as CodecS3PLimits
from penstock_codecs.limits import SegmentLimits as CodecSegmentLimits

__all__ = [
    "controller_http_settings",
    "controller_settings",
    "http_settings",
    "s2_settings",
    "s3p_settings",
    "segment_settings",
]


def s2_settings(
    listener: S2Listener, drain: Drain, identities: Identities = NOBODY, access: Authority | None = None
) -> S2Settings:
    """Return the settings of the S2 front."""
    return S2Settings(
        default_basin=listener.default_basin,
        basin_host_suffixes=listener.basin_host_suffixes,
        cors_origins=frozenset(listener.cors_origins),
        hosts=_hosts(listener, access),
        bearer_tokens=frozenset(listener.auth_tokens),
        sse_dialect=listener.sse_dialect,
        compress=listener.compress,
        identities=identities,
        access=access,
        anonymous=listener.anonymous,
        drain_grace_seconds=drain.grace_seconds,
    )


def _hosts(listener: S2Listener, access: Authority | None) -> frozenset[str] | None:
    """Return the allowed host names, or None to allow all: a page that uses DNS rebinding has neither a token nor a
    certificate."""
    proven = bool(listener.auth_tokens or access is not None) and not listener.anonymous
    if proven or listener.tls_certificate is not None:
        return None
    bound = Address.parse(listener.bind).host
    return frozenset({bound, *listener.hosts, *(f"*{suffix}" for suffix in listener.basin_host_suffixes)})


def http_settings(limits: S2Limits) -> HttpSettings:
    """Return the settings of an S2 listener's HTTP server."""
    return HttpSettings(
        limits=HttpLimits(max_head=limits.max_head_bytes, max_streams=limits.max_streams),
        streams_before_auth=limits.max_streams_before_auth,
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
        receive_buffer=limits.receive_buffer_bytes,
        send_buffer=limits.send_buffer_bytes,
        max_unsent=limits.max_unsent_bytes,
    )


def s3p_settings(listener: S3PListener) -> S3PSettings:
    """Return the settings of the S3P front."""
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


def segment_settings(
    listener: SegmentListener, delegation: Delegation | None = None, *, numbered: bool = False
) -> SegmentSettings:
    """Return the settings of the segment front. `numbered`: whether a controller sends clients to it."""
    limits = listener.limits
    return SegmentSettings(
        names=SegmentNames(listener.basin),
        numbered=numbered,
        limits=CodecSegmentLimits(max_message_bytes=limits.max_message_bytes, max_writers=limits.max_writers),
        refuse=frozenset(feature for key, (feature, _) in ENVELOPES.items() if getattr(listener.loss, key) == "refuse"),
        max_read_bytes=limits.max_read_bytes,
        read_hold_seconds=limits.read_hold_seconds,
        idle_timeout_seconds=limits.idle_timeout_seconds,
        send_timeout_seconds=limits.send_timeout_seconds,
        delegation=delegation,
    )


def controller_settings(
    controller: ControllerListener,
    segment: SegmentListener,
    segment_port: Callable[[], int],
    delegation: Delegation | None = None,
    passwords: Passwords | None = None,
) -> ControllerSettings:
    """Return the settings of the controller. `segment_port` returns the port that the segment listener is bound to."""

    def advertise() -> Advertised:
        if controller.advertise is None:
            return Advertised(None, segment_port())
        return Advertised(*Address.parse(controller.advertise))

    return ControllerSettings(
        names=SegmentNames(segment.basin),
        segments=SegmentsMode(controller.segments),
        advertise=advertise,
        delegation=delegation,
        passwords=passwords,
    )


def controller_http_settings(limits: ControllerLimits) -> HttpSettings:
    """Return the settings of the controller's HTTP server."""
    return HttpSettings(
        limits=HttpLimits(max_streams=limits.max_streams),
        streams_before_auth=limits.max_streams_before_auth,
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
    )
