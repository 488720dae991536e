"""How far each stream is read in one micro-batch, when not all that is there may be read at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock_spark.clients.base import Mark

__all__ = ["Step", "admit"]

Step = Callable[[str, Mark, int], Mark]
"""From a place in a stream so many records on, or as far as there are any."""


def admit(places: Mapping[str, Mark], limit: int, step: Step) -> dict[str, Mark]:
    """Where each stream is read up to, so that no more than `limit` records are read in all.

    All streams get the same share; what one does not need is shared out among the others. Where there are more streams
    than records to share, it is other streams' turn each time: the first one's place in the row follows from how much
    was read so far, so that a restart does not begin with the same ones again.
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
