"""Builds the S3P listener's front from its table."""

from __future__ import annotations

from penstock.net.http.traced import traced_connections
from penstock.protocols.opening import ListenerContext, OpenListener
from penstock_s3p.codec.limits import S3PLimits
from penstock_s3p.config import S3PListener
from penstock_s3p.front import S3PFront, S3PSettings, refuse_s3p
from penstock_s3p.names import s3p_names

__all__ = ["open_listener", "s3p_settings"]


def open_listener(context: ListenerContext, label: str, table: S3PListener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    settings, back = s3p_settings(table), context.back(label)
    front = S3PFront(context.faulty(back, label), settings)
    return OpenListener(traced_connections(front.serve), front.drain, (back,), (settings,), refuse=refuse_s3p)


def s3p_settings(listener: S3PListener) -> S3PSettings:
    """Return the settings of the S3P front."""
    limits = listener.limits
    return S3PSettings(
        names=s3p_names(listener.names, listener.basin),
        limits=S3PLimits(
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
        loss=listener.loss.policy,
        max_read_bytes=limits.max_read_bytes,
        idle_timeout_seconds=limits.idle_timeout_seconds,
        send_timeout_seconds=limits.send_timeout_seconds,
    )
