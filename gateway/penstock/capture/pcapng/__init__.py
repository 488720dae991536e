"""Captures: pcapng files of plaintext conversations, written and read sans-IO.

`CaptureWriter` turns events into blocks, `CaptureReader` turns a file's bytes back into events; `events` defines the
events.
"""

from penstock.capture.pcapng.events import (
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
from penstock.capture.pcapng.reading import CaptureReader
from penstock.capture.pcapng.writing import CaptureWriter

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
