"""Durable Streams: the front for its clients."""
