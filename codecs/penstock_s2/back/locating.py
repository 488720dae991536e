"""Positions of records on an S2 server for other protocols; `places` defines their identifiers."""

from __future__ import annotations

from penstock.backends.trim_points import TrimPoint, TrimPoints
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import FromByteOffset, FromRecordId, FromSeqNum, FromTimestamp, Located, Start
from penstock.model.records import RecordId, StreamPosition, StreamRef
from penstock_s2.back.places import PlaceCache
from penstock_s2.back.unary import RecordSpot, ServerStart, UnaryRequests

__all__ = ["Locating"]


class Locating:
    """Locates records of one server, by asking it or from memory."""

    def __init__(self, unary: UnaryRequests, places: PlaceCache, cuts: TrimPoints) -> None:
        self._unary = unary
        self._places = places
        self._cuts = cuts

    async def record_id(self, stream: StreamRef, seq_num: int, timestamp: int) -> RecordId:
        """Return the identifier of the record `seq_num`, which has this timestamp or will have it."""
        places = self._places.of(stream)
        known = places.record_id(seq_num, timestamp)
        if known is not None:
            return known
        spot = await self._unary.spot(stream, FromTimestamp(timestamp))
        # If all records of that ms were trimmed the next one is taken for the first.
        first = seq_num if spot.position.timestamp != timestamp else min(spot.position.seq_num, seq_num)
        first = await self._cuts.first(stream, timestamp, first)
        places.learn(timestamp, first)
        return RecordId(timestamp, seq_num - first)

    async def spot(self, stream: StreamRef, record_id: RecordId) -> RecordSpot:
        """Return the first record at or after this identifier, or the tail if it lies in the future."""
        ms, seq = record_id
        places = self._places.of(stream)
        first = places.first(ms)
        if first is None:
            spot = await self._unary.spot(stream, FromTimestamp(ms))
            if spot.at_tail or spot.position.timestamp > ms:
                return spot
            first = await self._cuts.first(stream, ms, spot.position.seq_num)
            places.learn(ms, first)
        # The record is `seq` after the first of its ms, or the first of a later ms, whichever comes first.
        wanted = await self._unary.spot(stream, FromSeqNum(first + seq))
        if wanted.position.timestamp <= ms and not wanted.at_tail:
            return wanted
        later = await self._unary.spot(stream, FromTimestamp(ms + 1))
        return wanted if wanted.position.seq_num <= later.position.seq_num else later

    async def start(self, stream: StreamRef, record_id: RecordId) -> tuple[int, bool]:
        """Return the number to read from for this identifier, and whether records before it must be filtered out.

        They must if the identifier lies in the future: then records that come at the tail may precede it.
        """
        known = self._places.of(stream).at_or_after(record_id)
        if known is not None:
            return known, False
        spot = await self.spot(stream, record_id)
        return spot.position.seq_num, spot.at_tail

    async def trimming(self, stream: StreamRef, seq_num: int) -> None:
        """Store what is needed for identifiers to stay the same when the records before `seq_num` are trimmed.

        Raises OperationFailed if the server cannot be asked now. For errors that are permanent (no such stream, or the
        client may not read) nothing is stored.
        """
        try:
            spot = await self._unary.spot(stream, FromSeqNum(seq_num))
            if spot.at_tail:
                return
            kept, timestamp = spot.position
            place = (await self.record_id(stream, kept, timestamp)).seq
        except OperationFailed as error:
            if error.failure.retryable:
                raise
            return
        if place:
            await self._cuts.keep(stream, TrimPoint(timestamp, kept - place, kept))

    async def locate(self, stream: StreamRef, start: Start) -> Located:
        """See `penstock.model.operations.Locate`."""
        if isinstance(start, FromByteOffset):
            raise fail(FailureCode.NOT_IMPLEMENTED, "an S2 server has no byte offsets")
        spot = await self._spot(stream, start)
        seq_num, timestamp = spot.position
        if spot.at_tail:
            return Located(seq_num, timestamp, await self.next_id(stream, spot.position), at_tail=True)
        return Located(seq_num, timestamp, await self.record_id(stream, seq_num, timestamp), at_tail=False)

    async def _spot(self, stream: StreamRef, start: ServerStart | FromRecordId) -> RecordSpot:
        if isinstance(start, FromRecordId):
            return await self.spot(stream, start.record_id)
        return await self._unary.spot(stream, start)

    async def next_id(self, stream: StreamRef, tail: StreamPosition) -> RecordId:
        """Return the least identifier that the next record can have."""
        if tail.seq_num == 0:
            return RecordId(0, 0)
        return await self.record_id(stream, tail.seq_num, tail.timestamp)
