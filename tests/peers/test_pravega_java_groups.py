"""Reader groups with Pravega's Java client 0.13.0: checkpoints, members that come and go, notifications."""

from __future__ import annotations

import time
from itertools import chain

import pytest
from support.pravega.clients import wait_until
from support.pravega.java import MAVEN_SECONDS, JavaPeer

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

SIZE = 8 + len("e00")
"""Bytes of each event in its segment."""
SECOND = 1 << 32
"""The part of a segment's id that stands for the second epoch of its stream."""
KEYS = 12
"""Routing keys that are spread over two segments."""


def numbered(first: int, after: int) -> list[str]:
    return [f"e{number:02}" for number in range(first, after)]


def filled(java: JavaPeer, scope: str, stream: str, events: int, segments: int = 1) -> None:
    """Make a stream with so many events."""
    assert java.ask("stream", scope, stream, segments) == ["true"]
    java.ask("writer", "open", "w", scope, stream)
    for key in range(KEYS if segments > 1 else 1):
        java.ask("writer", "send", "w", f"key{key}", *numbered(0, events)[key :: KEYS if segments > 1 else 1])
    java.ask("writer", "close", "w")


def group(java: JavaPeer, scope: str, name: str, *words: str) -> None:
    """A new group that looks for changes of its state before each event."""
    assert java.ask("rg", "create", name, scope, name, "refresh=0", *(words or (f"{scope}/s",))) == ["true"]


def test_a_checkpoint_and_back_to_it(java: JavaPeer, java_scope: str) -> None:
    """It stands between two events; after a reset to it, the old reader must be opened anew."""
    filled(java, java_scope, "s", 3)
    group(java, java_scope, "g")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 2) == ["e00", "e01"]
    java.ask("rg", "checkpoint", "g", "c")
    assert java.ask("rg", "done", "c") == ["false"]
    assert java.ask("reader", "next", "r", 5000) == ["checkpoint:c"]
    assert java.ask("reader", "next", "r", 5000) == ["e02"]
    assert java.ask("rg", "outcome", "c") == [f"s:0={2 * SIZE}"]
    java.ask("rg", "resetTo", "g", "c")
    wait_until(lambda: java.ask("reader", "next", "r", 500) == ["reinitialize"])
    java.ask("reader", "close", "r")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 5) == ["e02", "none"]


def test_back_to_the_last_checkpoint(java: JavaPeer, java_scope: str) -> None:
    """A reset that names none; what was read after the checkpoint comes again."""
    filled(java, java_scope, "s", 4)
    group(java, java_scope, "g")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000) == ["e00"]
    java.ask("rg", "checkpoint", "g", "c")
    assert java.ask("reader", "next", "r", 5000, 3) == ["checkpoint:c", "e01", "e02", "e03"]
    java.ask("rg", "outcome", "c")
    java.ask("rg", "reset", "g")
    wait_until(lambda: java.ask("reader", "next", "r", 500) == ["reinitialize"])
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 5) == ["e01", "e02", "e03", "none"]


def test_more_readers_than_segments(java: JavaPeer, java_scope: str) -> None:
    """Each of them takes part in a checkpoint; one alone has events."""
    filled(java, java_scope, "s", 3)
    group(java, java_scope, "g")
    for reader in ("r", "q"):
        java.ask("reader", "open", reader, java_scope, "g")
    java.ask("rg", "checkpoint", "g", "c")
    for reader in ("r", "q"):
        assert java.ask("reader", "next", reader, 5000) == ["checkpoint:c"]
    found = [java.ask("reader", "next", reader, 5000, 5) for reader in ("r", "q")]
    assert sorted(found) == [["e00", "e01", "e02", "none"], ["none"]]
    assert java.ask("rg", "outcome", "c") == ["s:0=0"]
    assert java.ask("rg", "readers", "g") == ["q", "r"]


def test_checkpoints_beyond_the_allowed_number(java: JavaPeer, java_scope: str) -> None:
    """A second one is refused while the first waits for a reader, and possible after it was cancelled."""
    filled(java, java_scope, "s", 3)
    group(java, java_scope, "g", "outstanding=1", f"{java_scope}/s")
    java.ask("reader", "open", "r", java_scope, "g")
    java.ask("rg", "checkpoint", "g", "first")
    java.ask("rg", "checkpoint", "g", "second")
    assert "MaxNumberOfCheckpointsExceeded" in java.fails("rg", "outcome", "second")
    java.ask("rg", "cancel", "g")
    # The client waits for both at times, and then for itself, if the third is begun before the first has failed.
    java.fails("rg", "outcome", "first")
    java.ask("rg", "checkpoint", "g", "third")
    assert "checkpoint:third" in java.ask("reader", "next", "r", 5000, 3)
    assert java.ask("rg", "outcome", "third") == ["s:0=0"]


def test_cuts_that_are_made_while_reading(java: JavaPeer, java_scope: str) -> None:
    """A silent checkpoint: no reader sees it, and it can be acknowledged or begun from."""
    filled(java, java_scope, "s", 4)
    group(java, java_scope, "g")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000) == ["e00"]
    java.ask("rg", "generate", "g", "cut")
    assert java.ask("reader", "next", "r", 5000) == ["e01"]
    assert java.ask("reader", "next", "r", 5000) == ["e02"]
    assert java.ask("rg", "outcome", "cut") == [f"s:0={SIZE}"]
    java.ask("rg", "offline", "g", "r")
    assert java.ask("rg", "readers", "g") == []
    java.ask("reader", "open", "q", java_scope, "g")
    assert java.ask("reader", "next", "q", 5000) == ["e00"], "silent checkpoints do not move a reader's last position"
    group(java, java_scope, "later", f"{java_scope}/s@cut")
    java.ask("reader", "open", "p", java_scope, "later")
    assert java.ask("reader", "next", "p", 5000, 5) == ["e01", "e02", "e03", "none"]


def test_cuts_across_a_scale(java: JavaPeer, java_scope: str) -> None:
    """Before the group has seen the end of a segment its cut has that segment, and afterwards its successors."""
    filled(java, java_scope, "s", 2)
    assert java.ask("scale", java_scope, "s", "0", "0.0-0.5,0.5-1.0") == ["true"]
    group(java, java_scope, "g")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 2) == ["e00", "e01"]
    java.ask("rg", "generate", "g", "before")
    assert java.ask("reader", "next", "r", 500) == ["none"]
    assert java.ask("rg", "outcome", "before") == [f"s:0={2 * SIZE}"]
    java.ask("rg", "checkpoint", "g", "c")
    assert "checkpoint:c" in java.ask("reader", "next", "r", 5000)
    java.ask("writer", "open", "w", java_scope, "s")
    for key in range(KEYS):
        java.ask("writer", "send", "w", f"key{key}", f"k{key:02}")
    found = java.ask("reader", "next", "r", 5000, KEYS)
    assert sorted(found) == [f"k{key:02}" for key in range(KEYS)]
    java.ask("rg", "generate", "g", "after")
    assert java.ask("reader", "next", "r", 500) == ["none"]
    (cut,) = java.ask("rg", "outcome", "after")
    ends = dict(pair.split("=") for pair in cut.removeprefix("s:").split(","))
    assert set(ends) == {str(SECOND + 1), str(SECOND + 2)}
    assert sum(map(int, ends.values())) == KEYS * SIZE


def test_automatic_checkpoints(java: JavaPeer, java_scope: str) -> None:
    """The group's position moves on while its only reader reads."""
    filled(java, java_scope, "s", 12)
    assert java.ask("rg", "create", "g", java_scope, "g", "refresh=0", "checkpoints=1000", f"{java_scope}/s") == [
        "true"
    ]
    java.ask("reader", "open", "r", java_scope, "g")
    seen = [java.ask("rg", "cuts", "g", "cut")]
    read: list[str] = []
    while len(read) < 12:
        read += (word for word in java.ask("reader", "next", "r", 5000) if word.startswith("e"))
        time.sleep(0.35)
        seen.append(java.ask("rg", "cuts", "g", "cut"))
    assert read == numbered(0, 12)
    offsets = [int(cut.split("=")[1]) for (cut,) in seen]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) >= 3


def test_a_reader_that_is_declared_gone(java: JavaPeer, java_scope: str) -> None:
    """Without a position the group goes on from its last checkpoint, with one from there; the reader itself is out."""
    filled(java, java_scope, "s", 6)
    group(java, java_scope, "g")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 2) == ["e00", "e01"]
    java.ask("rg", "offline", "g", "r", "r")
    java.ask("reader", "open", "q", java_scope, "g")
    assert java.ask("reader", "next", "q", 5000, 2) == ["e02", "e03"]
    java.ask("rg", "offline", "g", "q")
    java.ask("reader", "open", "p", java_scope, "g")
    assert java.ask("rg", "readers", "g") == ["p"]
    assert java.ask("reader", "next", "p", 5000, 9) == ["e02", "e03", "e04", "e05", "none"]
    wait_until(lambda: java.ask("reader", "next", "r", 500) == ["reinitialize"])


def test_a_reader_that_leaves_hands_its_segments_over(java: JavaPeer, java_scope: str) -> None:
    """Two readers share two segments; what one had not read comes to the other, once."""
    filled(java, java_scope, "s", 40, segments=2)
    group(java, java_scope, "g")
    java.ask("reader", "open", "r", java_scope, "g")
    first = java.ask("reader", "next", "r", 5000, 5)
    java.ask("reader", "open", "q", java_scope, "g")
    java.ask("rg", "open", "again", java_scope, "g")
    assert java.ask("rg", "spread", "again")[0] in ("free=0", "free=1")
    java.ask("reader", "close", "r")
    assert java.ask("rg", "readers", "g") == ["q"]
    *rest, end = java.ask("reader", "next", "q", 5000, 60)
    assert (sorted(first + rest), end) == (numbered(0, 40), "none")
    assert java.ask("rg", "spread", "g") == ["free=0", "q=2"]
    assert "IllegalArgument" in java.fails("reader", "next", "nobody", 1)


def test_many_readers_of_many_segments_at_once(java: JavaPeer, java_scope: str) -> None:
    """Four of them, over a stream that is scaled meanwhile: each event comes to exactly one."""
    filled(java, java_scope, "s", 60, segments=4)
    assert java.ask("rg", "create", "g", java_scope, "g", "checkpoints=1000", "refresh=500", f"{java_scope}/s") == [
        "true"
    ]
    readers = ["a", "b", "c", "d"]
    for reader in readers:
        java.ask("reader", "open", reader, java_scope, "g")
        java.ask("reader", "start", reader)
    assert java.ask("scale", java_scope, "s", "0,1", "0.0-0.125,0.125-0.25,0.25-0.5") == ["true"]
    java.ask("writer", "open", "w", java_scope, "s")
    for key in range(KEYS):
        java.ask("writer", "send", "w", f"key{key}", *(f"k{key}-{n}" for n in range(5)))
    wait_until(lambda: sum(int(java.ask("reader", "seen", reader)[0]) for reader in readers) >= 60 + 5 * KEYS, 40)
    read = [java.ask("reader", "stop", reader) for reader in readers]
    expected = numbered(0, 60) + [f"k{key}-{n}" for key in range(KEYS) for n in range(5)]
    assert sorted(chain(*read)) == sorted(expected)
    assert java.ask("rg", "readers", "g") == readers


def test_a_group_of_two_scopes(java: JavaPeer, java_scope: str) -> None:
    """Streams of the same name in two scopes, neither of which is the group's."""
    scopes = [f"{java_scope}-a", f"{java_scope}-b"]
    for scope in scopes:
        assert java.ask("scope", scope) == ["true"]
        assert java.ask("stream", scope, "s", 1) == ["true"]
    group(java, java_scope, "g", *(f"{scope}/s" for scope in scopes))
    assert java.ask("rg", "streams", "g") == [f"{scope}/s" for scope in scopes]
    java.ask("reader", "open", "r", java_scope, "g")
    for scope in scopes:
        java.ask("writer", "open", scope, scope, "s")
        java.ask("writer", "send", scope, "key", f"from-{scope}")
        assert java.ask("reader", "next", "r", 10_000) == [f"from-{scope}"]


def test_notifications(java: JavaPeer, java_scope: str) -> None:
    """The number of segments at the beginning and after a scale, and the end of the data when all was read."""
    filled(java, java_scope, "s", 4)
    group(java, java_scope, "g")
    java.ask("reader", "open", "r", java_scope, "g")
    java.ask("rg", "listen", "g", "segments")
    java.ask("rg", "listen", "g", "end")
    assert java.ask("reader", "next", "r", 5000, 4) == numbered(0, 4)
    heard: list[str] = []

    def hears(note: str) -> bool:
        heard.extend(java.ask("rg", "heard", "g"))
        return note in heard

    wait_until(lambda: hears("segments=1/1"))
    assert java.ask("scale", java_scope, "s", "0", "0.0-0.5,0.5-1.0") == ["true"]
    assert java.ask("reader", "next", "r", 1000) == ["none"]
    java.ask("rg", "checkpoint", "g", "c")
    assert java.ask("reader", "next", "r", 1000, 2) == ["checkpoint:c", "none"]
    wait_until(lambda: hears("segments=2/1"))
    assert "end" not in heard
    assert java.ask("admin", "seal", java_scope, "s") == ["true"]
    for number in range(3):  # readers give sealed segments up at a checkpoint
        java.ask("rg", "checkpoint", "g", f"seal{number}")
        java.ask("reader", "next", "r", 1500, 2)
    wait_until(lambda: hears("end"))


def test_the_end_of_a_sealed_stream(java: JavaPeer, java_scope: str) -> None:
    """After a checkpoint a reader is told that nothing will ever come, not only that there is nothing now."""
    filled(java, java_scope, "s", 3)
    group(java, java_scope, "g")
    assert java.ask("admin", "seal", java_scope, "s") == ["true"]
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 5) == [*numbered(0, 3), "none"]
    java.ask("rg", "checkpoint", "g", "c")
    assert java.ask("reader", "next", "r", 1000, 5) == ["checkpoint:c", "complete"]
    assert java.ask("rg", "spread", "g") == ["free=0", "r=0"]


def test_an_event_at_its_pointer(java: JavaPeer, java_scope: str) -> None:
    """By a reader, by another group's, and by the stream manager; after a truncation there is none."""
    filled(java, java_scope, "s", 4)
    group(java, java_scope, "g")
    java.ask("reader", "open", "r", java_scope, "g")
    for number in range(3):
        assert java.ask("reader", "next", "r", 5000) == [f"e{number:02}"]
        java.ask("reader", "pointer", "r", f"at{number}")
    assert java.ask("reader", "fetch", "r", "at1") == ["e01"]
    assert java.ask("admin", "event", "at2") == ["e02"]
    java.ask("rg", "offline", "g", "r")
    assert java.ask("reader", "fetch", "r", "at0") == ["e00"], "it needs no place in the group"
    assert java.ask("admin", "truncate", java_scope, "s", f"0={2 * SIZE}") == ["true"]
    assert "NoSuchEvent" in java.fails("reader", "fetch", "r", "at1")
    assert java.ask("reader", "fetch", "r", "at2") == ["e02"]
    assert "NoSuchEvent" in java.fails("admin", "event", "at1")


def test_a_group_that_is_not_there(java: JavaPeer, java_scope: str) -> None:
    """It is missing before it is made, cannot be made with another configuration, and is gone after it was deleted."""
    filled(java, java_scope, "s", 1)
    assert "ReaderGroupNotFound" in java.fails("rg", "open", "g", java_scope, "g")
    group(java, java_scope, "g")
    assert java.ask("rg", "create", "g", java_scope, "g", "refresh=0", f"{java_scope}/s") == ["true"]
    assert "ConfigMismatch" in java.fails("rg", "create", "g", java_scope, "g", "refresh=5", f"{java_scope}/s")
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000) == ["e00"]
    java.ask("rg", "delete", java_scope, "g")
    assert "ReaderGroupNotFound" in java.fails("rg", "open", "g", java_scope, "g")
    assert "Exception" in java.fails("reader", "open", "late", java_scope, "g")
