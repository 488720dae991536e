"""Discovery of files, and which of them are one recording."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.captures import s3p_talk, written
from support.captures.tables import bag, read

from penstock.capture.pcapng import CaptureEvent, Conversation
from penstock_spark.capture.files import NothingThere, Unreadable, find_captures, opened_file
from penstock_spark.capture.grouping import GROUP_BYTES, MOST, automatic, group_of
from penstock_spark.capture.recordings import RecordingFiles, recordings_of


def of_run(run: str, number: int = 1) -> bytes:
    """A file that this run of a gateway wrote."""
    events: list[CaptureEvent] = s3p_talk(number)
    one = replace(events[0].conversation, run=run)
    return written([replace(event, conversation=one) for event in events])


def place(directory: Path, name: str, data: bytes) -> None:
    (directory / name).write_bytes(data)


def told(directory: Path) -> list[tuple[str, ...]]:
    return [tuple(file.name for file in one.files) for one in recordings_of(find_captures([str(directory)]))]


def recorder(prefix: str, second: int, number: int) -> str:
    return f"{prefix}-20261121T2141{second:02}.000000Z-{number:06}.pcapng"


def test_runs_of_gateways_are_recordings(tmp_path: Path) -> None:
    """Two that write into one directory at once, in turns; and files in which nothing was recorded yet."""
    a1, b1, a2, b2, b3 = (recorder("penstock", at, number) for at, number in enumerate((1, 1, 2, 2, 3), 10))
    for name, run in ((a1, "a"), (b1, "b"), (a2, "a"), (b2, "b"), (b3, "")):
        place(tmp_path, name, of_run(run) if run else written([]))
    place(tmp_path, recorder("penstock-1", 9, 1), of_run("a"))
    place(tmp_path, "tcpdump.pcap", of_run(""))
    assert sorted(told(tmp_path)) == sorted(
        [(a1, a2), (b1, b2, b3), (recorder("penstock-1", 9, 1),), ("tcpdump.pcap",)]
    )
    certain = [one.certain for one in recordings_of(find_captures([str(tmp_path)])) if b1 in str(one.files[0])]
    assert certain == [2], "whose the last one is is unknown"


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """A pipe that is opened waits for a writer, for ever."""
    place(tmp_path, "one.pcapng", of_run("a"))
    os.mkfifo(tmp_path / "pipe.pcapng")
    (tmp_path / "gone.pcapng").symlink_to("nowhere")
    for path in (tmp_path, tmp_path / "*.pcapng", tmp_path / "*"):
        assert [file.name for file in find_captures([str(path)])] == ["one.pcapng"]
    with pytest.raises(Unreadable, match="no such file"):
        find_captures([str(tmp_path / "pipe.pcapng")])


def test_names_and_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    place(tmp_path, "one.pcapng", of_run("a"))
    (found,) = find_captures([str(tmp_path)])
    with (
        pytest.raises(Unreadable, match=r"/proc/self/mem: .*Input/output error"),
        opened_file(found._replace(path="/proc/self/mem")),
    ):
        pass
    (tmp_path / "one.pcapng").rename(tmp_path / os.fsdecode(b"\xff.pcapng"))
    with pytest.raises(Unreadable, match="a name that is not UTF-8"):
        find_captures([str(tmp_path)])


def test_together(tmp_path: Path) -> None:
    """As `penstock show` reads a directory; keys are the same whatever is asked for."""
    for name, run in (("x.pcapng", "a"), ("y.pcapng", "b")):
        place(tmp_path, name, of_run(run))
    (one,) = recordings_of(find_captures([str(tmp_path)]), together=True)
    assert [file.name for file in one.files] == ["x.pcapng", "y.pcapng"]
    apart, joined = read(tmp_path, "records"), read(tmp_path, "records", together=True)
    assert bag(apart, ["file"]) == bag(joined, ["file"])
    assert {row["file"] for row in joined} == {str(tmp_path / "x.pcapng")}


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, directories, globs, URIs; files found twice are read once, hidden and other files are not."""
    inner = tmp_path / "a b" / "inner"
    inner.mkdir(parents=True)
    for path in (tmp_path / "1.pcapng", tmp_path / "a b" / "2.pcap", inner / "3.pcapng.zst", inner / "4.txt"):
        path.write_bytes(b"")
    (inner / ".5.pcapng").write_bytes(b"")
    monkeypatch.chdir(tmp_path)

    def names(*paths: str) -> list[str]:
        return [found.name for found in find_captures(paths)]

    assert names("1.pcapng") == names("./1.pcapng") == names(f"file:{tmp_path}/1.pcapng") == ["1.pcapng"]
    assert names(str(tmp_path), f"file://{tmp_path}", "*.pcapng") == ["1.pcapng"]
    assert names("a b") == names(f"file:///{str(tmp_path)[1:]}/a%20b") == ["2.pcap"]
    assert names("a b/*") == ["2.pcap", "3.pcapng.zst"], "a directory that matches gives its captures"
    assert names("*/inner/*.zst") == names(f"file:{tmp_path}/a?b/*/3*") == ["3.pcapng.zst"]
    assert names("a b/inner/4.txt") == ["4.txt"], "what is named is taken, whatever it is called"


def test_a_plain_file_beside_its_compressed_one_counts(tmp_path: Path) -> None:
    for name in ("1.pcapng", "1.pcapng.zst", "2.pcapng.zst"):
        place(tmp_path, name, b"")
    assert [found.name for found in find_captures([str(tmp_path)])] == ["1.pcapng", "2.pcapng.zst"]


@pytest.mark.parametrize(
    ("path", "error", "why"),
    [
        ("absent.pcapng", Unreadable, "no such file"),
        ("", NothingThere, r"no captures \(\*\.pcapng"),
        ("*.pcap", NothingThere, "no file matches this glob"),
        ("gopher://there", Unreadable, "gopher://there: "),
    ],
)
def test_nothing_there(tmp_path: Path, path: str, error: type[Unreadable], why: str) -> None:
    with pytest.raises(error, match=why):
        find_captures([path if ":" in path else str(tmp_path / path)])


def test_larger_recordings_have_more_groups(tmp_path: Path) -> None:
    place(tmp_path, "1.pcapng.zst", b"x")
    (found,) = find_captures([str(tmp_path)])

    def groups(*sizes: int, name: str = "1.pcapng") -> int:
        files = tuple(found._replace(size=size, path=name) for size in sizes)
        return automatic(RecordingFiles("key", files))

    assert groups(1000) == groups(GROUP_BYTES, GROUP_BYTES // 2) == 1
    assert groups(GROUP_BYTES, GROUP_BYTES) == 2 and groups(10**12) == MOST
    assert groups(GROUP_BYTES, name="1.pcapng.zst") == 4


def test_groups_divide_conversations(tmp_path: Path) -> None:
    """Segment conversations stay with their server, since the rest of an event may be read over another connection."""
    one: Conversation = s3p_talk(1)[0].conversation
    many = [replace(one, number=number) for number in range(1000)]
    counts = [sum(group_of(each, 4) == group for each in many) for group in range(4)]
    assert sum(counts) == 1000 and min(counts) > 150
    for protocol in ("segment", ""):
        assert len({group_of(replace(each, protocol=protocol), 4) for each in many}) == 1
