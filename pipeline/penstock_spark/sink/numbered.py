"""Appends to one stream on behalf of a writer: rows have numbers, each of which the server accepts once."""

from __future__ import annotations

from typing import Final

from penstock_codecs.failures import FailureCode
from penstock_spark.clients.base import ROW_BITS, NumberedAppender, StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.appending import StreamWriter
from penstock_spark.sink.cutting import AppendRows
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.identity import Identity

__all__ = ["MOST_BATCHES", "NumberedWriter"]

_MOST_ROWS: Final = 2**ROW_BITS - 1
MOST_BATCHES: Final = 2**31
"""Bound of batch numbers, as an event number has 63 bits."""


class NumberedWriter(StreamWriter):
    """A `StreamWriter` for segments and Durable Streams. Row 0 of a batch has number 1, counted from the batch's
    base."""

    _passed = FailureCode.STALE_WRITER_POSITION

    def __init__(
        self, client: StreamClient, stream: str, identity: Identity, patience: Patience, *, create: bool = False
    ) -> None:
        super().__init__(client, stream, patience, create=create)
        if identity.batch >= MOST_BATCHES:
            raise SinkFailed(f"{identity}: the number of a batch must be below {MOST_BATCHES}")
        self._identity = identity
        self._base = identity.batch << ROW_BITS
        self._put = 0
        self._numbered: NumberedAppender | None = None

    def put(self, cut: AppendRows) -> None:
        if cut.end > _MOST_ROWS:
            raise SinkFailed(f"{self.stream}: {self._identity} has more than {_MOST_ROWS} rows")
        if self._appender is None:
            self._drive(self._connect)
        self._put = cut.end
        super().put(cut)

    def close(self) -> None:
        super().close()
        unused, self._numbered = self._numbered, None
        if unused is not None:
            unused.close()

    def _connect(self) -> None:
        self._appender = self._open()

    def _open(self) -> NumberedAppender:
        if self._numbered is None:
            self._look()
        appender, self._numbered = self._numbered, None
        assert appender is not None
        self._opened = appender
        return appender

    def _append(self, cut: AppendRows) -> None:
        self._opened.append(cut.rows.bodies, self._base + cut.end)

    def _stored(self, cut: AppendRows) -> None:
        self._seen = cut.end

    def _missing(self, cut: AppendRows) -> list[AppendRows]:
        if cut.first >= self._seen:
            return [cut]
        return [cut.after(self._seen)] if cut.end > self._seen else []

    def _look(self) -> None:
        self._numbered = self._client.numbered_appender(self.stream, self._identity.writer(self.stream))
        last = -1 if self._numbered.last is None else self._numbered.last
        if last >= self._base + _MOST_ROWS + 1:
            raise SinkFailed(
                f"{self.stream}: {self._identity} comes too late: batch {last >> ROW_BITS} was already written. "
                "Batches of a sink have growing numbers; a query or job that starts again needs another sink"
            )
        if last > self._base:
            self._seen = last - self._base

    def _check_end(self) -> None:
        if self._seen > self._put:
            message = f"{self._identity} stored {self._seen} rows, and has {self._put} now"
            raise RowsDiffer(f"{self.stream}: {message}")
