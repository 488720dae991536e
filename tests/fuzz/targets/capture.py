"""Captures: files of any writer, in any damage, and the conversations in them in every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fuzz.laws import cuts
from support.captures import read, s2_talk, s3p_talk, story, written
from support.captures.blocks import SHORT, enhanced, interface, pcap, section

from penstock.capture.dialogue import Message
from penstock.capture.dialogue.dialogues import Dialogues
from penstock.capture.pcapng import CaptureEvent, CaptureReader, Chunk, Lost, Opened, Sender

WINDOW: Final = 1000
"""Most bytes of a side that are held while earlier ones are missing."""


def seeds() -> Iterator[bytes]:
    """Yield files of Penstock and of other writers, in both byte orders."""
    yield written(s3p_talk())
    yield written(s2_talk())
    for sign in "<>":
        packets = b"".join(enhanced(each.ip(), 10 + time, sign) for time, each in enumerate(SHORT))
        yield section(sign) + interface(sign=sign) + packets
        yield pcap([(7, time, each.ip()) for time, each in enumerate(SHORT)], sign=sign)


def check(data: bytes) -> None:
    """Check that no file makes a reader raise an error, that events do not depend on cuts, and that the bytes of each
    side come in order, each at most once."""
    reader = _reader()
    events = read(data, reader=reader)
    whole = story(events)
    for pieces in cuts(data):
        places = [sum(map(len, pieces[:count])) for count in range(1, len(pieces))]
        other = _reader()
        assert story(read(data, places, other)) == whole
        assert (other.damage, other.ignored) == (reader.damage, reader.ignored)
    _are_in_order(events)
    dialogues = Dialogues()
    told = [each for event in events for each in dialogues.receive(event)]
    for each in [*told, *dialogues.end()]:
        if isinstance(each, Message):
            list(each.records)
        else:
            assert each.rule


def _are_in_order(events: list[CaptureEvent]) -> None:
    ends: dict[tuple[int, Sender], int] = {}
    for event in events:
        of = id(event.conversation)
        if isinstance(event, Opened):
            ends |= {(of, Sender.CLIENT): event.client_offset, (of, Sender.SERVER): event.server_offset}
        elif isinstance(event, Chunk | Lost):
            place = of, event.sender
            assert event.offset >= ends.get(place, 0), f"{event} goes back"
            size = event.length if isinstance(event, Lost) else len(event.data)
            ends[place] = event.offset + size


def _reader() -> CaptureReader:
    return CaptureReader(window=WINDOW, max_conversations=3, held=2 * WINDOW)
