"""Forks of recorded streams: which records they have, at which positions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from support.captures.dialogues import conversation

from penstock.capture.dialogue import DELIVERED, SeenRecord
from penstock.core.errors import CannotStart
from penstock.model.operations import CheckTail, FromSeqNum, Read
from penstock.model.records import Header, RecordBatch, StreamRef
from penstock.protocols.plugin import server_kinds
from penstock.protocols.servers import Server
from penstock.tools.mock.fork import ForkedRecords, StreamFork, open_fork, parse_fork, stream_recorded_as
from penstock.tools.target.back import TargetOptions, open_target_back

ORDERS = StreamRef("penstock", "orders")
HEADERS = (Header(b"a", b"b"),)


def records(forks: Sequence[StreamFork], *seen: SeenRecord) -> ForkedRecords:
    found = ForkedRecords(tuple(forks))
    for record in seen:
        found.add(record)
    return found


def numbered(*numbers: int, stream: str = "penstock/orders", **fields: Any) -> list[SeenRecord]:
    return [
        SeenRecord(
            DELIVERED,
            stream,
            b"record %d" % number,
            HEADERS if number % 2 else (),
            number,
            1000 + number,
            conversation=conversation("s2"),
            **fields,
        )
        for number in numbers
    ]


@pytest.mark.parametrize(
    ("text", "fork"),
    [
        ("orders", StreamFork(ORDERS, None)),
        ("orders@7", StreamFork(ORDERS, 7)),
        ("my-basin/a/b@0", StreamFork(StreamRef("my-basin", "a/b"), 0)),
        ("my@place", StreamFork(StreamRef("penstock", "my@place"), None)),
        ("my@place@3", StreamFork(StreamRef("penstock", "my@place"), 3)),
    ],
)
def test_a_fork_is_a_stream_and_a_position(text: str, fork: StreamFork) -> None:
    assert parse_fork(text) == fork


@pytest.mark.parametrize("text", ["", "x/orders", "@7", "my-basin/"])
def test_anything_else_is_no_stream(text: str) -> None:
    with pytest.raises(ValueError, match="is no stream, as in orders@100"):
        parse_fork(text)


def test_names_are_those_of_their_protocol() -> None:
    assert stream_recorded_as("s3p", "orders") == stream_recorded_as("s2", "penstock/orders") == ORDERS
    assert stream_recorded_as("segment", "penstock/orders/0.#epoch.0") == ORDERS
    assert stream_recorded_as("", "orders") == ORDERS and stream_recorded_as("s2", "") is None


@pytest.mark.parametrize(
    ("position", "numbers", "says"),
    [
        (None, (), "the recording has no records of penstock/orders"),
        (9, (0, 1, 2), "penstock/orders was recorded up to 3, not to 9"),
        (2, (4, 5), "penstock/orders was recorded from 4 on, and not before 2"),
        (None, (0, 1, 3), "record 2 of penstock/orders is not in the recording"),
    ],
)
def test_a_fork_needs_all_of_its_records(position: int | None, numbers: tuple[int, ...], says: str) -> None:
    fork = StreamFork(ORDERS, position)
    with pytest.raises(CannotStart, match=re.escape(says)):
        records([fork], *numbered(*numbers)).of(fork)


def test_records_behind_the_position_may_be_missing() -> None:
    fork = StreamFork(ORDERS, 2)
    first, seeds = records([fork], *numbered(1, 0, 3, 1)).of(fork)
    assert (first, [seed.body for seed in seeds]) == (0, [b"record 0", b"record 1"])


def test_identifiers_and_offsets_are_positions_too() -> None:
    fork = StreamFork(ORDERS, None)
    ids = [
        SeenRecord(DELIVERED, "orders", body, record_id=number, conversation=conversation("s3p"))
        for body, number in ((b"c", "10-0"), (b"a", "9-0"), (b"b", "9-1"), (b"a", "9-0"))
    ]
    assert [(seed.body, seed.timestamp) for seed in records([fork], *ids).of(fork)[1]] == [
        (b"a", 9),
        (b"b", 9),
        (b"c", 10),
    ]


async def test_its_gateway_serves_them_at_their_positions_and_takes_more() -> None:
    forks = [StreamFork(ORDERS, 705), StreamFork(StreamRef("other-basin", "all"), None)]
    found = records(forks, *numbered(*range(702, 710)), *numbered(*range(1200), stream="other-basin/all"))
    async with open_fork(found) as addresses:
        assert {"s2", "s3p", "segment", "controller"} <= addresses.keys()
        server = Server(server_kinds()["s2"], addresses["s2"])
        async with open_target_back(server, TargetOptions()) as back:
            assert (await back.perform(CheckTail(ORDERS))).seq_num == 705
            async with back.read_session(Read(ORDERS, FromSeqNum(0), count=100)) as session:
                batch = await session.next()
            assert isinstance(batch, RecordBatch)
            assert [(one.body, one.seq_num, one.timestamp, one.headers) for one in batch.records()] == [
                (b"record %d" % n, n, 1000 + n, HEADERS if n % 2 else ()) for n in (702, 703, 704)
            ]
            assert (await back.perform(CheckTail(StreamRef("other-basin", "all")))).seq_num == 1200
