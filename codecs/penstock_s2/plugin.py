"""The gateway's plug-in for S2: S2S sessions, SSE, and S2's JSON and protobuf requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from penstock.core.address import Address
from penstock.model.operations import Capability
from penstock.protocols.plugin import Advice, BackKind, Example, ListenerKind, ProtocolPlugin
from penstock.protocols.servers import Server, ServerKind
from penstock.protocols.tables import ConfigView
from penstock.protocols.terms import Terms
from penstock.routing.loss.plan import BackSide, FrontSide
from penstock_s2.config import S2BackTable, S2Listener, S2SseBackTable

if TYPE_CHECKING:
    from penstock.protocols.back_opening import BackContext
    from penstock.protocols.conformance import Suite
    from penstock.protocols.opening import ListenerContext, OpenListener
    from penstock.routing.target import Target

__all__ = ["PLUGIN"]


_OF_STREAMS: Final = "/v1/streams"
"""Beginning of the paths of requests that name their basin in a header or a query."""


class _Listener(ListenerKind[S2Listener]):
    kind = "s2"
    title = "S2"
    table = S2Listener
    by_default = True
    over_http = True
    proved_by_routes = True
    proofs = "[access] or auth_tokens, or tls_client_ca"
    refusals = {
        "max_connections": "HTTP 503 with `Retry-After` and `rate_limited`",
        "max_inflight_bytes": "429 `rate_limited` with `Retry-After`",
        "requests_per_second": "429 `rate_limited` with `Retry-After` and `retry-after-ms`",
        "min_receive_rate": "408 `request_timeout`, or in a session a terminal frame",
    }
    at_limits = (
        ("event_stream_seconds", "the event stream ends, and its client reconnects", ""),
        ("keep_alive_seconds", "the connection is closed", ""),
        ("head_timeout_seconds", "the connection is closed", "head_timeout_seconds"),
        ("slow_reader_seconds", "the HTTP/2 stream is reset, or the connection is closed", "slow_reader_seconds"),
        ("max_head_bytes", "431, or HTTP/2 GOAWAY", ""),
        ("max_streams", "HTTP/2 GOAWAY", ""),
        ("max_streams_before_auth", "REFUSED_STREAM", "max_streams_before_auth"),
        ("receive_buffer_bytes", "the gateway reads no more from the client", ""),
        ("send_buffer_bytes", "the gateway pauses its reads of the source", ""),
        ("max_unsent_bytes", "the gateway pauses its reads of the source", ""),
    )

    def open(self, context: ListenerContext, label: str, table: S2Listener) -> OpenListener:
        from penstock_s2.opening import open_listener

        return open_listener(context, label, table)

    def named_basins(self, table: S2Listener) -> Iterator[tuple[str, str]]:
        if table.default_basin is not None:
            yield "default_basin", table.default_basin

    def secrets(self, table: S2Listener, config: ConfigView) -> str:
        return "bearer tokens" if table.auth_tokens or config.access_tokens is not None else ""

    def issues_tokens(self, table: S2Listener) -> bool:
        return bool(table.auth_tokens)

    def advice(self, about: str, table: S2Listener, config: ConfigView, *, anonymous: bool) -> Iterator[Advice]:
        if "*" in table.cors_origins and anonymous:
            yield Advice(
                True,
                f"{about}: every web page in a browser that reaches {table.bind} can read, write and "
                "delete everything, since cors_origins has * and clients need no token. List the origins.",
            )
        elif "*" in table.cors_origins:
            yield Advice(False, f"{about}: any web page may use it, with a token, since cors_origins has *.")
        if "*" in table.hosts and anonymous:
            yield Advice(
                True, f"{about}: pages can reach it by DNS rebinding, since hosts has * and clients need no token."
            )

    def side(self, table: S2Listener) -> FrontSide:
        from penstock_s2.report import S2Side

        return S2Side()

    def describe(self, table: S2Listener, config: ConfigView) -> Iterator[str]:
        from penstock_s2.report import describe

        return describe(table, config)

    def describe_access(self, table: S2Listener, config: ConfigView) -> Iterator[str]:
        if config.access_tokens is not None:
            yield f"access tokens are in {config.access_tokens}"

    hint_names = ("s2", "sse")
    placeholders = {"S2_ACCESS_TOKEN": "mock"}

    def url(self, table: S2Listener, address: Address) -> str:
        return f"http://{address}"

    def environment(self, table: S2Listener, address: Address) -> dict[str, str]:
        return dict.fromkeys(("S2_ACCOUNT_ENDPOINT", "S2_BASIN_ENDPOINT"), self.url(table, address))

    def terms(self, table: S2Listener) -> Terms:
        from penstock_s2.terms import S2Terms

        return S2Terms(table.sse_dialect)

    def replayed_headers(self, target: str, basin: str) -> Mapping[str, str]:
        return {"s2-basin": basin} if basin and target.startswith(_OF_STREAMS) else {}

    def replaying(self, basin: str, patience: float) -> dict[str, Any]:
        return {"default_basin": basin, "limits": {"keep_alive_seconds": patience}}

    def commands(self, table: S2Listener, address: Address, example: Example) -> Iterator[str]:
        from penstock_s2.report import commands

        return commands(table, address, example)


class _S2Back(BackKind[S2BackTable]):
    title = "S2"
    table = S2BackTable

    def open(self, context: BackContext, name: str, table: S2BackTable) -> AbstractAsyncContextManager[Target]:
        from penstock_s2.back_opening import open_s2_back

        return open_s2_back(context, name, table)

    def check(self, name: str, table: S2BackTable | S2SseBackTable) -> None:
        from penstock_s2.back_opening import credentials

        credentials(name, table)

    def side(self, table: S2BackTable) -> BackSide:
        able = frozenset(Capability) - {Capability.TABLES, Capability.LARGE_BATCHES}
        return BackSide(kind=self.kind, capabilities=able, delivery=table.delivery, passes="S2S")

    def describe(self, table: S2BackTable | S2SseBackTable) -> str:
        from penstock_s2.report import CREDENTIALS

        return CREDENTIALS[table.credentials]

    def sends_secrets(self, table: S2BackTable | S2SseBackTable) -> bool:
        return table.credentials != "none"

    def needs_client(self, table: S2BackTable | S2SseBackTable) -> bool:
        own = table.token is not None or table.token_file is not None
        return table.credentials == "pass" or (table.credentials == "swap" and not own)


class _S2SseBack(BackKind[S2SseBackTable]):
    title = "S2, only read, over SSE"
    table = S2SseBackTable

    def open(self, context: BackContext, name: str, table: S2SseBackTable) -> AbstractAsyncContextManager[Target]:
        from penstock_s2.back_opening import open_s2_sse_back

        return open_s2_sse_back(context, name, table)

    def side(self, table: S2SseBackTable) -> BackSide:
        able = {Capability.HEADERS, Capability.EMPTY_BODIES, Capability.TIMESTAMPS, Capability.STORED_TIMESTAMPS}
        able |= {Capability.FOLLOW, Capability.BYTES}
        return BackSide(kind=self.kind, capabilities=frozenset(able), delivery="refuse", appends=False)

    check = _S2Back.check
    describe = _S2Back.describe
    sends_secrets = _S2Back.sends_secrets
    needs_client = _S2Back.needs_client


class _Server(ServerKind):
    scheme = "s2"
    protocol = "s2"
    back = _S2Back()
    example = "s2://127.0.0.1:8080/my-basin"
    local = "s2://127.0.0.1:8080"
    aliases = {"http": ("s2", 80), "https": ("s2+tls", 443)}
    takes_token = True

    def takes_recorded(self, server: Server, _first: bytes) -> bool:
        return True  # requests name their basin in a header, which is replaced

    def suite(self, _server: Server) -> Suite:
        from penstock_s2.conformance import SUITE

        return SUITE


PLUGIN: Final = ProtocolPlugin(listener=_Listener(), backs=(_Server.back, _S2SseBack()), server=_Server())
