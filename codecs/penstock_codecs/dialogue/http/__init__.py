"""Conversations that speak HTTP, of either version: S2's sessions, event streams, JSON and protobuf, and gRPC calls."""

from penstock_codecs.dialogue.http.dialogue import HttpDialogue

__all__ = ["HttpDialogue"]
