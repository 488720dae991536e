"""Rows of one stream on their way into it: sent, sent again, or found to be there."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.cutting import Cut
from penstock_spark.sink.failures import SinkFailed

__all__ = ["AnyAppender", "StreamWriter"]

_LOG: Final = logging.getLogger(__name__)
_MANY: Final = 64
"""From so many times on, each twice the one before, it is said that others are in the way: an append that must get its
number gets none as long as somebody else appends without pause."""
_CAREFUL: Final = 4
"""So many appends are sent one by one after somebody else came between, as what is sent ahead would be in vain."""


class AnyAppender(Protocol):
    """What the appenders of `clients.base` have in common."""

    @property
    def acknowledged(self) -> int:
        """See there."""

    def flush(self) -> object:
        """See there."""

    def close(self) -> None:
        """See there."""


class StreamWriter(ABC):
    """Appends one task's rows to one stream, each once, in order. Several appends are under way at a time; those
    without acknowledgement are kept, the client bounds how many.

    Rows are given in order, from row 0 on, also those that are stored already. All methods raise OperationFailed where
    the server is gone for too long or refuses, and SinkFailed where the rows cannot be written. `create`: make the
    stream where it is not there and an append does not make it.
    """

    def __init__(self, client: StreamClient, stream: str, patience: Patience, *, create: bool) -> None:
        self.stream = stream
        self._client = client
        self._create = create
        self._made = False
        self._seen = 0  # how far it is known what is stored; in what numbers, the protocol decides
        self._patience = patience
        self._waiting: deque[Cut] = deque()  # without acknowledgement; the first `_sent` are under way
        self._sent = 0
        self._settled = 0  # how many of the current appender's were acknowledged and taken off `_waiting`
        self._careful = 0
        self._passes = 0  # times that somebody else was faster
        self._appender: AnyAppender | None = None

    def put(self, cut: Cut) -> None:
        """Take an append; returns when it is under way, or stored."""
        self._waiting.extend(self._missing(cut))
        self._drive(self._send)

    def rest(self) -> None:
        """Wait until all that was put is stored, and give up the connection. More may be put later."""
        self._drive(self._flush)
        self.close()

    def finish(self) -> None:
        """Wait until all is stored. Raises RowsDiffer where more is stored than was put."""
        self.rest()
        self._check_end()

    def close(self) -> None:
        """Give up the connection."""
        appender, self._appender = self._appender, None
        self._sent = self._settled = 0
        if appender is not None:
            appender.close()

    # ---- what the protocols do differently ---------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> AnyAppender:
        """A new connection."""

    @abstractmethod
    def _append(self, cut: Cut) -> None:
        """Send an append on the connection that there is."""

    @abstractmethod
    def _stored(self, cut: Cut) -> None:
        """An append was acknowledged."""

    @abstractmethod
    def _missing(self, cut: Cut) -> list[Cut]:
        """What of an append is not known to be stored: all, a part or nothing. Raises RowsDiffer."""

    @abstractmethod
    def _look(self) -> None:
        """Find out, after an append failed, what is stored. The connection is gone. Where this fails halfway, it may be
        called again."""

    @abstractmethod
    def _check_end(self) -> None:
        """See `finish`."""

    # ---- inside ------------------------------------------------------------------------------------------------------

    _passed: FailureCode
    """How the server says that somebody else was faster."""

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
            message = f"{self.stream}: the server refuses an append ({error.failure}), though nothing came between"
            raise SinkFailed(message) from error
        self._waiting = deque(self._still_missing())

    def _note_pass(self) -> None:
        self._passes += 1
        if self._passes >= _MANY and self._passes & (self._passes - 1) == 0:
            _LOG.warning("%s: others came between %d times, which holds up this task", self.stream, self._passes)

    def _make(self, error: OperationFailed) -> None:
        if self._made:
            raise error
        if not self._create:
            message = f"{error.failure.message}: an append does not make it; the option create = true does"
            raise SinkFailed(f"{self.stream}: {message}") from error
        self._made = True
        self._client.create(self.stream)

    def _still_missing(self) -> Iterator[Cut]:
        for cut in self._waiting:
            yield from self._missing(cut)
