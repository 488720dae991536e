"""Configuration tables of a listener and a back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from penstock.core.config_fields import DEFAULT_BASIN, check_address, check_basin, check_server, key
from penstock.protocols.tables import ListenerLimits, ListenerTable, LossTable, NumberedBackTable

if TYPE_CHECKING:
    pass

__all__ = ["LinesBack", "LinesListener"]

_Dialect = Annotated[Literal["lf", "crlf"], key("How lines end.")]


class LinesLoss(LossTable, frozen=True, kw_only=True):
    """Reads of records that a line cannot carry."""

    headers: Annotated[Literal["refuse", "envelope", "drop"], key("Records with headers.")] = "refuse"
    empty_body: Annotated[Literal["refuse", "envelope", "drop"], key("Records with an empty body.")] = "refuse"
    command_records: Annotated[Literal["refuse", "envelope", "drop"], key("Fences and trims.")] = "drop"


class LinesLimits(ListenerLimits, frozen=True, kw_only=True):
    """Limits of one lines listener."""

    idle_timeout_seconds: Annotated[float, key("A silent client is cut off after this.", least=1)] = 60.0


class LinesListener(ListenerTable, frozen=True, kw_only=True):
    """Numbered Lines over TCP or TLS."""

    bind: Annotated[str, key("HOST:PORT of the listener.")] = "127.0.0.1:7700"
    basin: Annotated[str, key("Basin of all streams.")] = DEFAULT_BASIN
    dialect: _Dialect = "lf"
    loss: LinesLoss = LinesLoss()
    limits: LinesLimits = LinesLimits()

    def __post_init__(self) -> None:
        check_address("bind", self.bind)
        check_basin("basin", self.basin)
        self.check_tls()


class LinesBack(NumberedBackTable, frozen=True, kw_only=True, tag_field="kind", tag="lines"):
    """A server of Numbered Lines."""

    address: Annotated[str, key("HOST:PORT of the server.", example="127.0.0.1:7700")]
    basin: Annotated[str, key("Basin of all streams on the server.")] = DEFAULT_BASIN
    dialect: _Dialect = "lf"

    def __post_init__(self) -> None:
        self.check()
        check_server("address", self.address)
