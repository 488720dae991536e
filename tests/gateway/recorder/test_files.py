"""Recordings in files: contents, names, rotation, and permissions."""

import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.captures import notes
from support.captures.recording import Talk, capture_files, check_bytes, given_up, read_file, spans, tshark_warnings

from penstock.capture.pcapng import CaptureEvent, Chunk, Opened, Sender
from penstock.capture.redaction.rules import RedactionRules
from penstock.core.errors import CannotStart
from penstock.model.limits import KIB, MIB
from penstock.recorder.files import FileRecording
from penstock.recorder.settings import FileCompression, FileSettings, Sync
from penstock.recorder.status import RecordingState


@contextmanager
def recording(settings: FileSettings, rules: RedactionRules | None = None) -> Iterator[FileRecording]:
    recording = FileRecording(settings, rules)
    recording.start()
    try:
        yield recording
    finally:
        assert recording.close()


def all_events(directory: Path) -> list[CaptureEvent]:
    return [event for path in capture_files(directory) for event in read_file(path)]


def test_what_is_put_is_in_the_file(tmp_path: Path) -> None:
    with recording(FileSettings(directory=tmp_path)) as recorded:
        first, second = Talk(recorded, 1), Talk(recorded, 2)
        assert recorded.generation == 1
        assert first.open() and first.note("route", "all") and second.open()
        for size in (1, 10, 100_000, 3_000_000):
            assert first.say(size) and second.say(size // 2 + 1) and first.say(size, Sender.SERVER)
        assert first.close()
        assert recorded.flush()
        status = recorded.status()
        (path,) = capture_files(tmp_path)
        assert status.state is RecordingState.RECORDING and status.file == path
        assert status.bytes == path.stat().st_size > 7_000_000
        assert (status.files, status.conversations, status.dropped, status.queue_bytes) == (1, 2, 0, 0)
        assert status.events == 2 + 1 + 12 + 2 and status.last_error is None
    assert recorded.status().state is RecordingState.STOPPED and recorded.status().file is None
    events = read_file(path)
    check_bytes(events)
    assert spans(events) == {1: [(0, 3_100_011)], 2: [(0, 1_550_009)]}
    assert spans(events, Sender.SERVER)[1] == [(0, 3_100_011)]
    assert notes(events) == [(1, "route", "all")]
    assert tshark_warnings(path) == []


def test_what_was_put_before_the_end_is_in_the_file(tmp_path: Path) -> None:
    with recording(FileSettings(directory=tmp_path, flush_seconds=60.0)) as recorded:
        talk = Talk(recorded, 1)
        assert talk.open() and all(talk.say(10_000) for _ in range(1000))
    assert not talk.say(1), "after the end"
    assert spans(all_events(tmp_path))[1] == [(0, 10_000_000)]


def test_files_and_directories_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "deep"
    for umask in (0o000, 0o777):
        before = os.umask(umask)
        try:
            settings = FileSettings(directory=directory, rotate_bytes=10_000, compress=FileCompression.ZSTD)
            with recording(settings) as recorded:
                talk = Talk(recorded, 1)
                talk.open()
                talk.say(30_000)
                assert recorded.settle()
        finally:
            os.umask(before)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = capture_files(directory)
    assert {path.suffix for path in files} == {".zst"} and len(files) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


@pytest.mark.parametrize("prefix", ["", "a/b", "../a", ".hidden", "a b", "a\n"])
def test_names_stay_in_the_directory(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        FileSettings(directory=tmp_path, prefix=prefix)


def test_a_directory_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with recording(FileSettings(directory=tmp_path)):
        pass
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_names_sort_by_time_and_are_never_used_twice(tmp_path: Path) -> None:
    times = iter([5_000_000_000, 4_000_000_000, 4_000_000_000, 5_000_000_000])
    taken = tmp_path / "penstock-19700101T000005.000001Z-000002.pcapng"
    taken.write_text("somebody else's")
    recorded = FileRecording(FileSettings(directory=tmp_path), clock=lambda: next(times))
    recorded.start()
    talk = Talk(recorded, 1)
    talk.open()
    recorded.rotate()
    assert recorded.close()
    assert [path.name for path in capture_files(tmp_path)] == [
        "penstock-19700101T000005.000000Z-000001.pcapng",
        "penstock-19700101T000005.000001Z-000002.pcapng",
        "penstock-19700101T000005.000002Z-000002.pcapng",
    ]
    assert taken.read_text() == "somebody else's"


def test_names_tell_the_time_in_utc(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    with recording(FileSettings(directory=tmp_path, prefix="a.b-c")):
        pass
    (path,) = tmp_path.iterdir()
    found = re.fullmatch(r"a\.b-c-(\d{8}T\d{6}\.\d{6})Z-000001\.pcapng", path.name)
    assert found
    made = datetime.strptime(found[1], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
    assert before <= made <= datetime.now(UTC)


@pytest.mark.parametrize("kind", ["size", "age", "asked"])
def test_conversations_go_on_in_the_next_file(tmp_path: Path, kind: str) -> None:
    settings = {
        "size": FileSettings(directory=tmp_path, rotate_bytes=100_000),
        "age": FileSettings(directory=tmp_path, rotate_seconds=1e-9, rotate_bytes=None),
        "asked": FileSettings(directory=tmp_path),
    }[kind]
    with recording(settings) as recorded:
        talk, over = Talk(recorded, 1), Talk(recorded, 2)
        over.open(), over.say(100), over.close()
        talk.open(), talk.note("route", "all"), talk.say(5000, Sender.SERVER), talk.say(100_000)
        if kind == "asked":
            recorded.rotate()
        assert recorded.flush()
        assert recorded.generation == 2
        assert recorded.status().files == 2
        talk.say(50_000), talk.note("stream", "late")
    first, second = capture_files(tmp_path)[:2]
    assert spans(read_file(first)) == {1: [(0, 100_000)], 2: [(0, 100)]}
    events = read_file(second)
    check_bytes(events)
    (opened,) = [event for event in events if isinstance(event, Opened)]
    assert (opened.client_offset, opened.server_offset, opened.continued) == (100_000, 5000, True)
    assert spans(events) == {1: [(100_000, 150_000)]}
    assert notes(events) == [(1, "route", "all"), (1, "stream", "late")]
    assert tshark_warnings(first) == tshark_warnings(second) == []


def test_files_are_about_as_long_as_they_may_be(tmp_path: Path) -> None:
    with recording(FileSettings(directory=tmp_path, rotate_bytes=200_000)) as recorded:
        talk = Talk(recorded, 1)
        talk.open()
        assert all(talk.say(10_000) for _ in range(200))
    *files, _last = [path.stat().st_size for path in capture_files(tmp_path)]
    assert len(files) >= 9 and all(200_000 <= size < 220_000 for size in files)
    assert sum(end - begin for begin, end in spans(all_events(tmp_path))[1]) == 2_000_000


def test_a_file_in_which_nothing_was_recorded_is_not_ended(tmp_path: Path) -> None:
    with recording(FileSettings(directory=tmp_path, rotate_seconds=1e-9)) as recorded:
        for _ in range(3):
            recorded.rotate()
            assert recorded.flush()
        assert recorded.generation == 1
    assert len(capture_files(tmp_path)) == 1


def test_a_queue_that_is_full_drops_whole_conversations_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with capture_logs() as lines, recording(FileSettings(directory=tmp_path, queue_bytes=4 * MIB)) as recorded:
        small, large = [Talk(recorded, number) for number in range(5)], [Talk(recorded, 10), Talk(recorded, 11)]
        assert all(talk.open() for talk in small + large) and recorded.flush()
        with gate.closed():
            for _ in range(100):
                assert all(talk.say(2000) for talk in small)
                for talk in large:
                    talk.say(100 * KIB)
            assert recorded.status().queue_bytes <= 4 * MIB
            assert recorded.status().dropped == 2
        assert recorded.flush()
        assert not large[0].say(1) and small[0].say(1)
        recorded.rotate()
        assert recorded.flush()
        assert recorded.generation == 2
        assert large[0].open(continued=True) and large[0].say(500)
    first, second = capture_files(tmp_path)
    events = read_file(first)
    check_bytes(events)
    assert {number: spans(events)[number] for number in range(1, 5)} == {
        number: [(0, 200_000)] for number in range(1, 5)
    }
    assert sorted(given_up(events)) == [10, 11]
    assert spans(read_file(second))[10] == [(100 * 100 * KIB + 1, 100 * 100 * KIB + 501)]
    said = [line for line in lines if line["event"] == "recording_drops_conversations"]
    assert 1 <= len(said) <= 2 and sum(line["conversations"] for line in said) == 2
    assert tshark_warnings(first) == []


def test_what_was_dropped_may_come_back_once_it_is_calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing is written any more that could fill a file."""
    monkeypatch.setattr("penstock.recorder.recording._COOLDOWN_SECONDS", 0.05)
    gate = Gate(monkeypatch)
    with recording(FileSettings(directory=tmp_path, queue_bytes=1 * MIB)) as recorded:
        talk = Talk(recorded, 1)
        assert talk.open() and recorded.flush()
        with gate.closed():
            while talk.say(100 * KIB):
                pass
        generation = recorded.generation
        deadline = time.monotonic() + 30
        while recorded.generation == generation:
            assert time.monotonic() < deadline, "no file was begun"
            time.sleep(0.01)
        assert talk.open(continued=True) and talk.say(500)
    assert len(capture_files(tmp_path)) == 2
    assert spans(all_events(tmp_path))[1][-1][1] == talk.offsets[Sender.CLIENT]


class Gate:
    """A disk that hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self._open.set()
        writev = os.writev

        def waiting(held: int, pieces: list[bytes]) -> int:
            assert self._open.wait(60)
            return writev(held, pieces)

        monkeypatch.setattr(os, "writev", waiting)

    @contextmanager
    def closed(self) -> Iterator[None]:
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


def test_a_disk_that_hangs_keeps_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    recorded = FileRecording(FileSettings(directory=tmp_path))
    recorded.start()
    talk = Talk(recorded, 1)
    with gate.closed():
        talk.open()
        talk.say(2 * MIB)
        assert not recorded.flush(0.01)
        assert not recorded.close(0.01)
    recorded.close()
    assert spans(all_events(tmp_path))[1] == [(0, 2 * MIB)], "it came to itself later"


def test_a_process_whose_disk_hangs_ends(tmp_path: Path) -> None:
    program = """
import os, sys, threading
from pathlib import Path
from penstock.recorder.files import FileRecording
from penstock.recorder.settings import FileSettings
from support.captures.recording import Talk
recorded = FileRecording(FileSettings(directory=Path(sys.argv[1])))
recorded.start()
os.writev = lambda *_: threading.Event().wait()
talk = Talk(recorded, 1)
talk.open(), talk.say(100)
recorded.flush(0.01)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, timeout=30)
    assert done.returncode == 0


def test_a_place_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recorded = FileRecording(FileSettings(directory=tmp_path / "file"))
    with pytest.raises(CannotStart, match=r"cannot record to .*file: "):
        recorded.start()
    assert recorded.close()
    assert recorded.status().state is RecordingState.STOPPED


@pytest.mark.parametrize("sync", Sync)
def test_files_are_flushed_to_the_disk_when_they_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: Sync
) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _held, name=name: synced.append(name))
    with recording(FileSettings(directory=tmp_path, fsync=sync, fsync_seconds=1e-9)) as recorded:
        talk = Talk(recorded, 1)
        talk.open()
        assert recorded.flush()
        assert recorded.flush()
        assert set(synced) == ({"fdatasync"} if sync is Sync.INTERVAL else set())
        talk.say(100)
        recorded.rotate()
        assert recorded.settle()
        assert synced.count("fsync") == (0 if sync is Sync.NEVER else 1)
    assert synced.count("fsync") == (0 if sync is Sync.NEVER else 2)


def test_the_data_that_is_recorded_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    writev = os.writev

    def seen(held: int, pieces: list[bytes]) -> int:
        written.extend(pieces)
        return writev(held, pieces)

    monkeypatch.setattr(os, "writev", seen)
    with recording(FileSettings(directory=tmp_path)) as recorded:
        talk = Talk(recorded, 1)
        talk.open()
        data = bytes(range(256)) * 200
        assert recorded.put(Chunk(talk.conversation, 1, Sender.CLIENT, 0, data))
        assert recorded.flush()
    assert any(piece is data or (isinstance(piece, memoryview) and piece.obj is data) for piece in written)


def test_what_is_secret_is_blanked_before_it_is_written(tmp_path: Path) -> None:
    head = b"GET / HTTP/1.1\r\nhost: a\r\nauthorization: Bearer %b\r\n\r\n" % (b"very-secret" * 3)
    rules = RedactionRules()
    with recording(
        FileSettings(directory=tmp_path, rotate_bytes=1500, compress=FileCompression.ZSTD), rules
    ) as recorded:
        talk = Talk(recorded, 1)
        talk.open()
        for number in range(20):
            for offset in range(0, len(head), 7):  # a secret is cut as reads are, and by the end of a file
                data = head[offset : offset + 7]
                place = number * len(head) + offset
                assert recorded.put(Chunk(talk.conversation, number, Sender.CLIENT, place, data))
    files = capture_files(tmp_path)
    assert len(files) > 3
    events = all_events(tmp_path)
    told = b"".join(event.data for event in events if isinstance(event, Chunk))
    assert len(told) == 20 * len(head), "lengths stay"
    assert b"secret" not in told and told.count(b"authorization: ") == told.count(b"host: a") == 20


def test_what_is_held_back_is_written_when_the_recording_ends(tmp_path: Path) -> None:
    with recording(FileSettings(directory=tmp_path), RedactionRules()) as recorded:
        talk = Talk(recorded, 1)
        talk.open()
        data = b"GET / HTTP/1.1\r\nauthorization: Bea"
        assert recorded.put(Chunk(talk.conversation, 1, Sender.CLIENT, 0, data))
    told = b"".join(event.data for event in all_events(tmp_path) if isinstance(event, Chunk))
    assert len(told) == len(data) and told.startswith(b"GET / HTTP/1.1") and b"Bea" not in told


def test_a_full_queue_and_redaction_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes held back of a conversation that is dropped are freed, and its recording can begin again."""
    gate = Gate(monkeypatch)
    with recording(FileSettings(directory=tmp_path, queue_bytes=1 * MIB), RedactionRules()) as recorded:
        talk = Talk(recorded, 1)
        head = b"GET / HTTP/1.1\r\nauthorization: Bearer secret"
        assert talk.open() and recorded.put(Chunk(talk.conversation, 1, Sender.CLIENT, 0, head))
        assert recorded.flush()
        with gate.closed():
            while talk.say(100 * KIB):
                pass
        assert recorded.flush()
        recorded.rotate()
        assert recorded.flush()
        assert talk.open(continued=True) and talk.say(100)
    first, second = (read_file(path) for path in capture_files(tmp_path))
    assert given_up(first) == [1]
    assert not any(b"secret" in bytes(event.data) for event in first + second if isinstance(event, Chunk))
    assert [end - begin for begin, end in spans(second)[1]] == [100]
