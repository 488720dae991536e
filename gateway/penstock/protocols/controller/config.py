"""Configuration tables of Pravega's controller; see docs/configuration.md."""

from __future__ import annotations

from typing import Annotated, Literal

from penstock.core.address import Address
from penstock.core.config_fields import check_address, key
from penstock.protocols.segment.config import SegmentListener
from penstock.protocols.tables import (
    MAX_CONNECTIONS,
    STREAMS_BEFORE_AUTH,
    Anonymous,
    ConfigView,
    ListenerLimits,
    ListenerName,
    ListenerTable,
)

__all__ = ["ControllerLimits", "ControllerListener", "segment_of"]


class ControllerLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one controller."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
    keep_alive_seconds: Annotated[
        float, key("A connection without a call under way is closed after this.", least=1)
    ] = 3600.0
    head_timeout_seconds: Annotated[float, key("The head of a call must be complete within this.", least=0.1)] = 30.0
    slow_reader_seconds: Annotated[
        float, key("A client that takes nothing for this long, while there is something for it, is cut off.", least=1)
    ] = 60.0
    max_streams: Annotated[int, key("Calls at once on one connection.", least=1)] = 1000
    max_streams_before_auth: Annotated[int, STREAMS_BEFORE_AUTH] = 100


class ControllerListener(ListenerTable, frozen=True, kw_only=True):
    """Pravega's controller, gRPC over HTTP/2: scopes, streams, and the location of their segments, which is always the
    segment listener. Leave the table out to switch it off."""

    name: ListenerName = None
    segment_listener: Annotated[
        str | None,
        key("Name of the segment listener that it sends its clients to; absent: the first one.", example="public"),
    ] = None
    bind: Annotated[str, key("HOST:PORT; [::1]:9090 for IPv6; port 0 lets the system choose.")] = "127.0.0.1:9090"
    advertise: Annotated[
        str | None,
        key(
            "HOST:PORT of the segment listener as clients reach it; absent: the host by which they reached the "
            "controller, and the port that the segment listener is bound to.",
            example="gateway.example:12345",
        ),
    ] = None
    segments: Annotated[
        Literal["separate", "single", "refuse"],
        key(
            'What becomes of a stream that is to have several segments. "separate": each is a stream of its own, and '
            'order holds within it only; "single": it has one all the same, one order for all protocols; "refuse": it '
            "is not created."
        ),
    ] = "separate"
    anonymous: Anonymous = False
    limits: ControllerLimits = ControllerLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        self.check_tls()
        if self.advertise is not None:
            check_address("advertise", self.advertise)
            if Address.parse(self.advertise).port == 0:
                raise ValueError(f"advertise: clients cannot connect to port 0, got {self.advertise!r}")


def segment_of(controller: ControllerListener, config: ConfigView) -> tuple[str, SegmentListener]:
    """Return the label and the table of the segment listener that a controller sends its clients to. Raises ValueError
    if there is none."""
    wanted = controller.segment_listener
    for label, listener in config.listeners:
        if isinstance(listener, SegmentListener) and wanted in (None, listener.name):
            return label, listener
    raise ValueError(f"segment_listener: there is no segment listener {wanted!r}")
