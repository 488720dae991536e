"""Streams that a streaming query follows: which there are, where they end, and how far the query gets in them.

Where a sequence number is a place (S2), one request for each stream tells where it ends, and the rest is arithmetic.
Elsewhere (S3P, segments) only reading tells, so nothing is looked up that is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients.base import Mark, StreamClient
from penstock_spark.source.admission import admit
from penstock_spark.source.bounds import Bound, order, resolve, up_to
from penstock_spark.source.loss import DataLost, Losses, says_gone
from penstock_spark.source.selection import Selection

__all__ = ["Ends", "Following"]

Ends = Mapping[str, Mark | None]
"""Where each stream ends; None: only reading tells."""


class Following:
    """See the module."""

    def __init__(self, client: StreamClient, selection: Selection, losses: Losses) -> None:
        self._client = client
        self._selection = selection
        self._losses = losses

    def begin(self, stream: str, bound: Bound) -> Mark | None:
        """Where reading begins by an option; None where there is no such stream, and only a pattern asked for it.
        Raises DataLost, OperationFailed."""
        try:
            start = resolve(self._client, stream, bound)
            return self._checked(stream, start, bound) if bound.kind in ("seq_num", "offset") else start
        except OperationFailed as failed:
            if says_gone(failed) and stream not in self._selection.names:
                return None
            raise

    def _checked(self, stream: str, start: Mark, bound: Bound) -> Mark:
        first, tail = self._client.first(stream), self._client.tail(stream)
        if order(start) > order(tail):
            raise DataLost(
                f"{stream} ends at {tail.place or tail.seq_num}, before option start says to begin ({bound})"
            )
        if order(start) < order(first):
            self._losses.trimmed(stream, start, first)
            return first
        return start

    def ends(self, *, fixed: bool = False) -> Ends:
        """The streams that there are now, and where they end. `fixed`: also where only reading tells."""
        found: dict[str, Mark | None] = {}
        for stream in self._selection.find(self._client):
            try:
                found[stream] = self._client.tail(stream) if fixed or self._client.indexed else None
            except OperationFailed as failed:
                if not says_gone(failed):
                    raise
        return found

    def advance(self, known: Mapping[str, Mark], ends: Ends, limit: int | None) -> dict[str, Mark]:
        """Where the next micro-batch ends, which begins at `known`: `limit` records further at most, and not beyond
        `ends`. Streams that were not known are there with their first record, deleted ones are not.

        Raises DataLost, OperationFailed.
        """
        reached: dict[str, Mark] = {}
        behind: dict[str, Mark] = {}
        for stream, mark in known.items():
            if not self._selection.includes(stream):
                continue  # the options were changed since
            end = ends.get(stream)
            if stream in ends and (end is None or order(mark) < order(end)):
                behind[stream] = mark
            elif (place := mark if mark == end else self._suspected(stream, mark)) is not None:
                reached[stream] = place
        for stream in ends.keys() - known.keys():
            if (first := self._first(stream, ends[stream])) is not None:
                reached[stream] = first
        return {**reached, **self._admitted(behind, ends, limit)}

    def _admitted(self, behind: Mapping[str, Mark], ends: Ends, limit: int | None) -> dict[str, Mark]:
        lost: dict[str, Mark | None] = {}

        def step(stream: str, mark: Mark, count: int | None) -> Mark:
            try:
                return self._step(stream, mark, count, ends[stream])
            except OperationFailed as failed:
                lost[stream] = self._behind_loss(failed, stream, mark)
                return mark

        if limit is None:
            places = {stream: step(stream, mark, None) for stream, mark in behind.items()}
        else:
            places = admit(behind, limit, step)
        return {stream: mark for stream, mark in {**places, **lost}.items() if mark is not None}

    def _step(self, stream: str, mark: Mark, count: int | None, end: Mark | None) -> Mark:
        client = self._client
        if client.indexed:
            assert end is not None
            return end if count is None else Mark(min(mark.seq_num + count, end.seq_num))
        there = client.tail(stream, mark) if count is None else client.advance(stream, mark, count)
        return there if end is None else up_to(client, stream, mark, there, end)

    def _behind_loss(self, failed: OperationFailed, stream: str, mark: Mark) -> Mark | None:
        """Where to go on; None: nowhere."""
        if says_gone(failed):
            self._losses.deleted(stream, mark)
            return None
        first = failed.failure.details.get("first")
        if failed.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
            raise failed
        if isinstance(first, Mark) and order(first) > order(mark):
            self._losses.trimmed(stream, mark, first)
            return first
        again = self._suspected(stream, mark)
        if again == mark:
            raise failed
        return again

    def _suspected(self, stream: str, mark: Mark) -> Mark | None:
        """Where to go on in a stream that is not there, or ends too early; None: nowhere."""
        try:
            tail = self._client.tail(stream)
            if order(mark) <= order(tail):
                return mark  # it came, or grew, since the ends were looked up
            self._losses.made_again(stream, mark, tail)
            return self._client.first(stream)
        except OperationFailed as failed:
            if not says_gone(failed):
                raise
        self._losses.deleted(stream, mark)
        return None

    def _first(self, stream: str, end: Mark | None) -> Mark | None:
        """Where a new stream begins; None where nothing is in it yet."""
        try:
            first = self._client.first(stream)
        except OperationFailed as failed:
            if not says_gone(failed):
                raise
            return None
        return first if end is None or order(first) < order(end) else None
