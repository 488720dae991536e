"""Builds the segment listener's front and the segment back from their tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from penstock.backends.combined import Combined
from penstock.core.delivery import Delivery
from penstock.core.errors import CannotStart
from penstock.core.segment_names import SegmentNames
from penstock.net.http.traced import traced_connections
from penstock.protocols.opening import BackContext, ListenerContext, OpenListener
from penstock.protocols.segment.back import SegmentBackSettings, open_segment
from penstock.protocols.segment.config import SegmentBackTable, SegmentListener
from penstock.protocols.segment.delegation import Delegation, load_key
from penstock.protocols.segment.front import SegmentFront, SegmentSettings
from penstock.protocols.upstreams import secret_in, upstream_settings
from penstock.routing.target import Target
from penstock_codecs.features import Feature
from penstock_codecs.limits import SegmentLimits
from penstock_codecs.segment import Dialect

__all__ = ["open_back", "open_delegation", "open_listener", "segment_back_settings", "segment_settings"]

KEY_NAME: Final = "delegation.key"
_FEATURES: Final = {"headers": Feature.HEADERS, "empty_body": Feature.EMPTY_BODY, "command_records": Feature.COMMAND}


def open_listener(context: ListenerContext, label: str, table: SegmentListener, *, numbered: bool) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`. `numbered`: as in `segment_settings`."""
    settings = segment_settings(table, open_delegation(context.config.store_directory, table), numbered=numbered)
    back = context.back(label, SegmentNames(table.basin))
    front = SegmentFront(context.faulty(back, label, throttled_whole=True), settings)
    return OpenListener(traced_connections(front.serve), front.drain, back, (settings,))


def open_delegation(store_directory: str, segment: SegmentListener) -> Delegation | None:
    """Open the issuer and verifier of a segment listener's delegation tokens; None if it uses none. Raises
    CannotStart."""
    if not segment.delegation_tokens:
        return None
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


@asynccontextmanager
async def open_back(context: BackContext, name: str, table: SegmentBackTable) -> AsyncIterator[Target]:
    """See `penstock.protocols.plugin.BackKind.open`."""
    settings = segment_back_settings(name, table)
    async with (
        open_segment(settings, watch=context.watch) as back,
        context.numbered(back.native, name, table) as records,
    ):
        combined = Combined(records, back.direct)
        yield Target(name, "segment", combined, table.delivery, settings.names, back.breaker)


def segment_back_settings(name: str, table: SegmentBackTable) -> SegmentBackSettings:
    """Return the settings of a client of a segment store. Raises CannotStart for files that cannot be used."""
    file = table.password_file
    return SegmentBackSettings(
        store=None if table.address is None else upstream_settings(name, table, table.address, "segment"),
        controller=None if table.controller is None else upstream_settings(name, table, table.controller, "controller"),
        username=table.username,
        password="" if file is None else secret_in(f"backs.{name}.password_file", file),
        names=SegmentNames(table.basin),
        dialect=Dialect(table.dialect),
        loss=table.loss.policy,
        keep_empty=table.loss.keep_empty,
        delivery=Delivery(table.delivery),
        recover_seconds=table.recover_seconds,
    )
