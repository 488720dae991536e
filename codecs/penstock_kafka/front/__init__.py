"""Kafka's front: requests of clients on records of streams; ADR 18 has the decisions."""

from penstock_kafka.front.front import KafkaFront
from penstock_kafka.front.settings import KafkaSettings

__all__ = ["KafkaFront", "KafkaSettings"]
