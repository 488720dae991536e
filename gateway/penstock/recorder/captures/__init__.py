"""Read capture files, decode them into messages, count them, and write them in other forms."""

from penstock.recorder.captures.choosing import Choice
from penstock.recorder.captures.opening import Captures, UnreadableCapture

__all__ = ["Captures", "Choice", "UnreadableCapture"]
