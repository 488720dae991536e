"""Conversations as messages: the bytes of both sides, decoded by the codecs, in one shape for all protocols."""

from penstock.capture.dialogue.messages import APPENDED, DELIVERED, Dialogue, Message, Problem, SeenRecord

__all__ = ["APPENDED", "DELIVERED", "Dialogue", "Message", "Problem", "SeenRecord"]
