"""Write captures with the decoded messages in comments of packets."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.pcapng import CaptureEvent, CaptureWriter
from penstock.capture.pcapng.headers import Piece
from penstock.capture.wireshark.comments import comments_of

__all__ = ["MessageCommentWriter"]


class MessageCommentWriter:
    """Encoder of a capture in which each packet that completes messages has them in its comments."""

    def __init__(self, application: str) -> None:
        """Create a writer. `application`: the writing program with its version."""
        self._writer = CaptureWriter(application)
        self._dialogues = Dialogues()

    def begin(self) -> Sequence[Piece]:
        """Return the section header; call it once, before anything else."""
        return self._writer.begin()

    def encode(self, event: CaptureEvent) -> Sequence[Piece]:
        """Return whole blocks, as `CaptureWriter.encode` does."""
        comments = comments_of(self._dialogues.receive(event))
        if comments:
            self._writer.comment(event.conversation, comments)
        return self._writer.encode(event)
