"""Stream cuts with Pravega's Java client 0.13.0: groups between two of them, truncation, and parts read in batches."""

from __future__ import annotations

from itertools import chain

import pytest
from support.pravega.java import MAVEN_SECONDS, JavaPeer

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

SIZE = 8 + len("e00")
"""Bytes of each event in its segment."""
SECOND = 1 << 32
"""The part of a segment's id that stands for the second epoch of its stream."""


def numbered(first: int, after: int) -> list[str]:
    """The texts of events, all of the same length."""
    return [f"e{number:02}" for number in range(first, after)]


def write(java: JavaPeer, scope: str, stream: str, first: int, after: int, keys: int = 1) -> None:
    """Write these events, with as many routing keys."""
    java.ask("writer", "open", "w", scope, stream)
    for key in range(keys):
        java.ask("writer", "send", "w", f"key{key}", *numbered(first, after)[key::keys])
    java.ask("writer", "close", "w")


def read(java: JavaPeer, scope: str, group: str, most: int = 100, millis: int = 1500) -> list[str]:
    """Read with a new reader of a group until nothing comes for a while."""
    java.ask("reader", "open", f"{group}-reader", scope, group)
    found = java.ask("reader", "next", f"{group}-reader", millis, most)
    java.ask("reader", "close", f"{group}-reader")
    return found


def test_slices_of_two_streams(java: JavaPeer, java_scope: str) -> None:
    """Groups between any two of the positions of another group, which then goes back to the first of them."""
    java.ask("stream", java_scope, "one", 1)
    java.ask("stream", java_scope, "two", 2)
    write(java, java_scope, "one", 0, 20)
    write(java, java_scope, "two", 20, 40, keys=8)
    both = f"{java_scope}/one", f"{java_scope}/two"
    assert java.ask("rg", "create", "all", java_scope, "all", *both) == ["true"]
    slices, ends = [], []
    for number in range(4):
        slices.append(read(java, java_scope, "all", 10))
        ends.append(java.ask("rg", "cuts", "all", f"cut{number}"))
    assert sorted(chain(*slices)) == numbered(0, 40)
    assert [sum(int(end.split("=")[1]) for cut in cuts for end in cut.split(":")[1].split(",")) for cuts in ends] == [
        10 * SIZE * number for number in range(1, 5)
    ]
    for first in range(3):
        for last in range(first + 1, 4):
            name = f"from{first}to{last}"
            bounds = [f"{stream}@cut{first}@cut{last}" for stream in both]
            java.ask("rg", "create", name, java_scope, name, *bounds)
            *events, end = read(java, java_scope, name)
            assert sorted(events) == sorted(chain(*slices[first + 1 : last + 1]))
            assert end in ("none", "complete")
    java.ask("rg", "reset", "all", *(f"{stream}@cut0" for stream in both))
    *events, end = read(java, java_scope, "all")
    assert (sorted(events), end) == (sorted(chain(*slices[1:])), "none")


def test_a_group_that_ends_in_one_stream_goes_on_in_another(java: JavaPeer, java_scope: str) -> None:
    java.ask("stream", java_scope, "bounded", 1)
    java.ask("stream", java_scope, "open", 1)
    write(java, java_scope, "bounded", 0, 4)
    java.ask("rg", "create", "g", java_scope, "g", f"{java_scope}/bounded@-@0={2 * SIZE}", f"{java_scope}/open")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 10) == ["e00", "e01", "none"]
    write(java, java_scope, "open", 4, 6)
    write(java, java_scope, "bounded", 6, 8)
    assert java.ask("reader", "next", "r", 3000, 10) == ["e04", "e05", "none"]


def test_a_group_between_equal_cuts_reads_nothing(java: JavaPeer, java_scope: str) -> None:
    java.ask("stream", java_scope, "s", 1)
    write(java, java_scope, "s", 0, 2)
    java.ask("rg", "create", "g", java_scope, "g", f"{java_scope}/s@0={SIZE}@0={SIZE}")
    assert read(java, java_scope, "g")[-1] in ("none", "complete")
    assert java.ask("rg", "unread", "g") == ["0"]


def test_cuts_before_and_after_a_scale(java: JavaPeer, java_scope: str) -> None:
    """To the end of the segment that was split, then from there to inside of its successors."""
    java.ask("stream", java_scope, "s", 1)
    write(java, java_scope, "s", 0, 2)
    assert java.ask("scale", java_scope, "s", "0", "0.0-0.33,0.33-0.66,0.66-1.0") == ["true"]
    write(java, java_scope, "s", 2, 32, keys=30)
    split = f"0={2 * SIZE}"
    java.ask("rg", "create", "g", java_scope, "g", "refresh=0", f"{java_scope}/s@-@{split}")
    assert read(java, java_scope, "g")[:2] == numbered(0, 2)
    later = ",".join(f"{SECOND + number}={SIZE}" for number in (1, 2, 3))
    java.ask("rg", "reset", "g", "refresh=0", f"{java_scope}/s@{split}@{later}")
    java.ask("reader", "open", "q", java_scope, "g")
    assert java.ask("reader", "next", "q", 500) == ["none"], "successors are read after a checkpoint"
    java.ask("rg", "checkpoint", "g", "c")
    found = java.ask("reader", "next", "q", 3000, 10)
    assert found[0] == "checkpoint:c"
    assert len(events := [word for word in found if word.startswith("e")]) == 3
    assert set(events) < set(numbered(2, 32))


def test_reading_on_beyond_a_truncation(java: JavaPeer, java_scope: str) -> None:
    """A reader behind the new head does not notice; one that begins before it is told so, and begins there."""
    java.ask("stream", java_scope, "s", 1)
    write(java, java_scope, "s", 0, 4)
    java.ask("rg", "create", "g", java_scope, "g", "refresh=0", f"{java_scope}/s@0={SIZE}@0={2 * SIZE}")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 10)[0] == "e01"
    assert java.ask("admin", "truncate", java_scope, "s", f"0={2 * SIZE}") == ["true"]
    assert java.ask("reader", "next", "r", 1000)[0] in ("none", "complete")
    java.ask("rg", "reset", "g", "refresh=0", f"{java_scope}/s@0={SIZE}")
    assert java.ask("reader", "next", "r", 1000) == ["reinitialize"]
    assert read(java, java_scope, "g") == ["truncated", "e02", "e03", "none"]


def test_truncation_at_a_checkpoint_of_two_segments(java: JavaPeer, java_scope: str) -> None:
    """A reader in the midst of what is truncated is told so once for each segment, and reads all that is left."""
    java.ask("stream", java_scope, "s", 2)
    write(java, java_scope, "s", 0, 40, keys=8)
    java.ask("rg", "create", "late", java_scope, "late", f"{java_scope}/s")
    java.ask("reader", "open", "late", java_scope, "late")
    before = java.ask("reader", "next", "late", 5000, 2)
    java.ask("rg", "create", "g", java_scope, "g", "refresh=0", f"{java_scope}/s")
    read(java, java_scope, "g", 20)
    java.ask("rg", "checkpoint", "g", "c")
    java.ask("rg", "outcome", "c")
    assert java.ask("admin", "truncate", java_scope, "s", "c") == ["true"]
    head, tail, sealed = java.ask("admin", "info", java_scope, "s")
    assert sum(int(end.split("=")[1]) for end in head.split(",")) == 20 * SIZE
    assert sum(int(end.split("=")[1]) for end in tail.split(",")) == 40 * SIZE
    assert sealed == "false"
    *rest, end = read(java, java_scope, "g")
    assert (len(rest), end) == (20, "none")
    java.ask("rg", "create", "new", java_scope, "new", f"{java_scope}/s")
    *fresh, end = read(java, java_scope, "new")
    assert (sorted(fresh), end) == (sorted(rest), "none")
    *found, end = java.ask("reader", "next", "late", 5000, 50)
    assert end == "none"
    # What its buffer held when the stream was truncated is delivered all the same.
    assert set(rest) <= {word for word in before + found if word != "truncated"}


def test_a_writer_whose_segment_was_truncated_away(java: JavaPeer, java_scope: str) -> None:
    """It was opened before the segments were merged and goes on in their successor; readers begin there."""
    java.ask("stream", java_scope, "s", 1)
    assert java.ask("scale", java_scope, "s", "0", "0.0-0.5,0.5-1.0") == ["true"]
    java.ask("writer", "open", "before", java_scope, "s")
    java.ask("writer", "send", "before", "key0", "old")
    assert java.ask("scale", java_scope, "s", f"{SECOND + 1},{SECOND + 2}", "0.0-1.0") == ["true"]
    merged = 2 * SECOND + 3
    assert java.ask("admin", "truncate", java_scope, "s", f"{merged}=0") == ["true"]
    for key in range(6):
        java.ask("writer", "send", "before", f"key{key}", f"new{key}")
    java.ask("rg", "create", "g", java_scope, "g", f"{java_scope}/s")
    assert read(java, java_scope, "g") == [*(f"new{key}" for key in range(6)), "none"]
    assert java.ask("admin", "at", java_scope, "s", 0) == [f"{merged}=0"]


def test_truncation_again_and_again_while_a_group_reads(java: JavaPeer, java_scope: str) -> None:
    """Each time at the group's own cut: it never loses an event, and the stream holds only what it has not read."""
    java.ask("stream", java_scope, "s", 1)
    java.ask("rg", "create", "g", java_scope, "g", f"{java_scope}/s")
    for turn in range(4):
        write(java, java_scope, "s", 4 * turn, 4 * turn + 4)
        assert read(java, java_scope, "g", 4, 5000) == numbered(4 * turn, 4 * turn + 4)
        java.ask("rg", "cuts", "g", "cut")
        assert java.ask("admin", "truncate", java_scope, "s", "cut") == ["true"]
        bound = f"0={4 * (turn + 1) * SIZE}"
        assert java.ask("admin", "info", java_scope, "s") == [bound, bound, "false"]


def written_in_three_epochs(java: JavaPeer, scope: str) -> None:
    """A stream `s` of one segment, then three, then two, with three events in each epoch."""
    java.ask("stream", scope, "s", 1)
    write(java, scope, "s", 0, 3)
    assert java.ask("scale", scope, "s", "0", "0.0-0.33,0.33-0.66,0.66-1.0") == ["true"]
    write(java, scope, "s", 3, 6, keys=3)
    old = ",".join(str(SECOND + number) for number in (1, 2, 3))
    assert java.ask("scale", scope, "s", old, "0.0-0.5,0.5-1.0") == ["true"]
    write(java, scope, "s", 6, 9, keys=3)


def test_batches(java: JavaPeer, java_scope: str) -> None:
    """All segments of all epochs; a part of one; and what is left after a truncation."""
    written_in_three_epochs(java, java_scope)
    start, end, *ranges = java.ask("batch", "ranges", "all", java_scope, "s", "-", "-")
    segments = [0, SECOND + 1, SECOND + 2, SECOND + 3, 2 * SECOND + 4, 2 * SECOND + 5]
    assert [int(one.split(":")[0]) for one in ranges] == segments
    assert ranges[0] == f"0:0-{3 * SIZE}"
    assert start == "0=0"
    assert [int(one.split("=")[0]) for one in end.split(",")] == segments[4:]
    assert sorted(java.ask("batch", "read", "all", java_scope)) == numbered(0, 9)
    assert java.ask("batch", "part", java_scope, "s", 0, 2 * SIZE, 3 * SIZE) == ["e02"]
    assert java.ask("batch", "part", java_scope, "s", 0, SIZE, 2 * SIZE) == ["e01"]

    assert java.ask("admin", "truncate", java_scope, "s", f"0={2 * SIZE}") == ["true"]
    start, _, *ranges = java.ask("batch", "ranges", "left", java_scope, "s", "-", "-")
    assert (start, ranges[0], len(ranges)) == (f"0={2 * SIZE}", f"0:{2 * SIZE}-{3 * SIZE}", 6)
    assert sorted(java.ask("batch", "read", "left", java_scope)) == numbered(2, 9)
    assert "TruncatedDataException" in java.fails("batch", "read", "all", java_scope)

    middle = ",".join(f"{SECOND + number}=0" for number in (1, 2, 3))
    assert java.ask("admin", "truncate", java_scope, "s", middle) == ["true"]
    java.ask("batch", "ranges", "left", java_scope, "s", "-", "-")
    assert sorted(java.ask("batch", "read", "left", java_scope)) == numbered(3, 9)
    assert "TruncatedDataException" in java.fails("batch", "part", java_scope, "s", 0, 0, 3 * SIZE)


def test_batches_between_cuts(java: JavaPeer, java_scope: str) -> None:
    """The cuts of a group, one from before and one from after a scale."""
    written_in_three_epochs(java, java_scope)
    middle = ",".join(f"{SECOND + number}=0" for number in (1, 2, 3))
    start, end, *ranges = java.ask("batch", "ranges", "b", java_scope, "s", f"0={SIZE}", middle)
    assert (start, end) == (f"0={SIZE}", middle)
    assert ranges[0] == f"0:{SIZE}-{3 * SIZE}"
    assert java.ask("batch", "read", "b", java_scope) == ["e01", "e02"]
    assert java.ask("admin", "between", java_scope, "s", f"0={SIZE}", middle) == [
        str(number) for number in (0, SECOND + 1, SECOND + 2, SECOND + 3)
    ]
    java.ask("batch", "ranges", "b", java_scope, "s", middle, "-")
    assert sorted(java.ask("batch", "read", "b", java_scope)) == numbered(3, 9)


def test_batches_of_a_sealed_stream(java: JavaPeer, java_scope: str) -> None:
    written_in_three_epochs(java, java_scope)
    assert java.ask("admin", "seal", java_scope, "s") == ["true"]
    java.ask("batch", "ranges", "b", java_scope, "s", "-", "-")
    assert sorted(java.ask("batch", "read", "b", java_scope)) == numbered(0, 9)
