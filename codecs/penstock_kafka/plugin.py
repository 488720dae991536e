"""The gateway's plug-in for Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN
from penstock.model.records import StreamRef
from penstock.protocols.plugin import BackKind, Example, ListenerKind, ProtocolPlugin
from penstock.protocols.servers import Server, ServerKind
from penstock.protocols.tables import ConfigView
from penstock.protocols.terms import Terms
from penstock.routing.loss.plan import BackSide, FrontSide
from penstock_kafka.config import KafkaBackTable, KafkaListener

if TYPE_CHECKING:
    from penstock.backends.logged_tables import LoggedTables
    from penstock.net.upstream import Watch
    from penstock.protocols.back_opening import BackContext
    from penstock.protocols.conformance import Suite
    from penstock.protocols.opening import ListenerContext, OpenListener
    from penstock.routing.target import Target

__all__ = ["PLUGIN"]


class _Listener(ListenerKind[KafkaListener]):
    kind = "kafka"
    title = "Kafka"
    table = KafkaListener
    by_default = True
    needs_basin = True
    shows_partitions = True
    proved_by_routes = True
    fixed_keys = frozenset({"basin"})
    proofs = "auth_tokens, [access], tls_client_ca, or routes that are all for identities"
    refusals = {
        "max_connections": "the connection is closed",
        "max_inflight_bytes": "the connection is closed",
        "requests_per_second": "the request waits",
        "min_receive_rate": "the connection is closed",
    }
    at_limits = (
        ("max_request_bytes", "the connection is closed", ""),
        ("max_request_items", "the connection is closed", ""),
        ("max_batch_bytes", "`MESSAGE_TOO_LARGE`", ""),
        ("max_partitions", "`INVALID_PARTITIONS`", ""),
        ("max_fetch_bytes", "the answer has fewer records", ""),
        ("max_fetch_wait_ms", "the answer has no records", ""),
        ("max_groups", "`POLICY_VIOLATION`", ""),
        ("max_group_members", "`GROUP_MAX_SIZE_REACHED`", ""),
        ("max_transaction_seconds", "`INVALID_TRANSACTION_TIMEOUT`", ""),
        ("max_transactional_ids", "`POLICY_VIOLATION`", ""),
        ("max_transaction_bytes", "`POLICY_VIOLATION`", ""),
        ("idle_timeout_seconds", "the connection is closed", "idle_timeout_seconds"),
        ("send_timeout_seconds", "the connection is closed", "send_timeout_seconds"),
    )

    def open(self, context: ListenerContext, label: str, table: KafkaListener) -> OpenListener:
        from penstock_kafka.opening import open_listener

        return open_listener(context, label, table)

    def named_basins(self, table: KafkaListener) -> Iterator[tuple[str, str]]:
        yield "basin", table.basin

    def secrets(self, table: KafkaListener, config: ConfigView) -> str:
        return "tokens" if table.auth_tokens or config.access_tokens is not None else ""

    def reach(self, table: KafkaListener) -> str:
        return f"every stream of basin {table.basin}"

    def side(self, table: KafkaListener) -> FrontSide:
        from penstock_kafka.report import KafkaSide

        return KafkaSide()

    def describe(self, table: KafkaListener, config: ConfigView) -> Iterator[str]:
        from penstock_kafka.report import describe

        return describe(table, config)

    def describe_names(self, table: KafkaListener) -> Iterator[str]:
        from penstock_kafka.report import describe_names

        return describe_names(table)

    own_names = True
    hint_names = ("kafka",)

    def terms(self, table: KafkaListener) -> Terms:
        from penstock_kafka.names import KafkaNames
        from penstock_kafka.terms import KafkaTerms

        return KafkaTerms(KafkaNames(table.basin))

    def recorded_stream(self, name: str, basin: str) -> StreamRef:
        return StreamRef(basin, name)

    def replaying(self, basin: str, patience: float) -> dict[str, Any]:
        return {"basin": basin, "limits": {"idle_timeout_seconds": patience}}

    def environment(self, table: KafkaListener, address: Address) -> dict[str, str]:
        return {"KAFKA_BOOTSTRAP_SERVERS": str(address)}

    def sole_basin(self, table: KafkaListener) -> str | None:
        return table.basin

    def commands(self, table: KafkaListener, address: Address, example: Example) -> Iterator[str]:
        from penstock_kafka.report import commands

        return commands(table, address, example)


class _Back(BackKind[KafkaBackTable]):
    title = "Kafka"
    table = KafkaBackTable
    keeps_partitions_apart = True

    def open(self, context: BackContext, name: str, table: KafkaBackTable) -> AbstractAsyncContextManager[Target]:
        from penstock_kafka.back_opening import open_back

        return open_back(context, name, table)

    def keeps_state(self, table: KafkaBackTable) -> bool:
        return table.state_topic is not None

    def open_state(self, name: str, table: KafkaBackTable, watch: Watch) -> AbstractAsyncContextManager[LoggedTables]:
        from penstock_kafka.back_opening import open_state

        return open_state(name, table, watch)

    def side(self, table: KafkaBackTable) -> BackSide:
        from penstock_kafka.report import back_side

        return back_side(table)

    def describe(self, table: KafkaBackTable) -> str:
        numbers = "sequence numbers are offsets, and missing at control records and compacted ones"
        return (
            numbers if table.state_topic is None else f"{numbers}; the gateway's state is in topic {table.state_topic}"
        )


class _Server(ServerKind):
    scheme = "kafka"
    protocol = "kafka"
    back = _Back()
    example = "kafka://127.0.0.1:9092"
    is_cluster = True
    default_basin = DEFAULT_BASIN

    def settings(self, server: Server) -> dict[str, Any]:
        basin, more = server.space or DEFAULT_BASIN, [str(other) for other in server.others]
        return {"address": str(server.address), "more_addresses": more, "basin": basin}

    def suite(self, _server: Server) -> Suite:
        from penstock_kafka.conformance import SUITE

        return SUITE


PLUGIN: Final = ProtocolPlugin(listener=_Listener(), backs=(_Server.back,), server=_Server())
