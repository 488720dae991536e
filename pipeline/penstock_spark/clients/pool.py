"""A pool of connections to one server, each used by one borrower at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from penstock_codecs.failures import OperationFailed
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.patience import Patience

__all__ = ["Pool", "PooledConnection"]

T = TypeVar("T")


class PooledConnection(Protocol):
    """A connection that a pool can keep."""

    @property
    def clean(self) -> bool:
        """True if it can be reused: it is open, not broken, and no reply is outstanding."""

    def close(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=PooledConnection)


class Pool(Generic[C]):
    """A pool that opens connections with `make`."""

    def __init__(self, endpoint: Endpoint, make: Callable[[], C]) -> None:
        self._endpoint = endpoint
        self._make = make
        self._idle: list[C] = []
        self._used: list[C] = []
        self._reached = False

    def take(self) -> C:
        """Return a connection, to be returned with `give_back`. Raises what `make` raises."""
        connection = self._idle.pop() if self._idle else self._make()
        self._reached = True
        self._used.append(connection)
        return connection

    def give_back(self, connection: C) -> None:
        """Take a connection back: keep it if it is clean, else close it."""
        self._used.remove(connection)
        if connection.clean:
            self._idle.append(connection)
        else:
            connection.close()

    @contextmanager
    def use(self) -> Iterator[C]:
        """Return a context manager that lends a connection. Raises what `make` raises."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def patience(self) -> Patience:
        """Return a retry budget for this server."""
        return Patience(self._endpoint, reached=self._reached)

    def call(self, action: Callable[[C], T]) -> T:
        """Return the result of `action` on a connection, calling it again on another one while a retry can help.
        `action` must be idempotent."""

        def attempt() -> T:
            try:
                with self.use() as connection:
                    return action(connection)
            except OperationFailed as error:
                if error.failure.retryable:
                    self._drop_idle()  # the others have likely failed too
                raise

        return self.patience().over(attempt)

    def close(self) -> None:
        """Close all connections, including those in use."""
        self._drop_idle()
        for connection in self._used:
            connection.close()

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
