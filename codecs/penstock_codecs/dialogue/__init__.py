"""Conversations as messages: what both sides said, decoded by the codecs, one shape for all protocols."""

from penstock_codecs.dialogue.messages import APPENDED, DELIVERED, Dialogue, Message, Problem, SeenRecord

__all__ = ["APPENDED", "DELIVERED", "Dialogue", "Message", "Problem", "SeenRecord"]
