"""Identifiers of a read's records, for readers that want them."""

from __future__ import annotations

from penstock.model.records import RecordBatch, RecordId, StreamRef, id_at, next_record_id
from penstock_s2.back.locating import Locating
from penstock_s2.back.places import PlaceCache

__all__ = ["Identifier"]


class Identifier:
    """Assigns batches their `first_id`.

    `least` is an identifier that lay in the future when the read began; records before it are filtered out.
    """

    def __init__(self, stream: StreamRef, locating: Locating, places: PlaceCache, least: RecordId | None) -> None:
        self._stream = stream
        self._locating = locating
        self._places = places.of(stream)
        self._least = least
        self._last: tuple[int, RecordId] | None = None  # the next number, and the identifier of the record before it

    @property
    def filters(self) -> bool:
        """True while records may have to be filtered out."""
        return self._least is not None

    async def identify(self, batch: RecordBatch) -> None:
        """Set the batch's `first_id`, asking the server if necessary. May be cancelled and called again."""
        timestamps = batch.columns.timestamps
        if batch.first_id is None:
            if self._last is not None and self._last[0] == batch.first_seq_num:
                batch.first_id = next_record_id(self._last[1], timestamps[0])
            else:
                batch.first_id = await self._locating.record_id(self._stream, batch.first_seq_num, timestamps[0])
        self._places.saw(batch.first_seq_num, timestamps)
        last = id_at(timestamps, batch.first_id, batch.count - 1)
        self._last = batch.next_seq_num, last
        self._places.read_up_to(last, batch.next_seq_num)

    def first_wanted(self, batch: RecordBatch) -> int:
        """Return the index of the first record to deliver; the batch's count if there is none."""
        if self._least is None:
            return 0
        for index, record_id in enumerate(batch.record_ids()):
            if record_id >= self._least:
                self._least = None
                return index
        return batch.count
