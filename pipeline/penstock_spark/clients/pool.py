"""Connections to one server, each with one user at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from penstock_codecs.failures import OperationFailed
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.patience import Patience

__all__ = ["Connection", "Pool"]


class Connection(Protocol):
    """What a pool can keep."""

    @property
    def clean(self) -> bool:
        """Whether it can be used for something else: it is open, not broken, and no reply is outstanding."""

    def close(self) -> None:
        """Give it up."""


C = TypeVar("C", bound=Connection)
T = TypeVar("T")


class Pool(Generic[C]):
    """Gives out connections that `make` makes."""

    def __init__(self, endpoint: Endpoint, make: Callable[[], C]) -> None:
        self._endpoint = endpoint
        self._make = make
        self._idle: list[C] = []
        self._used: list[C] = []
        self._reached = False

    def take(self) -> C:
        """A connection, until `give_back`. Raises what `make` raises."""
        connection = self._idle.pop() if self._idle else self._make()
        self._reached = True
        self._used.append(connection)
        return connection

    def give_back(self, connection: C) -> None:
        """It is not needed any more, and kept for others where it is clean."""
        self._used.remove(connection)
        if connection.clean:
            self._idle.append(connection)
        else:
            connection.close()

    @contextmanager
    def use(self) -> Iterator[C]:
        """A connection until the block ends. Raises what `make` raises."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def patience(self) -> Patience:
        """With this server."""
        return Patience(self._endpoint, reached=self._reached)

    def call(self, action: Callable[[C], T]) -> T:
        """`action` on a connection, and again on another where that can help: it must do no harm twice."""

        def attempt() -> T:
            try:
                with self.use() as connection:
                    return action(connection)
            except OperationFailed as error:
                if error.failure.retryable:
                    self._drop_idle()  # what is wrong with one is likely wrong with all
                raise

        return self.patience().over(attempt)

    def close(self) -> None:
        """Give up all of them, also those in use."""
        self._drop_idle()
        for connection in self._used:
            connection.close()

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
