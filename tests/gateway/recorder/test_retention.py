"""Compression and retention of closed files, also of those that other processes left, and beside others."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zstandard
from structlog.testing import capture_logs
from support.captures.recording import Talk, capture_files, check_bytes, read_file, spans
from support.peers import need

from penstock.recorder import compression as squeezing
from penstock.recorder.files import FileRecording
from penstock.recorder.settings import FileCompression, FileSettings


def record(settings: FileSettings, files: int, number: int = 1) -> FileRecording:
    """Return a recording that has closed and processed `files` files of about 100 kB, and writes the next one."""
    recorded = FileRecording(settings)
    recorded.start()
    talk = Talk(recorded, number)
    assert talk.open()
    for _ in range(files):
        assert talk.say(100_000)
        recorded.rotate()
        assert recorded.settle()
    return recorded


def test_closed_files_are_compressed_and_hold_the_same(tmp_path: Path) -> None:
    recorded = record(FileSettings(directory=tmp_path, compress=FileCompression.ZSTD), 3)
    files = capture_files(tmp_path)
    assert [path.suffix for path in files] == [".zst"] * 3 + [".pcapng"]
    assert files[-1] == recorded.status().file
    assert recorded.close()
    assert [path.suffix for path in capture_files(tmp_path)] == [".zst"] * 4
    events = [event for path in capture_files(tmp_path) for event in read_file(path)]
    check_bytes(events)
    assert spans(events)[1] == [(0, 300_000)]
    assert len(list(tmp_path.iterdir())) == 4, "something else was left"


def test_tools_can_read_them(tmp_path: Path) -> None:
    plain, squeezed = tmp_path / "plain", tmp_path / "squeezed"
    for directory, compress in ((plain, FileCompression.NONE), (squeezed, FileCompression.ZSTD)):
        record(FileSettings(directory=directory, compress=compress), 1).close()
    (first, *_), (second, *_) = capture_files(plain), capture_files(squeezed)
    assert second.stat().st_size < first.stat().st_size
    program = need("zstd")
    done = subprocess.run([program, "-dc", str(second)], capture_output=True, check=True, timeout=30)
    assert len(done.stdout) == first.stat().st_size


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    recorded = record(FileSettings(directory=tmp_path, keep_files=3), 5)
    files = capture_files(tmp_path)
    assert [int(path.stem[-6:]) for path in files] == [4, 5, 6]
    assert files[-1] == recorded.status().file
    assert recorded.close()


def test_the_oldest_go_when_they_are_too_large(tmp_path: Path) -> None:
    settings = FileSettings(directory=tmp_path, keep_bytes=450_000, rotate_bytes=110_000)
    recorded = record(settings, 6)
    sizes = [path.stat().st_size for path in capture_files(tmp_path)]
    assert len(sizes) == 4, "three whole ones, and room for the one that is being written"
    assert sum(sizes) <= 450_000
    assert recorded.close()


def test_only_one_file_is_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    recorded = record(FileSettings(directory=tmp_path, keep_files=1, keep_bytes=1), 2)
    assert capture_files(tmp_path) == [recorded.status().file]
    assert recorded.close()


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    names = [
        "penstock-20201121T180501.123456Z-000001.pcapng.txt",
        "penstock-20201121T180501.123456Z-000001.pcap",
        "penstock-other-20201121T180501.123456Z-000001.pcapng",
        "other-20201121T180501.123456Z-000001.pcapng",
        "penstock-mine.pcapng",
        ".other-20201121T180501.123456Z-000001.pcapng.zst.partial",
    ]
    for name in names:
        (tmp_path / name).write_text(name)
    settings = FileSettings(directory=tmp_path, keep_files=1, compress=FileCompression.ZSTD)
    assert record(settings, 2).close()
    for name in names:
        assert (tmp_path / name).read_text() == name


def test_what_a_killed_process_left_is_compressed_and_counted(tmp_path: Path) -> None:
    left = tmp_path / "penstock-20201121T180501.123456Z-000001.pcapng"
    half = tmp_path / "penstock-20201121T180502.123456Z-000002.pcapng"
    partial = tmp_path / ".penstock-20201121T180502.123456Z-000002.pcapng.zst.partial"
    lost = tmp_path / ".penstock-20201121T180503.123456Z-000003.pcapng.zst.partial"
    for path in (left, half, partial, lost):
        path.write_bytes(b"not our business " * 100)
    recorded = record(FileSettings(directory=tmp_path, compress=FileCompression.ZSTD, keep_files=4), 0)
    assert recorded.settle()
    squeezed = left.with_suffix(".pcapng.zst"), half.with_suffix(".pcapng.zst")
    assert {path.name for path in tmp_path.iterdir()} == {
        *(path.name for path in squeezed),
        *(path.name for path in [recorded.status().file] if path),
    }
    assert recorded.close()
    again = record(FileSettings(directory=tmp_path, keep_files=2), 1)
    assert not any(path.exists() for path in squeezed)
    assert again.close()


def test_an_empty_file_is_deleted_and_not_compressed(tmp_path: Path) -> None:
    """It is empty from its creation until it is locked. A recording that loses it then begins another one."""
    empty = tmp_path / "penstock-20201121T180501.123456Z-000001.pcapng"
    empty.touch()
    assert record(FileSettings(directory=tmp_path, compress=FileCompression.ZSTD), 2).close()
    assert len(capture_files(tmp_path)) == 3, "the empty file is compressed, or still there"
    check_bytes(event for path in capture_files(tmp_path) for event in read_file(path))


def test_what_another_gateway_writes_is_left_alone(tmp_path: Path) -> None:
    """With locks as a process of its own has them."""
    path = tmp_path / "penstock-20201121T180501.123456Z-000001.pcapng"
    held = os.open(path, os.O_WRONLY | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.write(held, b"its beginning")
    settings = FileSettings(directory=tmp_path, compress=FileCompression.ZSTD, keep_files=1)
    assert record(settings, 2).close()
    assert path.read_bytes() == b"its beginning"
    os.close(held)
    assert record(settings, 0).close()
    assert not path.exists()


def test_two_recordings_in_one_directory(tmp_path: Path) -> None:
    settings = FileSettings(directory=tmp_path, compress=FileCompression.ZSTD, rotate_bytes=50_000)
    both = [FileRecording(settings, clock=lambda: 10**18) for _ in range(2)]
    for recorded in both:
        recorded.start()
    talks = [Talk(recorded, number) for number, recorded in enumerate(both)]
    for talk in talks:
        assert talk.open()
    for _ in range(40):
        for talk in talks:
            assert talk.say(10_000)
        assert all(recorded.flush() for recorded in both)
    assert all(recorded.close() for recorded in both)
    assert record(settings, 0).close(), "one of them may have left what the other had"
    events = [event for path in capture_files(tmp_path) for event in read_file(path)]
    check_bytes(events)
    for number in range(2):
        assert sum(end - begin for begin, end in spans(events)[number]) == 400_000


def test_a_disk_that_is_full_keeps_the_plain_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []

    def full(path: Path, held: int, **_options: object) -> None:
        tried.append(path)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("penstock.recorder.retention.squeeze", full)
    with capture_logs() as lines:
        recorded = record(FileSettings(directory=tmp_path, compress=FileCompression.ZSTD), 3)
        said = [line for line in lines if line["event"] == "retention_failed"]
        assert len(said) == 1 and "No space left" in said[0]["error"]
        assert len(set(tried)) == 1 and len(tried) >= 3, "after one that failed others need not be tried"
        monkeypatch.undo()
        recorded.rotate()
        assert recorded.close()
    assert [path.suffix for path in capture_files(tmp_path)] == [".zst"] * 4


def test_compression_that_fails_in_the_middle_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "penstock-20201121T180501.123456Z-000001.pcapng"
    path.write_bytes(os.urandom(3_000_000))
    content = path.read_bytes()
    write = os.write
    steps = iter(range(100))

    def filling(held: int, data: bytes) -> int:
        if next(steps) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(held, bytes(data[: len(data) // 2 + 1]))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", filling)
        held = os.open(path, os.O_RDONLY)
        with pytest.raises(OSError, match="No space"):
            squeezing.squeeze(path, held, sync=True, stop=lambda: False)
        assert [*tmp_path.iterdir()] == [path] and path.read_bytes() == content
        os.lseek(held, 0, os.SEEK_SET)
        with pytest.raises(squeezing.Interrupted):
            squeezing.squeeze(path, held, sync=True, stop=lambda: True)
        assert [*tmp_path.iterdir()] == [path] and path.read_bytes() == content
        os.lseek(held, 0, os.SEEK_SET)
        squeezing.squeeze(path, held, sync=True, stop=lambda: False)  # with writes that take a half each
        os.close(held)
    (squeezed,) = tmp_path.iterdir()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(squeezed.read_bytes()) == content


def test_where_there_are_no_locks_only_our_own_files_are_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(held: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    path = tmp_path / "penstock-20201121T180501.123456Z-000001.pcapng"
    path.write_text("perhaps a recorder writes it")
    recorded = record(FileSettings(directory=tmp_path, compress=FileCompression.ZSTD), 2)
    assert [one.suffix for one in capture_files(tmp_path)] == [".pcapng", ".zst", ".zst", ".pcapng"]
    assert recorded.close() and path.exists()


def test_a_name_that_another_gateway_takes_for_a_left_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the making of a file and its locking."""
    flock, held = fcntl.flock, []

    def taken(descriptor: int, operation: int) -> None:
        if not held:
            held.append(True)
            raise BlockingIOError
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", taken)
    recorded = FileRecording(FileSettings(directory=tmp_path))
    recorded.start()
    first, second = capture_files(tmp_path)
    assert recorded.status().file == second and first.stat().st_size == 0
    assert recorded.close()


def test_files_that_are_deleted_meanwhile_are_no_problem(tmp_path: Path) -> None:
    with capture_logs() as lines:
        recorded = record(FileSettings(directory=tmp_path, compress=FileCompression.ZSTD), 2)
        for path in capture_files(tmp_path)[:-1]:
            path.unlink()
        recorded.rotate()
        assert recorded.settle() and recorded.close()
    assert [line["event"] for line in lines] == []


def test_the_keeper_is_not_in_the_way(tmp_path: Path) -> None:
    """Its thread has a lower priority where threads have one."""
    if sys.platform != "linux":
        pytest.skip("threads have priorities of their own under Linux only")
    recorded = record(FileSettings(directory=tmp_path), 1)
    thread = next(one for one in threading.enumerate() if one.name == "penstock-captures")
    lowest = 19
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, thread.native_id or 0) == min(own + 10, lowest)
    assert recorded.close()
