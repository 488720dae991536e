"""The capture that a running gateway sends: its events, and the same capture with messages in its comments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from penstock.capture.pcapng import CaptureEvent, CaptureReader

__all__ = ["live_events", "with_messages"]


def live_events(pieces: Iterable[bytes]) -> Iterator[list[CaptureEvent]]:
    """Yield the events of each piece of a capture. Raises ClickException if it is none."""
    reader = CaptureReader()
    for piece in pieces:
        reader.receive(piece)
        yield list(reader.events())
        if reader.damage is not None:
            raise click.ClickException(f"the gateway did not send a capture: {reader.damage}")


def with_messages(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the capture again, in pieces of whole blocks, with each message in a comment of the packet that completes
    it. Raises ClickException if it is no capture."""
    from penstock.capture.wireshark.writing import MessageCommentWriter
    from penstock.recorder.files import APPLICATION

    writer = MessageCommentWriter(APPLICATION)
    blocks = list(writer.begin())
    for events in live_events(pieces):
        for event in events:
            blocks += writer.encode(event)
        yield b"".join(blocks)
        blocks.clear()
