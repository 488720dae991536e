"""Revisioned streams and shared states with Pravega's Java client 0.13.0."""

from __future__ import annotations

import pytest
from support.pravega.java import MAVEN_SECONDS, JavaPeer

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)


def test_revisions(java: JavaPeer, java_scope: str) -> None:
    """Each conditional write needs the latest one; parts between two of them; what was truncated cannot be read."""
    assert java.ask("stream", java_scope, "s", 1) == ["true"]
    java.ask("revisions", "open", "a", java_scope, "s")
    java.ask("revisions", "open", "b", java_scope, "s")
    java.ask("revisions", "latest", "a", "r0")
    java.ask("revisions", "oldest", "b", "oldest")
    assert java.ask("revisions", "order", "r0", "oldest") == ["0"]
    assert java.ask("revisions", "write", "a", "r0", "r1", "one") == ["true"]
    assert java.ask("revisions", "write", "b", "r0", "lost", "never") == ["false"]
    assert java.ask("revisions", "write", "b", "r1", "r2", "two") == ["true"]
    java.ask("revisions", "add", "a", "three")
    java.ask("revisions", "latest", "a", "r3")
    assert int(java.ask("revisions", "order", "r1", "r3")[0]) < 0
    assert java.ask("revisions", "read", "b", "r0") == ["one", "two", "three"]
    assert java.ask("revisions", "read", "a", "r1", "r3") == ["two", "three"]
    assert java.ask("revisions", "read", "a", "r1", "r2") == ["two"]
    assert java.ask("revisions", "read", "a", "r3") == []
    java.ask("revisions", "truncate", "a", "r2")
    java.ask("revisions", "oldest", "b", "oldest")
    assert java.ask("revisions", "order", "oldest", "r2") == ["0"]
    assert java.ask("revisions", "read", "b", "oldest") == ["three"]
    assert "TruncatedDataException" in java.fails("revisions", "read", "b", "r1")


def test_two_who_share_a_state(java: JavaPeer, java_scope: str) -> None:
    """One that has not seen the other's update needs a second attempt; one that has does not."""
    assert java.ask("stream", java_scope, "s", 1) == ["true"]
    for name in ("a", "b"):
        java.ask("state", "open", name, java_scope, "s")
    assert java.ask("state", "value", "a") == ["none"]
    java.ask("state", "start", "a", 10)
    java.ask("state", "start", "b", 20)
    java.ask("state", "fetch", "b")
    assert java.ask("state", "value", "b") == ["10"], "the first one began it"
    assert java.ask("state", "add", "a", 1) == ["1"]
    assert java.ask("state", "add", "b", 2) == ["2"]
    assert java.ask("state", "value", "a") == ["11"]
    assert java.ask("state", "value", "b") == ["13"]
    java.ask("state", "fetch", "a")
    assert java.ask("state", "add", "a", 1) == ["1"]
    java.ask("state", "blind", "b")
    java.ask("state", "fetch", "b")
    assert java.ask("state", "value", "b") == ["15"]
    assert int(java.ask("state", "written", "b")[0]) > 0


def test_a_state_that_is_compacted(java: JavaPeer, java_scope: str) -> None:
    """The stream begins later then; those who share the state go on, and one who comes anew begins there."""
    assert java.ask("stream", java_scope, "s", 1) == ["true"]
    for name in ("a", "b"):
        java.ask("state", "open", name, java_scope, "s")
    java.ask("revisions", "open", "behind", java_scope, "s")
    java.ask("revisions", "oldest", "behind", "empty")
    java.ask("state", "start", "a", 0)
    for _ in range(10):
        java.ask("state", "add", "a", 10)
    java.ask("state", "fetch", "b")
    for _ in range(2):
        java.ask("state", "compact", "a")
    java.ask("revisions", "oldest", "behind", "oldest")
    java.ask("revisions", "latest", "behind", "latest")
    assert int(java.ask("revisions", "order", "empty", "oldest")[0]) < 0
    assert int(java.ask("revisions", "order", "oldest", "latest")[0]) < 0
    java.ask("state", "add", "a", 5)
    java.ask("state", "fetch", "b")
    assert java.ask("state", "value", "b") == ["105"]
    java.ask("state", "open", "c", java_scope, "s")
    java.ask("state", "fetch", "c")
    assert java.ask("state", "value", "c") == ["105"]
    java.ask("state", "add", "c", 1)
    java.ask("state", "fetch", "a")
    assert java.ask("state", "value", "a") == ["106"]
