"""Configuration tables of Pravega's controller; see docs/configuration.md."""

from typing import Annotated, Literal

from penstock.core.address import Address
from penstock.core.config_fields import Table, check_address, key
from penstock.protocols.tables import (
    MAX_CONNECTIONS,
    STREAMS_BEFORE_AUTH,
    Anonymous,
    ConfigView,
    ListenerLimits,
    ListenerName,
    ListenerTable,
)
from penstock_pravega.segment.config import SegmentListener

__all__ = ["ControllerListener", "ControllerListenerLimits", "ControllerScaling", "segment_listener_of"]


class ControllerListenerLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one controller."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000
    keep_alive_seconds: Annotated[
        float, key("Time after which a connection without a call in progress is closed.", least=1)
    ] = 3600.0
    head_timeout_seconds: Annotated[float, key("Time within which the head of a call must be complete.", least=0.1)] = (
        30.0
    )
    slow_reader_seconds: Annotated[
        float,
        key("Time after which a client is disconnected if it accepts none of the data that waits for it.", least=1),
    ] = 60.0
    max_streams: Annotated[int, key("Most concurrent calls on one connection.", least=1)] = 1000
    max_streams_before_auth: Annotated[int, STREAMS_BEFORE_AUTH] = 100


class ControllerScaling(Table, frozen=True, kw_only=True):
    """Automatic scaling of streams by their rates: averages over four windows are compared with the target rate of a
    stream's policy (docs/protocols/controller.md)."""

    sample_seconds: Annotated[
        float, key("Time between the samples of how much the segments hold.", least=0.1, most=3600)
    ] = 5.0
    cooldown_seconds: Annotated[float, key("Time for which a new segment is neither split nor merged.", least=0.1)] = (
        600.0
    )
    burst_seconds: Annotated[
        float, key("Window over which a segment is split if it gets five times the target rate.", least=0.1)
    ] = 120.0
    busy_seconds: Annotated[
        float, key("Window over which a segment is split if it gets twice the target rate.", least=0.1)
    ] = 300.0
    steady_seconds: Annotated[
        float, key("Window over which a segment is split if it gets more than the target rate.", least=0.1)
    ] = 600.0
    idle_seconds: Annotated[
        float,
        key("Window over which neighbours are merged if each gets less than half of the target rate.", least=0.1),
    ] = 1200.0


class ControllerListener(ListenerTable, frozen=True, kw_only=True):
    """Pravega's controller, gRPC over HTTP/2, and its REST API on the same port: it manages scopes and streams, and
    sends clients to the segment listener for all segments. Omit the table to switch the listener off."""

    name: ListenerName = None
    segment_listener: Annotated[
        str | None,
        key("Name of the segment listener that clients are sent to; absent: the first one.", example="public"),
    ] = None
    bind: Annotated[str, key("Address, as HOST:PORT, or [::1]:9090 for IPv6; port 0 lets the system choose.")] = (
        "127.0.0.1:9090"
    )
    advertise: Annotated[
        str | None,
        key(
            "HOST:PORT at which clients reach the segment listener; absent: the host at which they reached the "
            "controller, and the port to which the segment listener is bound.",
            example="gateway.example:12345",
        ),
    ] = None
    segments: Annotated[
        Literal["separate", "single", "refuse"],
        key(
            'Treatment of a stream that is created with several segments. "separate": each segment is a stream of '
            'its own, and order holds within each only; "single": the stream has only one segment, so that '
            'all protocols see one order; "refuse": the stream is not created.'
        ),
    ] = "separate"
    retention_seconds: Annotated[
        float,
        key(
            "Time between the turns at which the controller records the ends of streams, and truncates streams there "
            "by their retention policies.",
            least=1,
        ),
    ] = 1800.0
    watermark_seconds: Annotated[
        float,
        key(
            "Time between the turns at which the controller makes watermarks of the times that writers note.", least=0.1
        ),
    ] = 10.0
    anonymous: Anonymous = False
    scaling: ControllerScaling = ControllerScaling()
    limits: ControllerListenerLimits = ControllerListenerLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        self.check_tls()
        if self.advertise is not None:
            check_address("advertise", self.advertise)
            if Address.parse(self.advertise).port == 0:
                raise ValueError(f"advertise: clients cannot connect to port 0, got {self.advertise!r}")


def segment_listener_of(controller: ControllerListener, config: ConfigView) -> tuple[str, SegmentListener]:
    """Return the label and the table of the segment listener that a controller sends its clients to. Raises ValueError
    if there is none."""
    wanted = controller.segment_listener
    for label, listener in config.listeners:
        if isinstance(listener, SegmentListener) and wanted in (None, listener.name):
            return label, listener
    raise ValueError(f"segment_listener: there is no segment listener {wanted!r}")
