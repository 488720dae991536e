"""Creation times of streams on a server that has none: when the gateway created a stream, or first saw it.

They are kept in a table of the gateway's state, from the first request for one until the gateway learns that the stream
is gone. So they also distinguish a stream from an earlier one of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.back import Back
from penstock.model.records import StreamRef
from penstock.tables.byte_table import ByteTable

__all__ = ["Creations"]


class Creations:
    """Creation times of the streams of one back, in ms since the Unix epoch. `state` keeps them.

    All methods raise OperationFailed(STORAGE).
    """

    def __init__(self, state: Back, back: str) -> None:
        self._table = ByteTable(state, f"#created/{back}")

    async def of(self, streams: Sequence[StreamRef], now: int) -> list[int]:
        """Return the creation times of these streams; it is `now` for streams that were never asked for before."""
        keys = list(map(_key, streams))
        values = await self._table.get(*keys)
        if new := [key for key, value in zip(keys, values, strict=True) if value is None]:
            await self._table.add(*((key, str(now).encode()) for key in new))
            values = await self._table.get(*keys)
        return [now if value is None else int(value) for value in values]

    async def known(self, streams: Sequence[StreamRef]) -> list[int | None]:
        """Return the creation times of these streams, None for streams that were never asked for before."""
        return [None if value is None else int(value) for value in await self._table.get(*map(_key, streams))]

    async def set(self, stream: StreamRef, now: int) -> None:
        """Set the creation time of a new stream to `now`."""
        await self._table.put((_key(stream), str(now).encode()))

    async def kept(self, stream: StreamRef) -> int | None:
        """Return the version of a stream's creation time, or None if there is none."""
        (entry,) = await self._table.entries(_key(stream))
        return None if entry is None else entry.version

    async def forget(self, stream: StreamRef, kept: int | None) -> None:
        """Remove the creation time of a stream that is gone. `kept`: what `kept` has returned before that was known. A
        later one stays: another gateway has created the stream again."""
        if kept is not None:
            await self._table.remove_version(_key(stream), kept)


def _key(stream: StreamRef) -> bytes:
    return str(stream).encode()
