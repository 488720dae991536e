"""The events of capture files, read in a thread so that a slow disk or pipe holds up nobody."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import trio

from penstock_codecs.capture import CaptureEvent
from penstock_codecs.capture.reading import CaptureReader
from penstock_codecs.limits import KIB

__all__ = ["capture_events"]

_PIECE_BYTES: Final = 256 * KIB


async def capture_events(
    captures: Sequence[Path], seen: Callable[[int], None], damaged: Callable[[str], None]
) -> AsyncIterator[CaptureEvent]:
    """All events of the files, in order. `seen` is told of each piece its size, `damaged` what is wrong with a file,
    of which no more is read."""
    for path in captures:
        reader = CaptureReader()
        file: BinaryIO = sys.stdin.buffer if str(path) == "-" else path.open("rb")
        with file:
            data = b"?"
            while data and reader.damage is None:
                data = await trio.to_thread.run_sync(file.read, _PIECE_BYTES)
                seen(len(data))
                reader.receive(data)
                for event in reader.events():
                    yield event
        if reader.damage is not None:
            damaged(f"{path}: {reader.damage}")
