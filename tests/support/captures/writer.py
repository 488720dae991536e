"""A program that records made-up talk until it is killed, and says what was flushed.

`python capture_writer.py DIRECTORY`. A line for each flush: how many bytes the client of each conversation had said
before it, one number for each. Conversations are numbered from 0; files are short, and compressed.
"""

import itertools
import sys
import threading
from pathlib import Path

from support.captures.recording import Talk

from penstock.capture.pcapng import Sender
from penstock.recorder.files import FileRecording
from penstock.recorder.settings import FileCompression, FileSettings, Priority

CONVERSATIONS = 5
SIZES = (1, 30, 700, 5000, 70_000)


def main(directory: Path) -> None:
    """Talk for ever; a thread flushes all the while, so that talk and flushes overlap."""
    settings = FileSettings(
        directory=directory,
        rotate_bytes=3_000_000,
        flush_seconds=0.001,
        compress=FileCompression.ZSTD,
        keep_bytes=None,
        priority=Priority.RECORDING,
    )
    recorded = FileRecording(settings)
    recorded.start()
    talks = [Talk(recorded, number) for number in range(CONVERSATIONS)]
    for talk in talks:
        assert talk.open() and talk.say(1) and talk.say(1, Sender.SERVER)
    threading.Thread(target=_flush, args=(recorded, talks), daemon=True).start()
    for size in itertools.cycle(SIZES):
        for talk in talks:
            assert talk.say(size) and talk.say(size // 2 + 1, Sender.SERVER)
        if recorded.status().queue_bytes > 16_000_000:
            recorded.flush()


def _flush(recorded: FileRecording, talks: list[Talk]) -> None:
    while True:
        said = [talk.offsets[Sender.CLIENT] for talk in talks]
        assert recorded.flush()
        print(*said, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
