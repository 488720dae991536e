"""Builds the controller's front from its table and that of its segment listener."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.core.address import Address
from penstock.net.http.front_server import refuse_http
from penstock.net.http.serving import HttpSettings
from penstock.protocols.opening import ListenerContext, OpenListener
from penstock.routing.access.passwords import Passwords
from penstock.wire.http import HttpLimits
from penstock_pravega.controller.config import ControllerListener, ControllerListenerLimits, segment_listener_of
from penstock_pravega.controller.controller.controller import TURNS, Controller
from penstock_pravega.controller.controller.settings import (
    Advertised,
    ControllerSettings,
    ScalingSettings,
    SegmentsMode,
)
from penstock_pravega.controller.front import ControllerFront
from penstock_pravega.segment.config import SegmentListener
from penstock_pravega.segment.delegation import Delegation
from penstock_pravega.segment.names import SegmentNames
from penstock_pravega.segment.opening import open_delegation

__all__ = ["controller_http_settings", "controller_settings", "open_listener"]


def open_listener(context: ListenerContext, label: str, table: ControllerListener) -> OpenListener:
    """See `penstock.protocols.plugin.ListenerKind.open`."""
    segment_label, segment = segment_listener_of(table, context.config)
    delegation = open_delegation(context.config.store_directory, segment)
    users = Passwords(context.users) if delegation is not None else None
    back = context.back(label, SegmentNames(segment.basin))
    settings = controller_settings(table, segment, lambda: context.bound[segment_label][0].port, delegation, users)
    lease = context.lease(f"listener/{label}", lambda: str(context.bound[label][0]))
    controller = Controller(context.faulty(back, label), settings, turns=context.turns(TURNS), lease=lease)
    front = ControllerFront(controller)
    http = controller_http_settings(table.limits)
    server = context.http_server(front, http)
    return OpenListener(server.serve, server.begin_drain, (back,), (settings, http), front.run, refuse_http)


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
        retention_seconds=controller.retention_seconds,
        watermark_seconds=controller.watermark_seconds,
        scaling=ScalingSettings(**msgspec.structs.asdict(controller.scaling)),
        delegation=delegation,
        passwords=passwords,
        local=delegation is None and Address.parse(controller.bind).is_loopback,
    )


def controller_http_settings(limits: ControllerListenerLimits) -> HttpSettings:
    """Return the settings of the controller's HTTP server."""
    return HttpSettings(
        limits=HttpLimits(max_streams=limits.max_streams),
        streams_before_auth=limits.max_streams_before_auth,
        keep_alive=limits.keep_alive_seconds,
        head_timeout=limits.head_timeout_seconds,
        slow_reader=limits.slow_reader_seconds,
    )
