"""Which dialogue hears a conversation: by its protocol where that is known, else by the client's first bytes.

dialogue = dialogue_for(conversation)
for event in events:
    yield from dialogue.receive(event)
yield from dialogue.end()
"""

from __future__ import annotations

from penstock_codecs.capture import Conversation
from penstock_codecs.dialogue.messages import Dialogue
from penstock_codecs.dialogue.opaque import OpaqueDialogue

__all__ = ["dialogue_for", "dialogue_of"]


def dialogue_for(conversation: Conversation) -> Dialogue:
    """A dialogue for a conversation, which finds out by itself what is spoken where its protocol does not say so.

    It hears the conversation's events from the first one (`Opened`) on.
    """
    return dialogue_of(conversation, b"") or OpaqueDialogue(conversation, "the protocol is not known")


def dialogue_of(conversation: Conversation, first: bytes) -> Dialogue | None:
    """The dialogue for a conversation whose client began with `first`; None: more of these bytes are needed.

    64 bytes always suffice. Where nothing fits it is an OpaqueDialogue.
    """
    if len(first) < 64:
        return None
    return OpaqueDialogue(conversation, "the first bytes are those of no protocol that Penstock speaks")
