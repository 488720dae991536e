"""The plug-in: how a listener, a back and a server are opened, and what reports say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from numbered_lines.config import LinesBack, LinesListener
from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN
from penstock.model.operations import Capability, Located
from penstock.model.records import StreamRef
from penstock.protocols.plugin import BackKind, Example, ListenerKind, ProtocolPlugin
from penstock.protocols.servers import Server, ServerKind
from penstock.protocols.tables import ConfigView
from penstock.protocols.terms import Terms
from penstock.routing.loss.plan import BackSide

if TYPE_CHECKING:
    from penstock.protocols.back_opening import BackContext
    from penstock.protocols.conformance import Suite
    from penstock.protocols.opening import ListenerContext, OpenListener
    from penstock.routing.target import Target

__all__ = ["PLUGIN"]


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
        from numbered_lines.front import open_listener

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
        from numbered_lines.back import open_back

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
        from numbered_lines.conformance import SUITE

        return None if server.options else SUITE


PLUGIN: Final = ProtocolPlugin(listener=_Listener(), backs=(_Server.back,), server=_Server())
