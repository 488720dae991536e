"""The streams of a streaming query: their names, their ends, and the query's position in each.

One request per stream finds its end; the rest is arithmetic. `admit` divides a limited micro-batch among the streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from penstock.model.failures import OperationFailed
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.client_pool import ClientPool
from penstock_spark.source.bounds import Bound, StreamBounds, resolve_bound
from penstock_spark.source.loss import DataLost, Losses, is_gone
from penstock_spark.source.selection import StreamSelection

__all__ = ["MicroBatchPlanner", "StreamCheckpoint", "admit"]

T = TypeVar("T")


def admit(positions: Mapping[str, int], ends: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return the position up to which each stream is read, from its position to its end, so that at most `limit`
    records are read in all.

    All streams get the same share; unused shares are divided among the others. If there are more streams than records
    to share, streams take turns: the first one is derived from the number of records read so far, so that a restart
    does not begin with the same streams again.
    """
    reached = dict(sorted(positions.items()))
    row = list(reached)
    turn = sum(reached.values()) % len(row) if row else 0
    row = row[turn:] + row[:turn]
    remaining = limit
    while row and remaining:
        visited, waiting = row[:remaining], row[remaining:]
        share, more = divmod(remaining, len(visited))
        hungry = []
        for index, stream in enumerate(visited):
            share_here = share + (index < more)
            count = min(share_here, ends[stream] - reached[stream])
            reached[stream] += count
            remaining -= count
            if count == share_here:
                hungry.append(stream)
        row = waiting + hungry
    return reached


class StreamCheckpoint(NamedTuple):
    """The checkpoint of a stream: the position reached, and its identity there (`StreamClient.identity`)."""

    position: int
    identity: str = ""


class MicroBatchPlanner:
    """Finds where the streams begin, where they end, and where the next micro-batch ends."""

    def __init__(self, clients: ClientPool, selection: StreamSelection, losses: Losses) -> None:
        self._clients = clients
        self._selection = selection
        self._losses = losses

    def begin(self, start: StreamBounds) -> dict[str, int]:
        """Return the positions where reading begins by option `start`, in the streams that exist. Raises DataLost,
        OperationFailed."""

        def first_position(client: StreamClient, stream: str) -> int | None:
            try:
                return self._begin(client, stream, start.of(stream))
            except OperationFailed as failed:
                if is_gone(failed) and stream not in self._selection.names:
                    return None  # deleted after the pattern matched it
                raise

        return _existing(self._clients.ask(first_position, self._selection.find(self._clients.first)))

    def _begin(self, client: StreamClient, stream: str, bound: Bound) -> int:
        client.require(stream)
        start = resolve_bound(client, stream, bound)
        if bound.kind != "seq_num":
            return start
        first, tail = client.first(stream), client.tail(stream)
        if start > tail:
            raise DataLost(f"{stream} ends at {tail}, before option start ({bound})")
        if start < first:
            self._losses.trimmed(stream, start, first)
        return max(start, first)

    def ends(self) -> dict[str, int]:
        """Return the streams that exist now, and their ends."""

        def end(client: StreamClient, stream: str) -> int:
            if stream in self._selection.names:  # a pattern has found the others just now
                client.require(stream)
            return client.tail(stream)

        streams = self._selection.find(self._clients.first)
        return _existing(self._clients.ask(lambda client, stream: _unless_gone(partial(end, client, stream)), streams))

    def identities(self, positions: Mapping[str, int], before: Mapping[str, StreamCheckpoint]) -> dict[str, str]:
        """Return the identity of each stream at its position; `before`: the checkpoints before."""
        identities = {stream: before[stream].identity for stream in positions.keys() & before.keys()}
        moved = [
            stream
            for stream, position in positions.items()
            if stream not in before or before[stream].position != position
        ]
        return identities | self._clients.ask(
            lambda client, stream: _unless_gone(partial(client.identity, stream, positions[stream])) or "", moved
        )

    def advance(
        self, checkpoints: Mapping[str, StreamCheckpoint], ends: Mapping[str, int], limit: int | None
    ) -> dict[str, int]:
        """Return the end of the next micro-batch, which begins at `checkpoints`: at most `limit` records later, and not
        beyond `ends`. New streams are included at their first record, deleted ones are left out, and streams whose
        identity has changed begin at their first record.

        Raises DataLost, OperationFailed.
        """
        reached: dict[str, int] = {}
        behind: dict[str, int] = {}
        for stream, (position, _) in checkpoints.items():
            if not self._selection.includes(stream):
                continue  # the options were changed since
            end = ends.get(stream)
            if end is not None and position < end:
                behind[stream] = position
            elif position == end:
                reached[stream] = position
            elif (expected := self._position_in_missing(stream, position)) is not None:
                reached[stream] = expected
        for stream, position in self._find_replaced(behind, checkpoints).items():
            reached[stream] = position
            del behind[stream]
        reached |= self._new({stream: end for stream, end in ends.items() if stream not in checkpoints})
        return reached | ({stream: ends[stream] for stream in behind} if limit is None else admit(behind, ends, limit))

    def _find_replaced(self, behind: Mapping[str, int], checkpoints: Mapping[str, StreamCheckpoint]) -> dict[str, int]:
        """Return the first positions of streams that replaced ones of the same names that were read, and the positions
        of streams that are missing meanwhile: the next micro-batch finds out whether they were replaced."""
        identities = self._clients.ask(
            lambda client, stream: _unless_gone(partial(client.identity, stream, behind[stream])),
            [stream for stream in behind if checkpoints[stream].identity],
        )
        positions = {}
        for stream, identity in identities.items():
            if identity is None:
                positions[stream] = behind[stream]
            elif identity not in ("", checkpoints[stream].identity):
                self._losses.replaced(stream, behind[stream])
                first = self._clients.first.first(stream)
                if first != behind[stream]:  # otherwise the new stream, trimmed, begins where the old one was left
                    positions[stream] = first
        return positions

    def _new(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Return the first positions of new streams that have records."""
        firsts = self._clients.ask(
            lambda client, stream: _unless_gone(partial(client.first, stream)),
            [stream for stream, end in ends.items() if end],  # a stream that never had a record ends at 0
        )
        return {stream: first for stream, first in _existing(firsts).items() if first < ends[stream]}

    def _position_in_missing(self, stream: str, position: int) -> int | None:
        """Return the position to continue at in a stream that is missing or ends too early; None if it is gone."""
        client = self._clients.first
        try:
            client.require(stream)
            tail = client.tail(stream)
            if position <= tail:
                return position  # it was created, or grew, after its end was looked up
            self._losses.made_again(stream, position, tail)
            return client.first(stream)
        except OperationFailed as failed:
            if not is_gone(failed):
                raise
        self._losses.deleted(stream, position)
        return None


def _unless_gone(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except OperationFailed as failed:
        if not is_gone(failed):
            raise
        return None


def _existing(positions: Mapping[str, int | None]) -> dict[str, int]:
    return {stream: position for stream, position in positions.items() if position is not None}
