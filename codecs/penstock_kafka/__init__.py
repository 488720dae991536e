"""Kafka: the front for its clients."""
