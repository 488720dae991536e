"""Basins and streams in memory: what has been decided about each, and what of that is durable.

A *head* is everything that the next decision depends on, as one immutable value. `entity.head` is the newest
decision; `entity.durable` is the newest that is on disk, which is all that anybody is shown. A commit moves
`durable` forward; a failed one sets `head` back to `durable`.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import trio

from penstock.store.tail_cache import TailCache
from penstock_codecs.model import RecordId, StreamPosition, StreamRef
from penstock_codecs.streams import BasinConfig, StreamConfig

__all__ = ["Basin", "BasinHead", "Creation", "Entity", "Stream", "StreamHead"]


class BasinHead(NamedTuple):
    """What is decided about a basin. `alive`: it exists."""

    config: BasinConfig
    alive: bool = True


class StreamHead(NamedTuple):
    """What is decided about a stream. `config` is its own layer; `alive`: it exists.

    In bytes, as segment clients see it: `next_offset` is its length, `truncated_at` the first byte to keep that such
    a client named; `trim_point` may stand further on. `last_modified`, in ms, is when it was last appended to, sealed,
    truncated, or created. A sealed stream is never appended to again.
    """

    config: StreamConfig
    next_seq: int = 0
    last_id: RecordId | None = None
    fencing_token: str = ""
    trim_point: int = 0
    alive: bool = True
    next_offset: int = 0
    truncated_at: int = 0
    sealed: bool = False
    last_modified: int = 0

    @property
    def tail(self) -> StreamPosition:
        """The next sequence number and the last timestamp, 0 where there never was a record."""
        return StreamPosition(self.next_seq, 0 if self.last_id is None else self.last_id.ms)


class Creation(NamedTuple):
    """How something was created: when (ms), and by which request, for recognising its repetition."""

    created_at: int
    request_token: str | None
    requested_config: str


H = TypeVar("H", BasinHead, StreamHead)


class Entity(Generic[H]):
    """A basin or a stream. `users` counts those who hold it, so that it stays in memory."""

    __slots__ = ("creation", "durable", "head", "id", "users")

    def __init__(self, id: int, creation: Creation, head: H, durable: H) -> None:
        self.id = id
        self.creation = creation
        self.head: H = head
        self.durable: H = durable
        self.users = 0

    @property
    def idle(self) -> bool:
        """Whether it may be forgotten: nobody holds it, and the disk knows everything about it."""
        return self.users == 0 and self.head is self.durable


class Basin(Entity[BasinHead]):
    """A basin; its streams count among its users."""

    __slots__ = ("name",)

    def __init__(self, id: int, name: str, creation: Creation, head: BasinHead, durable: BasinHead) -> None:
        super().__init__(id, creation, head, durable)
        self.name = name


class Stream(Entity[StreamHead]):
    """A stream, with the newest of its durable batches and those who wait for the next."""

    __slots__ = ("_resolved", "_resolved_from", "basin", "followers", "key", "recent", "ref", "trimmed")

    def __init__(
        self, id: int, basin: Basin, name: str, creation: Creation, head: StreamHead, durable: StreamHead
    ) -> None:
        super().__init__(id, creation, head, durable)
        self.basin = basin
        self.ref = StreamRef(basin.name, name)
        self.key = (basin.id, name)
        self.recent = TailCache()
        self.followers = trio.lowlevel.ParkingLot()
        self.trimmed = (0, 0)  # a trim point and the offset of its record: the newest that somebody asked for
        self._resolved: StreamConfig | None = None
        self._resolved_from: tuple[object, object] = (None, None)

    @property
    def alive(self) -> bool:
        """Whether the stream exists, as far as decisions go."""
        return self.head.alive and self.basin.head.alive

    @property
    def durably_alive(self) -> bool:
        """Whether the stream exists for those who look at it."""
        return self.durable.alive and self.basin.durable.alive

    @property
    def config(self) -> StreamConfig:
        """The resolved configuration: no field is None."""
        layers = (self.head.config, self.basin.head.config.default_stream_config)
        if self._resolved is None or self._resolved_from[0] is not layers[0] or self._resolved_from[1] is not layers[1]:
            self._resolved, self._resolved_from = layers[0].resolve(layers[1]), layers
        return self._resolved
