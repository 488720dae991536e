"""Streams that a streaming query follows: which there are, where they end, and how far the query gets in them.

Where a sequence number is a place (S2), one request for each stream tells where it ends, and the rest is arithmetic.
Elsewhere (S3P, segments) only reading tells, so nothing is looked up that is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients.base import Mark, StreamClient
from penstock_spark.clients.crew import Crew
from penstock_spark.source.admission import admit
from penstock_spark.source.bounds import Bound, Bounds, order, resolve, up_to
from penstock_spark.source.loss import DataLost, Losses, says_gone
from penstock_spark.source.selection import Selection

__all__ = ["Ends", "Following"]

Ends = Mapping[str, Mark | None]
"""Where each stream ends; None: only reading tells."""


class Following:
    """See the module."""

    def __init__(self, crew: Crew, selection: Selection, losses: Losses) -> None:
        self._crew = crew
        self._selection = selection
        self._losses = losses

    def begin(self, start: Bounds) -> dict[str, Mark]:
        """Where reading begins by option `start`, in the streams that there are. Raises DataLost, OperationFailed."""

        def place(client: StreamClient, stream: str) -> Mark | None:
            try:
                return self._begin(client, stream, start.of(stream))
            except OperationFailed as failed:
                if says_gone(failed) and stream not in self._selection.names:
                    return None  # deleted since the pattern found it
                raise

        return _there(self._crew.ask(place, self._selection.find(self._crew.first)))

    def _begin(self, client: StreamClient, stream: str, bound: Bound) -> Mark:
        start = resolve(client, stream, bound)
        if bound.kind not in ("seq_num", "offset"):
            return start
        first, tail = client.first(stream), client.tail(stream)
        if order(start) > order(tail):
            raise DataLost(
                f"{stream} ends at {tail.place or tail.seq_num}, before option start says to begin ({bound})"
            )
        if order(start) < order(first):
            self._losses.trimmed(stream, start, first)
            return first
        return start

    def ends(self, since: Mapping[str, Mark] | None = None) -> Ends:
        """The streams that there are now, and where they end. `since`: look also where only reading tells, from these
        places on."""
        streams = self._selection.find(self._crew.first)
        if since is None and not self._crew.first.indexed:
            return dict.fromkeys(streams)
        known = since or {}
        return _there(
            self._crew.ask(
                lambda client, stream: _unless_gone(partial(_tail, client, known.get(stream)), stream), streams
            )
        )

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
            elif (place := mark if mark == end else self._suspected(self._crew.first, stream, mark)) is not None:
                reached[stream] = place
        reached |= self._new({stream: end for stream, end in ends.items() if stream not in known})
        return {**reached, **self._admitted(behind, ends, limit)}

    def _new(self, ends: Ends) -> dict[str, Mark]:
        """Where new streams begin, those in which there is something."""
        never = Mark(0)  # ends there what has never had a record, where numbers are places
        firsts = self._crew.ask(
            lambda client, stream: _unless_gone(client.first, stream),
            [stream for stream, end in ends.items() if end != never],
        )
        found = {}
        for stream, first in _there(firsts).items():
            end = ends[stream]
            if end is None or order(first) < order(end):
                found[stream] = first
        return found

    def _admitted(self, behind: Mapping[str, Mark], ends: Ends, limit: int | None) -> dict[str, Mark]:
        lost: dict[str, Mark | None] = {}

        def step(client: StreamClient, stream: str, mark: Mark, count: int | None) -> Mark:
            try:
                return _step(client, stream, mark, count, ends[stream])
            except OperationFailed as failed:
                lost[stream] = self._behind_loss(failed, client, stream, mark)
                return mark

        if limit is None:
            places = self._crew.ask(lambda client, stream: step(client, stream, behind[stream], None), [*behind])
        else:
            places = admit(behind, limit, partial(step, self._crew.first))
        return _there({**places, **lost})

    def _behind_loss(self, failed: OperationFailed, client: StreamClient, stream: str, mark: Mark) -> Mark | None:
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
        again = self._suspected(client, stream, mark)
        if again == mark:
            raise failed
        return again

    def _suspected(self, client: StreamClient, stream: str, mark: Mark) -> Mark | None:
        """Where to go on in a stream that is not there, or ends too early; None: nowhere."""
        try:
            tail = client.tail(stream)
            if order(mark) <= order(tail):
                return mark  # it came, or grew, since the ends were looked up
            self._losses.made_again(stream, mark, tail)
            return client.first(stream)
        except OperationFailed as failed:
            if not says_gone(failed):
                raise
        self._losses.deleted(stream, mark)
        return None


def _step(client: StreamClient, stream: str, mark: Mark, count: int | None, end: Mark | None) -> Mark:
    if client.indexed:
        assert end is not None
        return end if count is None else Mark(min(mark.seq_num + count, end.seq_num))
    there = client.tail(stream, mark) if count is None else client.advance(stream, mark, count)
    return there if end is None else up_to(client, stream, mark, there, end)


def _tail(client: StreamClient, after: Mark | None, stream: str) -> Mark:
    try:
        return client.tail(stream, after)
    except OperationFailed as failed:
        if after is None or failed.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
            raise
        return client.tail(stream)  # what it should begin at is gone; its place is right, its number does not matter


def _unless_gone(look: Callable[[str], Mark], stream: str) -> Mark | None:
    try:
        return look(stream)
    except OperationFailed as failed:
        if not says_gone(failed):
            raise
        return None


def _there(places: Mapping[str, Mark | None]) -> dict[str, Mark]:
    return {stream: mark for stream, mark in places.items() if mark is not None}
