"""The gateway's plug-in: configuration tables of a listener and a back, and what reports say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN, check_address, check_basin, check_server, key
from penstock.model.operations import Capability, Located
from penstock.model.records import StreamRef
from penstock.protocols.plugin import BackKind, Example, ListenerKind, ProtocolPlugin
from penstock.protocols.servers import Server, ServerKind
from penstock.protocols.tables import ConfigView, ListenerLimits, ListenerTable, LossTable, NumberedBackTable
from penstock.protocols.terms import Terms
from penstock.routing.loss.plan import BackSide

if TYPE_CHECKING:
    from penstock.protocols.back_opening import BackContext
    from penstock.protocols.conformance import Suite
    from penstock.protocols.opening import ListenerContext, OpenListener
    from penstock.routing.target import Target

__all__ = ["PLUGIN", "LinesBack", "LinesListener"]

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


class LinesTerms(Terms):
    """Names without a basin, and numbers."""

    def __init__(self, basin: str) -> None:
        self._basin = basin

    def to_stream(self, name: str) -> StreamRef:
        return StreamRef(self._basin, name)

    def hints(self, stream: StreamRef, located: Located) -> Mapping[str, dict[str, Any]]:
        return {"lines": {"get": f"{stream.stream} {located.seq_num}"}} if stream.basin == self._basin else {}


class _Listener(ListenerKind[LinesListener]):
    kind = "lines"
    title = "Numbered Lines"
    table = LinesListener
    own_names = True
    hint_names = ("lines",)
    at_limits = (("idle_timeout_seconds", "closed", "idle_timeout_seconds"),)
    loss_notes = ("bodies with a line feed: refused",)

    def open(self, context: ListenerContext, label: str, table: LinesListener) -> OpenListener:
        from numbered_lines.serving import open_listener

        return open_listener(context, label, table)

    def describe(self, table: LinesListener, config: ConfigView) -> Iterator[str]:
        yield f"Numbered Lines ({table.dialect}) on {table.bind}, for {table.clients('any client')}"

    def terms(self, table: LinesListener) -> Terms:
        return LinesTerms(table.basin)

    def replaying(self, basin: str, patience: float) -> dict[str, Any]:
        return {"basin": basin, "limits": {"idle_timeout_seconds": patience}}

    def commands(self, table: LinesListener, address: Address, example: Example) -> Iterator[str]:
        yield from (
            "",
            "  # append a line",
            f"  echo 'PUT {example.stream} first' | nc -w 1 {address.host} {address.port}",
        )


class _Back(BackKind[LinesBack]):
    title = "Numbered Lines"
    table = LinesBack

    def open(self, context: BackContext, name: str, table: LinesBack) -> AbstractAsyncContextManager[Target]:
        from numbered_lines.serving import open_back

        return open_back(context, name, table)

    def side(self, table: LinesBack) -> BackSide:
        able = {Capability.EMPTY_BODIES, Capability.LOCATE, Capability.FOLLOW, Capability.RECORD_IDS, Capability.BYTES}
        return BackSide(kind=self.kind, capabilities=frozenset(able), delivery="refuse", numbered=True)


class _Server(ServerKind):
    scheme = "lines"
    protocol = "lines"
    back = _Back()
    example = "lines://127.0.0.1:7700"
    options = frozenset({"crlf"})
    default_basin = DEFAULT_BASIN

    def settings(self, server: Server) -> dict[str, Any]:
        return {"address": str(server.address), "dialect": "crlf" if server.options else "lf"}

    def suite(self, server: Server) -> Suite | None:
        from numbered_lines.conforming import SUITE

        return None if server.options else SUITE


PLUGIN: Final = ProtocolPlugin(listener=_Listener(), backs=(_Server.back,), server=_Server())
