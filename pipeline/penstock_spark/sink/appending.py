"""Append the rows of one stream: send them, resend them, or find that they are stored."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.cutting import AppendRows
from penstock_spark.sink.failures import SinkFailed

__all__ = ["AnyAppender", "StreamWriter"]

_LOG: Final = logging.getLogger(__name__)
_MANY: Final = 64
"""A warning is logged at this number of conflicts, and at each doubling: a conditional append cannot succeed while
another writer appends without pause."""
_CAREFUL: Final = 4
"""Appends that are sent one by one after a conflict, as those sent ahead would fail."""


class AnyAppender(Protocol):
    """The common interface of the appenders of `clients.base`."""

    @property
    def acknowledged(self) -> int:
        """See there."""

    def flush(self) -> object:
        """See there."""

    def close(self) -> None:
        """See there."""


class StreamWriter(ABC):
    """Appends one task's rows to one stream, each once, in order. Several appends are in flight at a time, and are kept
    until acknowledged; the client bounds their number.

    Rows are put in order, from row 0 on, including those that are stored already. All methods raise OperationFailed if
    the server is gone for too long or refuses, and SinkFailed if the rows cannot be written. `create`: create the
    stream if it does not exist and an append does not create it.
    """

    def __init__(self, client: StreamClient, stream: str, patience: Patience, *, create: bool) -> None:
        self.stream = stream
        self._client = client
        self._create = create
        self._made = False
        self._seen = 0  # end of what is known to be stored; the unit is the protocol's
        self._patience = patience
        self._waiting: deque[AppendRows] = deque()  # not acknowledged; the first `_sent` are in flight
        self._sent = 0
        self._settled = 0  # acknowledged appends of the current appender that were removed from `_waiting`
        self._careful = 0
        self._passes = 0  # conflicts with other writers
        self._appender: AnyAppender | None = None

    def put(self, cut: AppendRows) -> None:
        """Take an append; returns when it is in flight, or stored."""
        self._waiting.extend(self._missing(cut))
        self._drive(self._send)

    def rest(self) -> None:
        """Wait until all that was put is stored, and close the connection. More may be put later."""
        self._drive(self._flush)
        self.close()

    def finish(self) -> None:
        """Wait until all is stored. Raises RowsDiffer if more is stored than was put."""
        self.rest()
        self._check_end()

    def close(self) -> None:
        """Close the connection."""
        appender, self._appender = self._appender, None
        self._sent = self._settled = 0
        if appender is not None:
            appender.close()

    # ---- for each protocol ------------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> AnyAppender:
        """Open a connection."""

    @abstractmethod
    def _append(self, cut: AppendRows) -> None:
        """Send an append on the open connection."""

    @abstractmethod
    def _stored(self, cut: AppendRows) -> None:
        """Note that an append was acknowledged."""

    @abstractmethod
    def _missing(self, cut: AppendRows) -> list[AppendRows]:
        """Return the part of an append that is not known to be stored: all, a part or nothing. Raises RowsDiffer."""

    @abstractmethod
    def _look(self) -> None:
        """Find out, after an append failed and its connection was closed, what is stored. May be called again if it
        fails halfway."""

    @abstractmethod
    def _check_end(self) -> None:
        """Raise RowsDiffer if more is stored than was put."""

    # ---- internals ---------------------------------------------------------------------------------------------------

    _passed: FailureCode
    """The server's failure code for a conflict with another writer."""

    def _drive(self, step: Callable[[], None]) -> None:
        while True:
            try:
                step()
                return
            except OperationFailed as error:
                self._settle()
                self.close()
                self._recover(error)

    def _send(self) -> None:
        while self._sent < len(self._waiting):
            if self._appender is None:
                self._appender = self._open()
            self._append(self._waiting[self._sent])
            self._sent += 1
            if self._careful:
                self._careful -= 1
                self._appender.flush()
            self._settle()

    def _flush(self) -> None:
        self._send()
        if self._appender is not None:
            self._appender.flush()
            self._settle()

    def _settle(self) -> None:
        if self._appender is None:
            return
        while self._settled < self._appender.acknowledged:
            self._settled += 1
            self._sent -= 1
            self._stored(self._waiting.popleft())
            self._patience.progress()

    def _recover(self, error: OperationFailed) -> None:
        code = error.failure.code
        if code is self._passed:
            self._careful = _CAREFUL
            self._note_pass()
        elif code is FailureCode.STREAM_NOT_FOUND:
            self._make(error)
        else:
            self._patience.wait(error)
        before = self._seen
        self._patience.over(self._look)
        if self._seen == before and code is self._passed:
            message = (
                f"{self.stream}: the server refuses an append ({error.failure}), although no other append came between"
            )
            raise SinkFailed(message) from error
        self._waiting = deque(self._still_missing())

    def _note_pass(self) -> None:
        self._passes += 1
        if self._passes >= _MANY and self._passes & (self._passes - 1) == 0:
            _LOG.warning("%s: appends of others came between %d times and delay this task", self.stream, self._passes)

    def _make(self, error: OperationFailed) -> None:
        if self._made:
            raise error
        if not self._create:
            message = f"{error.failure.message}: appends do not create it; set the option create = true"
            raise SinkFailed(f"{self.stream}: {message}") from error
        self._made = True
        self._client.create(self.stream)

    def _still_missing(self) -> Iterator[AppendRows]:
        for cut in self._waiting:
            yield from self._missing(cut)
