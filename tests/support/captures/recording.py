"""Recordings for tests: talk whose every byte is known from its place, and files read back."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import zstandard
from support.captures import conversation
from support.captures import read as events_of
from support.peers import need

from penstock.capture.pcapng import CaptureEvent, CaptureReader, Chunk, Closed, Lost, Noted, Opened, Sender
from penstock.observe.taps.sink import Sink

__all__ = [
    "Talk",
    "capture_files",
    "check_bytes",
    "given_up",
    "read_file",
    "said",
    "spans",
    "tshark_warnings",
]

_TILE = 65_521
_TALK = random.Random(20261121).randbytes(_TILE)


def said(number: int, sender: Sender, offset: int, size: int) -> bytes:
    """Return `size` bytes of a side from `offset` on, which identify place, side and conversation."""
    first = (offset + 7919 * number + (sender is Sender.SERVER) * 31_337) % _TILE
    return (_TALK * ((first + size) // _TILE + 1))[first : first + size]


class Talk:
    """A conversation, as its tap tells it."""

    def __init__(self, sink: Sink, number: int) -> None:
        self.conversation = conversation(number)
        self.offsets = dict.fromkeys(Sender, 0)
        self._sink = sink

    def open(self, *, continued: bool = False) -> bool:
        """It begins, or goes on after a gap."""
        offsets = self.offsets[Sender.CLIENT], self.offsets[Sender.SERVER]
        return self._sink.put(Opened(self.conversation, time.time_ns(), *offsets, continued=continued))

    def say(self, size: int, sender: Sender = Sender.CLIENT) -> bool:
        """Send `size` bytes; they count even if they are not recorded."""
        offset = self.offsets[sender]
        data = said(self.conversation.number, sender, offset, size)
        taken = self._sink.put(Chunk(self.conversation, time.time_ns(), sender, offset, data))
        self.offsets[sender] += size
        return taken

    def note(self, key: str, value: str) -> bool:
        """Note a key and its value, as a front does with its route."""
        return self._sink.put(Noted(self.conversation, time.time_ns(), key, value))

    def close(self) -> bool:
        """Both sides."""
        return all(self._sink.put(Closed(self.conversation, time.time_ns(), sender)) for sender in Sender)


def capture_files(directory: Path) -> list[Path]:
    """Return the files of a recording in order, without other files of the directory."""
    return sorted(path for path in directory.glob("penstock-*.pcapng*"))


def read_file(path: Path, *, whole: bool = True) -> list[CaptureEvent]:
    """Return the events of a file, plain or compressed. `whole`: it must not be damaged."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    reader = CaptureReader()
    events = events_of(data, reader=reader)
    assert not whole or reader.damage is None, reader.damage
    return events


def check_bytes(events: Iterable[CaptureEvent]) -> None:
    """Check that every byte is at its place."""
    for event in events:
        if isinstance(event, Chunk):
            wanted = said(event.conversation.number, event.sender, event.offset, len(event.data))
            assert bytes(event.data) == wanted, (event.conversation.number, event.sender, event.offset)


def spans(events: Iterable[CaptureEvent], sender: Sender = Sender.CLIENT) -> dict[int, list[tuple[int, int]]]:
    """For each conversation the places that were recorded of a side, from and to; adjacent ones are joined."""
    found: dict[int, list[tuple[int, int]]] = {}
    for event in events:
        places = found.setdefault(event.conversation.number, [])
        if isinstance(event, Chunk) and event.sender is sender and event.data:
            begin, end = event.offset, event.offset + len(event.data)
            if places and places[-1][1] == begin:
                places[-1] = (places[-1][0], end)
            else:
                places.append((begin, end))
    return found


def given_up(events: Iterable[CaptureEvent]) -> list[int]:
    """Conversations of which the recording says that nothing follows."""
    return [event.conversation.number for event in events if isinstance(event, Lost) and event.length == 0]


def tshark_warnings(path: Path) -> list[str]:
    """Return tshark's complaints about a file: malformed packets, gaps, duplicates. Skips the test if tshark is
    missing.

    A packet that reports a loss and carries nothing else is not a complaint.
    """
    program = need("tshark")
    odd = "_ws.malformed or (tcp.analysis.flags and not tcp.analysis.keep_alive)"
    # A gateway's port may be one that Wireshark knows as another protocol's, so nothing above TCP is dissected.
    as_data = ("-d", "tcp.port==1-65535,data")
    command = [
        program,
        "-r",
        str(path),
        *as_data,
        "-Y",
        odd,
        "-T",
        "fields",
        "-e",
        "frame.number",
        "-e",
        "_ws.expert.message",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 2), done.stderr  # 2: the file is damaged, which the next line tells
    damaged = [line for line in done.stderr.splitlines() if "tshark: The file" in line]
    return [line for line in done.stdout.splitlines() if " lost=" not in line] + damaged
