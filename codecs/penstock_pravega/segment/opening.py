"""Builds the segment listener's front from its table."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.core.errors import CannotStart
from penstock.model.features import Feature
from penstock.net.http.traced import traced_connections
from penstock.protocols.opening import ListenerContext, OpenListener
from penstock_pravega.codec.limits import SegmentLimits
from penstock_pravega.segment.config import SegmentListener
from penstock_pravega.segment.delegation import Delegation, load_key
from penstock_pravega.segment.front import SegmentFront, SegmentSettings
from penstock_pravega.segment.names import SegmentNames

__all__ = ["open_delegation", "open_listener", "segment_settings"]


KEY_NAME: Final = "delegation.key"


_FEATURES: Final = {"headers": Feature.HEADERS, "empty_body": Feature.EMPTY_BODY, "command_records": Feature.COMMAND}


def open_listener(context: ListenerContext, label: str, table: SegmentListener, *, numbered: bool) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`. `numbered`: as in `segment_settings`."""
    settings = segment_settings(table, open_delegation(context.config.store_directory, table), numbered=numbered)
    back = context.back(label, SegmentNames(table.basin))
    front = SegmentFront(context.faulty(back, label, throttled_whole=True), settings)
    return OpenListener(traced_connections(front.serve), front.drain, (back,), (settings,))


def open_delegation(store_directory: str, segment: SegmentListener) -> Delegation | None:
    """Open the issuer and verifier of a segment listener's delegation tokens; None if it uses none. Raises
    CannotStart."""
    if not segment.delegation_tokens:
        return None
    if not segment.delegation_key_file and not store_directory:
        raise CannotStart("delegation_key_file: give the key that all gateways have; there is no embedded store for it")
    path = Path(segment.delegation_key_file or Path(store_directory, KEY_NAME))
    try:
        key = load_key(path)
    except (OSError, ValueError) as error:
        reason = f"{path} cannot be used: {error.strerror}" if isinstance(error, OSError) else error
        raise CannotStart(f"delegation_key_file: {reason}") from error
    return Delegation(key, segment.delegation_token_seconds)


def segment_settings(
    listener: SegmentListener, delegation: Delegation | None = None, *, numbered: bool = False
) -> SegmentSettings:
    """Return the settings of the segment front. `numbered`: whether a controller sends clients to it."""
    limits = listener.limits
    return SegmentSettings(
        names=SegmentNames(listener.basin),
        numbered=numbered,
        limits=SegmentLimits(max_message_bytes=limits.max_message_bytes, max_writers=limits.max_writers),
        refuse=frozenset(feature for key, feature in _FEATURES.items() if getattr(listener.loss, key) == "refuse"),
        max_read_bytes=limits.max_read_bytes,
        read_hold_seconds=limits.read_hold_seconds,
        idle_timeout_seconds=limits.idle_timeout_seconds,
        send_timeout_seconds=limits.send_timeout_seconds,
        delegation=delegation,
    )
