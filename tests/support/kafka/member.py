"""A member of a consumer group, as a program of its own, so that it can be killed.

    python -m support.kafka.member LIBRARY SERVER GROUP TOPIC SESSION_MS [NAME=VALUE ...]

It prints `read PARTITION OFFSET VALUE` for each record before it commits, and `done` with the same after that, or after
a later commit that was taken while it still had the partition; `assigned PARTITION ...` when its partitions change. It
goes on until it is killed, or its standard input ends: then it leaves the group. `LIBRARY`: confluent, consumer (the
same with the consumer protocol, whose session the gateway has) or python; further settings are those of the library.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

MOST = 20
"""Records that are read before a commit."""


def say(*words: object) -> None:
    print(*words, flush=True)


def confluent(
    server: str, group: str, topic: str, session: int, options: dict[str, str], over: threading.Event
) -> None:
    from confluent_kafka import Consumer

    timing = {"session.timeout.ms": session, "heartbeat.interval.ms": 500}
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, **options}
    if settings.get("group.protocol") != "consumer":
        settings |= timing
    consumer = Consumer({"bootstrap.servers": server, "group.id": group, "log_level": 2, **settings})
    mine: set[int] = set()
    pending: list[tuple[int, int, str]] = []

    def assigned(_: Any, partitions: list[Any]) -> None:
        mine.update(one.partition for one in partitions)
        say("assigned", *sorted(mine))

    def revoked(_: Any, partitions: list[Any]) -> None:
        mine.difference_update(one.partition for one in partitions)
        pending[:] = [one for one in pending if one[0] in mine]
        if settings.get("group.protocol") == "consumer":  # the classic protocol gives up all of them at each rebalance
            say("assigned", *sorted(mine))

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not over.is_set():
        records = [one for one in consumer.consume(MOST, timeout=0.2) if one.error() is None]
        for record in records:
            pending.append((record.partition(), record.offset(), (record.value() or b"").decode()))
            say("read", *pending[-1])
        if pending and committed(consumer):
            for one in pending:
                say("done", *one)
            pending.clear()
    consumer.close()


def committed(consumer: Any) -> bool:
    """Commit; return False if the member has been given another epoch or generation meanwhile."""
    from confluent_kafka import KafkaError, KafkaException

    moved = (KafkaError.STALE_MEMBER_EPOCH, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() not in moved:
            raise
        return False
    return True


def consumer(server: str, group: str, topic: str, session: int, options: dict[str, str], over: threading.Event) -> None:
    confluent(server, group, topic, session, {"group.protocol": "consumer", **options}, over)


def python(server: str, group: str, topic: str, session: int, options: dict[str, str], over: threading.Event) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaConnectionError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", *sorted(one.partition for one in assigned))

    consumer = KafkaConsumer(
        bootstrap_servers=server,
        group_id=group,
        enable_auto_commit=False,
        session_timeout_ms=session,
        heartbeat_interval_ms=500,
        auto_offset_reset="earliest",
        max_poll_records=MOST,
        **options,
    )
    consumer.subscribe([topic], listener=Listener())
    while not over.is_set():
        try:
            found = consumer.poll(timeout_ms=200)
        except KafkaConnectionError:  # it leaves reconnecting to its callers
            continue
        told = [(one.partition, one.offset, one.value.decode()) for some in found.values() for one in some]
        for one in told:
            say("read", *one)
        if told:
            consumer.commit()
        for one in told:
            say("done", *one)
    consumer.close()


def main() -> None:
    library, server, group, topic, session, *options = sys.argv[1:]
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    run = {"confluent": confluent, "consumer": consumer, "python": python}[library]
    run(server, group, topic, int(session), dict(one.split("=", 1) for one in options), over)


if __name__ == "__main__":
    main()
