"""Faults that are injected on purpose, so that clients can be tested; nothing happens where none is configured."""
