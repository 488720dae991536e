"""The plug-in of a protocol in the gateway: its listeners, its backs, and what the gateway tells people about them.

A distribution registers one `ProtocolPlugin` under its protocol's name in the entry-point group `penstock.protocols`;
the built-in protocols do the same. Configuration, wiring, reports and tools ask the plug-ins, and have no list of
protocols. A new protocol must define the table of its listener or back, and `open`. Every other attribute and method
has a default that suits a protocol without peculiarities.

Every command with a configuration loads all plug-ins, since the configuration is made of their tables; a command that
opens one server loads them up to that of the server. So a module `plugin.py` imports the modules that serve connections
inside `open` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec

from penstock.core.address import Address
from penstock.model.byte_layout import Layout
from penstock.model.failures import FailureCode
from penstock.model.names import validate_basin_name
from penstock.model.operations import Capability
from penstock.model.records import StreamRef
from penstock.model.streams import BasinConfig
from penstock.protocols.back_kind import BackKind
from penstock.protocols.servers import ServerKind
from penstock.protocols.tables import ConfigView, ListenerTable, LossTable
from penstock.protocols.terms import Terms
from penstock.routing.loss.plan import FrontSide
from penstock.wire.plugins import installed, installed_names

if TYPE_CHECKING:
    from penstock.protocols.opening import ListenerContext, OpenListener

__all__ = [
    "Advice",
    "BackKind",
    "Example",
    "ListenerKind",
    "ProtocolPlugin",
    "back_kinds",
    "listener_kinds",
    "local_server",
    "server_kinds",
    "servers_from",
]

ENTRY_POINT_GROUP: Final = "penstock.protocols"

L = TypeVar("L", bound=ListenerTable)


class Advice(NamedTuple):
    """A remark on a valid configuration. `insecure`: unauthorized clients could read, change or delete records."""

    insecure: bool
    text: str


# ---- listeners -------------------------------------------------------------------------------------------------------


class Example(msgspec.Struct, frozen=True):
    """The stream that example commands use. `creation`: what must be created first: `basin`, `stream` or "". `first`:
    no command before these appends to it. `alone`: no command of another kind appends to it."""

    basin: str
    stream: str
    creation: str = ""
    first: bool = True
    alone: bool = False


class ListenerKind(Generic[L]):
    """One kind of listener: `[listeners.KIND]`."""

    kind: ClassVar[str]
    """Its name in the configuration, in labels of listeners, and in metrics."""
    title: ClassVar[str]
    """Its name in reports."""
    table: type[L]
    """Its configuration table. Every field needs a default."""
    by_default: ClassVar[bool] = False
    """True to run it, with its defaults, if there is no configuration file."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Kinds without which it cannot run; the configuration names them before it."""
    serves_records: ClassVar[bool] = True
    """True if its clients append or read; False if it only tells them where to do so."""
    shows_partitions: ClassVar[bool] = False
    """True if its clients see stream NAME, and streams NAME/0, NAME/1 and so on, as one object; see
    `Back.declare_partitioned`, which its front calls."""
    needs_basin: ClassVar[bool] = False
    """True if `penstock check` refuses a basin of `named_basins` that does not exist: its clients cannot create it."""
    over_http: ClassVar[bool] = False
    """True if TLS agrees on a version of HTTP."""
    fixed_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that determine the names of streams: a change needs a restart, since it would show clients other streams."""
    basins: ClassVar[Mapping[str, BasinConfig]] = {}
    """Basins for its own data, which are created before it serves."""
    reads_need: ClassVar[Mapping[Capability, str]] = {}
    """Capabilities that a back must have for its clients' reads, each with the name of what is missing without it."""
    proved_by_routes: ClassVar[bool] = False
    """True if it is enough for exposure to other machines that all its routes require an identity."""
    at_limits: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    """For docs/limits.md: each key of its `limits`, its effect, and the `limit` label of its metric ("": refusals are
    counted with the protocol's errors, or nothing is refused)."""
    refusals: ClassVar[Mapping[str, str]] = {}
    """For docs/limits.md: the refusal at each key of `[limits]`."""
    proofs: ClassVar[str] = "tls_client_ca"
    """Keys that make its clients authenticate, in words."""

    def check(self, table: L, config: ConfigView) -> None:
        """Check a table together with the others. Raises ValueError."""

    def open(self, context: ListenerContext, label: str, table: L) -> OpenListener:
        """Build the front of a listener. Raises CannotStart for files that cannot be used."""
        raise NotImplementedError

    def envelopes(self, table: L) -> Layout:
        """Return what must be enveloped when records are appended, because its clients read records as bytes."""
        return Layout.PLAIN

    def named_basins(self, table: L) -> Iterator[tuple[str, str]]:
        """Yield each key that names a basin, with the basin."""
        return iter(())

    def secrets(self, table: L, config: ConfigView) -> str:
        """Return the secrets that clients send, in words; "" if they send none."""
        return ""

    def issues_tokens(self, table: L) -> bool:
        """Return whether clients of this listener can issue access tokens without having one."""
        return False

    def reach(self, table: L) -> str:
        """Return the streams that its clients can reach, in words."""
        return "everything"

    def advice(self, about: str, table: L, config: ConfigView, *, anonymous: bool) -> Iterator[Advice]:
        """Yield remarks on a table. `about`: its name in the remarks. `anonymous`: clients need not authenticate."""
        return iter(())

    def side(self, table: L) -> FrontSide:
        """Return how records travel between its clients and a back."""
        loss = getattr(table, "loss", None)
        return FrontSide(loss.policy if isinstance(loss, LossTable) else None)

    # ---- clients ---------------------------------------------------------------------------------------------------

    placeholders: ClassVar[Mapping[str, str]] = {}
    """Environment variables with credentials that its clients must have, though any value does for a mock."""

    def url(self, table: L, address: Address) -> str:
        """Return the URL by which its clients reach a listener at `address`."""
        return f"{self.kind}://{address}"

    def environment(self, table: L, address: Address) -> dict[str, str]:
        """Return the environment variables by which its known clients find a listener at `address`."""
        return {}

    def mock_refusal(self, message: str) -> bytes:
        """Return the answer to a request that a mock cannot answer; b"": the connection is closed. Over HTTP it is not
        used."""
        return b""

    # ---- texts for people --------------------------------------------------------------------------------------------

    loss_notes: ClassVar[tuple[str, ...]] = ()
    """Lines that follow those on the table `loss` in reports."""

    def describe(self, table: L, config: ConfigView) -> Iterator[str]:
        """Yield lines for reports: what it speaks, where, and to which clients."""
        yield f"{self.title} on {table.bind}, for {table.clients('any client')}"

    def describe_names(self, table: L) -> Iterator[str]:
        """Yield lines for reports on how its clients name streams."""
        return iter(())

    def describe_access(self, table: L, config: ConfigView) -> Iterator[str]:
        """Yield lines for reports on the credentials that its clients need."""
        return iter(())

    own_names: ClassVar[bool] = False
    """True if its clients have names of their own for streams; else they are BASIN/STREAM."""
    hint_names: ClassVar[tuple[str, ...]] = ()
    """The ways of reading on from a position, see `Terms.hints`."""

    def terms(self, table: L) -> Terms:
        """Return the terms in which its clients name streams and positions."""
        return Terms()

    def recorded_stream(self, name: str, basin: str) -> StreamRef | None:
        """Return the stream that a gateway finds for a name in a recording; None if no other protocol sees it.

        `basin`: for names without one. Raises OperationFailed for names that are not valid.
        """
        space, slash, rest = name.partition("/")
        if not slash:
            return StreamRef(basin, space)
        return StreamRef(validate_basin_name(space, FailureCode.INVALID), rest) if rest else None

    def replayed_headers(self, target: str, basin: str) -> Mapping[str, str]:
        """Return headers over HTTP to set in a recorded request to `target` before it is sent again; `basin`: the one
        that it concerns, "" if that is unknown."""
        return {}

    def replaying(self, basin: str, patience: float) -> dict[str, Any]:
        """Return keys of a table that serves recorded clients: their streams are in `basin`, and they may be silent for
        `patience` seconds."""
        return {}

    from_its_beginning: ClassVar[bool] = False
    """True if a recorded conversation can only be played from its beginning."""

    def sole_basin(self, table: L) -> str | None:
        """Return the basin if its clients see one only."""
        return None

    def commands(self, table: L, address: Address, example: Example) -> Iterator[str]:
        """Yield lines for the page that a gateway prints when it listens: commands to copy. `address`: where the
        listener is reached. A kind without commands is asked once more when those of another one have appended, or
        `alone` if none did."""
        return iter(())


# ---- plug-ins --------------------------------------------------------------------------------------------------------


class ProtocolPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """The object that a distribution registers in the entry-point group `penstock.protocols`."""

    listener: ListenerKind[Any] | None = None
    backs: tuple[BackKind[Any], ...] = ()
    server: ServerKind | None = None


@cache
def listener_kinds() -> dict[str, ListenerKind[Any]]:
    """Return the kinds of listeners by name: in alphabetical order, those that need others last."""
    plugins = installed(ENTRY_POINT_GROUP, ProtocolPlugin)
    kinds = {plugin.listener.kind: plugin.listener for plugin in plugins.values() if plugin.listener is not None}

    def depth(kind: str) -> int:
        return max((1 + depth(needed) for needed in kinds[kind].needs), default=0)

    return {kind: kinds[kind] for kind in sorted(kinds, key=lambda kind: (depth(kind), kind))}


@cache
def back_kinds() -> dict[str, BackKind[Any]]:
    """Return the kinds of backs by name, in alphabetical order."""
    plugins = installed(ENTRY_POINT_GROUP, ProtocolPlugin)
    return {back.kind: back for _, plugin in sorted(plugins.items()) for back in plugin.backs}


@cache
def server_kinds() -> dict[str, ServerKind]:
    """Return the kinds of servers by scheme, in alphabetical order."""
    return {server.scheme: server for server in sorted(servers_from(), key=lambda server: server.scheme)}


def servers_from(protocol: str = "") -> Iterator[ServerKind]:
    """Yield the kinds of servers, first that of the plug-in named `protocol`. Each plug-in is loaded when its turn
    comes."""
    for name in sorted(installed_names(ENTRY_POINT_GROUP), key=lambda name: (name != protocol, name)):
        server = installed(ENTRY_POINT_GROUP, ProtocolPlugin, only=name)[name].server
        if server is not None:
            yield server


def local_server() -> str:
    """Return the URL of a gateway on this machine at its usual port."""
    return next(server.local for server in servers_from() if server.local)
