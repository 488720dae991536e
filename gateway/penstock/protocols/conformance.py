"""Conformance cases: what a protocol's specification demands of any server, as functions that `penstock conform` runs.

A `ServerKind` returns the `Suite` of its protocol. A case is a function that talks to the server through a session of
its protocol, and returns if the server kept to the clause; its name and docstring name the case. It takes its demand
from the specification, never from what Penstock does, creates streams with names of its own, and leaves nothing behind:

    CASES = Cases[Session]()

    @CASES.case("8.1")
    async def create_of_a_new_stream(session: Session) -> None:
        '''CREATE of a new stream is answered with +OK.'''
        require_equal(await session.ask(...), b"+OK")

Each case has a session, and with it connections, of its own, so that a server which closes one fails one case only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar
from uuid import uuid4

import msgspec
import trio

from penstock.core.address import Address
from penstock.net.credentials import Credentials, CredentialsMode
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion
from penstock.net.tls import ClientTls
from penstock.net.upstream import Upstream, UpstreamSettings

__all__ = [
    "Cases",
    "ConformanceCase",
    "Deviation",
    "NotApplicable",
    "Suite",
    "TestedServer",
    "closed_in_time",
    "require",
    "require_equal",
    "until",
]

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.05


class _Closable(Protocol):
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Closable)


@asynccontextmanager
async def closed_in_time(session: S, patience: float) -> AsyncIterator[S]:
    """Close a session behind the block, also if that was cancelled; for `patience` seconds at most."""
    try:
        yield session
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + patience):
            await session.close()


class Deviation(Exception):
    """The server did not do what the clause demands; the message says what was expected and what came."""


class NotApplicable(Exception):
    """The demand does not concern this server; the message says why."""


def require(condition: bool, expected: str, got: object) -> None:
    """Raise Deviation unless the condition holds."""
    if not condition:
        _deviates(expected, got)


def require_equal(got: object, expected: object) -> None:
    """Raise Deviation unless both are equal."""
    if got != expected:
        _deviates(f"{expected!r:.300}", got)


def _deviates(expected: str, got: object) -> NoReturn:
    raise Deviation(f"expected {expected}, got {got!r:.300}")


async def until(holds: Callable[[], Awaitable[bool]], seconds: float, expected: str) -> None:
    """Wait until a condition holds, which the server is asked for again and again. Raises Deviation."""
    with trio.move_on_after(seconds):
        while True:
            if await holds():
                return
            await trio.sleep(_PAUSE_SECONDS)
    raise Deviation(f"expected {expected} within {seconds:g} s")


class TestedServer(msgspec.Struct, frozen=True, kw_only=True):
    """The server that a suite is run against. `space`: the basin or scope for the streams; None: as the protocol has
    it. `tls`: None for plaintext. `patience`: seconds within which it must answer, or
    close a connection."""

    __test__ = False  # for pytest

    address: Address
    tls: ClientTls | None = None
    token: str | None = None
    space: str | None = None
    patience: float = 10.0

    async def connect(self) -> trio.abc.Stream:
        """Open a connection. Raises OSError, and Deviation if that takes too long."""
        with trio.move_on_after(self.patience):
            stream = await trio.open_tcp_stream(*self.address)
            if self.tls is None:
                return stream
            secure = trio.SSLStream(stream, self.tls.context, server_hostname=self.address.host, https_compatible=True)
            await secure.do_handshake()
            return secure
        raise Deviation(f"expected a connection, got none within {self.patience:g} s")

    def http(self, protocol: str, version: HttpVersion = HttpVersion.AUTO) -> HttpClient:
        """Return a client for requests over HTTP, to be entered."""
        settings = UpstreamSettings(
            name="tested",
            host=self.address.host,
            port=self.address.port,
            protocol=protocol,
            tls=self.tls,
            connect_seconds=self.patience,
            request_seconds=self.patience,
            breaker_failures=1_000_000,
        )
        credentials = Credentials(mode=CredentialsMode.STATIC, secret=self.token) if self.token else None
        return HttpClient(Upstream(settings, credentials), HttpClientSettings(version=version))

    def new_name(self) -> str:
        """Return a name for a stream that nothing else uses: lower-case letters, digits and hyphens."""
        return f"conform-{uuid4().hex[:16]}"


class ConformanceCase(msgspec.Struct, Generic[T], frozen=True):
    """One case. `clause`: of the suite's source. `demand`: what the clause demands, in a sentence."""

    name: str
    clause: str
    demand: str
    run: Callable[[T], Awaitable[None]]


class Cases(Generic[T]):
    """The cases of a suite, in the order of their definition."""

    def __init__(self) -> None:
        self.found: list[ConformanceCase[T]] = []

    def case(self, clause: str) -> Callable[[Callable[[T], Awaitable[None]]], Callable[[T], Awaitable[None]]]:
        """Return a decorator that adds a function as a case."""

        def add(run: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
            self.add(run.__name__, clause, " ".join((run.__doc__ or "").split()), run)
            return run

        return add

    def add(self, name: str, clause: str, demand: str, run: Callable[[T], Awaitable[None]]) -> None:
        """Add a case."""
        self.found.append(ConformanceCase(name.replace("_", "-"), clause, demand, run))


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """All cases of a protocol. `title`: the protocol and its version. `source`: the text whose clauses the cases have.
    `clauses`: their titles, in order. `session`: opens what a case is given, and at the end removes what it made."""

    title: str
    source: str
    clauses: Mapping[str, str]
    cases: Sequence[ConformanceCase[Any]]
    session: Callable[[TestedServer], AbstractAsyncContextManager[Any]]
