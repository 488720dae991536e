"""Three brokers of Apache Kafka that are one cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from support.kafka.plain import KafkaSocket
from support.ports import free_ports
from support.real_backs import Address, KafkaBroker

from penstock_kafka.codec.cluster_messages import MetadataRequest, MetadataRequestTopic, MetadataResponse

__all__ = ["KafkaCluster"]

_NODES: Final = (1, 2, 3)


class KafkaCluster:
    """Brokers 1 to 3, each of which is a controller too. Topics have three replicas, of which two must have a record
    before it is acknowledged. Use it as a context manager, which skips the test where Kafka is not installed."""

    def __init__(self) -> None:
        voters = dict(zip(_NODES, free_ports(len(_NODES)), strict=True))
        self.brokers = {node: KafkaBroker(node, voters) for node in _NODES}
        self._opened = ExitStack()

    @property
    def addresses(self) -> list[Address]:
        """The addresses of all brokers."""
        return [broker.address for broker in self.brokers.values()]

    def leader_of(self, topic: str, *, but: int = 0) -> int:
        """Return the broker that leads partition 0, as any broker but one says; -1 if there is none."""
        asked = next(broker for node, broker in self.brokers.items() if node != but)
        with KafkaSocket(asked.address) as client:
            found = client.call(
                MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
                MetadataResponse,
            )
        return found.topics[0].partitions[0].leader_id

    def __enter__(self) -> Self:
        with ExitStack() as stack, ThreadPoolExecutor() as pool:
            for broker in self.brokers.values():
                stack.callback(broker.stop)
            list(pool.map(KafkaBroker.start, self.brokers.values()))
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            for broker in self.brokers.values():
                print(f"---- the log of {broker.name} ----\n{broker.log_tail()}")
        self._opened.close()
