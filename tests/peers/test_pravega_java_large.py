"""Large events with Pravega's Java client 0.13.0: up to 8 MiB in one append, and beyond through transient segments."""

from __future__ import annotations

import pytest
from support.pravega.java import MAVEN_SECONDS, JavaPeer
from support.process import BASIN
from support.s2.client import S2Client

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

MIB = 1 << 20
MOST = 8 * MIB
"""Most bytes of an event that is no large one."""


def opened(java: JavaPeer, scope: str) -> None:
    """A stream with a writer of large events and a reader."""
    assert java.ask("stream", scope, "s", 1) == ["true"]
    java.ask("writer", "open", "w", scope, "s", "large")
    assert java.ask("rg", "create", "g", scope, "g", f"{scope}/s") == ["true"]
    java.ask("reader", "open", "r", scope, "g")


def test_events_of_all_sizes(java: JavaPeer, java_scope: str) -> None:
    """Around each limit, between small ones, by one writer: all are read as they were written, in order."""
    opened(java, java_scope)
    sizes = [8, MIB, MIB + 1, 5 * MIB, MOST, 8, MOST + 1, 16 * MIB + 3, 8]
    written = java.ask("writer", "fill", "w", "key", *sizes, seconds=120)
    assert [int(word.split(":")[0]) for word in written] == sizes
    assert java.ask("reader", "sums", "r", 20_000, len(sizes), seconds=120) == written
    (tail,) = java.ask("admin", "info", java_scope, "s")[1:2]
    assert tail == f"0={sum(sizes) + 8 * len(sizes)}"


def test_an_event_that_is_too_large_for_its_writer(java: JavaPeer, java_scope: str) -> None:
    """Without the option that allows large events, the client refuses what is beyond 8 MiB."""
    opened(java, java_scope)
    java.ask("writer", "open", "plain", java_scope, "s")
    assert "IllegalArgument" in java.fails("writer", "fill", "plain", "key", MOST + 1)
    written = java.ask("writer", "fill", "plain", "key", MOST, 20)
    assert java.ask("reader", "sums", "r", 20_000, 2) == written


def test_large_events_of_two_writers(java: JavaPeer, java_scope: str) -> None:
    """And of one that goes on in the segments after a scale."""
    opened(java, java_scope)
    java.ask("writer", "open", "other", java_scope, "s", "large")
    written = java.ask("writer", "fill", "w", "a", 9 * MIB) + java.ask("writer", "fill", "other", "b", 9 * MIB)
    assert java.ask("scale", java_scope, "s", "0", "0.0-0.5,0.5-1.0") == ["true"]
    later = java.ask("writer", "fill", "w", "a", 10 * MIB, 5) + java.ask("writer", "fill", "other", "b", 10 * MIB)
    assert sorted(java.ask("reader", "sums", "r", 20_000, 2)) == sorted(written)
    assert java.ask("reader", "sums", "r", 3000, 1) == ["none"]
    java.ask("rg", "checkpoint", "g", "c")
    found = java.ask("reader", "sums", "r", 20_000, 3)
    assert sorted(word for word in found if "checkpoint" not in word) == sorted(later)


def test_a_large_event_before_and_after_a_restart(java: JavaPeer, java_scope: str) -> None:
    """Its writer reconnects, and no transient segment is left."""
    if java.gateway is None:
        pytest.skip("Pravega's emulator keeps nothing")
    opened(java, java_scope)
    written = java.ask("writer", "fill", "w", "key", 9 * MIB)
    java.restart()
    written += java.ask("writer", "fill", "w", "key", 9 * MIB, 3)
    assert java.ask("reader", "sums", "r", 20_000, 3) == written
    listed = S2Client(("127.0.0.1", java.gateway.s2_port), BASIN).request("GET", "/v1/streams?limit=1000").body
    assert java_scope.encode() in listed
    assert b"transient" not in listed
