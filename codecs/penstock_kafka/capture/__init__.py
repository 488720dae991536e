"""Kafka in the analysis layer."""
