"""Damaged captures: whole parts are read, damage is reported; files that are no captures are an error, or left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.captures import s2_talk, s3p_talk, written
from support.captures.commands import run
from support.captures.tables import bag, part_of, read, rows
from support.examples import examples

from penstock.capture.pcapng import CaptureWriter
from penstock_spark.capture.files import Unreadable
from penstock_spark.schemas import CAPTURE_TABLES

FILE = written([*s3p_talk(1, rounds=5), *s2_talk(2)])
TABLES = sorted(CAPTURE_TABLES)


@given(st.integers(4, len(FILE) - 1), st.booleans())
@examples(most=60)
def test_cut_at_any_byte(tmp_path_factory: pytest.TempPathFactory, cut: int, squeezed: bool) -> None:
    """As `penstock records` reads it, with the damage in each row."""
    path = tmp_path_factory.mktemp("cut") / "one.pcapng"
    data = FILE[:cut]
    path.write_bytes(zstandard.compress(data) if squeezed else data)
    done = run("records", path)
    assert done.exit_code == 0
    expected = [json.loads(line)["body"] for line in done.stdout.splitlines()]
    found = rows(part_of(path))
    assert [row["body"].decode() for row in found] == expected
    damage = [line.removeprefix("Warning: ") for line in done.stderr.splitlines()]
    assert {row["damage"] for row in found} <= {"; ".join(damage) or None}


def test_cut_amid_compressed_bytes(tmp_path: Path) -> None:
    path = tmp_path / "one.pcapng.zst"
    half = len(FILE) // 2
    path.write_bytes(zstandard.compress(FILE[:half]) + zstandard.compress(FILE[half:])[:-100])
    for table in TABLES:
        read(path, table)
    found = rows(part_of(path, table="connections"))
    assert found and all(str(path) in row["damage"] for row in found)


def test_altered_compressed_bytes(tmp_path: Path) -> None:
    """Messages before the damage are reported."""
    path = tmp_path / "one.pcapng.zst"
    squeezed = bytearray(zstandard.compress(FILE) + zstandard.compress(FILE))
    squeezed[len(squeezed) // 2 + 20] ^= 0xFF
    path.write_bytes(squeezed)
    found = rows(part_of(path))
    assert len(found) >= 5
    assert all("its compression is damaged" in row["damage"] for row in found)


def test_damage_of_one_file_and_what_follows(tmp_path: Path) -> None:
    """A conversation goes on in the next file, with a gap."""
    events = s3p_talk(1, rounds=20)
    writer = CaptureWriter("x")
    first = written(events[:22], writer)
    second = written(events[22:], CaptureWriter("x", writer))
    name = "penstock-20261121T21411{0}.000000Z-00000{0}.pcapng"
    (tmp_path / name.format(1)).write_bytes(first[:-30])
    (tmp_path / name.format(2)).write_bytes(second)
    found = rows(part_of(tmp_path))
    at = len(first) - len(last_block(first))
    damage = f"{tmp_path / name.format(1)}: the file ends in the middle of a block (byte {at})"
    assert {row["damage"] for row in found} == {damage}
    assert b"record 19" in {row["body"] for row in found}
    (one,) = rows(part_of(tmp_path, table="connections"))
    assert one["whole"] is False or one["lost_bytes"] == 0
    assert one["damage"] == found[0]["damage"]


def last_block(file: bytes) -> bytes:
    return file[-int.from_bytes(file[-4:], "little") :]


@pytest.mark.parametrize("content", [b"", b"no", b"this is no capture at all", zstandard.compress(b"nor is this one")])
def test_what_is_no_capture(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.pcapng"
    path.write_bytes(content)
    (tmp_path / "real.pcapng").write_bytes(FILE)
    for table in TABLES:
        with pytest.raises(Unreadable, match=r"notes\.pcapng: .*not a capture"):
            read(tmp_path, table)
        found = read(tmp_path, table, skip_unreadable=True)
        left_out = [row for row in found if row["file"] == str(path)]
        assert bag(row for row in found if row not in left_out) == bag(read(tmp_path / "real.pcapng", table))
        if table == "connections":
            ((_, damage),) = [(row["file"], row["damage"]) for row in left_out]
            assert "not a capture" in damage
            assert {name for name, value in left_out[0].items() if value is not None} == {"file", "damage"}
        else:
            assert left_out == []


def test_a_recorders_file_may_be_empty_yet(tmp_path: Path) -> None:
    (tmp_path / "penstock-20261121T214116.000000Z-000001.pcapng").write_bytes(b"")
    for table in TABLES:
        assert read(tmp_path, table) == []


def test_a_file_that_is_deleted_while_it_is_read(tmp_path: Path) -> None:
    """A recorder keeps a limited number of files: rows that are there are read, and the loss is reported."""
    path = tmp_path / "penstock-20261121T214116.000000Z-000001.pcapng"
    path.write_bytes(FILE)
    part = part_of(tmp_path)
    other = part.recording.files[0]._replace(path=str(tmp_path / "penstock-20261121T214115.000000Z-000001.pcapng"))
    recording = part.recording._replace(files=(other, *part.recording.files))
    found = rows(part_of(tmp_path, recording=recording))
    assert len(found) == 7 and {row["damage"] for row in found} == {f"{other}: the file was deleted meanwhile"}


def test_numbers_and_text_that_no_column_can_hold(tmp_path: Path) -> None:
    """Captures hold whatever peers said."""
    path = tmp_path / "one.pcapng"
    large = b"18446744073709551615"
    events = s2_talk(1)
    body = bytes(events[2].data).partition(b"\r\n\r\n")[2]
    for small in (b'"seq_num":5', b'"seq_num":7', b'"timestamp":9'):
        body = body.replace(small, small[:-1] + large)
    body = body.replace(large, b"18446744073709551613", 1)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    told = head + body
    path.write_bytes(written([*events[:2], replace(events[2], data=told)]))
    found = rows(part_of(path))
    assert [(row["seq_num"], row["timestamp"], row["acknowledged"]) for row in found] == [(None, None, True)] * 2
    messages = rows(part_of(path, table="messages"))
    assert "18446744073709551613" in messages[-1]["fields"]
