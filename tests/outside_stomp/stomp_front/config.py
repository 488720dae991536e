"""The configuration table of a listener."""

from __future__ import annotations

from typing import Annotated, Literal

from penstock.core.config_fields import DEFAULT_BASIN, check_address, check_basin, key
from penstock.protocols.tables import ListenerLimits, ListenerTable, LossTable, LossWord

__all__ = ["StompListener"]


class StompLoss(LossTable, frozen=True, kw_only=True):
    """Records that a frame cannot carry: those with headers that are no text, and commands."""

    headers: Annotated[LossWord, key("Records with headers that are not UTF-8.")] = "refuse"
    empty_body: Annotated[Literal["refuse"], key("Frames carry empty bodies.")] = "refuse"
    command_records: Annotated[LossWord, key("Fences and trims.")] = "drop"


class StompLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one listener."""

    idle_timeout_seconds: Annotated[
        float, key("A client without subscriptions and heartbeats that sends nothing for so long is cut off.", least=1)
    ] = 600.0
    send_timeout_seconds: Annotated[float, key("A client that receives nothing for so long is cut off.", least=1)] = (
        30.0
    )
    max_subscriptions: Annotated[int, key("Most subscriptions of a connection.", least=1)] = 100


class StompListener(ListenerTable, frozen=True, kw_only=True):
    """STOMP 1.2 over TCP or TLS."""

    bind: Annotated[str, key("HOST:PORT of the listener.")] = "127.0.0.1:61613"
    basin: Annotated[str, key("Basin of all streams.")] = DEFAULT_BASIN
    auth_tokens: Annotated[tuple[str, ...], key("Passcodes that admit every client.", example=["a-secret"])] = ()
    heartbeat_seconds: Annotated[
        float, key("Shortest time after which the gateway sends, and wants, a heartbeat.", least=0.1)
    ] = 10.0
    prefetch: Annotated[
        int, key("Most unacknowledged messages of a subscription that does not name prefetch-count.", least=1)
    ] = 100
    loss: StompLoss = StompLoss()
    limits: StompLimits = StompLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        check_basin("basin", self.basin)
        self.check_tls()
