"""The interface between a front and any back, and the bases of what stands between them.

A back is embedded (the store in this process) or a client of some other server; a front cannot tell which. All methods
raise `OperationFailed` with a `Failure`; they are cancel-safe unless they say otherwise.

Each ability of a back has an answer in `Back`, so a front asks and never probes: a plain back passes no session through
undecoded, restricts its clients in nothing, presents no access token and has no routes. `BackWrapper` gives the answers
of the back behind it; a wrapper overrides what it changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.core.passthrough import Passthrough
from penstock.core.permissions import MANAGE, Permission
from penstock.model.byte_operations import AppendBytes
from penstock.model.operations import Append, Appended, Capability, Operation, Read
from penstock.model.records import RecordBatch, StreamPosition, StreamRef
from penstock.model.streams import StreamConfig

__all__ = [
    "AppendSession",
    "AppendSessionWrapper",
    "Back",
    "BackWrapper",
    "Destination",
    "Following",
    "ReadSession",
    "ReadSessionWrapper",
    "SwappableBack",
    "append_in_session",
]

R = TypeVar("R")


class Following(msgspec.Struct, frozen=True):
    """The result of a read that has delivered all records and now waits at this tail."""

    tail: StreamPosition


class AppendSession(ABC):
    """Pipelined appends to one stream, acknowledged in order (S2 fact sheet 2.3).

    One task sends, another receives. After the first failure nothing that was sent later is applied: `receive` returns
    the acknowledgements of everything before it, then raises, and `send` does nothing from then on.
    """

    @abstractmethod
    async def send(self, append: Append | AppendBytes) -> None:
        """Send the next batch: wait while too many bytes are in flight, and return before the batch is durable.

        Raises OperationFailed(INVALID) for bytes with `match_offset`; the session goes on.

        The batch takes its place before the first checkpoint: appends to a stream, in sessions or single, are applied
        in the order in which they were sent, also those that had to wait. A `send` that is cancelled while its batch
        waits has no effect.
        """

    @abstractmethod
    def close(self) -> None:
        """Announce the end of sending; may be called more than once."""

    @abstractmethod
    async def receive(self) -> list[Appended]:
        """Return all acknowledgements that are ready, in the order of sending; wait for at least one.

        An empty list means the end: `close` was called and everything sent has been acknowledged. Raises
        OperationFailed if an append failed, after everything before it has been returned. May be cancelled and called
        again: nothing is lost.
        """


class ReadSession(ABC):
    """A read in progress."""

    __slots__ = ()

    @abstractmethod
    async def next(self) -> RecordBatch | Following | None:
        """Return the next batch, `Following` once each time the read has caught up, or None at the end.

        Batches that arrive while it follows are not announced by another `Following`; that comes again only to a reader
        that fell so far behind that it had to catch up once more. May be cancelled (a heartbeat timer does) and called
        again: nothing is lost, and the wait's deadline stays as it was.
        """

    def ready(self) -> RecordBatch | None:
        """Return the next batch if it is in memory, as `next` would, or None: then only `next` knows. Never waits.

        A session that overrides `next` of another one overrides this too, or has nothing ready.
        """
        return None

    @abstractmethod
    def behind(self) -> bool:
        """Return whether `next` would return records at once, as far as this read knows; never waits."""

    @abstractmethod
    def tail(self) -> StreamPosition:
        """Return the stream's tail as far as this read knows, for heartbeats; never waits."""


class AppendSessionWrapper(AppendSession):
    """An `AppendSession` around another one; it delegates what a subclass does not override."""

    def __init__(self, inner: AppendSession) -> None:
        self._inner = inner

    async def send(self, append: Append | AppendBytes) -> None:
        await self._inner.send(append)

    def close(self) -> None:
        self._inner.close()

    async def receive(self) -> list[Appended]:
        return await self._inner.receive()


class ReadSessionWrapper(ReadSession):
    """A `ReadSession` around another one; it delegates what a subclass does not override."""

    __slots__ = ("_inner",)

    def __init__(self, inner: ReadSession) -> None:
        self._inner = inner

    async def next(self) -> RecordBatch | Following | None:
        return await self._inner.next()

    def behind(self) -> bool:
        return self._inner.behind()

    def tail(self) -> StreamPosition:
        return self._inner.tail()


class Destination(NamedTuple):
    """The destination of a stream's operations. `route`: the name of the stream's route, "" without routes. `back`: the
    configured name of the route's back, "" without routes. `stream`: the stream's name there."""

    route: str
    back: str
    stream: StreamRef


class Back(ABC):
    """The interface that carries out operations."""

    @property
    @abstractmethod
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of this back; operations that need others fail with NOT_IMPLEMENTED."""

    @abstractmethod
    async def perform(self, operation: Operation[R]) -> R:
        """Carry out one operation.

        An `Append` takes its place among all appends to its stream before the first checkpoint, as with
        `AppendSession.send`; cancelling it after that does not undo it.
        """

    @abstractmethod
    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """Begin pipelined appends. Entering fails if the stream cannot be appended to (or created).

        `create_if_missing` False forbids creating the stream, whatever the basin allows (as in `Append`).
        """

    @abstractmethod
    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """Begin a read. Entering fails if the start is not satisfiable."""

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:  # noqa: ARG002
        """Return the passthrough of the stream's sessions to a server that speaks this wire format itself, or None if
        they cannot be passed through: the server speaks another one, or the gateway must see the records.

        `protocol` is the name of a codec plug-in (`s2s`). A plain back has no passthrough.
        """
        return None

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:  # noqa: ARG002
        """Check the current client's permissions, for code with several steps of which the first do not reach a back.

        Raises PERMISSION_DENIED if the client has none of these permissions for the stream, STREAM_NOT_FOUND if no
        route matches it. A plain back allows everything.
        """
        return

    def require_some(self, basin: str, prefix: str, needs: frozenset[Permission]) -> None:  # noqa: ARG002
        """Check the client's permissions for any stream that begins with `prefix`.

        Raises BASIN_NOT_FOUND if no route of the client matches such streams, PERMISSION_DENIED if it has none of these
        permissions for any of them. A plain back allows everything.
        """
        return

    def require_all(self, basin: str, prefix: str, needs: frozenset[Permission] = MANAGE) -> None:  # noqa: ARG002
        """Raise PERMISSION_DENIED if streams that begin with `prefix` may exist for which the client has none of these
        permissions. A plain back allows everything."""
        return

    def declare_partitioned(self, basin: str, prefix: str = "") -> None:  # noqa: B027
        """Declare that clients see stream `NAME` and its partitions, streams `NAME/0`, `NAME/1` and so on, as one
        object, for all names in the basin that begin with `prefix` and have no other slash.

        From then on the back refuses to create one of the two shapes while the other exists: with
        INVALID where a client creates the stream, with STREAM_NOT_FOUND where an append or a read would create it
        (`penstock.core.partitions`). A plain back creates no streams.
        """

    def access_token(self) -> str | None:
        """Return the access token that the back presents to its server for the current client, or None if it presents
        none, as a plain back does. State begun there with one token must not be used by clients with another.

        Raises PERMISSION_DENIED if the back has no token for the client.
        """
        return None

    def destination(self, stream: StreamRef) -> Destination:
        """Return the stream's destination for the current client: for a plain back, the stream itself. Raises
        STREAM_NOT_FOUND, PERMISSION_DENIED or NOT_REPRESENTABLE if no route of the client takes the stream."""
        return Destination("", "", stream)


async def append_in_session(back: Back, append: Append) -> Appended:
    """Carry out an append by a session of its own, for a back that has no other way to append. Raises as `perform`."""
    async with back.append_session(
        append.stream, append.create_config, create_if_missing=append.create_if_missing
    ) as session:
        await session.send(append)
        session.close()
        (appended,) = await session.receive()
    return appended


class BackWrapper(Back):
    """A back in front of another one, to which it delegates what a subclass does not override.

    Sessions that pass through undecoded would escape a wrapper of sessions unnoticed: a class that overrides
    `append_session` or `read_session`, but not `passthrough`, is a TypeError.
    """

    def __init__(self, inner: Back) -> None:
        self._inner = inner

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        delegates = cls.append_session is BackWrapper.append_session and cls.read_session is BackWrapper.read_session
        if not delegates and cls.passthrough is BackWrapper.passthrough:
            raise TypeError(f"{cls.__name__} overrides sessions, and must override passthrough as well")

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._inner.capabilities

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        return self._inner.perform(operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        return self._inner.append_session(stream, create_config, create_if_missing=create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        return self._inner.read_session(read)

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        return self._inner.passthrough(protocol, stream)

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        self._inner.require(stream, needs)

    def require_some(self, basin: str, prefix: str, needs: frozenset[Permission]) -> None:
        self._inner.require_some(basin, prefix, needs)

    def require_all(self, basin: str, prefix: str, needs: frozenset[Permission] = MANAGE) -> None:
        self._inner.require_all(basin, prefix, needs)

    def declare_partitioned(self, basin: str, prefix: str = "") -> None:
        self._inner.declare_partitioned(basin, prefix)

    def access_token(self) -> str | None:
        return self._inner.access_token()

    def destination(self, stream: StreamRef) -> Destination:
        return self._inner.destination(stream)


class SwappableBack(BackWrapper):
    """The back of a front, which a reload replaces: each operation and each session uses the back behind it at its
    beginning, until it ends.

    `begin` is called before each of them; what it raises refuses it.
    """

    def __init__(self, inner: Back, begin: Callable[[], object] = lambda: None) -> None:
        super().__init__(inner)
        self._begin = begin

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        self._begin()
        return self._inner.perform(operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        self._begin()
        return self._inner.append_session(stream, create_config, create_if_missing=create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        self._begin()
        return self._inner.read_session(read)

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        self._begin()
        return self._inner.passthrough(protocol, stream)

    def take_over(self, successor: SwappableBack) -> None:
        """Use the successor's back from now on."""
        self._inner = successor._inner
