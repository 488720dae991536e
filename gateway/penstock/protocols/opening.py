"""The parts that a protocol's plug-in builds fronts from, and the front that it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import trio

from penstock.backends.logged_tables import Lease, LoggedTables
from penstock.backends.turns import StreamTurns
from penstock.core.address import Address
from penstock.core.back import Back, SwappableBack
from penstock.core.identity import NO_IDENTITIES, Identities
from penstock.core.internal_names import InternalNames
from penstock.net.http.front_server import HttpFront, HttpServer
from penstock.net.http.serving import HttpSettings
from penstock.net.limits.limiter import count_operation
from penstock.net.limits.refusals import Refuse, close_at_once
from penstock.protocols.tables import ConfigView
from penstock.routing.access.authority import Authority
from penstock.routing.access.clients import ClientRules
from penstock.routing.access.guard import GuardedBack
from penstock.routing.access.passwords import Passwords
from penstock.routing.faults.back import FaultyBack
from penstock.routing.faults.exchange import FaultyFront
from penstock.routing.faults.rules import Faults
from penstock.routing.router import Router

__all__ = ["ListenerContext", "OpenListener"]


class OpenListener(NamedTuple):
    """A front that serves connections; the fields are those of `penstock.net.accepting.Listener`."""

    serve: Callable[[trio.abc.Stream], Awaitable[None]]
    begin_drain: Callable[[], None]
    backs: tuple[SwappableBack, ...]
    settings: tuple[msgspec.Struct, ...]
    duties: Callable[[], Awaitable[None]] | None = None
    refuse: Refuse = close_at_once
    path: str = ""


class ListenerContext(msgspec.Struct, kw_only=True):
    """The parts of the gateway that fronts are built from.

    `access`: the access tokens, None if none are configured. `users`: identities and password hashes by user name.
    `drain_seconds`: how long sessions may go on when the gateway stops. `bound`: for each label the addresses that the
    listener is bound to, filled before any listener accepts.
    """

    config: ConfigView
    router: Router
    faults: Faults = msgspec.field(default_factory=Faults)
    identities: Identities = NO_IDENTITIES
    users: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    access: Authority | None = None
    drain_seconds: float = 0.0
    bound: dict[str, Sequence[Address]] = msgspec.field(default_factory=dict)

    def back(self, label: str, names: InternalNames | None = None, *, tokens: bool = False) -> SwappableBack:
        """Return the router's view for a listener. `names`: see `Router.for_listener`. `tokens`: its clients may have
        access tokens, which bound it. Clients whose front counts no requests are charged for each operation."""
        view = self.router.for_listener(label, names)
        guarded = view if self.access is None or not tokens else GuardedBack(view, self.access.vigil)
        return SwappableBack(guarded, count_operation)

    def clients(self, tokens: Iterable[str] = (), *, anonymous: bool = False, passwords: bool = False) -> ClientRules:
        """Return how the clients of a listener prove who they are. `tokens`: the listener's own. `anonymous`: clients
        without a token are served, too. `passwords`: its protocol has user names and passwords (`log_in`)."""
        users = Passwords(self.users) if passwords and self.users else None
        return ClientRules(frozenset(tokens), self.identities, self.access, anonymous, users)

    def lease(self, name: str, about: Callable[[], str]) -> Lease | None:
        """Return the lease of a duty that one gateway does for all with the same state, None if no other can have it.
        `about` returns a description of this gateway for the others."""
        state = self.router.state
        return Lease(state, name, about) if isinstance(state, LoggedTables) else None

    def turns(self, name: str) -> StreamTurns:
        """Return the turns at streams that all gateways with the same state take; `name`: of their table."""
        return StreamTurns(self.router.state, name)

    def faulty(self, back: Back, label: str, *, in_sessions: bool = False, throttled_whole: bool = False) -> Back:
        """Return a back with the configured faults injected into its operations, which the front is built on.

        `in_sessions`: reads and appends are sessions, in which many batches answer one request. `throttled_whole`: an
        answer is throttled before any of it is sent, since several tasks write to a connection.
        """
        return FaultyBack(back, self.faults, label, in_sessions=in_sessions, throttled_whole=throttled_whole)

    def http_server(self, front: HttpFront, settings: HttpSettings) -> HttpServer:
        """Return the server of a front's HTTP connections, with the configured faults."""
        return HttpServer(settings, FaultyFront(front, self.faults))
