"""`kill -9` while a process records: files open in tshark, and hold all that was flushed."""

import random
import select
import subprocess
import sys
import time
from pathlib import Path

from support.captures import writer as capture_writer
from support.captures.recording import capture_files, check_bytes, read_file, spans
from support.peers import need
from support.rounds import each_number_of_rounds

from penstock.capture.pcapng import CaptureEvent, Sender
from penstock.recorder.files import FileRecording
from penstock.recorder.settings import FileCompression, FileSettings


def record_and_kill(directory: Path, dice: random.Random) -> list[int]:
    """Run a writer, kill it at a random time after its first flush, and return the numbers that it last reported as
    flushed.
    """
    command = [sys.executable, capture_writer.__file__, str(directory)]
    environment = {"PYTHONPATH": str(Path(capture_writer.__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], 120)
            assert ready, "the writer says nothing"
            end = time.monotonic() + dice.uniform(0.0, 0.4)
            output = bytearray()
            while (left := end - time.monotonic()) > 0:
                if select.select([process.stdout], [], [], left)[0]:
                    piece = process.stdout.read1(65536)
                    assert piece, "the writer ended by itself"
                    output += piece
        finally:
            process.kill()
        output += process.stdout.read()
    lines = bytes(output).split(b"\n")[:-1]  # the last line may be incomplete
    return [int(number) for number in lines[-1].split()]


def opened_by_tshark(path: Path) -> None:
    """At the most it may say that the file ends in the middle of a packet."""
    program = need("tshark")
    command = [program, "-r", str(path), "-d", "tcp.port==8080,data", "-Y", "tcp.analysis.flags or _ws.malformed"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or "cut short in the middle of a packet" in done.stderr, done.stderr
    assert not done.stdout


@each_number_of_rounds
def test_kill_9_leaves_files_that_can_be_read(tmp_path: Path, rounds: int) -> None:
    """On a machine that is busy otherwise, more rounds write enough."""
    dice = random.Random(20261121)
    number = files = flushed = 0
    while number < rounds or files <= 2 * rounds or flushed <= 5_000_000 * rounds:
        assert number < 20 * rounds, "too little was written for this to mean anything"
        directory = tmp_path / str(number)
        told = record_and_kill(directory, dice)
        paths = capture_files(directory)
        plain = [path for path in paths if path.suffix == ".pcapng"]
        assert plain, "the one being written is plain"
        opened_by_tshark(plain[-1])
        check_files(paths, told, plain[-1].stem)
        number, files, flushed = number + 1, files + len(paths), flushed + sum(told)
    compressed_at_the_next_start(directory, paths, told, plain[-1].stem)


def check_files(paths: list[Path], told: list[int], cut: str) -> None:
    """Whole events only, without a gap, as far as was told or farther. `cut`: the one that may end in a block."""
    events: list[CaptureEvent] = []
    for path in _once_each(paths):
        events += read_file(path, whole=not path.name.startswith(cut))
    check_bytes(events)
    places = spans(events)
    assert [len(places[number]) for number in range(capture_writer.CONVERSATIONS)] == [1] * len(told)
    for number, offset in enumerate(told):
        assert places[number][0][0] == 0 and places[number][0][1] >= offset
    assert all(len(one) == 1 for one in spans(events, Sender.SERVER).values())


def _once_each(paths: list[Path]) -> list[Path]:
    """A file that was just compressed may be there as it was, too."""
    return [path for path in paths if path.with_suffix(".pcapng.zst") not in paths or path.suffix == ".zst"]


def compressed_at_the_next_start(directory: Path, paths: list[Path], told: list[int], cut: str) -> None:
    """Check that the next start compresses all files that were left, without loss. It deletes one that is empty,
    because the process was killed between the file's creation and its first block.
    """
    written = [path for path in _once_each(paths) if path.stat().st_size]
    recorded = FileRecording(FileSettings(directory=directory, compress=FileCompression.ZSTD, keep_bytes=None))
    recorded.start()
    assert recorded.settle(60) and recorded.close()
    found = capture_files(directory)
    assert {path.name for path in directory.iterdir()} == {path.name for path in found}
    assert all(path.suffix == ".zst" for path in found)
    assert len(found) == len(written) + 1
    check_files(found, told, cut)
