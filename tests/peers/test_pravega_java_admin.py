"""Scopes and streams as Pravega's Java client 0.13.0 manages them: tags, policies, epochs, deletion with contents."""

from __future__ import annotations

import time

import pytest
from support.pravega.java import MAVEN_SECONDS, JavaPeer

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

SECOND = 1 << 32
"""The part of a segment's id that stands for the second epoch of its stream."""
YEAR = 365 * 24 * 3600 * 1000


def test_tags(java: JavaPeer, java_scope: str) -> None:
    """Listings by them follow updates and deletions."""
    assert "NOT_FOUND" in java.fails("admin", "tags", java_scope, "a")
    for name, tags in (("a", "t1,t2"), ("b", "t2,t3"), ("c", "t3,t4")):
        assert java.ask("admin", "create", java_scope, name, f"tags={tags}") == ["true"]
        assert java.ask("admin", "tags", java_scope, name) == tags.split(",")
    assert java.ask("admin", "list", java_scope, "t2") == ["a", "b"]
    assert java.ask("admin", "list", java_scope, "t4") == ["c"]
    assert java.ask("admin", "update", java_scope, "c", "tags=t5") == ["true"]
    assert java.ask("admin", "tags", java_scope, "c") == ["t5"]
    assert java.ask("admin", "list", java_scope, "t3") == ["b"]
    assert java.ask("admin", "list", java_scope, "t4") == []
    assert java.ask("delete", java_scope, "b") == ["true"]
    assert java.ask("admin", "list", java_scope, "t2") == ["a"]
    assert java.ask("admin", "list", java_scope, "t3") == []
    assert java.ask("admin", "update", java_scope, "a", "segments=1") == ["true"]
    assert java.ask("admin", "list", java_scope, "t2") == java.ask("admin", "tags", java_scope, "a") == []
    assert java.ask("admin", "list", java_scope, "never") == []


def test_listings(java: JavaPeer, java_scope: str) -> None:
    """More streams than one page of a listing has."""
    names = [f"s{number:02}" for number in range(25)]
    for name in names:
        assert java.ask("stream", java_scope, name, 1) == ["true"]
    found = java.ask("admin", "list", java_scope)
    assert [name for name in found if not name.startswith("_")] == names
    assert java_scope in java.ask("admin", "scopes")
    for known, words in (("true", ("s07",)), ("false", ("s99",)), ("true", ())):
        assert java.ask("admin", "known", java_scope, *words) == [known]
    assert java.ask("admin", "known", f"{java_scope}-other") == ["false"]


def test_names_that_are_taken_or_missing(java: JavaPeer, java_scope: str) -> None:
    assert java.ask("scope", java_scope) == ["false"]
    assert java.ask("stream", java_scope, "s", 2) == ["true"]
    assert java.ask("stream", java_scope, "s", 3) == ["false"], "and it keeps its configuration"
    assert java.ask("admin", "config", java_scope, "s") == ["segments=2"]
    other = f"{java_scope}-other"
    assert "Scope does not exist" in java.fails("stream", other, "s", 1)
    assert java.ask("scope", other) == java.ask("stream", other, "s", 1) == ["true"]
    assert java.ask("segments", java_scope, "s") == ["0", "1"]
    for question in (("update", java_scope, "missing"), ("seal", java_scope, "missing")):
        assert "Stream does not exist" in java.fails("admin", *question)
    assert java.ask("admin", "delete", java_scope, "missing") == ["false"]
    assert "IllegalArgumentException" in java.fails("admin", "truncate", java_scope, "missing", "0=0")
    assert "not sealed" in java.fails("admin", "delete", java_scope, "s")


@pytest.mark.parametrize(
    "options",
    [
        ["segments=3", "tags=a,b"],
        ["events=100/4/2", "bytes=1000/5000"],
        ["kilobytes=200/2/1", f"millis={YEAR}/{2 * YEAR}"],
    ],
)
def test_configurations(java: JavaPeer, java_scope: str, options: list[str]) -> None:
    """The configuration of a new stream, and one that replaces another, come back as they were."""
    assert java.ask("admin", "create", java_scope, "made", *options) == ["true"]
    assert java.ask("admin", "config", java_scope, "made") == options
    assert java.ask("stream", java_scope, "updated", 1) == ["true"]
    assert java.ask("admin", "update", java_scope, "updated", *options) == ["true"]
    assert java.ask("admin", "config", java_scope, "updated") == options


def test_updates_of_the_least_number_of_segments(java: JavaPeer, java_scope: str) -> None:
    """A stream gets more segments at once; fewer only where their number is fixed."""
    assert java.ask("admin", "create", java_scope, "s", "segments=2") == ["true"]
    assert java.ask("admin", "update", java_scope, "s", "kilobytes=100/2/2") == ["true"]
    assert java.ask("segments", java_scope, "s") == ["0", "1"]
    assert java.ask("admin", "update", java_scope, "s", "kilobytes=100/2/3") == ["true"]
    assert len(java.ask("segments", java_scope, "s")) == 3
    assert java.ask("admin", "update", java_scope, "s", "kilobytes=100/2/1") == ["true"]
    assert len(java.ask("segments", java_scope, "s")) == 3
    assert java.ask("admin", "update", java_scope, "s", "segments=2") == ["true"]
    assert len(java.ask("segments", java_scope, "s")) == 2
    java.ask("writer", "open", "w", java_scope, "s")
    java.ask("writer", "send", "w", "key", "event")


def test_the_epochs_of_a_stream(java: JavaPeer, java_scope: str) -> None:
    """Split, then merged otherwise: who follows whom, and which segments each epoch had."""
    assert java.ask("stream", java_scope, "s", 1) == ["true"]
    assert java.ask("scale", java_scope, "s", "0", "0.0-0.5,0.5-1.0") == ["true"]
    one, two, three = SECOND + 1, SECOND + 2, 2 * SECOND + 3
    assert java.ask("scale", java_scope, "s", f"{one},{two}", "0.0-1.0") == ["true"]
    for epoch, segments in enumerate(([0], [one, two], [three])):
        assert java.ask("admin", "epoch", java_scope, "s", epoch) == [str(segment) for segment in segments]
    assert java.ask("admin", "successors", java_scope, "s", 0) == [f"{one}<0", f"{two}<0"]
    for segment in (one, two):
        assert java.ask("admin", "successors", java_scope, "s", segment) == [f"{three}<{one},{two}"]
        assert java.ask("admin", "open", java_scope, "s", segment) == ["false"]
    assert java.ask("admin", "successors", java_scope, "s", three) == []
    assert java.ask("admin", "open", java_scope, "s", three) == ["true"]
    found = java.ask("admin", "between", java_scope, "s", f"{one}=0,{two}=0", f"{three}=0")
    assert found == [str(segment) for segment in (one, two, three)]
    for moment in (0, int(time.time() * 1000) - YEAR):
        assert java.ask("admin", "at", java_scope, "s", moment) == ["0=0"], "from before the stream was made: the head"
    assert "Exception" in java.fails("admin", "at", java_scope, "missing", 0)


def test_sealing(java: JavaPeer, java_scope: str) -> None:
    """A sealed stream has no segments to write to, stays sealed, can be read, and cannot be scaled."""
    assert java.ask("stream", java_scope, "s", 2) == ["true"]
    java.ask("writer", "open", "w", java_scope, "s")
    java.ask("writer", "send", "w", "key", "event")
    assert java.ask("admin", "seal", java_scope, "s") == ["true"]
    assert java.ask("segments", java_scope, "s") == []
    assert java.ask("admin", "seal", java_scope, "s") == ["true"]
    head, tail, sealed = java.ask("admin", "info", java_scope, "s")
    assert (head, tail, sealed) == ("0=0,1=0", "none", "true")
    assert "sealed" in java.fails("writer", "send", "w", "key", "late").lower()
    assert "ControllerFailureException" in java.fails("scale", java_scope, "s", "0,1", "0.0-1.0")
    assert java.ask("rg", "create", "g", java_scope, "g", f"{java_scope}/s") == ["true"]
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000) == ["event"]


def test_a_writer_of_a_deleted_stream(java: JavaPeer, java_scope: str) -> None:
    """It is told that its segment is gone, or sealed; a new one that the stream is."""
    assert java.ask("stream", java_scope, "s", 1) == ["true"]
    java.ask("writer", "open", "w", java_scope, "s")
    java.ask("writer", "send", "w", "key", "event")
    assert java.ask("delete", java_scope, "s") == ["true"]
    complaint = java.fails("writer", "send", "w", "key", "late")
    assert "NoSuchSegment" in complaint or "ealed" in complaint
    assert "Exception" in java.fails("writer", "open", "late", java_scope, "s")


def test_a_stream_with_open_transactions_is_deleted(java: JavaPeer, java_scope: str) -> None:
    """Some of them committed, some still open: sealing aborts those."""
    assert java.ask("stream", java_scope, "s", 3) == ["true"]
    java.ask("txn", "open", "t", java_scope, "s")
    for number in range(6):
        java.ask("txn", "begin", f"t{number}", "t")
        java.ask("txn", "put", f"t{number}", "key", f"event{number}")
        java.ask("txn", "flush", f"t{number}")
        if number < 3:
            java.ask("txn", "ask", f"t{number}", "commit")
    assert java.ask("admin", "seal", java_scope, "s") == ["true"]
    assert java.ask("txn", "status", "t5") in (["ABORTING"], ["ABORTED"])
    assert java.ask("admin", "delete", java_scope, "s") == ["true"]
    assert java.ask("admin", "known", java_scope, "s") == ["false"]


def full(java: JavaPeer, scope: str) -> None:
    """Three streams, one of them sealed, two groups, one of which is read, and two key-value tables."""
    for name in ("a", "b", "c"):
        assert java.ask("stream", scope, name, 2) == ["true"]
    assert java.ask("admin", "seal", scope, "c") == ["true"]
    for name in ("g", "h"):
        assert java.ask("rg", "create", name, scope, name, f"{scope}/a", f"{scope}/b") == ["true"]
    java.ask("reader", "open", "r", scope, "g")
    java.ask("writer", "open", "w", scope, "a")
    java.ask("writer", "send", "w", "key", "event")
    assert java.ask("reader", "next", "r", 5000) == ["event"]
    for name in ("k", "l"):
        assert java.ask("kvt", "create", scope, name, 2, 4, 0) == ["true"]


@pytest.mark.parametrize("call", ["removeAll", "removeForced"])
def test_a_scope_is_deleted_with_all_that_it_contains(java: JavaPeer, java_scope: str, call: str) -> None:
    """And one of that name is empty afterwards."""
    full(java, java_scope)
    assert "not empty" in java.fails("admin", "remove", java_scope)
    assert java.ask("admin", call, java_scope) == ["true"]
    assert java.ask("admin", "known", java_scope) == ["false"]
    assert java_scope not in java.ask("admin", "scopes")
    assert "Exception" in java.fails("writer", "open", "late", java_scope, "a")
    assert java.ask("scope", java_scope) == ["true"]
    assert java.ask("admin", "list", java_scope) == java.ask("kvt", "list", java_scope) == []
    assert java.ask("stream", java_scope, "a", 1) == ["true"]
    assert java.ask("delete", java_scope, "a") == java.ask("admin", "remove", java_scope) == ["true"]


def test_a_scope_that_is_not_there_is_deleted(java: JavaPeer, java_scope: str) -> None:
    missing = f"{java_scope}-missing"
    assert java.ask("admin", "remove", missing) == ["false"]
    assert java.ask("admin", "removeAll", missing) == ["true"]
    assert java.ask("admin", "remove", java_scope) == ["true"]
