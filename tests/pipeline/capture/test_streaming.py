"""Micro-batches over a directory that is recorded into: each row once, also across files."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
import zstandard
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from support.captures import NOW_NS, s3p_talk, written
from support.captures.small_recording import Clients, small_recording
from support.captures.tables import Stream, bag, read

from penstock.capture.pcapng import CaptureEvent, CaptureWriter
from penstock_spark.capture import decoding as remembered
from penstock_spark.capture.decoding import Survey
from penstock_spark.capture.files import FileInfo, Unreadable
from penstock_spark.schemas import CAPTURE_TABLES

TABLES = sorted(CAPTURE_TABLES)


def name(number: int) -> str:
    return f"penstock-20261121T21411{number}.000000Z-{number:06}.pcapng"


def some(*numbers: int) -> list[CaptureEvent]:
    """One conversation whose acknowledgements come after other things were said."""
    return [event for number in numbers for event in s3p_talk(number, rounds=6, start_ns=NOW_NS + number)]


def files(directory: Path, events: list[CaptureEvent], *cuts: int) -> list[Path]:
    """One recording, cut into files before these events."""
    writer: CaptureWriter | None = None
    paths = []
    for number, (begin, end) in enumerate(zip((0, *cuts), (*cuts, len(events)), strict=True), 1):
        writer = CaptureWriter("penstock test", writer)
        path = directory / name(number)
        path.write_bytes(written(events[begin:end], writer))
        paths.append(path)
    return paths


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("most", "remembers"), [(1, True), (5, True), (5, False), (1000, True)])
def test_each_row_comes_once(
    rotated: Path, table: str, most: int, remembers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches together are the table, also where a batch ends amid exchanges; whether a task finds what an earlier
    one remembers, or not."""
    monkeypatch.setattr(remembered, "MOST", 8 if remembers else 0)
    stream = Stream(rotated, table, max_files_per_batch=most, groups=1)
    batches = stream.rest()
    count = len(list(rotated.iterdir()))
    assert count > 10 and len(batches) >= count // most
    # A request whose route stands in a file that was not there yet has none.
    without = ["route"] if table == "messages" else []
    assert sum((bag(batch, without) for batch in batches), Counter()) == bag(read(rotated, table), without)


@pytest.mark.parametrize("table", TABLES)
def test_cut_between_any_two_events(tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are appended in one file and acknowledged in the next; unacknowledged ones come at the end of their
    conversation, or of the recording.
    """
    events = some(1, 2)[:-5]
    whole = tmp_path / "whole"
    whole.mkdir()
    files(whole, events)
    expected = bag(read(whole, table), without=["file"])
    assert table != "records" or any("'acknowledged': False" in row for row in expected)
    for cut in range(1, len(events)):
        monkeypatch.setattr(remembered, "MOST", cut % 2)
        directory = tmp_path / str(cut)
        directory.mkdir()
        files(directory, events, cut)
        found = [row for batch in Stream(directory, table, max_files_per_batch=1).rest() for row in batch]
        # Notes are said again in a new file, and take time of their own there.
        assert bag(found, without=["file"]) == expected, cut


def test_while_a_real_gateway_records(tmp_path: Path) -> None:
    """The file that is written is not read before it is complete."""
    streams: dict[str, Stream] = {}
    found: dict[str, list[list[dict[str, object]]]] = {table: [] for table in TABLES}

    def say(clients: Clients) -> None:
        streams.update({table: Stream(clients.recordings, table, settle_seconds=60) for table in TABLES})
        for _ in range(4):
            clients.s3p(20)
            clients.sessions(4)
            for table, stream in streams.items():
                found[table] += stream.rest()

    directory = small_recording(tmp_path, say, rotate_bytes=20_000)
    for path in directory.iterdir():  # left alone for long
        os.utime(path, (0, 0))
    for table, stream in streams.items():
        assert found[table], "something was read meanwhile"
        found[table] += stream.rest()
        without = ["route"] if table == "messages" else []
        together = sum((bag(batch, without) for batch in found[table]), Counter())
        assert together == bag(read(directory, table), without)


@pytest.mark.parametrize("table", TABLES)
def test_a_batch_can_be_read_again(rotated: Path, table: str) -> None:
    """Offsets define a batch: a task that is repeated gives the same rows, whatever was read since."""
    stream = Stream(rotated, table, max_files_per_batch=6, groups=2)
    stream.batch()
    start = stream.offset
    second, end = stream.batch(), stream.offset
    stream.rest()
    assert second and stream.between(start, end) == second


def test_a_file_that_is_written_is_left_alone(tmp_path: Path) -> None:
    """A recorder has it locked; it is read once the next file has begun or the lock is released."""
    events = some(1)
    first, second = files(tmp_path, events, 6)
    later = second.rename(tmp_path / "later")
    stream = Stream(tmp_path, "records")
    with first.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert stream.rest() == []
        later.rename(second)
        with second.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            (batch,) = stream.rest()
            assert len(batch) == 2
        (batch,) = stream.rest()
        assert len(batch) == 4
    assert stream.rest() == []


def test_a_file_without_anything_says_nothing_of_whose_it_is(tmp_path: Path) -> None:
    """Two gateways may write into one directory: another one's new file does not end this one's."""
    first, second = files(tmp_path, some(1), 6)
    second.write_bytes(written([], CaptureWriter("x")))
    stream = Stream(tmp_path, "records")
    with first.open("rb") as held, second.open("rb") as other:
        fcntl.flock(held, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX)
        assert stream.rest() == []


def test_a_recording_is_over_when_it_was_left_alone(tmp_path: Path) -> None:
    """Only then unacknowledged appends are reported; files that come later after all cause no duplicates."""
    first, second = files(tmp_path, some(1)[:6], 5)  # the second append is not acknowledged in the first file
    later = second.rename(tmp_path / "later")
    stream = Stream(tmp_path, "records", settle_seconds=1000)
    (batch,) = stream.rest()
    assert [row["acknowledged"] for row in batch] == [True]
    old = first.stat().st_mtime - 2000
    os.utime(first, (old, old))
    (batch,) = stream.rest()
    assert [row["acknowledged"] for row in batch] == [False]
    assert stream.rest() == []
    later.rename(second)
    assert [row for batch in stream.rest() for row in batch] == []


def test_compressed_since(tmp_path: Path) -> None:
    """It is the same file by another name."""
    (path,) = files(tmp_path, some(1))
    stream = Stream(tmp_path, "records")
    (batch,) = stream.rest()
    assert len(batch) == 6
    path.with_suffix(".pcapng.zst").write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    assert stream.rest() == []
    assert {row["file"] for row in batch} == {row["file"] for row in read(tmp_path, "records")} == {str(path)}


def test_what_was_deleted_meanwhile_was_not_recorded(tmp_path: Path) -> None:
    first, second, _third = files(tmp_path, some(1), 6, 10)
    stream = Stream(tmp_path, "records", max_files_per_batch=1)
    assert len(stream.batch()) == 2
    first.unlink()
    assert len(stream.batch()) == 2
    second.unlink()
    (batch,) = stream.rest()
    assert len(batch) == 2


def test_available_now(tmp_path: Path) -> None:
    """Files that come after the query began are left to the next one; the limit on files holds all the same."""
    _, second, third = files(tmp_path, some(1), 6, 10)
    later = third.rename(tmp_path / "later")
    stream = Stream(tmp_path, "records", max_files_per_batch=1)
    assert stream.reader.getDefaultReadLimit() == ReadMaxFiles(1)
    assert Stream(tmp_path, "records").reader.getDefaultReadLimit() == ReadAllAvailable()
    stream.reader.prepareForTriggerAvailableNow()
    later.rename(third)
    assert [len(batch) for batch in stream.rest()] == [2, 2]
    stream.reader.prepareForTriggerAvailableNow()
    assert [len(batch) for batch in stream.rest()] == [2]
    assert second.exists()


def test_other_programs_files_are_read_when_they_are_old(tmp_path: Path) -> None:
    path = tmp_path / "tcpdump.pcapng"
    path.write_bytes(written(some(1)))
    assert Stream(tmp_path, "records", settle_seconds=1000).rest() == []
    (batch,) = Stream(tmp_path, "records").rest()
    assert len(batch) == 6


def test_directories_may_still_be_empty_and_must_be_there(tmp_path: Path) -> None:
    stream = Stream(tmp_path, "records")
    assert stream.rest() == []
    files(tmp_path, some(1))
    assert len(stream.rest()) == 1
    shutil.rmtree(tmp_path)
    with pytest.raises(Unreadable, match="no such file"):
        stream.rest()


def test_checkpoints_of_other_versions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="version 7"):
        Stream(tmp_path, "records").between({"version": 7}, {"version": 7})


def test_earlier_files_are_read_once_where_they_are_remembered(rotated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that decoded them; any other one reads them again."""
    looked: list[str] = []
    look = Survey.look

    def counted(self: Survey, place: FileInfo, *, new: bool) -> None:
        looked.append(place.name)
        look(self, place, new=new)

    monkeypatch.setattr(Survey, "look", counted)
    count = len(list(rotated.iterdir()))
    stream = Stream(rotated, "records", max_files_per_batch=2, groups=1)
    stream.rest()
    assert len(looked) == count
    monkeypatch.setattr(remembered, "MOST", 0)
    again = Stream(rotated, "records", max_files_per_batch=2, groups=1)
    again.rest()
    assert len(looked) > 3 * count
