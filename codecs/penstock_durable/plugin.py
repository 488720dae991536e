"""The gateway's plug-in for Durable Streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN
from penstock.model.records import StreamRef
from penstock.protocols.plugin import Advice, BackKind, Example, ListenerKind, ProtocolPlugin
from penstock.protocols.servers import Server, ServerKind
from penstock.protocols.tables import ConfigView
from penstock.protocols.terms import Terms
from penstock.routing.loss.plan import BackSide, FrontSide
from penstock_durable.config import DurableBackTable, DurableListener

if TYPE_CHECKING:
    from penstock.protocols.back_opening import BackContext
    from penstock.protocols.conformance import Suite
    from penstock.protocols.opening import ListenerContext, OpenListener
    from penstock.routing.target import Target

__all__ = ["PLUGIN"]


class _Listener(ListenerKind[DurableListener]):
    kind = "durable"
    title = "Durable Streams"
    table = DurableListener
    by_default = True
    over_http = True
    proved_by_routes = True
    fixed_keys = frozenset({"path", "names", "basin"})
    proofs = "auth_tokens, [access], tls_client_ca, or routes that are all for identities"
    refusals = {
        "max_connections": "HTTP 503",
        "max_inflight_bytes": "HTTP 429",
        "requests_per_second": "HTTP 429",
        "min_receive_rate": "HTTP 408",
    }
    at_limits = (
        ("max_append_bytes", "HTTP 413", ""),
        ("max_read_bytes", "the answer ends, without `stream-up-to-date`", ""),
        ("long_poll_seconds", "HTTP 204", ""),
        ("event_stream_seconds", "the event stream ends, and its client reconnects", ""),
        ("keep_alive_seconds", "the connection is closed", ""),
        ("head_timeout_seconds", "the connection is closed", "head_timeout_seconds"),
        ("slow_reader_seconds", "the HTTP/2 stream is reset, or the connection is closed", "slow_reader_seconds"),
        ("max_head_bytes", "HTTP 431", ""),
        ("max_streams", "HTTP/2 GOAWAY", ""),
        ("max_streams_before_auth", "REFUSED_STREAM", "max_streams_before_auth"),
    )
    loss_notes = ("everything else: kept, byte for byte",)

    def open(self, context: ListenerContext, label: str, table: DurableListener) -> OpenListener:
        from penstock_durable.opening import open_listener

        return open_listener(context, label, table)

    def named_basins(self, table: DurableListener) -> Iterator[tuple[str, str]]:
        yield "basin", table.basin

    def secrets(self, table: DurableListener, config: ConfigView) -> str:
        return "tokens" if table.auth_tokens or config.access_tokens is not None else ""

    def reach(self, table: DurableListener) -> str:
        return f"every stream of basin {table.basin}" if table.names == "fixed" else "everything"

    def advice(self, about: str, table: DurableListener, config: ConfigView, *, anonymous: bool) -> Iterator[Advice]:
        if "*" in table.cors_origins and anonymous:
            yield Advice(True, f"{about}: any web page that a user opens can use it, since cors_origins has *.")
        if "*" in table.hosts and anonymous:
            yield Advice(
                True, f"{about}: pages can reach it by DNS rebinding, since hosts has * and clients need no token."
            )

    def side(self, table: DurableListener) -> FrontSide:
        from penstock_durable.report import DurableSide

        return DurableSide(table.loss.policy)

    def describe(self, table: DurableListener, config: ConfigView) -> Iterator[str]:
        from penstock_durable.report import describe

        return describe(table, config)

    def describe_names(self, table: DurableListener) -> Iterator[str]:
        from penstock_durable.report import describe_names

        return describe_names(table)

    def url(self, table: DurableListener, address: Address) -> str:
        return f"http://{address}{table.path.rstrip('/')}"

    def environment(self, table: DurableListener, address: Address) -> dict[str, str]:
        return {"DURABLE_STREAMS_URL": self.url(table, address)}

    own_names = True
    hint_names = ("durable",)

    def terms(self, table: DurableListener) -> Terms:
        from penstock_durable.names import names_of
        from penstock_durable.terms import DurableTerms

        return DurableTerms(names_of(table))

    def recorded_stream(self, name: str, basin: str) -> StreamRef:
        return StreamRef(basin, name)

    def replaying(self, basin: str, patience: float) -> dict[str, Any]:
        return {"basin": basin, "limits": {"keep_alive_seconds": patience}}

    def sole_basin(self, table: DurableListener) -> str | None:
        return table.basin if table.names == "fixed" else None

    def commands(self, table: DurableListener, address: Address, example: Example) -> Iterator[str]:
        from penstock_durable.report import commands

        return commands(table, address, example)


class _Back(BackKind[DurableBackTable]):
    title = "Durable Streams"
    table = DurableBackTable

    def open(self, context: BackContext, name: str, table: DurableBackTable) -> AbstractAsyncContextManager[Target]:
        from penstock_durable.back_opening import open_back

        return open_back(context, name, table)

    def check(self, name: str, table: DurableBackTable) -> None:
        from penstock_durable.back_opening import credentials

        credentials(name, table)

    def side(self, table: DurableBackTable) -> BackSide:
        from penstock_durable.report import back_side

        return back_side(table)

    def describe(self, table: DurableBackTable) -> str:
        return "trimmed records are hidden here and stay on the server"

    def sends_secrets(self, table: DurableBackTable) -> bool:
        return table.token is not None or table.token_file is not None


class _Server(ServerKind):
    scheme = "durable"
    protocol = "durable"
    back = _Back()
    example = "durable://127.0.0.1:4437"
    default_basin = DEFAULT_BASIN

    def settings(self, server: Server) -> dict[str, Any]:
        return {"address": str(server.address), "names": "fixed" if server.space is None else "path"}

    def suite(self, _server: Server) -> Suite:
        from penstock_durable.conformance import SUITE

        return SUITE


PLUGIN: Final = ProtocolPlugin(listener=_Listener(), backs=(_Server.back,), server=_Server())
