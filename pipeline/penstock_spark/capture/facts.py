"""What all tables say of a conversation."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock_codecs.capture import Conversation
from penstock_spark.capture.notes import Notes

__all__ = ["FACTS", "Facts"]


class Facts(NamedTuple):
    """A conversation as columns have it; `protocol` None: by configuration nobody knows."""

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
        """Those of a conversation."""
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


FACTS: Final = ("run", "conversation", "side", "name", "client", "client_host", "identity")
"""Columns that say the same in all rows of a conversation, in each table."""
