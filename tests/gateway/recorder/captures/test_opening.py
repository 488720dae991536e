"""Captures of every kind as one run of events."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path

import pytest
import zstandard
from support.captures import conversation, s3p_talk, story, written

from penstock.capture.pcapng import CaptureWriter, Chunk, Closed, Opened, Sender
from penstock.recorder.captures.opening import STANDARD_INPUT, CaptureEvents, UnreadableCapture

EVENTS = s3p_talk(rounds=50)
FILE = written(EVENTS)


def two_files() -> tuple[bytes, bytes]:
    """One recording, cut amid its conversation."""
    writer = CaptureWriter("x")
    first = written(EVENTS[:40], writer)
    return first, written(EVENTS[40:], CaptureWriter("x", writer))


def whole(captures: CaptureEvents) -> dict[object, list[object]]:
    """Return the events of all conversations, independent of where files begin and end."""
    return story(event for event in captures if not isinstance(event, Opened))


EXPECTED = story(event for event in EVENTS if not isinstance(event, Opened))


@pytest.mark.parametrize("squeezed", [False, True])
def test_a_file(tmp_path: Path, squeezed: bool) -> None:
    """Compression is recognised by the file's first bytes, not by its name."""
    path = tmp_path / "recorded"
    path.write_bytes(zstandard.compress(FILE) if squeezed else FILE)
    read: list[int] = []
    captures = CaptureEvents([path], read.append)
    assert whole(captures) == EXPECTED
    assert captures.warnings == [] and captures.size == sum(read) == path.stat().st_size and not captures.live


@pytest.mark.parametrize("squeezed", [False, True])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, squeezed: bool) -> None:
    data = zstandard.compress(FILE) if squeezed else FILE
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    captures = CaptureEvents([STANDARD_INPUT])
    assert whole(captures) == EXPECTED
    assert captures.live and captures.size is None


def test_a_named_pipe(tmp_path: Path) -> None:
    """As in `penstock show <(ssh there cat recorded.pcapng)`; a pipe's size is unknown."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    captures = CaptureEvents([path])
    writing = threading.Thread(target=path.write_bytes, args=(FILE,))
    writing.start()
    assert captures.live and captures.size is None
    assert whole(captures) == EXPECTED
    writing.join()


def test_a_directory_is_one_recording(tmp_path: Path) -> None:
    """In the order of names, compressed ones among them; a conversation that goes on is the same object."""
    first, second = two_files()
    squeezed = zstandard.compress(first)
    (tmp_path / "a-2.pcapng").write_bytes(second)
    (tmp_path / "a-1.pcapng.zst").write_bytes(squeezed)
    (tmp_path / "a-3.pcapng").write_bytes(b"")  # begun, nothing written yet
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / ".a-1.pcapng.zst.partial").write_bytes(squeezed[:50])
    captures = CaptureEvents([tmp_path])
    events = list(captures)
    assert len({id(event.conversation) for event in events}) == 1
    assert story(event for event in events if not isinstance(event, Opened)) == EXPECTED
    assert [event.continued for event in events if isinstance(event, Opened)] == [False, True]
    assert [file.name for file in captures.files] == ["a-1.pcapng.zst", "a-2.pcapng", "a-3.pcapng"]
    assert captures.warnings == ["{}: this is not a capture: it is empty".format(tmp_path / "a-3.pcapng")]


def test_a_file_that_is_being_compressed_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.pcapng").write_bytes(FILE)
    (tmp_path / "a.pcapng.zst").write_bytes(zstandard.compress(FILE))
    assert whole(CaptureEvents([tmp_path])) == EXPECTED


def test_what_comes_after_damage(tmp_path: Path) -> None:
    """A file whose end is missing, as after `kill -9`: the next one is read, and what is missing is said."""
    one = conversation()
    writer = CaptureWriter("x")
    first = written([Opened(one, 1), Chunk(one, 2, Sender.CLIENT, 0, b"abc")], writer)
    lost = b"".join(writer.encode(Chunk(one, 3, Sender.CLIENT, 3, b"def")))
    second = written(
        [Chunk(one, 4, Sender.CLIENT, 6, b"ghi"), Closed(one, 5, Sender.CLIENT, True)], CaptureWriter("x", writer)
    )
    (tmp_path / "1.pcapng").write_bytes(first + lost[:-5])
    (tmp_path / "2.pcapng").write_bytes(second)
    captures = CaptureEvents([tmp_path / "1.pcapng", tmp_path / "2.pcapng"])
    (told,) = story(captures).values()
    assert told == [
        ("opened", 0, 0, False),
        (Sender.CLIENT, 0, b"abc"),
        ("opened", 6, 0, True),
        (Sender.CLIENT, 6, b"ghi"),
        ("closed", Sender.CLIENT, True),
    ]
    assert captures.warnings == [f"{tmp_path / '1.pcapng'}: the file ends in the middle of a block (byte {len(first)})"]


def test_a_directory_that_is_being_recorded_into(tmp_path: Path) -> None:
    """Files compressed or deleted since the directory was listed, and a file that a crash left full of zeros."""
    first, second = two_files()
    for name, content in (("1", first), ("2", b"gone"), ("3", bytes(5000)), ("4", second)):
        (tmp_path / f"{name}.pcapng").write_bytes(content)
    captures = CaptureEvents([tmp_path])
    (tmp_path / "1.pcapng").unlink()
    (tmp_path / "1.pcapng.zst").write_bytes(zstandard.compress(first))
    (tmp_path / "2.pcapng").unlink()
    assert whole(captures) == EXPECTED
    assert captures.warnings == [
        f"{tmp_path / '2.pcapng'}: No such file or directory",
        f"{tmp_path / '3.pcapng'}: this is not a capture: it begins neither like pcapng nor like pcap (byte 0)",
    ]
    with pytest.raises(UnreadableCapture):
        list(CaptureEvents([tmp_path / "3.pcapng"]))


def test_compression_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng.zst"
    big = written(s3p_talk(rounds=20_000))
    squeezed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(big))
    squeezed[-1] ^= 1
    path.write_bytes(squeezed)
    captures = CaptureEvents([path])
    assert sum(isinstance(event, Chunk) for event in captures) > 1000
    assert "compression is damaged" in captures.warnings[0]
    path.write_bytes(squeezed[:4] + b"nothing of the kind")
    with pytest.raises(UnreadableCapture, match="compression is damaged"):
        list(CaptureEvents([path]))


def test_compression_that_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng.zst"
    big = written(s3p_talk(rounds=20_000))
    path.write_bytes(zstandard.compress(big)[:-2000])
    captures = CaptureEvents([path])
    assert sum(isinstance(event, Chunk) for event in captures) > 1000
    assert "middle of a block" in captures.warnings[0]


def test_what_is_no_capture(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for content, words in (
        (b"<html>", "neither like pcapng nor like pcap"),
        (b"", "it is empty"),
        (b"x", "not a capture"),
    ):
        path.write_bytes(content)
        with pytest.raises(UnreadableCapture, match=words):
            list(CaptureEvents([path]))


def test_a_directory_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error, unlike an empty directory."""

    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UnreadableCapture, match="Permission denied"):
        CaptureEvents([tmp_path])


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableCapture, match="No such file"):
        list(CaptureEvents([tmp_path / "none.pcapng"]))
    with pytest.raises(UnreadableCapture, match="no captures"):
        CaptureEvents([tmp_path])
