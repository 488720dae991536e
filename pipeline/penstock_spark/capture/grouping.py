"""Into how many tasks a recording is divided, and which conversation is whose."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from penstock_codecs.capture import Conversation
from penstock_codecs.limits import MIB
from penstock_spark.capture.recordings import Recording

__all__ = ["TOGETHER", "automatic", "group_of"]

TOGETHER: Final = ("segment", "")
"""What conversations speak whose dialogues know of each other: clients read the rest of an event over another
connection. "": nobody knows what they speak."""

GROUP_BYTES: Final = 128 * MIB
"""A group for so many bytes of a recording: decoding them takes seconds, a minute where the messages are small."""
COMPRESSED: Final = 4
"""A compressed file holds so many times its bytes; mostly more."""
MOST: Final = 8
"""Most groups by default. Each group reads all bytes, which takes a twentieth of the time of decoding them where chunks
are large, but two thirds of it where each has one message of 1 KiB: seven groups took three times the processor time
of one there. Who has many cores may ask for more."""


def automatic(recording: Recording) -> int:
    """How many groups suit a recording of its size."""
    plain = sum(place.size * (COMPRESSED if place.name.endswith(".zst") else 1) for place in recording.files)
    return max(1, min(MOST, plain // GROUP_BYTES))


def group_of(conversation: Conversation, groups: int) -> int:
    """The group of a conversation, the same in every process. Those whose dialogues know of each other stay with the
    others of their server."""
    if groups == 1:
        return 0
    if conversation.protocol in TOGETHER:
        return crc32(str(conversation.server).encode()) % groups
    return crc32(f"{conversation.run} {conversation.number}".encode()) % groups
