"""The gateway's plug-in for S3P."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN
from penstock.model.operations import Capability
from penstock.model.records import StreamRef
from penstock.protocols.plugin import BackKind, Example, ListenerKind, ProtocolPlugin
from penstock.protocols.servers import Server, ServerKind
from penstock.protocols.tables import ConfigView
from penstock.protocols.terms import Terms
from penstock.routing.loss.plan import BackSide, FrontSide
from penstock_s3p.config import S3PBackTable, S3PListener

if TYPE_CHECKING:
    from penstock.protocols.back_opening import BackContext
    from penstock.protocols.conformance import Suite
    from penstock.protocols.opening import ListenerContext, OpenListener
    from penstock.routing.target import Target

__all__ = ["PLUGIN"]


class _Listener(ListenerKind[S3PListener]):
    kind = "s3p"
    title = "S3P"
    table = S3PListener
    by_default = True
    proved_by_routes = True
    proofs = "tls_client_ca, or routes that are all for identities"
    refusals = {
        "max_connections": "`ERR_LIMITS`",
        "max_inflight_bytes": "`ERR_LIMITS`",
        "requests_per_second": "`ERR_RATE_LIMITED`",
        "min_receive_rate": "`ERR_LIMITS`",
    }
    at_limits = (
        ("max_name_bytes", "`ERR_LIMITS`", ""),
        ("max_records_per_append", "`ERR_LIMITS`", ""),
        ("max_record_bytes", "`ERR_LIMITS`", ""),
        ("max_append_bytes", "`ERR_LIMITS`", ""),
        ("max_count", "`ERR_LIMITS`", ""),
        ("max_block_ms", "`ERR_LIMITS`", ""),
        ("max_option_pairs", "`ERR_LIMITS`", ""),
        ("max_option_bytes", "`ERR_LIMITS`", ""),
        ("max_read_bytes", "the reply has fewer records", ""),
        ("idle_timeout_seconds", "the connection is closed", "idle_timeout_seconds"),
        ("send_timeout_seconds", "the connection is closed", "send_timeout_seconds"),
    )
    reads_need = {Capability.RECORD_IDS: "identifiers"}

    def open(self, context: ListenerContext, label: str, table: S3PListener) -> OpenListener:
        from penstock_s3p.opening import open_listener

        return open_listener(context, label, table)

    def named_basins(self, table: S3PListener) -> Iterator[tuple[str, str]]:
        yield "basin", table.basin

    def reach(self, table: S3PListener) -> str:
        return f"every stream of basin {table.basin}"

    loss_notes = ("everything else: kept, byte for byte",)

    def recorded_stream(self, name: str, basin: str) -> StreamRef:
        return StreamRef(basin, name)

    def side(self, table: S3PListener) -> FrontSide:
        from penstock_s3p.report import S3PSide

        return S3PSide(table.loss.policy)

    def describe(self, table: S3PListener, config: ConfigView) -> Iterator[str]:
        from penstock_s3p.report import describe

        return describe(table)

    def describe_names(self, table: S3PListener) -> Iterator[str]:
        from penstock_s3p.report import describe_names

        return describe_names(table)

    def environment(self, table: S3PListener, address: Address) -> dict[str, str]:
        return {"S3P_URL": self.url(table, address)}

    def mock_refusal(self, message: str) -> bytes:
        from penstock_s3p.codec.encoding import encode_reply
        from penstock_s3p.codec.errors import one_line
        from penstock_s3p.codec.events import ErrorReply

        return encode_reply(ErrorReply("ERR_NOT_RECORDED", one_line(message)))

    own_names = True
    hint_names = ("s3p",)

    def terms(self, table: S3PListener) -> Terms:
        from penstock_s3p.names import s3p_names
        from penstock_s3p.terms import S3PTerms

        return S3PTerms(s3p_names(table.names, table.basin))

    def replaying(self, basin: str, patience: float) -> dict[str, Any]:
        return {"basin": basin, "limits": {"idle_timeout_seconds": patience}}

    def sole_basin(self, table: S3PListener) -> str | None:
        return table.basin if table.names == "fixed" else None

    def commands(self, table: S3PListener, address: Address, example: Example) -> Iterator[str]:
        from penstock_s3p.report import commands

        return commands(table, address, example)


class _Back(BackKind[S3PBackTable]):
    title = "S3P"
    table = S3PBackTable

    def open(self, context: BackContext, name: str, table: S3PBackTable) -> AbstractAsyncContextManager[Target]:
        from penstock_s3p.back_opening import open_back

        return open_back(context, name, table)

    def side(self, table: S3PBackTable) -> BackSide:
        able = {Capability.TRIM, Capability.FOLLOW, Capability.LOCATE, Capability.RECORD_IDS, Capability.BYTES}
        return BackSide(
            kind=self.kind,
            capabilities=table.loss.policy.enveloped | able,
            delivery=table.delivery,
            loss=table.loss.policy,
            largest=table.limits.max_record_bytes,
            numbered=True,
            record_ids=True,
            timestamps_read="they are in the server's identifiers",
        )


class _Server(ServerKind):
    scheme = "s3p"
    protocol = "s3p"
    back = _Back()
    example = "s3p://127.0.0.1:7500"
    default_basin = DEFAULT_BASIN

    def settings(self, server: Server) -> dict[str, Any]:
        return {"address": str(server.address), "names": "fixed" if server.space is None else "path"}

    def suite(self, _server: Server) -> Suite:
        from penstock_s3p.conformance import SUITE

        return SUITE


PLUGIN: Final = ProtocolPlugin(listener=_Listener(), backs=(_Server.back,), server=_Server())
