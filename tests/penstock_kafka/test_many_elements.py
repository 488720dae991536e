"""Requests of many elements: each API lets others run between them, ends with its client, and has a bound."""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from support.kafka.front import Client, fetching, serving
from support.kafka.group_front import running
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.net.limits import work
from penstock.protocols import links
from penstock_kafka.codec import APIS, KafkaError, KafkaMessage, config_messages, group_messages
from penstock_kafka.codec.cluster_messages import DescribeTopicPartitionsRequest
from penstock_kafka.codec.inspection_messages import ListTransactionsRequest
from penstock_kafka.codec.record_messages import (
    FetchResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.codec.topic_messages import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
)
from penstock_kafka.front import KafkaSettings
from penstock_kafka.front.call import TASKS_AT_ONCE
from penstock_kafka.front.producing import ProduceHandlers

COUNT: Final = 40
TAKEN_WHOLE: Final = {
    group_messages.JoinGroupRequest: "a member and its protocols are one change to its group",
    group_messages.SyncGroupRequest: "an assignment is one change to its group",
    group_messages.ListGroupsRequest: "its elements are names of states",
    group_messages.LeaveGroupRequest: "a hundred members leave in one step",
    ListTransactionsRequest: "its elements are filters, which are sets",
    ProduceRequest: "its partitions are tasks",
}
FAIL_AT_FIRST: Final = {
    *TAKEN_WHOLE,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    config_messages.IncrementalAlterConfigsRequest,
    DescribeConfigsRequest,
}
"""Their elements are not looked at behind the first that is wrong."""


def _plain(hint: Any) -> Any:
    """Return a type without its annotations and null."""
    while get_origin(hint) is Annotated or isinstance(hint, types.UnionType):
        hint = next(one for one in get_args(hint) if one is not types.NoneType)
    return hint


def _value(hint: Any, number: int, counts: tuple[int, ...]) -> Any:
    """Return a value of a type, another one for each number. `counts`: of elements in lists, and in lists in these."""
    hint = _plain(hint)
    if get_origin(hint) is Sequence:
        return [_value(get_args(hint)[0], index, counts[1:]) for index in range(counts[0])]
    if issubclass(hint, KafkaMessage):
        return _message(hint, number, counts or (1,))
    return {bool: False, str: f"n{number}", bytes: number.to_bytes(16, "big"), int: number}[hint]


def _message(cls: type[KafkaMessage], number: int, counts: tuple[int, ...]) -> KafkaMessage:
    """Return a message with such lists."""
    hints = get_type_hints(cls, include_extras=True)
    required = {field.name for field in msgspec.structs.fields(cls) if field.required}
    names = [
        name
        for name, hint in hints.items()
        if name in required or str in (hint, *get_args(hint)[:1]) or get_origin(_plain(hint)) is Sequence
    ]
    return cls(**{name: _value(hints[name], number, counts) for name in names})


def _elements(cls: type[KafkaMessage]) -> list[Any]:
    """Return the types of the elements of a message's lists."""
    hints = map(_plain, get_type_hints(cls, include_extras=True).values())
    return [_plain(get_args(hint)[0]) for hint in hints if get_origin(hint) is Sequence]


def _is_nested(cls: type[KafkaMessage]) -> bool:
    return any(issubclass(one, KafkaMessage) and _elements(one) for one in _elements(cls))


REQUESTS: Final = [api.request for api in APIS.values() if _elements(api.request)]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """The turns that end: each element takes one."""
    ended: list[None] = []
    rest = work.Work.rest

    async def count(self: work.Work) -> None:
        ended.append(None)
        await rest(self)

    monkeypatch.setattr(work, "TURN_SECONDS", -1.0)
    monkeypatch.setattr(work.Work, "rest", count)
    return ended


@pytest.mark.parametrize("depth", [0, 1], ids=["elements", "elements of an element"])
async def test_others_run_between_the_elements(
    depth: int, turns: list[None], tmp_path: Path, autojump_clock: MockClock
) -> None:
    counts = (COUNT, 1) if depth == 0 else (1, COUNT)
    failures: dict[str, int] = {}
    async with running(tmp_path) as front:
        for request_type in REQUESTS:
            if request_type in (FAIL_AT_FIRST if depth else TAKEN_WHOLE) or (depth and not _is_nested(request_type)):
                continue
            request = _message(request_type, 0, counts)
            if isinstance(request, DescribeTopicPartitionsRequest):
                request.response_partition_limit = 2 * COUNT
            turns.clear()
            async with front.connected() as client:
                assert await client.ask(request) is not None
            if len(turns) < COUNT:
                failures[request_type.__name__] = len(turns)
    assert not failures, failures


async def test_few_partitions_of_a_produce_request_begin_at_a_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = [0]

    async def append(*_: object) -> None:
        begun[-1] += 1

    async def count() -> None:
        while True:
            begun.append(0)
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(ProduceHandlers, "_append", append)
    partitions = [ProducePartition(index=number, records=b"") for number in range(COUNT)]
    request = ProduceRequest(acks=-1, timeout_ms=1, topics=[ProduceTopic(name="t", partitions=partitions)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await client.call(request, ProduceResponse)
        nursery.cancel_scope.cancel()
    assert sum(begun) == COUNT
    assert max(begun) <= 2 * TASKS_AT_ONCE, "of one pass and the next"


def _bad_topics(count: int) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=f"t{number}", num_partitions=0) for number in range(count)]
    return CreateTopicsRequest(topics=topics, validate_only=True)


async def test_long_messages_are_decoded_and_encoded_in_steps(turns: list[None], client: Client) -> None:
    count = 1000
    response = await client.call(_bad_topics(count), CreateTopicsResponse)
    assert [one.name for one in response.topics] == [f"t{number}" for number in range(count)]
    assert len(turns) > count + 2 * count // 32


async def test_the_work_ends_with_its_client(
    turns: list[None], back: EmbeddedBack, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "HALF_CLOSE_SECONDS", 0.0)
    count = 5000
    async with serving(back) as (connect, _):
        client = connect()
        await client.send(_bad_topics(count))
        await trio.sleep(0.002)  # what some hundred elements take, at LISTEN_SECONDS of 64
        assert turns
        await client.stream.aclose()
        await trio.sleep(1)
    assert len(turns) < count // 2


async def test_a_request_of_too_many_elements_ends_the_connection(back: EmbeddedBack) -> None:
    async with serving(back, KafkaSettings(max_request_items=1000)) as (connect, _):
        assert len((await connect().call(_bad_topics(1000), CreateTopicsResponse)).topics) == 1000
        client = connect()
        with capture_logs() as logs:
            await client.send(_bad_topics(1001))
            assert await client.ended()
    [line] = [line for line in logs if line["event"] == "protocol_error"]
    assert "an array of 1001 elements, where 1000 more are allowed" in line["reason"]


async def test_the_refusals_of_a_fetch_are_one_line_of_the_log(client: Client) -> None:
    request = fetching({("absent", number): 0 for number in range(COUNT)})
    with capture_logs() as logs:
        response = await client.call(request, FetchResponse)
    assert {one.error_code for topic in response.topics for one in topic.partitions} == {
        KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    }
    [line] = logs
    assert (line["event"], line["partitions"]) == ("fetch_refused", COUNT)
