"""Appends to a stream of Durable Streams as an idempotent producer (protocol, section 5.2.1).

The producer's epoch is the number of a batch, and its sequence that of a row within the batch. The server accepts each
sequence once, and only behind the one before, so a row is stored once, however the rows of attempts are divided. That
takes one request for each row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from penstock_codecs.durable import AppendRequest, Producer, StreamContent, append_headers, content_of
from penstock_codecs.durable.requests import MOST_INTEGER
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.model import NO_HEADERS
from penstock_spark.clients.base import ROW_BITS, NumberedAppender
from penstock_spark.clients.durable.connection import DurableAnswer, DurableConnection
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.failing import lost
from penstock_spark.clients.pool import Pool

__all__ = ["DurableAppender"]

_INTEGER: Final = re.compile("[0-9]{1,16}")


class DurableAppender(NumberedAppender):
    """See `NumberedAppender`. Every append is acknowledged when it returns. A row that the server has, of an earlier
    attempt, counts as stored. Raises NOT_REPRESENTABLE for a body that is not JSON, on a stream of JSON: nothing of
    that append was stored."""

    def __init__(self, pool: Pool[DurableConnection], endpoint: Endpoint, stream: str, writer: UUID) -> None:
        self._pool = pool
        self._endpoint = endpoint
        self._stream = stream
        self._id = str(writer)
        self.acknowledged = 0
        self._failure: OperationFailed | None = None
        self._closed = False
        self._connection = pool.take()
        try:
            self._type, self._content = self._look()
            self.last = self._find_last()
        except BaseException:
            pool.give_back(self._connection)
            raise

    def append(self, bodies: Sequence[bytes], last: int) -> None:
        if self._failure is not None:
            raise self._failure
        rows = [self._content.join([self._content.encode([body], NO_HEADERS)]) for body in bodies]
        epoch, end = last >> ROW_BITS, last & ((1 << ROW_BITS) - 1)
        try:
            for seq, row in enumerate(rows, end - len(rows)):
                response = self._post(Producer(self._id, epoch, seq), row)
                if not 200 <= response.status < 300:
                    raise self._connection.failed(response)
        except OperationFailed as error:
            self._failure = error
            raise
        self.acknowledged += 1

    def flush(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._failure = self._failure or fail(FailureCode.INVALID, f"the appender of {self._stream} was closed")
            self._pool.give_back(self._connection)

    # ---- internals -----------------------------------------------------------------------------------------------

    def _look(self) -> tuple[str, StreamContent]:
        kind = self._connection.head(self._stream).content_type or ""
        content = content_of(kind) if kind else None
        if content is None:
            reason = f"{self._endpoint}: stream {self._stream} has content type {kind}, which is not one of records"
            raise fail(FailureCode.NOT_REPRESENTABLE, reason)
        return kind, content

    def _find_last(self) -> int | None:
        """Return the number of the producer's last row. The server tells it by refusing a sequence that is far ahead,
        and its epoch by refusing an earlier one."""
        epoch = 0
        while True:
            response = self._post(Producer(self._id, epoch, MOST_INTEGER), self._content.join([self._probe()]))
            if 200 <= response.status < 300:
                raise lost(self._endpoint, f"stream {self._stream}: the server accepts any producer-seq")
            if response.status == 400:  # a new epoch begins at 0
                return None
            newest = _number(response, "producer-epoch")
            if response.status == 403 and newest is not None and newest > epoch:
                epoch = newest
                continue
            expected = _number(response, "producer-expected-seq")
            if response.status != 409 or expected is None:
                raise self._connection.failed(response)
            return (epoch << ROW_BITS) + expected if epoch or expected else None

    def _probe(self) -> bytes:
        return self._content.encode([b"0"], NO_HEADERS)

    def _post(self, producer: Producer, body: bytes) -> DurableAnswer:
        headers = append_headers(AppendRequest(self._type, False, producer, None))
        return self._connection.try_to("POST", self._stream, headers, body)


def _number(response: DurableAnswer, name: str) -> int | None:
    value = response.header(name) or ""
    return int(value) if _INTEGER.fullmatch(value) else None
