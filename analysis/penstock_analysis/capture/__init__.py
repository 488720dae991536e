"""Captures: pcapng files of plaintext conversations, written and read sans-IO.

`CaptureWriter` turns events into blocks, `CaptureReader` turns a file's bytes back into events; `events` defines the
events.
"""

from penstock_analysis.capture.events import (
    CaptureEvent,
    Chunk,
    Closed,
    Conversation,
    Joined,
    Lost,
    Noted,
    Opened,
    Sender,
    Side,
    SocketAddress,
    Withheld,
)
from penstock_analysis.capture.reading import CaptureReader
from penstock_analysis.capture.writing import CaptureWriter

__all__ = [
    "CaptureEvent",
    "CaptureReader",
    "CaptureWriter",
    "Chunk",
    "Closed",
    "Conversation",
    "Joined",
    "Lost",
    "Noted",
    "Opened",
    "Sender",
    "Side",
    "SocketAddress",
    "Withheld",
]
