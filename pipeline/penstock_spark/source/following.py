"""The streams of a streaming query: their names, their ends, and the query's position in each.

If a sequence number is a place (S2), one request per stream finds its end, and the rest is arithmetic. Otherwise
(segments, Durable Streams) only reading finds it, so nothing is looked up that is not needed.

`admit` divides a limited micro-batch among the streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients.base import ReadPosition, StreamClient
from penstock_spark.clients.client_pool import ClientPool
from penstock_spark.source.bounds import Bound, StreamBounds, order, resolve_bound, up_to
from penstock_spark.source.loss import DataLost, Losses, is_gone
from penstock_spark.source.selection import StreamSelection

__all__ = ["Ends", "MicroBatchPlanner", "Step", "StreamCheckpoint", "admit"]

Step = Callable[[str, ReadPosition, int], ReadPosition]
"""Returns the place a number of records after another, or the end of the stream if that is earlier."""
Ends = Mapping[str, ReadPosition | None]
"""The end of each stream; None: only reading finds it."""


def admit(places: Mapping[str, ReadPosition], limit: int, step: Step) -> dict[str, ReadPosition]:
    """Return the place up to which each stream is read, so that at most `limit` records are read in all.

    All streams get the same share; unused shares are divided among the others. If there are more streams than records
    to share, streams take turns: the first one is derived from the number of records read so far, so that a restart
    does not begin with the same streams again.
    """
    reached = dict(sorted(places.items()))
    row = list(reached)
    turn = sum(mark.seq_num for mark in reached.values()) % len(row) if row else 0
    row = row[turn:] + row[:turn]
    left = limit
    while row and left:
        visited, waiting = row[:left], row[left:]
        share, more = divmod(left, len(visited))
        hungry = []
        for index, stream in enumerate(visited):
            count = share + (index < more)
            there = step(stream, reached[stream], count)
            got = there.seq_num - reached[stream].seq_num
            reached[stream] = there
            left -= got
            if got == count:
                hungry.append(stream)
        row = waiting + hungry
    return reached


class StreamCheckpoint(NamedTuple):
    """The checkpoint of a stream: the position reached, and its identity there (`StreamClient.identity`)."""

    mark: ReadPosition
    identity: str = ""


class MicroBatchPlanner:
    """Finds where the streams begin, where they end, and where the next micro-batch ends."""

    def __init__(self, clients: ClientPool, selection: StreamSelection, losses: Losses) -> None:
        self._clients = clients
        self._selection = selection
        self._losses = losses

    def begin(self, start: StreamBounds) -> dict[str, ReadPosition]:
        """Return the places where reading begins by option `start`, in the streams that exist. Raises DataLost,
        OperationFailed."""

        def place(client: StreamClient, stream: str) -> ReadPosition | None:
            try:
                return self._begin(client, stream, start.of(stream))
            except OperationFailed as failed:
                if is_gone(failed) and stream not in self._selection.names:
                    return None  # deleted after the pattern matched it
                raise

        return _there(self._clients.ask(place, self._selection.find(self._clients.first)))

    def _begin(self, client: StreamClient, stream: str, bound: Bound) -> ReadPosition:
        client.require(stream)
        start = resolve_bound(client, stream, bound)
        if bound.kind not in ("seq_num", "offset"):
            return start
        first, tail = client.first(stream), client.tail(stream)
        if order(start) > order(tail):
            raise DataLost(f"{stream} ends at {tail.place or tail.seq_num}, before option start ({bound})")
        if order(start) < order(first):
            self._losses.trimmed(stream, start, first)
            return first
        return start

    def ends(self, since: Mapping[str, ReadPosition] | None = None) -> Ends:
        """Return the streams that exist now, and their ends. `since`: look for ends also where only reading finds them,
        from these places on."""
        streams = self._selection.find(self._clients.first)
        if since is None and not self._clients.first.indexed:
            return dict.fromkeys(streams)
        known = since or {}

        def end(client: StreamClient, stream: str) -> ReadPosition:
            if stream in self._selection.names:  # a pattern has found the others just now
                client.require(stream)
            return _tail(client, known.get(stream), stream)

        return _there(self._clients.ask(lambda client, stream: _unless_gone(partial(end, client), stream), streams))

    def identities(self, places: Mapping[str, ReadPosition], known: Mapping[str, StreamCheckpoint]) -> dict[str, str]:
        """Return the identity of each stream at its place; `known`: those that were known at theirs."""
        identities = {stream: known[stream].identity for stream in places.keys() & known.keys()}
        moved = [stream for stream, mark in places.items() if stream not in known or known[stream].mark != mark]
        return identities | self._clients.ask(lambda client, stream: _identity(client, stream, places[stream]), moved)

    def advance(
        self, known: Mapping[str, ReadPosition], ends: Ends, limit: int | None, identities: Mapping[str, str]
    ) -> dict[str, ReadPosition]:
        """Return the end of the next micro-batch, which begins at `known`: at most `limit` records later, and not
        beyond `ends`. New streams are included at their first record, deleted ones are left out, and streams whose
        identity has changed begin at their first record.

        Raises DataLost, OperationFailed.
        """
        reached: dict[str, ReadPosition] = {}
        behind: dict[str, ReadPosition] = {}
        for stream, mark in known.items():
            if not self._selection.includes(stream):
                continue  # the options were changed since
            end = ends.get(stream)
            if stream in ends and (end is None or order(mark) < order(end)):
                behind[stream] = mark
            elif (place := mark if mark == end else self._suspected(self._clients.first, stream, mark)) is not None:
                reached[stream] = place
        for stream, first in self._others(behind, identities).items():
            reached[stream] = first
            del behind[stream]
        reached |= self._new({stream: end for stream, end in ends.items() if stream not in known})
        return {**reached, **self._admitted(behind, ends, limit)}

    def _others(self, behind: Mapping[str, ReadPosition], identities: Mapping[str, str]) -> dict[str, ReadPosition]:
        """Return the first places of streams that replaced ones of the same names that were read."""

        def changed(client: StreamClient, stream: str) -> bool:
            before = identities[stream]
            return _identity(client, stream, behind[stream], before) not in ("", before)

        answers = self._clients.ask(changed, [stream for stream in behind if stream in identities])
        first_positions = {}
        for stream in (stream for stream, is_other in answers.items() if is_other):
            self._losses.replaced(stream, behind[stream])
            first = self._clients.first.first(stream)
            if first != behind[stream]:  # otherwise the new stream, trimmed, begins where the old one was left
                first_positions[stream] = first
        return first_positions

    def _new(self, ends: Ends) -> dict[str, ReadPosition]:
        """Return the first places of new streams that have records."""
        never = ReadPosition(0)  # the end of a stream that never had a record, where numbers are places
        firsts = self._clients.ask(
            lambda client, stream: _unless_gone(client.first, stream),
            [stream for stream, end in ends.items() if end != never],
        )
        first_positions = {}
        for stream, first in _there(firsts).items():
            end = ends[stream]
            if end is None or order(first) < order(end):
                first_positions[stream] = first
        return first_positions

    def _admitted(self, behind: Mapping[str, ReadPosition], ends: Ends, limit: int | None) -> dict[str, ReadPosition]:
        lost: dict[str, ReadPosition | None] = {}

        def step(client: StreamClient, stream: str, mark: ReadPosition, count: int | None) -> ReadPosition:
            try:
                return _step(client, stream, mark, count, ends[stream])
            except OperationFailed as failed:
                lost[stream] = self._behind_loss(failed, client, stream, mark)
                return mark

        if limit is None:
            places = self._clients.ask(lambda client, stream: step(client, stream, behind[stream], None), [*behind])
        else:
            places = admit(behind, limit, partial(step, self._clients.first))
        return _there({**places, **lost})

    def _behind_loss(
        self, failed: OperationFailed, client: StreamClient, stream: str, mark: ReadPosition
    ) -> ReadPosition | None:
        """Return the place to continue at after a loss; None if the stream is gone."""
        if is_gone(failed):
            self._losses.deleted(stream, mark)
            return None
        first = failed.failure.details.get("first")
        if failed.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
            raise failed
        if isinstance(first, ReadPosition) and order(first) > order(mark):
            self._losses.trimmed(stream, mark, first)
            return first
        again = self._suspected(client, stream, mark)
        if again == mark:
            raise failed
        return again

    def _suspected(self, client: StreamClient, stream: str, mark: ReadPosition) -> ReadPosition | None:
        """Return the place to continue at in a stream that is missing or ends too early; None if it is gone."""
        try:
            client.require(stream)
            tail = client.tail(stream)
            if order(mark) <= order(tail):
                return mark  # it was created, or grew, after its end was looked up
            self._losses.made_again(stream, mark, tail)
            return client.first(stream)
        except OperationFailed as failed:
            if not is_gone(failed):
                raise
        self._losses.deleted(stream, mark)
        return None


def _identity(client: StreamClient, stream: str, mark: ReadPosition, like: str = "") -> str:
    try:
        return client.identity(stream, mark, like)
    except OperationFailed as failed:
        if not is_gone(failed):
            raise
        return ""  # deleted meanwhile, which is detected elsewhere


def _step(
    client: StreamClient, stream: str, mark: ReadPosition, count: int | None, end: ReadPosition | None
) -> ReadPosition:
    if client.indexed:
        assert end is not None
        return end if count is None else ReadPosition(min(mark.seq_num + count, end.seq_num))
    there = client.tail(stream, mark) if count is None else client.advance(stream, mark, count)
    return there if end is None else up_to(client, stream, mark, there, end)


def _tail(client: StreamClient, after: ReadPosition | None, stream: str) -> ReadPosition:
    try:
        return client.tail(stream, after)
    except OperationFailed as failed:
        if after is None or failed.failure.code is not FailureCode.RANGE_NOT_SATISFIABLE:
            raise
        return client.tail(stream)  # `after` was trimmed; the tail's place is right, and its number does not matter


def _unless_gone(look: Callable[[str], ReadPosition], stream: str) -> ReadPosition | None:
    try:
        return look(stream)
    except OperationFailed as failed:
        if not is_gone(failed):
            raise
        return None


def _there(places: Mapping[str, ReadPosition | None]) -> dict[str, ReadPosition]:
    return {stream: mark for stream, mark in places.items() if mark is not None}
