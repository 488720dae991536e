"""Division of a recording's conversations among tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from penstock.capture.pcapng import Conversation
from penstock.capture.plugin import plugins
from penstock.model.limits import MIB
from penstock_spark.capture.recordings import RecordingFiles

__all__ = ["RecordingPart", "automatic", "group_of", "stays_together"]

GROUP_BYTES: Final = 128 * MIB
"""Bytes of a recording per group: decoding them takes seconds, or a minute if the messages are small."""
COMPRESSED: Final = 4
"""Assumed ratio of compression; mostly it is higher."""
MOST: Final = 8
"""Maximum number of groups by default. Each group reads all bytes, which takes a twentieth of the time of decoding them
if chunks are large, but two thirds of it if each has one message of 1 KiB: seven groups took three times the processor
time of one there. With many cores a higher number may pay."""


@dataclass(frozen=True)
class RecordingPart:
    """The part of a recording that one task decodes.

    `since`: index of the first new file; an earlier batch has the rows of those before it. `ends`: the recording has
    ended with its last file, so that incomplete items are reported, too. `keeps`: another batch may continue after the
    last file. `begins`: the file before the first one; "" at the recording's beginning.
    """

    recording: RecordingFiles
    table: str
    file: str
    group: int = 0
    groups: int = 1
    since: int = 0
    ends: bool = True
    keeps: bool = False
    begins: str = ""
    envelopes: bool = False
    skip_unreadable: bool = False


def automatic(recording: RecordingFiles) -> int:
    """Return a number of groups that suits a recording's size."""
    plain = sum(place.size * (COMPRESSED if place.name.endswith(".zst") else 1) for place in recording.files)
    return max(1, min(MOST, plain // GROUP_BYTES))


def group_of(conversation: Conversation, groups: int) -> int:
    """Return the group of a conversation, the same in every process. Conversations that need each other stay together,
    by server."""
    if groups == 1:
        return 0
    if stays_together(conversation):
        return crc32(str(conversation.server).encode()) % groups
    return crc32(f"{conversation.run} {conversation.number}".encode()) % groups


def stays_together(conversation: Conversation) -> bool:
    """Return whether conversations of this protocol may need each other to be decoded; of an unknown one they may."""
    plugin = plugins().get(conversation.protocol)
    return plugin is None or plugin.memory is not None
