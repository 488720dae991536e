"""A topic as the log of the gateway's state whose cluster fails while it is read again from its beginning."""

from __future__ import annotations

from typing import Any

import pytest
from support.s3p.front import BASIN
from support.store import Fails
from trio.testing import MockClock

from penstock.backends.logged_tables import TableChange, TableState
from penstock.protocols.kafka.back import KafkaBackSettings
from penstock.protocols.kafka.back.brokers import Brokers
from penstock.protocols.kafka.back.positions import KafkaPositions
from penstock.protocols.kafka.back.state_topic import StateTopic
from penstock.protocols.kafka.back.topics import ClusterTopics
from penstock.protocols.kafka.names import KafkaNames
from penstock_codecs.failures import FailureCode, fail
from penstock_codecs.kafka.batches import KafkaBatch


class Scripted(StateTopic):
    """A topic without records, whose reads fail as `fails` says, one after the other."""

    fails: tuple[FailureCode, ...] = ()

    async def _fetch(self, offset: int, wait: float) -> list[KafkaBatch]:
        if self.fails:
            code, *rest = self.fails
            self.fails = tuple(rest)
            raise fail(code, "no")
        return []


@pytest.fixture
def topic(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    def returns(value: object) -> Any:
        async def returned(*args: object) -> object:
            return value

        return returned

    def server(settings: object) -> Any:
        raise AssertionError("there is one broker only")

    monkeypatch.setattr(ClusterTopics, "create_topic", returns(True))
    monkeypatch.setattr(Brokers, "topic_id", returns(bytes(16)))
    monkeypatch.setattr(KafkaPositions, "beginning", returns(0))
    settings = KafkaBackSettings(names=KafkaNames(BASIN), state_topic="state")
    return Scripted(Brokers([cluster.far.upstream()], settings, server))


@pytest.mark.parametrize("lost", [FailureCode.STREAM_NOT_FOUND, FailureCode.RANGE_NOT_SATISFIABLE])
async def test_a_topic_that_lost_records_is_read_again_even_if_its_first_read_fails(
    clock: MockClock, topic: Scripted, lost: FailureCode
) -> None:
    """Before, the gateway kept what it had read of the topic as it was before, beside what it read now."""
    assert (await topic.read()).restarted
    assert not (await topic.read()).restarted
    topic.fails = (lost, FailureCode.HOT_SERVER, FailureCode.UNAVAILABLE)
    for code in topic.fails:
        with Fails(code):
            await topic.read()
        with Fails(FailureCode.HOT_SERVER, "is being read"):
            await topic.append(b"author", [TableChange(b"key", b"")], TableState(1))
    assert (await topic.read()).restarted


async def test_a_topic_that_is_missing_is_no_missing_table(clock: MockClock, topic: Scripted) -> None:
    """Before, tables counted as empty until the topic was created again."""
    await topic.read()
    with Fails(FailureCode.HOT_SERVER, "UNKNOWN_TOPIC"):
        await topic.end()
    with Fails(FailureCode.HOT_SERVER, "UNKNOWN_TOPIC"):
        await topic.append(b"author", [TableChange(b"key", b"")], TableState(1))
