"""Clusters of Kafka: the client side.

`Brokers` finds the leader of a partition and asks it; `KafkaWriter` makes all appends to a partition, as one idempotent
producer; a read has a connection of its own and moves with the leader. Offsets are the sequence numbers, so nothing is
kept here but creation times. See decision 20.
"""

from penstock_kafka.back.back import CAPABILITIES, KafkaBack, open_kafka
from penstock_kafka.back.settings import KafkaBackSettings

__all__ = ["CAPABILITIES", "KafkaBack", "KafkaBackSettings", "open_kafka"]
