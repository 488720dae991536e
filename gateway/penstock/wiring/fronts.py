"""What the fronts are told, as a configuration has it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.access.authority import Authority
from penstock.access.delegation import Delegation
from penstock.access.passwords import Passwords
from penstock.config import (
    Address,
    ControllerLimits,
    ControllerListener,
    Drain,
    S2Limits,
    S2Listener,
    S3PListener,
    SegmentListener,
)
from penstock.controller.settings import Advertised, ControllerSettings, SegmentsMode
from penstock.fronts.http_server import HttpSettings
from penstock.fronts.s2 import S2Settings
from penstock.fronts.s3p import S3PSettings
from penstock.fronts.segment import SegmentSettings
from penstock.identity import NOBODY, Identities
from penstock.policy.loss import Loss, LossPolicy
from penstock.routing.names import s3p_names
from penstock.routing.segments import SegmentNames
from penstock.wiring.store import ENVELOPES
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
    """What the S2 front is told."""
    return S2Settings(
        default_basin=listener.default_basin,
        basin_host_suffixes=listener.basin_host_suffixes,
        cors=listener.cors,
        bearer_tokens=frozenset(listener.auth_tokens),
        sse_dialect=listener.sse_dialect,
        compress=listener.compress,
        identities=identities,
        access=access,
        anonymous=listener.anonymous,
        drain_grace_seconds=drain.grace_seconds,
    )


def http_settings(limits: S2Limits) -> HttpSettings:
    """What the HTTP server is told."""
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


def segment_settings(listener: SegmentListener, delegation: Delegation | None = None) -> SegmentSettings:
    """What the segment front is told."""
    limits = listener.limits
    return SegmentSettings(
        names=SegmentNames(listener.basin),
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
    """What the controller is told; `segment_port` gives the port that the segment listener is really bound to."""

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
    """What the controller's HTTP server is told."""
    return HttpSettings(
        limits=HttpLimits(max_streams=limits.max_streams),
        streams_before_auth=limits.max_streams_before_auth,
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
    )
