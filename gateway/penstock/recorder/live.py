"""A live recording for one listener, as `penstock tail`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

import trio

from penstock.capture.pcapng import CaptureEvent
from penstock.capture.pcapng.writing import CaptureWriter
from penstock.capture.redaction.rules import RedactionRules
from penstock.model.limits import MIB
from penstock.recorder.files import APPLICATION
from penstock.recorder.output import GATHER_BYTES, Piece
from penstock.recorder.queue import EventQueue
from penstock.recorder.recording import RecordingSink

__all__ = ["LIVE_QUEUE_BYTES", "LiveRecording", "LiveWriter"]

LIVE_QUEUE_BYTES: Final = 16 * MIB
"""Maximum number of bytes queued for encoding per listener; encoded pieces take up to 5 MiB more."""
_AHEAD: Final = 4
"""Pieces that may be ready for a slow listener; then the queue fills."""


class LiveWriter(Protocol):
    """An encoder of events for a listener; called by the recording's thread only."""

    def begin(self) -> Sequence[Piece]:
        """Return what precedes all events."""

    def encode(self, event: CaptureEvent) -> Sequence[Piece]:
        """Return the encoded event, which may be empty."""


class LiveRecording(RecordingSink):
    """A Sink, and an async iterator of the bytes of one endless pcapng file, for one trio task:

        async with LiveRecording(rules) as live:
            ...  # taps put events
            async for piece in live:
                await stream.send_all(piece)

    A piece is whole blocks, the section header first. A slow listener loses whole conversations, those with the most
    queued bytes first, and does not get them again, since `generation` never changes.
    """

    def __init__(
        self,
        rules: RedactionRules | None = None,
        *,
        queue_bytes: int = LIVE_QUEUE_BYTES,
        flush_seconds: float = 0.05,
        writer: LiveWriter | None = None,
        kind: str = "live",
    ) -> None:
        """`writer`: an encoder for a format other than pcapng. `kind`: how the recording is listed."""
        self.kind = kind
        self._pipe = _Pipe(writer or CaptureWriter(APPLICATION))
        super().__init__(
            self._pipe,
            EventQueue(queue_bytes),
            rules,
            flush_seconds=flush_seconds,
            retry_seconds=60.0,
            reports_drops=writer is None,  # the management page reports drops itself
        )

    async def __aenter__(self) -> LiveRecording:
        self._pipe.open(trio.lowlevel.current_trio_token())
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.leave()
        self._stop()

    def __aiter__(self) -> LiveRecording:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece. Iteration ends after `end` was called and all pieces were returned."""
        return await self._pipe.receive()

    def end(self) -> None:
        """End the iteration after what is queued. Returns at once."""
        self._stop()


class _Pipe:
    """The outlet: passes pieces back to the trio thread."""

    def __init__(self, writer: LiveWriter) -> None:
        self._writer = writer
        self._sender, self._receiver = trio.open_memory_channel[bytes](_AHEAD)
        self._room = threading.Semaphore(_AHEAD)
        self._token: trio.lowlevel.TrioToken | None = None
        self._left = False
        self.file: Path | None = None
        self.files = 0
        self.bytes = 0

    # ---- the trio thread -----------------------------------------------------------------------------------------

    def open(self, token: trio.lowlevel.TrioToken) -> None:
        """Set the trio loop of the listener."""
        self._token = token

    async def receive(self) -> bytes:
        """Return the next piece. Raises StopAsyncIteration."""
        try:
            piece = await self._receiver.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        self._room.release()
        return piece

    def leave(self) -> None:
        """Discard further pieces: the listener is gone."""
        self._left = True
        self._room.release()

    def _arrive(self, piece: bytes) -> None:
        if not self._left:
            self._sender.send_nowait(piece)

    # ---- the recording's thread ----------------------------------------------------------------------------------

    def begin(self, *, again: bool) -> None:
        if again:
            raise BrokenPipeError("a live recording that failed cannot resume")
        self._hand(b"".join(self._writer.begin()))

    def write(self, events: Iterator[CaptureEvent]) -> int:
        pieces: list[Piece] = []
        count = size = 0
        for event in events:
            blocks = self._writer.encode(event)
            pieces += blocks
            size += sum(map(len, blocks))
            count += 1
            if size >= GATHER_BYTES:
                self._hand(b"".join(pieces))
                pieces, size = [], 0
        if pieces:
            self._hand(b"".join(pieces))
        return count

    def due(self) -> float | None:
        return None

    def turn(self, *, asked: bool) -> None:
        """Do nothing: a live recording has no periodic work."""

    def abandon(self) -> None:
        self.end()

    def end(self) -> None:
        self._call(self._sender.close)

    def _hand(self, piece: bytes) -> None:
        """Pass a piece on; blocks while the listener is slow, and the queue holds what comes meanwhile."""
        if piece and not self._left:
            self._room.acquire()
            self.bytes += len(piece)
            self._call(partial(self._arrive, piece))

    def _call(self, call: Callable[[], object]) -> None:
        assert self._token is not None, "the receiver is not attached"
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(call)
