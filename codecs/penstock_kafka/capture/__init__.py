"""Kafka in captures."""
