"""Creation times of streams on a server that has none: when the gateway created a stream, or first saw it.

They are kept in a table of the embedded store, from the first request for one until the gateway learns that the stream
is gone. So they also distinguish a stream from an earlier one of the same name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import trio

from penstock.backends.byte_view.tables import ByteViewTable
from penstock.core.back import Back
from penstock_codecs.model import StreamRef

__all__ = ["Creations"]

MOST_REMEMBERED: Final = 10_000
"""Most streams whose creation times are in memory; about 200 bytes each."""


class Creations:
    """Creation times of the streams of one back, in ms since the Unix epoch. `state` is the embedded store.

    All methods raise OperationFailed(STORAGE).
    """

    def __init__(self, state: Back, back: str) -> None:
        self._table = ByteViewTable(state, f"#created/{back}")
        self._known: OrderedDict[StreamRef, int] = OrderedDict()
        self._turn = trio.Lock()

    async def of(self, streams: Sequence[StreamRef], now: int) -> list[int]:
        """Return the creation times of these streams; it is `now` for streams that were never asked for before."""
        if any(stream not in self._known for stream in streams):
            async with self._turn:
                await self._load([stream for stream in streams if stream not in self._known], now)
        found = [self._known[stream] for stream in streams]
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return found

    async def set(self, stream: StreamRef, now: int) -> None:
        """Set the creation time of a new stream to `now`."""
        async with self._turn:
            await self._table.put((_key(stream), str(now).encode()))
            self._known[stream] = now

    async def forget(self, stream: StreamRef) -> None:
        """Remove the creation time of a stream that is gone."""
        async with self._turn:
            await self._table.remove(_key(stream))
            self._known.pop(stream, None)

    async def _load(self, streams: Sequence[StreamRef], now: int) -> None:
        values = await self._table.get(*map(_key, streams)) if streams else []
        new = [stream for stream, value in zip(streams, values, strict=True) if value is None]
        if new:
            await self._table.put(*((_key(stream), str(now).encode()) for stream in new))
        for stream, value in zip(streams, values, strict=True):
            self._known[stream] = now if value is None else int(value)


def _key(stream: StreamRef) -> bytes:
    return str(stream).encode()
