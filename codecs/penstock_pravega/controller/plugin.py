"""The gateway's plug-in for Pravega's controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.core.address import Address
from penstock.protocols.plugin import Advice, Example, ListenerKind, ProtocolPlugin
from penstock.protocols.servers import Server
from penstock.protocols.tables import ConfigView
from penstock_pravega.controller.config import ControllerListener, segment_listener_of
from penstock_pravega.segment.plugin import SegmentStoreKind

if TYPE_CHECKING:
    from penstock.protocols.conformance import Suite
    from penstock.protocols.opening import ListenerContext, OpenListener

__all__ = ["PLUGIN"]


class _Listener(ListenerKind[ControllerListener]):
    kind = "controller"
    title = "Pravega's controller"
    table = ControllerListener
    by_default = True
    needs = ("segment",)
    serves_records = False
    over_http = True
    fixed_keys = frozenset({"segments", "segment_listener"})
    proofs = "delegation_tokens of [listeners.segment], or tls_client_ca"
    refusals = {
        "max_connections": "HTTP 503",
        "max_inflight_bytes": "RESOURCE_EXHAUSTED, REST: 429",
        "requests_per_second": "RESOURCE_EXHAUSTED, REST: 429",
    }
    at_limits = (
        ("keep_alive_seconds", "the connection is closed", ""),
        ("head_timeout_seconds", "the connection is closed", "head_timeout_seconds"),
        ("slow_reader_seconds", "the HTTP/2 stream is reset, or the connection is closed", "slow_reader_seconds"),
        ("max_streams", "HTTP/2 GOAWAY", ""),
        ("max_streams_before_auth", "REFUSED_STREAM", "max_streams_before_auth"),
    )

    def check(self, table: ControllerListener, config: ConfigView) -> None:
        segment_listener_of(table, config)

    def open(self, context: ListenerContext, label: str, table: ControllerListener) -> OpenListener:
        from penstock_pravega.controller.opening import open_listener

        return open_listener(context, label, table)

    def secrets(self, table: ControllerListener, config: ConfigView) -> str:
        return "passwords and tokens" if segment_listener_of(table, config)[1].delegation_tokens else ""

    def advice(self, about: str, table: ControllerListener, config: ConfigView, *, anonymous: bool) -> Iterator[Advice]:
        label, segment = segment_listener_of(table, config)
        if (segment.tls_certificate is None) != (table.tls_certificate is None):
            yield Advice(
                False,
                f"listeners.{label} and {about}: only one of them has TLS; Pravega's clients use it for both or for "
                "neither.",
            )

    def describe(self, table: ControllerListener, config: ConfigView) -> Iterator[str]:
        from penstock_pravega.controller.report import describe

        return describe(table, config)

    def replaying(self, basin: str, patience: float) -> dict[str, Any]:
        return {"advertise": ControllerListener().bind, "limits": {"keep_alive_seconds": patience}}

    def url(self, table: ControllerListener, address: Address) -> str:
        return f"tcp://{address}"

    def environment(self, table: ControllerListener, address: Address) -> dict[str, str]:
        return {"PRAVEGA_CONTROLLER_URI": self.url(table, address)}

    def commands(self, table: ControllerListener, address: Address, example: Example) -> Iterator[str]:
        from penstock_pravega.controller.report import commands

        return commands(table, address, example)


class _Server(SegmentStoreKind):
    scheme = "pravega"
    protocol = "controller"
    example = "pravega://127.0.0.1:9090"
    options = frozenset()

    def settings(self, server: Server) -> dict[str, Any]:
        return {"controller": str(server.address)}

    def suite(self, _server: Server) -> Suite:
        from penstock_pravega.controller.conformance import SUITE

        return SUITE

    def takes_recorded(self, server: Server, _first: bytes) -> bool:
        return False  # the names of segments and transactions are the server's own


PLUGIN: Final = ProtocolPlugin(listener=_Listener(), server=_Server())
