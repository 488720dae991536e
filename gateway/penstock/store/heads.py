"""Basins and streams in memory: the decided and the durable state of each.

A *head* is everything that the next decision depends on, as one immutable value. `entity.head` is the newest decision;
`entity.durable` is the newest that is on disk, and all that clients ever see. A commit moves `durable` forward; a
failed one sets `head` back to `durable`.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Self, TypeVar

from penstock.core.waiters import Waiters
from penstock.model.records import RecordId, StreamPosition, StreamRef
from penstock.model.streams import BasinConfig, Cipher, StreamConfig
from penstock.store.tail_cache import TailCache

__all__ = ["BasinHead", "Creation", "Entity", "StoredBasin", "StoredStream", "StreamHead"]


class BasinHead(NamedTuple):
    """The state of a basin. `alive`: whether it exists."""

    config: BasinConfig
    alive: bool = True


class StreamHead(NamedTuple):
    """The state of a stream. `config` is resolved: no field is None. `alive`: whether it exists.

    As bytes: `next_offset` is the length, `truncated_at` the first byte to keep that a client of bytes named;
    `trim_point` may keep even less. `last_modified` is the time in ms of the last append, seal or truncation, or of the
    creation. A sealed stream is never appended to again. `cipher`, of records at rest, never changes. `key_check`: the
    check value of the key of these records; None before the first append that sets it.
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
    cipher: Cipher | None = None
    key_check: bytes | None = None

    @property
    def tail(self) -> StreamPosition:
        """The next sequence number, and the last timestamp or 0 if there never was a record."""
        return StreamPosition(self.next_seq, 0 if self.last_id is None else self.last_id.ms)


class Creation(NamedTuple):
    """The creation of a basin or stream: its time in ms, and its request, by which a repeated one is recognised."""

    created_at: int
    request_token: str | None
    requested_config: str


H = TypeVar("H", BasinHead, StreamHead)


class Entity(Generic[H]):
    """A basin or a stream. `users`: number of holders; it stays in memory while there are any."""

    __slots__ = ("creation", "durable", "head", "id", "users")

    def __init__(self, id: int, creation: Creation, head: H, durable: H) -> None:
        self.id = id
        self.creation = creation
        self.head: H = head
        self.durable: H = durable
        self.users = 0

    def held(self) -> Self:
        """Return a context manager that keeps it in memory until the block ends."""
        return self

    def __enter__(self) -> Self:
        self.users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.users -= 1

    @property
    def idle(self) -> bool:
        """True if it may be dropped from memory: it has no holders, and all of its state is on disk."""
        return self.users == 0 and self.head is self.durable


class StoredBasin(Entity[BasinHead]):
    """A basin; its streams count among its users."""

    __slots__ = ("name",)

    def __init__(self, id: int, name: str, creation: Creation, head: BasinHead, durable: BasinHead) -> None:
        super().__init__(id, creation, head, durable)
        self.name = name


class StoredStream(Entity[StreamHead]):
    """A stream, with the newest of its durable batches and the tasks that wait for more."""

    __slots__ = ("basin", "followers", "key", "recent", "ref", "trimmed")

    def __init__(
        self, id: int, basin: StoredBasin, name: str, creation: Creation, head: StreamHead, durable: StreamHead
    ) -> None:
        super().__init__(id, creation, head, durable)
        self.basin = basin
        self.ref = StreamRef(basin.name, name)
        self.key = (basin.id, name)
        self.recent = TailCache()
        self.followers = Waiters()
        self.trimmed = (0, 0)  # the last trim point whose offset was looked up, and that offset

    @property
    def incarnation(self) -> str:
        """The value of `ByteStreamInfo.incarnation`. The id alone may be used again after a restart."""
        return f"{self.creation.created_at}-{self.id}"

    @property
    def alive(self) -> bool:
        """True if the stream exists in the decided state."""
        return self.head.alive and self.basin.head.alive

    @property
    def durably_alive(self) -> bool:
        """True if the stream exists in the durable state, which readers see."""
        return self.durable.alive and self.basin.durable.alive

    @property
    def config(self) -> StreamConfig:
        """The resolved configuration: no field is None."""
        return self.head.config
