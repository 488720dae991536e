"""A topic as the log of the gateway's state that is deleted, or whose cluster loses records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from support.s3p.front import BASIN
from support.store import Fails
from trio.testing import MockClock

from penstock.backends.logged_tables import LogLost, TableChange, TableState
from penstock.model.failures import FailureCode, fail
from penstock_kafka.back import KafkaBackSettings
from penstock_kafka.back.brokers import Brokers
from penstock_kafka.back.positions import KafkaPositions
from penstock_kafka.back.state_topic import WATCH_SECONDS, StateTopic
from penstock_kafka.back.topics import ClusterTopics
from penstock_kafka.codec.batches import KafkaBatch
from penstock_kafka.names import KafkaNames

PRODUCER = int.from_bytes(b"penstock")


class Cluster:
    """The topic as the cluster describes it. `id`: None while it is missing."""

    def __init__(self) -> None:
        self.id: bytes | None = b"1" * 16
        self.policy = "compact"
        self.first, self.end = 0, 0
        self.batches: list[KafkaBatch] = []
        self.failure: FailureCode | None = None


class Scripted(StateTopic):
    """A topic whose records are in `cluster`."""

    cluster: Cluster

    async def _fetch(self, offset: int, wait: float) -> list[KafkaBatch]:
        if self.cluster.failure is not None:
            raise fail(self.cluster.failure, "no")
        batches, self.cluster.batches = self.cluster.batches, []
        return batches


@pytest.fixture
def topic(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    state = Cluster()

    def server(settings: object) -> Any:
        raise AssertionError("there is one broker only")

    async def topic_id(*_: object) -> bytes:
        if state.id is None:
            raise fail(FailureCode.STREAM_NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION")
        return state.id

    async def create(*_: object) -> bool:
        return not state.first

    async def settings_of(*_: object) -> dict[str, str]:
        return {"cleanup.policy": state.policy}

    async def partitions(*_: object) -> Any:
        await topic_id()
        return SimpleNamespace(partitions=[0])

    async def beginning(*_: object) -> int:
        return state.first

    async def end(*_: object) -> int:
        await topic_id()
        return state.end

    monkeypatch.setattr(ClusterTopics, "create_topic", create)
    monkeypatch.setattr(ClusterTopics, "settings", settings_of)
    monkeypatch.setattr(Brokers, "topic_id", topic_id)
    monkeypatch.setattr(Brokers, "topic", partitions)
    monkeypatch.setattr(KafkaPositions, "beginning", beginning)
    settings = KafkaBackSettings(names=KafkaNames(BASIN), state_topic="state")
    found = Scripted(Brokers([cluster.far.upstream()], settings, server))
    found.cluster = state
    monkeypatch.setattr(found._positions, "end", end)
    return found


async def read_some(topic: Scripted) -> None:
    """Read the topic, which has a batch of three records."""
    topic.cluster.batches = [
        KafkaBatch(producer_id=PRODUCER, keys=[b"a"] * 3, values=[b""] * 3, offsets=range(3), next_offset=3)
    ]
    topic.cluster.end = 3
    news = await topic.read()
    assert news.restarted and news.end == 3
    assert not (await topic.read()).restarted


async def test_a_topic_that_was_deleted_is_not_an_empty_one(clock: MockClock, topic: Scripted) -> None:
    """Before, gateways created it again, threw their state away, and were ready."""
    await read_some(topic)
    topic.cluster.id = None
    for _ in range(2):
        with pytest.raises(LogLost, match="was deleted;"):
            await topic.read()
    topic.cluster.id = b"1" * 16  # only the metadata of a broker was old
    assert not (await topic.read()).restarted
    topic.cluster.id = b"2" * 16
    with pytest.raises(LogLost, match="created again"):
        await topic.read()
    topic.cluster.id = b"1" * 16
    with pytest.raises(LogLost):
        await topic.read()


async def test_a_topic_that_lost_its_newest_records_is_lost(clock: MockClock, topic: Scripted) -> None:
    """As after an election of a broker that did not have them; others may have appended since."""
    await read_some(topic)
    topic.cluster.failure = FailureCode.RANGE_NOT_SATISFIABLE
    with Fails(FailureCode.RANGE_NOT_SATISFIABLE):
        await topic.read()
    topic.cluster.end = 2
    with pytest.raises(LogLost, match="from 0 to 2, and was read up to 3"):
        await topic.read()
    topic.cluster.failure, topic.cluster.end = None, 9
    with pytest.raises(LogLost):
        await topic.read()


async def test_settings_that_lose_state_are_a_reason_not_to_be_ready(clock: MockClock, topic: Scripted) -> None:
    """Before, they were looked at when a gateway started."""
    await read_some(topic)
    for policy, first, reason in (
        ("compact,delete", 0, "cleanup.policy=compact,delete"),
        ("compact", 0, None),
        ("compact", 2, "before offset 2 were deleted"),
    ):
        topic.cluster.policy, topic.cluster.first = policy, first
        await trio.sleep(WATCH_SECONDS)
        await topic.read()
        assert topic.trouble is None if reason is None else reason in str(topic.trouble)
    fresh = Scripted(topic._brokers)
    fresh.cluster = topic.cluster
    with Fails(FailureCode.STORAGE, "before offset 2 were deleted"):
        await fresh.read()


async def test_a_topic_that_is_missing_is_no_missing_table(clock: MockClock, topic: Scripted) -> None:
    """Before, tables counted as empty until the topic was created again."""
    await topic.read()
    topic.cluster.id = None
    with Fails(FailureCode.HOT_SERVER, "UNKNOWN_TOPIC"):
        await topic.end()
    with Fails(FailureCode.HOT_SERVER, "UNKNOWN_TOPIC"):
        await topic.append(b"author", [TableChange(b"key", b"")], TableState(1))
