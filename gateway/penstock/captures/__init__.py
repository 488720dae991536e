"""Captures as they lie in files: opened, told apart into messages, counted, and written in other forms."""

from penstock.captures.choosing import Choice
from penstock.captures.opening import Captures, UnreadableCapture

__all__ = ["Captures", "Choice", "UnreadableCapture"]
