"""Consumer groups of Kafka's clients, librdkafka (confluent-kafka) and kafka-python, with members that are killed and
gateways that are restarted."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.peers import unique
from support.process import CONFIG, GatewayProcess

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
LIBRARIES = {"confluent": "confluent_kafka", "consumer": "confluent_kafka", "python": "kafka"}
PARTITIONS = 6
QUICK = """[listeners.kafka]
first_rebalance_seconds = 1.0"""
PATIENCE = 90.0


@pytest.fixture
def gateway() -> Iterator[GatewayProcess]:
    """A gateway whose groups do not wait for long."""
    with GatewayProcess(CONFIG.replace("[listeners.kafka]", QUICK)) as process:
        yield process


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """The client that the members of the group use."""
    pytest.importorskip(LIBRARIES[request.param], reason="a client of Kafka (group peers)")
    return str(request.param)


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    """A topic of six partitions."""
    kafka = pytest.importorskip("confluent_kafka.admin", reason="`pip install confluent-kafka`")
    name, client = unique("topic"), admin(gateway)  # which must outlive the answers
    for future in client.create_topics([kafka.NewTopic(name, PARTITIONS, 1)]).values():
        future.result(30)
    return name


def server(gateway: GatewayProcess) -> str:
    return f"127.0.0.1:{gateway.kafka_port}"


def admin(gateway: GatewayProcess) -> Any:
    kafka = pytest.importorskip("confluent_kafka.admin", reason="`pip install confluent-kafka`")
    return kafka.AdminClient({"bootstrap.servers": server(gateway)})


def produce(gateway: GatewayProcess, topic: str, numbers: range) -> set[str]:
    """Produce numbers to all partitions in turn; return them as the members print them."""
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer({"bootstrap.servers": server(gateway)})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return {str(number) for number in numbers}


def until(what: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def committed(gateway: GatewayProcess) -> list[tuple[int, int]]:
    """Return the group's partitions and their committed offsets."""
    kafka = pytest.importorskip("confluent_kafka")
    client = admin(gateway)  # which must outlive the answer
    [answer] = client.list_consumer_group_offsets([kafka.ConsumerGroupTopicPartitions("readers")]).values()
    return sorted((one.partition, one.offset) for one in answer.result(30).topic_partitions)


class Record(NamedTuple):
    """A record as a member prints it."""

    partition: int
    offset: int
    value: str


class Member:
    """A member of the group `readers` in a process of its own, which is taken for lost after `session` seconds."""

    def __init__(self, library: str, gateway: GatewayProcess, topic: str, *options: str, session: float = 6.0) -> None:
        command = [sys.executable, "-m", "support.kafka.member", library, server(gateway), "readers", topic]
        command += [str(round(session * 1000)), *options]
        self.process = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assigned: list[list[int]] = []
        self.read: list[Record] = []
        self.done: list[Record] = []
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            if not line.endswith("\n"):
                break  # it was killed within a line
            word, *rest = line.split()
            if word == "assigned":
                self.assigned.append([int(one) for one in rest])
            else:
                (self.read if word == "read" else self.done).append(Record(int(rest[0]), int(rest[1]), rest[2]))

    def end(self, *, kill: bool = False) -> None:
        """Leave the group, or be killed."""
        if kill:
            self.process.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def members() -> Iterator[list[Member]]:
    """Members that are ended after the test."""
    found: list[Member] = []
    yield found
    for one in found:
        one.end(kill=True)


def shares(members: list[Member]) -> list[int]:
    """The partitions that the members have now."""
    return sorted(partition for one in members if one.assigned for partition in one.assigned[-1])


def shared(members: list[Member], each: int) -> bool:
    """Return whether all partitions are assigned, so many to each."""
    return shares(members) == list(range(PARTITIONS)) and all(
        one.assigned and len(one.assigned[-1]) == each for one in members
    )


def test_three_members_share_six_partitions_and_one_is_killed(
    gateway: GatewayProcess, topic: str, library: str, members: list[Member]
) -> None:
    """Nothing is lost, and nothing that was committed is read again."""
    sent = produce(gateway, topic, range(300))
    members += [Member(library, gateway, topic) for _ in range(3)]
    until(lambda: shared(members, 2))
    sent |= produce(gateway, topic, range(300, 3000))
    lost = members[1]
    until(lambda: len(lost.done) > 100)
    lost.end(kill=True)
    rest = [members[0], members[2]]
    until(lambda: shared(rest, 3))
    sent |= produce(gateway, topic, range(3000, 3300))
    until(lambda: {one.value for member in members for one in member.read} == sent)
    until(lambda: all(len(one.read) == len(one.done) for one in rest))
    done = Counter(one for member in members for one in member.done)
    assert set(done.values()) == {1}, "a record was read again after it was committed"
    again = Counter(one for member in members for one in member.read)
    unfinished = set(lost.read) - set(lost.done)
    assert {one for one, times in again.items() if times > 1} <= unfinished


def test_members_go_on_where_they_were_after_the_gateway_was_killed(
    gateway: GatewayProcess, topic: str, library: str, members: list[Member]
) -> None:
    sent = produce(gateway, topic, range(300))
    members += [Member(library, gateway, topic, session=60.0) for _ in range(2)]
    until(lambda: {one.value for member in members for one in member.done} == sent)
    gateway.restart(kill=True)
    sent |= produce(gateway, topic, range(300, 600))
    until(lambda: {one.value for member in members for one in member.done} == sent)
    assert Counter(one for member in members for one in member.read).most_common(1)[0][1] == 1
    for one in members:
        one.end()
    gateway.restart()
    sent = produce(gateway, topic, range(600, 700))
    later = Member(library, gateway, topic)
    members.append(later)
    until(lambda: {one.value for one in later.done} >= sent)
    assert {one.value for one in later.read} == sent


def test_the_gateway_is_killed_amid_rebalances_of_the_consumer_protocol(
    gateway: GatewayProcess, topic: str, members: list[Member]
) -> None:
    """No record is lost, and none is committed twice, whatever the members knew of the assignment.

    A commit that reached the gateway before it was killed counts, though its member may never be told.
    """
    pytest.importorskip("confluent_kafka", reason="a client of Kafka (group peers)")
    sent = produce(gateway, topic, range(600))
    members += [Member("consumer", gateway, topic) for _ in range(2)]
    until(lambda: shared(members, 3))
    for number in range(1, 4):
        members.append(Member("consumer", gateway, topic))
        time.sleep(0.4 * number)  # the new member has joined, or has its first partitions, or is still on its way
        gateway.restart(kill=True)
        sent |= produce(gateway, topic, range(number * 600, number * 600 + 600))
        members[number].end()
    until(lambda: committed(gateway) == [(partition, len(sent) // PARTITIONS) for partition in range(PARTITIONS)])
    until(lambda: {one.value for member in members for one in member.read} == sent)
    assert set(Counter(one for member in members for one in member.done).values()) == {1}
    until(lambda: shares([one for one in members if one.process.poll() is None]) == list(range(PARTITIONS)))


def test_a_static_member_starts_again_without_a_rebalance(
    gateway: GatewayProcess, topic: str, members: list[Member]
) -> None:
    pytest.importorskip("confluent_kafka", reason="a client of Kafka (group peers)")
    members += [Member("confluent", gateway, topic, f"group.instance.id={one}", session=60.0) for one in "ab"]
    until(lambda: shared(members, 3))
    stays, goes = members
    before = list(stays.assigned)
    goes.end(kill=True)
    back = Member("confluent", gateway, topic, "group.instance.id=b", session=60.0)
    members.append(back)
    sent = produce(gateway, topic, range(60))
    until(lambda: {one.value for member in members for one in member.done} == sent)
    assert back.assigned[-1] == goes.assigned[-1]
    assert stays.assigned == before


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_with_partitions_of_its_choice_commits(gateway: GatewayProcess, topic: str, protocol: str) -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="`pip install confluent-kafka`")
    options = {"group.id": "chosen", "group.protocol": protocol, "enable.auto.commit": False}
    place = kafka.TopicPartition(topic, 2, 7)
    for _ in range(2):
        consumer = kafka.Consumer({"bootstrap.servers": server(gateway), **options})
        consumer.assign([place])
        [outcome] = consumer.commit(offsets=[place], asynchronous=False)
        assert outcome.error is None
        assert [one.offset for one in consumer.committed([place], 30)] == [7]
        consumer.close()


def test_administrators_list_describe_and_delete_groups(
    gateway: GatewayProcess, topic: str, library: str, members: list[Member]
) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    sent = produce(gateway, topic, range(60))
    members.append(Member(library, gateway, topic))
    until(lambda: {one.value for one in members[0].done} == sent)
    client = admin(gateway)
    assert [(one.group_id, one.state.name) for one in client.list_consumer_groups().result(30).valid] == [
        ("readers", "STABLE")
    ]
    described = client.describe_consumer_groups(["readers"])["readers"].result(30)
    [member] = described.members
    assert (described.state.name, member.host) == ("STABLE", "/127.0.0.1")
    assert sorted(one.partition for one in member.assignment.topic_partitions) == list(range(PARTITIONS))
    with pytest.raises(kafka.KafkaException, match="NON_EMPTY_GROUP"):
        client.delete_consumer_groups(["readers"])["readers"].result(30)
    members[0].end()
    assert committed(gateway) == [(partition, 10) for partition in range(PARTITIONS)]
    changed = kafka.ConsumerGroupTopicPartitions("readers", [kafka.TopicPartition(topic, 0, 4)])
    client.alter_consumer_group_offsets([changed])["readers"].result(30)
    again = Member(library, gateway, topic)
    members.append(again)
    until(lambda: len(again.done) == 6)
    assert {(one.partition, one.offset) for one in again.done} == {(0, offset) for offset in range(4, 10)}
    again.end()
    client.delete_consumer_groups(["readers"])["readers"].result(30)
    assert client.list_consumer_groups().result(30).valid == []


def test_kafka_pythons_administrator(gateway: GatewayProcess, topic: str, members: list[Member]) -> None:
    kafka = pytest.importorskip("kafka", reason="a client of Kafka (group peers)")
    members.append(Member("python", gateway, topic))
    until(lambda: shared(members, PARTITIONS))
    client = kafka.KafkaAdminClient(bootstrap_servers=server(gateway))
    try:
        assert "readers" in str(
            client.list_groups() if hasattr(client, "list_groups") else client.list_consumer_groups()
        )
        described = str(client.describe_groups(["readers"]))
        assert "Stable" in described
        members[0].end()
        client.delete_groups(["readers"])
    finally:
        client.close()
