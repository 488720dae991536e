"""Basins and streams by name: those in use are in memory, the others are looked up in the file.

A look-up is synchronous, so that an append is decided before its first checkpoint; it costs about 30 us if the file's
pages are in memory. State that is not durable yet is always in memory, so memory is searched first.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from penstock.core.partitions import divided_by
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import RecordId, StreamRef
from penstock.model.streams import BasinConfig, Cipher, StreamConfig
from penstock.store.heads import BasinHead, Creation, StoredBasin, StoredStream, StreamHead
from penstock.store.u64 import from_sql

__all__ = [
    "Registry",
    "could_not_read",
    "decode_basin_config",
    "decode_stream_config",
    "unknown_basin",
    "unknown_stream",
]

StreamKey = tuple[int, str]
K = TypeVar("K")
E = TypeVar("E", StoredBasin, StoredStream)

decode_basin_config = msgspec.json.Decoder(BasinConfig).decode
_decode_layer = msgspec.json.Decoder(StreamConfig).decode

_BASIN = """
SELECT id, config, created_at, request_token, requested_config FROM basins WHERE name = ? AND deleted_at IS NULL
"""
_STREAM = """
SELECT id, config, created_at, request_token, requested_config, fencing_token, trim_point, truncated_at, sealed,
  modified_at, cipher, key_check, last_offset, last_seq, last_ts, last_id_seq
FROM streams WHERE basin = ? AND name = ? AND deleted_at IS NULL
"""
_LAST_BATCH = """
SELECT arrived_at, end_offset, last_seq, last_ts, last_id_seq FROM batches INDEXED BY batches_by_seq
WHERE stream = ? ORDER BY last_seq DESC LIMIT 1
"""
_PARTITIONS: Final = """
SELECT name FROM streams WHERE basin = ? AND deleted_at IS NULL AND name >= ? AND name < ?
  AND substr(name, ?) NOT GLOB '*[^0-9]*'
"""
_EVICTION_STEPS: Final = 8
"""Most of the least recently used streams that are considered to make room for one; those in use are passed over."""


def decode_stream_config(encoded: str) -> StreamConfig:
    """Return a stream's configuration as it is stored; what an older gateway did not store has the built-in default."""
    return _decode_layer(encoded).resolve()


def unknown_basin(name: str) -> OperationFailed:
    """Return the BASIN_NOT_FOUND error for this name."""
    return fail(FailureCode.BASIN_NOT_FOUND, f"there is no basin {name!r}")


def unknown_stream(ref: StreamRef) -> OperationFailed:
    """Return the STREAM_NOT_FOUND error for this stream."""
    return fail(FailureCode.STREAM_NOT_FOUND, f"there is no stream {ref.stream!r} in basin {ref.basin!r}")


def could_not_read(error: Exception) -> OperationFailed:
    """Return the STORAGE error for a failed read."""
    return fail(FailureCode.STORAGE, f"the store could not read: {error}")


class Registry:
    """Basins and streams by name. Look-ups find only those that are `alive`; deleted ones stay until that is durable.

    Look-ups raise OperationFailed(STORAGE) if the file cannot be read.
    """

    def __init__(self, db: sqlite3.Connection, cached_streams: int) -> None:
        self._db = db
        self._capacity = cached_streams
        self._basins: OrderedDict[str, StoredBasin] = OrderedDict()
        self._streams: OrderedDict[StreamKey, StoredStream] = OrderedDict()
        self._partitions: dict[StreamKey, set[str]] = {}  # those in memory, by the stream that they divide
        self._last_basin_id = self._greatest_id("basins")
        self._last_stream_id = self._greatest_id("streams")

    def _greatest_id(self, table: str) -> int:
        greatest: int = self._db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
        return greatest

    # ---- look-ups ----

    def basin(self, name: str) -> StoredBasin | None:
        """Return the basin if it exists in the decided state, or None."""
        basin_state = self._basins.get(name)
        if basin_state is None:
            basin_state = self._load_basin(name)
        else:
            self._basins.move_to_end(name)
        return basin_state if basin_state is not None and basin_state.head.alive else None

    def stream(self, ref: StreamRef) -> StoredStream | None:
        """Return the stream if it exists in the decided state, or None."""
        basin = self.basin(ref.basin)
        return None if basin is None else self.stream_in(basin, ref.stream)

    def stream_in(self, basin: StoredBasin, name: str) -> StoredStream | None:
        """Return the stream of an existing basin, or None."""
        key = (basin.id, name)
        stream_state = self._streams.get(key)
        if stream_state is None:
            return self._load_stream(basin, name)
        self._streams.move_to_end(key)
        return stream_state if stream_state.head.alive else None

    def partition_of(self, basin: StoredBasin, name: str) -> str | None:
        """Return the name of a partition of stream `name` that exists in the decided state, or None."""
        for cached in self._partitions.get((basin.id, name), ()):
            if self._streams[basin.id, cached].head.alive:
                return cached
        try:
            rows = self._db.execute(_PARTITIONS, (basin.id, f"{name}/0", f"{name}/:", len(name) + 2))
            stored = (row[0] for row in rows)
            return next((row for row in stored if (basin.id, row) not in self._streams and divided_by(row)), None)
        except sqlite3.Error as error:
            raise could_not_read(error) from error

    def cached_streams(self, basin: StoredBasin) -> list[StoredStream]:
        """Return the basin's streams that are in memory."""
        return [stream for stream in self._streams.values() if stream.basin is basin]

    # ---- basins and streams that are not durable yet ----

    def new_basin(self, name: str, creation: Creation, config: BasinConfig) -> StoredBasin:
        """Add a basin that is not durable yet."""
        self._last_basin_id += 1
        head = BasinHead(config)
        basin = StoredBasin(self._last_basin_id, name, creation, head, head._replace(alive=False))
        self._remember_basin(basin)
        return basin

    def new_stream(self, basin: StoredBasin, name: str, creation: Creation, config: StreamConfig) -> StoredStream:
        """Add a stream that is not durable yet."""
        self._last_stream_id += 1
        head = StreamHead(config, last_modified=creation.created_at, cipher=basin.head.config.stream_cipher)
        stream = StoredStream(self._last_stream_id, basin, name, creation, head, head._replace(alive=False))
        self._remember_stream(stream)
        return stream

    def settle(self, entity: StoredBasin | StoredStream) -> None:
        """Update the registry after a commit or an undo of `entity`.

        Drops an entity that neither the decided nor the durable state has, and brings back one whose deletion failed.
        """
        if isinstance(entity, StoredBasin):
            here: StoredBasin | StoredStream | None = self._basins.get(entity.name)
        else:
            here = self._streams.get(entity.key)
        if entity.durable.alive and here is not entity and (here is None or not here.head.alive):
            self._remember(entity)
        elif here is entity and not entity.durable.alive and not entity.head.alive:
            self._forget(entity)

    # ---- inside ----

    def _remember(self, entity: StoredBasin | StoredStream) -> None:
        if isinstance(entity, StoredBasin):
            self._remember_basin(entity)
        else:
            self._remember_stream(entity)

    def _remember_basin(self, basin: StoredBasin) -> None:
        self._basins[basin.name] = basin
        if len(self._basins) > self._capacity:
            self._evict(self._basins)

    def _remember_stream(self, stream: StoredStream) -> None:
        before = self._streams.get(stream.key)
        if before is not None:
            self._forget(before)
        self._streams[stream.key] = stream
        if (whole := divided_by(stream.ref.stream)) is not None:
            self._partitions.setdefault((stream.basin.id, whole), set()).add(stream.ref.stream)
        stream.basin.users += 1
        if len(self._streams) > self._capacity:
            self._evict(self._streams)

    def _forget(self, entity: StoredBasin | StoredStream) -> None:
        if isinstance(entity, StoredBasin):
            del self._basins[entity.name]
        else:
            del self._streams[entity.key]
            if (whole := divided_by(entity.ref.stream)) is not None:
                partitions = self._partitions[entity.basin.id, whole]
                partitions.discard(entity.ref.stream)
                if not partitions:
                    del self._partitions[entity.basin.id, whole]
            entity.basin.users -= 1

    def _evict(self, cache: OrderedDict[K, E]) -> None:
        others = min(_EVICTION_STEPS, len(cache) - 1)  # all but the newest, which is about to be used
        for key in list(islice(cache, others)):
            if len(cache) <= self._capacity:
                break
            if cache[key].idle:
                self._forget(cache[key])
            else:
                cache.move_to_end(key)

    def _look_up(self, query: str, *parameters: object) -> Any:
        """Return the first row of a query, or None. Raises OperationFailed(STORAGE)."""
        try:
            return self._db.execute(query, parameters).fetchone()
        except sqlite3.Error as error:
            raise could_not_read(error) from error

    def _load_basin(self, name: str) -> StoredBasin | None:
        row = self._look_up(_BASIN, name)
        if row is None:
            return None
        number, config, created_at, request_token, requested = row
        head = BasinHead(decode_basin_config(config))
        basin = StoredBasin(number, name, Creation(created_at, request_token, requested), head, head)
        self._remember_basin(basin)
        return basin

    def _load_stream(self, basin: StoredBasin, name: str) -> StoredStream | None:
        row = self._look_up(_STREAM, basin.id, name)
        if row is None:
            return None
        number, config, created_at, request_token, requested, fencing_token, trim_point, truncated_at, sealed = row[:9]
        modified_at, cipher, key_check, last_offset, *last = row[9:]
        newest = self._look_up(_LAST_BATCH, number)
        if newest is not None:
            appended_at, last_offset, *last = newest
            modified_at = max(modified_at, appended_at)
        head = StreamHead(
            decode_stream_config(config),
            fencing_token=fencing_token,
            trim_point=from_sql(trim_point),
            next_offset=last_offset,
            truncated_at=truncated_at,
            sealed=bool(sealed),
            last_modified=modified_at,
            cipher=Cipher(cipher) if cipher else None,
            key_check=key_check,
        )
        if last[0] is not None:
            last_seq, last_ts, last_id_seq = map(from_sql, last)
            head = head._replace(next_seq=last_seq + 1, last_id=RecordId(last_ts, last_id_seq))
        stream = StoredStream(number, basin, name, Creation(created_at, request_token, requested), head, head)
        self._remember_stream(stream)
        return stream
