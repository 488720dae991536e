"""A disk that is full or fails: traffic goes on, one error, whole files, and the recording comes back."""

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.captures.recording import Talk, capture_files, check_bytes, read_file, spans, tshark_warnings
from support.store.disks import small_file_system

from penstock.capture.pcapng import CaptureEvent, Sender
from penstock.model.limits import KIB, MIB
from penstock.recorder import files
from penstock.recorder.files import FileRecording
from penstock.recorder.settings import FileSettings
from penstock.recorder.status import RecordingState

NO_ROOM = "No space left on device"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    with small_file_system(tmp_path / "disk", 12) as place:
        yield place


def checked(directory: Path) -> list[CaptureEvent]:
    """The events of all files, which are whole."""
    events = [event for path in capture_files(directory) for event in read_file(path)]
    check_bytes(events)
    return events


def start(settings: FileSettings) -> FileRecording:
    recorded = FileRecording(settings)
    recorded.start()
    return recorded


def test_a_full_disk_suspends_the_recording_until_there_is_room(small_disk: Path) -> None:
    filler = small_disk / "somebody else's"
    filler.write_bytes(bytes(6 * MIB))
    with capture_logs() as lines:
        recorded = start(FileSettings(directory=small_disk, rotate_bytes=2 * MIB, retry_seconds=3600.0))
        talk, other = Talk(recorded, 1), Talk(recorded, 2)
        assert talk.open() and other.open() and other.say(1000)
        while recorded.status().state is RecordingState.RECORDING:
            talk.say(300 * KIB)
            recorded.flush()
        status = recorded.status()
        assert (status.state, status.last_error, status.file) == (RecordingState.SUSPENDED, NO_ROOM, None)
        assert status.queue_bytes == 0 and status.dropped == 2
        generation = recorded.generation
        assert not talk.say(1) and not other.say(1) and not talk.open(continued=True) and not Talk(recorded, 3).open()
        before = capture_files(small_disk)
        recorded.rotate()
        assert recorded.flush()
        assert recorded.status().state is RecordingState.SUSPENDED and recorded.generation == generation
        assert capture_files(small_disk) == before, "a try left a file"
        filler.unlink()
        recorded.rotate()
        assert recorded.flush()
        assert recorded.status().state is RecordingState.RECORDING and recorded.generation == generation + 1
        assert not talk.say(1)
        gap = talk.offsets[Sender.CLIENT]
        assert talk.open(continued=True) and talk.say(500 * KIB)
        assert recorded.close()
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("error", "recording_suspended"),
        ("warning", "recording_resumed"),
    ]
    assert lines[0]["error"] == NO_ROOM and lines[0]["conversations"] == 2
    first, second = spans(checked(small_disk))[1]
    assert first[0] == 0 and first[1] >= 4 * MIB
    assert second == (gap, gap + 500 * KIB)
    assert [tshark_warnings(path) for path in capture_files(small_disk)] == [[]] * recorded.status().files


def test_a_full_disk_is_tried_again_without_being_asked(small_disk: Path) -> None:
    filler = small_disk / "somebody else's"
    filler.write_bytes(bytes(10 * MIB))
    recorded = start(FileSettings(directory=small_disk, retry_seconds=0.01))
    talk = Talk(recorded, 1)
    talk.open()
    while recorded.status().state is RecordingState.RECORDING:
        talk.say(300 * KIB)
        recorded.flush()
    filler.unlink()
    while recorded.status().state is RecordingState.SUSPENDED:  # the test's own deadline is what ends this
        recorded.flush()
    assert talk.open(continued=True) and talk.say(1000)
    assert recorded.close()
    assert len(spans(checked(small_disk))[1]) == 2


def test_a_disk_that_is_full_at_the_next_file(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = start(FileSettings(directory=small_disk, retry_seconds=3600.0))
    talk = Talk(recorded, 1)
    assert talk.open() and talk.say(1000) and recorded.flush()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", _failing(errno.EDQUOT))
        recorded.rotate()
        assert recorded.flush()
        assert recorded.status().last_error == "Disk quota exceeded"
    recorded.rotate()
    assert recorded.flush() and talk.open(continued=True) and talk.say(10)
    assert recorded.close()
    assert spans(checked(small_disk))[1] == [(0, 1010)]


def _failing(number: int) -> object:
    opened = os.open

    def failing(path: object, flags: int, *rest: object, **more: object) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return opened(path, flags, *rest, **more)  # type: ignore[arg-type]

    return failing


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EDQUOT, errno.ENOSPC])
def test_a_write_that_fails_in_the_middle_ends_the_file_with_a_whole_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    writev, room = os.writev, [250_000]

    def filling(held: int, pieces: list[bytes]) -> int:
        """Write until the room is used up, at most 70 kB at once."""
        data = b"".join(pieces)[: min(70_000, room[0])]
        if not data:
            raise OSError(number, os.strerror(number))
        room[0] -= len(data)
        return os.write(held, data)

    with capture_logs() as lines:
        recorded = start(FileSettings(directory=tmp_path, retry_seconds=3600.0))
        talk = Talk(recorded, 1)
        assert talk.open() and recorded.flush()
        monkeypatch.setattr(os, "writev", filling)
        for _ in range(30):
            talk.say(20_000)
        assert recorded.flush()
        assert recorded.status().state is RecordingState.SUSPENDED
        monkeypatch.setattr(os, "writev", writev)
        assert recorded.close()
    assert [line["error"] for line in lines] == [os.strerror(number)]
    assert spans(checked(tmp_path))[1] == [(0, 240_000)], "all that fits, and nothing more"
    assert sum(path.stat().st_size for path in capture_files(tmp_path)) == recorded.status().bytes


def test_writes_that_take_a_part_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([1, 7, 100, 4096, 65_537] * 100_000)
    calls = []

    def short(held: int, pieces: list[bytes]) -> int:
        assert len(pieces) <= 1024
        calls.append(len(pieces))
        return os.write(held, b"".join(pieces)[: next(sizes)])

    monkeypatch.setattr(os, "writev", short)
    recorded = start(FileSettings(directory=tmp_path))
    talk = Talk(recorded, 1)
    talk.open()
    for size in [1, 10, 100, 1000, 10_000, 100_000] * 3:
        talk.say(size)
    for _ in range(600):
        talk.say(3)
    assert recorded.close()
    assert spans(checked(tmp_path))[1] == [(0, 333_333 + 1800)]
    assert max(calls) > 500


def test_a_disk_that_takes_nothing_and_says_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = start(FileSettings(directory=tmp_path))
    monkeypatch.setattr(os, "writev", lambda _held, _pieces: 0)
    Talk(recorded, 1).open()
    assert recorded.flush()
    assert recorded.status().last_error == "the disk took no bytes"
    recorded.close()


def test_a_limit_of_the_process_is_like_a_full_disk(tmp_path: Path) -> None:
    recorded = start(FileSettings(directory=tmp_path, retry_seconds=3600.0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    talk = Talk(recorded, 1)
    talk.open()
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        for _ in range(20):
            talk.say(20_000)
        assert recorded.flush()
        assert recorded.status().last_error == "File too large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    recorded.rotate()
    assert recorded.flush()
    assert recorded.status().state is RecordingState.RECORDING
    assert recorded.close()
    assert spans(checked(tmp_path))[1] == [(0, 280_000)]


@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_is_deleted_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(files, "_LOOK_SECONDS", 0.0)
    directory = tmp_path / "captures"
    with capture_logs() as lines:
        recorded = start(FileSettings(directory=directory))
        talk = Talk(recorded, 1)
        assert talk.open() and talk.say(1000) and recorded.flush()
        if what == "directory":
            shutil.rmtree(directory)
        else:
            capture_files(directory)[0].unlink()
        assert talk.say(500)
        assert recorded.flush() and recorded.generation == 2
        assert recorded.close()
    assert [line["event"] for line in lines] == ["recording_file_missing"]
    assert spans(checked(directory))[1] == [(1000, 1500)]


def test_a_directory_that_cannot_be_made_again_suspends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LOOK_SECONDS", 0.0)
    directory = tmp_path / "captures"
    recorded = start(FileSettings(directory=directory, retry_seconds=3600.0))
    talk = Talk(recorded, 1)
    talk.open(), recorded.flush()
    shutil.rmtree(directory)
    directory.write_text("in the way")
    talk.say(1)
    assert recorded.flush()
    assert recorded.status().state is RecordingState.SUSPENDED
    directory.unlink()
    recorded.rotate()
    assert recorded.flush() and talk.open(continued=True)
    assert recorded.close()
    assert len(capture_files(directory)) == 1


def test_a_defect_of_ours_is_logged_with_its_place_and_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_anything: object) -> None:
        raise ZeroDivisionError("a defect")

    with capture_logs() as lines:
        recorded = start(FileSettings(directory=tmp_path, retry_seconds=3600.0))
        talk = Talk(recorded, 1)
        assert talk.open() and talk.say(10) and recorded.flush()
        with monkeypatch.context() as patched:
            patched.setattr(files.CaptureWriter, "encode", broken)
            talk.say(10)
            assert recorded.flush()
        assert not talk.say(10)
        recorded.rotate()
        assert recorded.flush() and talk.open(continued=True) and talk.say(5)
        assert recorded.close()
    assert lines[0]["error"] == "a defect" and lines[0]["exc_info"] is True
    assert spans(checked(tmp_path))[1] == [(0, 10), (30, 35)]


def test_the_end_of_a_recording_whose_disk_is_full(small_disk: Path) -> None:
    recorded = start(FileSettings(directory=small_disk, flush_seconds=60.0, retry_seconds=3600.0))
    talk = Talk(recorded, 1)
    talk.open()
    for _ in range(50):
        talk.say(300 * KIB)
    assert recorded.close()
    assert recorded.status().last_error == NO_ROOM
    ((begin, end),) = spans(checked(small_disk))[1]
    assert begin == 0 and end > 10 * MIB


def test_a_defect_of_the_thread_itself_ends_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs() as lines:
        recorded = start(FileSettings(directory=tmp_path))
        talk = Talk(recorded, 1)
        assert talk.open() and recorded.flush()
        monkeypatch.setattr(recorded._queue, "take", lambda: 1 / 0)
        talk.say(1)
        assert recorded.flush()
        assert recorded.status().state is RecordingState.STOPPED
        assert not talk.say(1)
        assert recorded.close()
    assert [line["event"] for line in lines] == ["recording_failed"]
    assert recorded.status().last_error == "division by zero"
