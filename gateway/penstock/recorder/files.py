"""A recording in pcapng files."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.recorder.settings import FileSettings
from penstock.recorder.status import RecordingStatus
from penstock_codecs.capture import CaptureEvent
from penstock_codecs.redaction import RedactionRules

__all__ = ["FileRecording"]


class FileRecording:
    """A Sink. `rules`: what is blanked before it is written; None: nothing is."""

    def __init__(
        self,
        settings: FileSettings,
        rules: RedactionRules | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Begin the first file. Raises CannotStart where the directory cannot be written to."""
        raise NotImplementedError

    def put(self, event: CaptureEvent) -> bool:
        raise NotImplementedError

    @property
    def generation(self) -> int:
        raise NotImplementedError

    def status(self) -> RecordingStatus:
        """How it is doing; cheap, and from any thread."""
        raise NotImplementedError

    def rotate(self) -> None:
        """End the file, if anything was recorded in it, and begin another one. Returns at once."""
        raise NotImplementedError

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait, in a thread that may, until all that was put is in the file; False: not within `timeout` seconds."""
        raise NotImplementedError

    def close(self, timeout: float = 5.0) -> bool:
        """Write what waits and end the file in order. To be called in a thread that may wait (`trio.to_thread`), once.
        False: not done within `timeout` seconds; the file can be read as far as it goes, and nobody waits any longer.
        """
        raise NotImplementedError
