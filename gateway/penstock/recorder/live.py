"""A recording for one listener who reads it while it happens: `penstock tail`."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from penstock.recorder.status import RecordingStatus
from penstock_codecs.capture import CaptureEvent
from penstock_codecs.limits import MIB
from penstock_codecs.redaction import RedactionRules

__all__ = ["LIVE_QUEUE_BYTES", "LiveRecording"]

LIVE_QUEUE_BYTES: Final = 16 * MIB
"""How far a listener may be behind."""


class LiveRecording:
    """A Sink, and an async iterator of the bytes of a pcapng file that never ends; to be used in one trio thread:

        async with LiveRecording(rules) as live:
            ...  # taps put events
            async for piece in live:
                await stream.send_all(piece)

    A listener who is slow loses whole conversations, those first that have most waiting.
    """

    def __init__(
        self,
        rules: RedactionRules | None = None,
        *,
        queue_bytes: int = LIVE_QUEUE_BYTES,
        flush_seconds: float = 0.05,
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> LiveRecording:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    def put(self, event: CaptureEvent) -> bool:
        raise NotImplementedError

    @property
    def generation(self) -> int:
        raise NotImplementedError

    def __aiter__(self) -> LiveRecording:
        return self

    async def __anext__(self) -> bytes:
        """The next piece: whole blocks, the section header first. Ends once `end` was called and all was given."""
        raise NotImplementedError

    def end(self) -> None:
        """Nothing more comes: the iterator ends after what waits. Returns at once."""
        raise NotImplementedError

    def status(self) -> RecordingStatus:
        """How it is doing; cheap."""
        raise NotImplementedError
