"""The segment front: every well-formed request is answered, or its connection is closed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from support.segment.front import SEGMENT, Client, Connect, WatchedBack, serving
from trio.testing import MockClock

from penstock_pravega.codec import (
    TYPE_TABLE,
    Dialect,
    Direction,
    MergeAttributeUpdate,
    SegmentMessage,
    TableEntry,
    TableKey,
    released,
)
from penstock_pravega.segment.front import SegmentFront, SegmentSettings

TABLE, TRANSIENT = "scope/table/0.#epoch.0", f"{SEGMENT}#transient.{'0' * 32}"
NAMES = [SEGMENT, SEGMENT, TABLE, TRANSIENT, "scope/missing/0.#epoch.0", "no name", "", "x", "\0", "\U0001f600" * 90]
NUMBERS = [0, 1, -1, 13, 26, 27, 2**31 - 1, -(2**31)]
LONG_NUMBERS = [*NUMBERS, 2**63 - 1, -(2**63), 2**32, 2**62]
BYTES = [b"", b"k", b"\0" * 20, b"\x01k", bytes(5000)]
WRITERS = [UUID(int=0), UUID(int=1), UUID(int=2**128 - 1)]
NOT_FREE = (released.Hello, released.AppendBlock, released.AppendBlockEnd)
REQUESTS = [
    cls for cls in TYPE_TABLE[Dialect.RELEASED].values() if cls.direction is Direction.REQUEST and cls not in NOT_FREE
]


class Maker:
    """Requests whose fields are any of the values above."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._by_wire: dict[str, Callable[[], Any]] = {
            "i32": lambda: rng.choice(NUMBERS),
            "i64": lambda: rng.choice(LONG_NUMBERS),
            "u8": lambda: rng.choice([0, 1, 2, 3, 4, 5, 255]),
            "bool": lambda: rng.random() < 0.5,
            "name": lambda: rng.choice(NAMES),
            "str": lambda: "",
            "uuid": lambda: rng.choice(WRITERS),
            "bytes32": lambda: rng.choice(BYTES),
            "Event": lambda: rng.choice(BYTES),
        }
        self._by_name: dict[str, Callable[[], Any]] = {
            "sources": lambda: self._several(lambda: rng.choice(NAMES)),
            "keys": lambda: self._several(self._key),
            "entries": lambda: self._several(lambda: TableEntry(self._key(), rng.choice(BYTES))),
            "attribute_updates": lambda: self._several(self._update),
            "request_id": lambda: rng.randrange(-(2**63), 2**63),
        }

    def _several(self, one: Callable[[], Any]) -> tuple[Any, ...]:
        return tuple(one() for _ in range(self._rng.randrange(4)))

    def _key(self) -> TableKey:
        return TableKey(self._rng.choice(BYTES), self._rng.choice(LONG_NUMBERS))

    def _update(self) -> MergeAttributeUpdate:
        rng = self._rng
        return MergeAttributeUpdate(
            rng.choice(WRITERS), rng.randrange(6), rng.choice(LONG_NUMBERS), rng.choice(LONG_NUMBERS)
        )

    def make(self, cls: type[SegmentMessage]) -> Any:
        """Any request of a class."""
        makers = {field.name: self._by_name.get(field.name) or self._by_wire[field.wire.name] for field in cls.fields}
        return cls(**{name: make() for name, make in makers.items()})


async def prepared(connect: Connect, there: bool) -> Client:
    """A client, once what it speaks of is there again."""
    client: Client = await connect()
    for request in (
        released.CreateSegment(1, SEGMENT, 0, 0),
        released.CreateSegment(1, TRANSIENT, 0, 0),
        released.CreateTableSegment(1, TABLE),
    ):
        reply = await client.call(request)
        assert isinstance(reply, released.SegmentCreated | released.SegmentAlreadyExists)
    if not there:
        for segment in (SEGMENT, TRANSIENT):
            await client.append(await client.writer(segment), 1, b"hello", b"world")
    return client


@pytest.mark.parametrize("rounds", [15, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
async def test_any_request(back: WatchedBack, clock: MockClock, cls: type[SegmentMessage], rounds: int) -> None:
    async with serving(SegmentFront(back, SegmentSettings(read_hold_seconds=0.0))) as connect:
        await converse(connect, cls, rounds)


async def converse(connect: Connect, cls: type[SegmentMessage], rounds: int) -> None:
    maker = Maker(random.Random(cls.type_id))
    client = await prepared(connect, there=False)
    with structlog.testing.capture_logs() as logs:
        for _ in range(rounds):
            request = maker.make(cls)
            writer = getattr(request, "writer_id", None)
            if writer is not None and not isinstance(request, released.SetupAppend):
                await client.call(released.SetupAppend(1, writer, SEGMENT))
            await client.send(request)
            reply = await client.reply()
            assert reply is None or reply.request_id == request.request_id, (request, reply)
            if reply is None or isinstance(reply, released.InvalidEventNumber):
                client = await prepared(connect, there=True)
    assert {line["event"] for line in logs} <= {"protocol_error", "append_refused"}
    await client.create(f"scope/{uuid4().hex}/0.#epoch.0")
