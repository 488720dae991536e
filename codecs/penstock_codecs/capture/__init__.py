"""Captures: pcapng files of plaintext conversations, written and read sans-IO.

`CaptureWriter` turns events into blocks, `CaptureReader` turns a file's bytes back into events; what these say stands
in `events`.
"""

from penstock_codecs.capture.events import (
    CaptureEvent,
    Chunk,
    Closed,
    Conversation,
    Endpoint,
    Lost,
    Noted,
    Opened,
    Sender,
    Side,
)
from penstock_codecs.capture.reading import CaptureReader
from penstock_codecs.capture.writing import CaptureWriter

__all__ = [
    "CaptureEvent",
    "CaptureReader",
    "CaptureWriter",
    "Chunk",
    "Closed",
    "Conversation",
    "Endpoint",
    "Lost",
    "Noted",
    "Opened",
    "Sender",
    "Side",
]
