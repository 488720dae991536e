"""Columns of a conversation that all tables share."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.capture.pcapng import Conversation
from penstock_spark.capture.notes import Notes

__all__ = ["FACTS", "Facts"]

FACTS: Final = ("run", "conversation", "side", "name", "client", "client_host", "identity")
"""Columns with the same value in all rows of a conversation, in each table."""


class Facts(NamedTuple):
    """The properties of a conversation, as columns. `protocol` None: not known from a configuration."""

    run: str | None
    conversation: int
    side: str
    name: str | None
    protocol: str | None
    client: str
    client_host: str
    identity: str | None
    notes: Notes

    @classmethod
    def of(cls, conversation: Conversation, notes: Notes) -> Facts:
        """Return the properties of a conversation."""
        return cls(
            conversation.run or None,
            conversation.number,
            conversation.side.value,
            conversation.name or None,
            conversation.protocol or None,
            str(conversation.client),
            conversation.client.host,
            notes.identity,
            notes,
        )
