"""Trims on an S2 server: a command record is appended (S2 fact sheet, 5.3), and takes a sequence number."""

from __future__ import annotations

from typing import Final

import trio

from penstock.backs.s2.appending import Appending
from penstock.backs.s2.shared import Shared
from penstock_codecs.model import Header, StreamPosition, StreamRef, metered_size
from penstock_codecs.operations import Append, FromRecordId, FromSeqNum, FromTimestamp, Trim
from penstock_codecs.s2.validation import TRIM

__all__ = ["Trimming"]

_LOOKS: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each look whether the records are gone; s2-lite needed up to 0.3 s."""


class Trimming:
    """See the module."""

    def __init__(self, shared: Shared, appending: Appending) -> None:
        self._shared = shared
        self._appending = appending

    async def trim(self, operation: Trim) -> StreamPosition:
        """See `Trim`. The server removes the records when it likes: they are waited for, but not for long.

        Where there is nothing to be removed nothing is appended. A trim up to the tail keeps the command record.
        """
        stream = operation.stream
        config = await self._shared.configs.get(stream)  # asking for a position might create it
        seq_num = await self._seq_num(stream, operation.start)
        tail = await self._shared.unary.tail(stream)
        seq_num = min(seq_num, tail.seq_num)
        first = await self._shared.unary.spot(stream, FromSeqNum(0))
        if seq_num <= first.position.seq_num:
            return first.position
        headers = {0: (Header(b"", TRIM),)}
        bodies = [seq_num.to_bytes(8, "big")]
        command = Append(stream, bodies, metered_size(bodies, headers), headers=headers)
        await self._appending.append(self._appending.stamped(command, config))
        for seconds in _LOOKS:
            await trio.sleep(seconds)
            first = await self._shared.unary.spot(stream, FromSeqNum(0))
            if first.position.seq_num >= seq_num:
                return first.position
        return (await self._shared.unary.spot(stream, FromSeqNum(seq_num))).position

    async def _seq_num(self, stream: StreamRef, start: FromSeqNum | FromRecordId | FromTimestamp) -> int:
        if isinstance(start, FromSeqNum):
            return start.seq_num
        if isinstance(start, FromTimestamp):
            return (await self._shared.unary.spot(stream, start)).position.seq_num
        return (await self._shared.locating.spot(stream, start.record_id)).position.seq_num
