"""The gateway's plug-in for the segment protocol; Pravega's controller has its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from penstock.core.address import Address
from penstock.core.config_fields import DEFAULT_BASIN, is_basin_name
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_layout import Layout
from penstock.model.features import Feature
from penstock.model.operations import Capability
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig, Retention, StreamConfig
from penstock.protocols.plugin import BackKind, Example, ListenerKind, ProtocolPlugin
from penstock.protocols.servers import Server, ServerKind
from penstock.protocols.tables import ConfigView
from penstock.protocols.terms import Terms
from penstock.routing.loss.plan import BackSide, Fate, FrontSide, Item
from penstock_pravega.segment.config import SegmentBackTable, SegmentListener
from penstock_pravega.segment.names import SegmentName, SegmentNames

if TYPE_CHECKING:
    from penstock.backends.logged_tables import LoggedTables
    from penstock.net.upstream import Watch
    from penstock.protocols.back_opening import BackContext
    from penstock.protocols.conformance import Suite
    from penstock.protocols.opening import ListenerContext, OpenListener
    from penstock.routing.target import Target

__all__ = ["PLUGIN", "SegmentStoreKind"]


class _Listener(ListenerKind[SegmentListener]):
    kind = "segment"
    title = "Segments"
    table = SegmentListener
    by_default = True
    fixed_keys = frozenset({"basin"})
    # Pravega's clients delete their own internal streams; no retention applies to them.
    basins = {INTERNAL_BASIN: BasinConfig(default_stream_config=StreamConfig(retention=Retention(None)))}
    proofs = "delegation_tokens of [listeners.segment], or tls_client_ca"
    refusals = {
        "max_inflight_bytes": "the connection is closed",
        "requests_per_second": "waits",
        "min_receive_rate": "the connection is closed",
    }
    at_limits = (
        ("max_message_bytes", "the connection is closed", ""),
        ("max_writers", "the connection is closed", ""),
        ("max_read_bytes", "the reply has fewer bytes", ""),
        ("idle_timeout_seconds", "the connection is closed", "idle_timeout_seconds"),
        ("send_timeout_seconds", "the connection is closed", "send_timeout_seconds"),
    )

    def open(self, context: ListenerContext, label: str, table: SegmentListener) -> OpenListener:
        from penstock_pravega.controller.config import ControllerListener, segment_listener_of
        from penstock_pravega.segment.opening import open_listener

        controllers = context.config.of(ControllerListener)
        numbered = any(segment_listener_of(controller, context.config)[1] is table for controller in controllers)
        return open_listener(context, label, table, numbered=numbered)

    def envelopes(self, table: SegmentListener) -> Layout:
        return table.loss.layout

    def named_basins(self, table: SegmentListener) -> Iterator[tuple[str, str]]:
        yield "basin", table.basin

    def secrets(self, table: SegmentListener, config: ConfigView) -> str:
        return "passwords and tokens" if table.delegation_tokens else ""

    loss_notes = (
        "everything else: kept, each body as one event",
        "a record's bytes are fixed when it is appended: later changes of the configuration do not affect it",
    )

    def recorded_stream(self, name: str, basin: str) -> StreamRef | None:
        stream = SegmentNames(basin).to_stream(name)
        return stream if stream.basin != INTERNAL_BASIN else None

    def side(self, table: SegmentListener) -> FrontSide:
        from penstock_pravega.segment.report import SegmentSide

        return SegmentSide(table.loss.policy)

    def describe(self, table: SegmentListener, config: ConfigView) -> Iterator[str]:
        from penstock_pravega.segment.report import describe

        return describe(table)

    def describe_names(self, table: SegmentListener) -> Iterator[str]:
        yield (
            "A scope whose name is valid for a basin is that basin; streams of other scopes are in basin "
            f"{table.basin}, as scope/stream"
        )

    own_names = True
    hint_names = ("segment",)

    def terms(self, table: SegmentListener) -> Terms:
        from penstock_pravega.segment.terms import SegmentTerms

        return SegmentTerms(SegmentNames(table.basin))

    from_its_beginning = True

    def replaying(self, basin: str, patience: float) -> dict[str, Any]:
        return {"basin": basin, "limits": {"idle_timeout_seconds": patience}}

    def commands(self, table: SegmentListener, address: Address, example: Example) -> Iterator[str]:
        from penstock_pravega.segment.report import commands

        return commands(table, address, example)

    def describe_access(self, table: SegmentListener, config: ConfigView) -> Iterator[str]:
        from penstock_pravega.segment.report import describe_access

        return describe_access(table, config)


class _Back(BackKind[SegmentBackTable]):
    title = "segments"
    table = SegmentBackTable

    def open(self, context: BackContext, name: str, table: SegmentBackTable) -> AbstractAsyncContextManager[Target]:
        from penstock_pravega.segment.back_opening import open_back

        return open_back(context, name, table)

    def keeps_state(self, table: SegmentBackTable) -> bool:
        return table.state_stream is not None

    def open_state(self, name: str, table: SegmentBackTable, watch: Watch) -> AbstractAsyncContextManager[LoggedTables]:
        from penstock_pravega.segment.back_opening import open_state

        return open_state(name, table, watch)

    def describe(self, table: SegmentBackTable) -> str:
        if table.state_stream is None:
            return ""
        return f"the gateway's state is in stream {table.state_stream}, for any number of gateways"

    def check(self, name: str, table: SegmentBackTable) -> None:
        from penstock.protocols.upstreams import secret_in

        if table.password_file is not None:
            secret_in(f"backs.{name}.password_file", table.password_file)

    def addresses(self, table: SegmentBackTable) -> Mapping[str, str]:
        by_role = {"": table.address, "controller": table.controller}
        return {name: address for name, address in by_role.items() if address is not None}

    def address(self, table: SegmentBackTable) -> str:
        return table.controller or table.address or ""

    def side(self, table: SegmentBackTable) -> BackSide:
        draft, keep_empty = table.dialect == "draft", table.loss.keep_empty
        able = {Capability.TRIM, Capability.FOLLOW, Capability.LOCATE, Capability.RECORD_IDS, Capability.BYTES}
        able |= {Capability.TIMESTAMPS} | ({Capability.EMPTY_BODIES} if keep_empty else set())
        able |= set() if draft else {Capability.TABLES, Capability.MATCH_SEQ_NUM}
        how = "its writers' positions are event numbers, and those of the draft are bytes"
        refused = (
            Item("events of clients of the released dialect", Fate.REFUSED, how),
            Item("transactions", Fate.REFUSED, "the draft has none"),
        )
        return BackSide(
            kind=self.kind,
            capabilities=table.loss.policy.enveloped | able,
            delivery=table.delivery,
            loss=table.loss.policy,
            kept={Feature.EMPTY_BODY: "as events without bytes"} if keep_empty else {},
            numbered=True,
            byte_offsets=True,
            timestamps_kept="in the gateway's index",
            timestamps_read="the gateway's, kept in its index",
            finds_out="the gateway asks the server for the writer's last append before it sends again",
            exactly_once=frozenset({"exactly-once", "at-least-once"}),
            for_bytes=refused if draft else (),
        )

    def sends_secrets(self, table: SegmentBackTable) -> bool:
        return table.username is not None


class SegmentStoreKind(ServerKind):
    """A segment store, without a controller."""

    scheme = "segment"
    protocol = "segment"
    back = _Back()
    example = "segment://127.0.0.1:12345"
    options = frozenset({"draft"})

    def check_space(self, space: str) -> None:
        SegmentName(space, "x")

    def settings(self, server: Server) -> dict[str, Any]:
        return {"address": str(server.address), "dialect": "draft" if server.options else "released"}

    def named(self, server: Server, stream: str) -> tuple[str | None, str]:
        if server.space is None or is_basin_name(server.space):
            return server.space, stream
        return DEFAULT_BASIN, f"{server.space}/{stream}"  # docs/names.md: scopes that are no valid basins

    def suite(self, server: Server) -> Suite:
        from penstock_pravega.segment.conformance import DRAFT, RELEASED

        return DRAFT if server.options else RELEASED

    def takes_recorded(self, server: Server, first: bytes) -> bool:
        from penstock_pravega.capture.dialect_detection import HELLO

        return server.space is None and first.startswith(HELLO) == (not server.options)


PLUGIN: Final = ProtocolPlugin(listener=_Listener(), backs=(SegmentStoreKind.back,), server=SegmentStoreKind())
