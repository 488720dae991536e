"""Read capture files, decode them into messages, count them, and write them in other forms."""

from penstock.recorder.captures.choosing import CaptureFilter
from penstock.recorder.captures.opening import CaptureEvents, UnreadableCapture

__all__ = ["CaptureEvents", "CaptureFilter", "UnreadableCapture"]
