"""Retention by size, by time and by consumption, as Pravega's Java client 0.13.0 configures it and sees it."""

from __future__ import annotations

import time

import pytest
from support.pravega.clients import wait_until
from support.pravega.java import MAVEN_SECONDS, JavaPeer

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 60)

EVENT = 8 + len("e00")
"""Bytes of each event in the segment."""
DAY = 24 * 3600 * 1000


@pytest.fixture(autouse=True)
def often(java: JavaPeer) -> None:
    """Streams are truncated every second."""
    if java.gateway is None:
        pytest.skip("Pravega's standalone server truncates every half hour")


def numbered(first: int, after: int) -> list[str]:
    return [f"e{number:02}" for number in range(first, after)]


def filled(java: JavaPeer, scope: str, events: int, *options: str) -> None:
    """Make a stream `s` with so many events and these policies, with the writer `w`."""
    assert java.ask("admin", "create", scope, "s", *options) == ["true"]
    java.ask("writer", "open", "w", scope, "s")
    java.ask("writer", "send", "w", "key", *numbered(0, events))


def begins_at(java: JavaPeer, scope: str, offset: int) -> None:
    """Wait until the stream begins there."""
    wait_until(lambda: java.ask("head", scope, "s") == [f"0={offset}"])


def left(java: JavaPeer, scope: str) -> list[str]:
    """Read all that is left, with a new group."""
    assert java.ask("rg", "create", "fresh", scope, "fresh", f"{scope}/s") == ["true"]
    java.ask("reader", "open", "fresh", scope, "fresh")
    first = java.ask("reader", "next", "fresh", 20_000, 1)  # it takes a new group some time to begin
    *events, end = java.ask("reader", "next", "fresh", 1000, 5000)
    assert end == "none"
    return first + events


def test_what_a_subscriber_has_read_goes_first(java: JavaPeer, java_scope: str) -> None:
    filled(java, java_scope, 0, f"bytes={2 * EVENT}/{6 * EVENT}")
    java.ask("acknowledge", java_scope, "g", "s", "0=0")
    java.ask("writer", "send", "w", "key", *numbered(0, 5))
    java.ask("acknowledge", java_scope, "g", "s", f"0={EVENT}")
    begins_at(java, java_scope, EVENT)
    java.ask("acknowledge", java_scope, "g", "s", f"0={3 * EVENT}")
    begins_at(java, java_scope, 3 * EVENT)
    assert left(java, java_scope) == numbered(3, 5)


def test_what_a_group_has_read_by_its_last_checkpoint_goes(java: JavaPeer, java_scope: str) -> None:
    """It says so by itself, at each checkpoint."""
    filled(java, java_scope, 0, f"millis=1/{DAY}")
    words = "refresh=0", "retention=AUTOMATIC", f"{java_scope}/s"
    assert java.ask("rg", "create", "g", java_scope, "g", *words) == ["true"]
    assert java.ask("admin", "subscribers", java_scope, "s") == [f"{java_scope}/g"]
    java.ask("writer", "send", "w", "key", *numbered(0, 6))
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000, 2) == numbered(0, 2)
    java.ask("rg", "checkpoint", "g", "c")
    assert java.ask("reader", "next", "r", 5000, 3) == ["checkpoint:c", *numbered(2, 5)]
    java.ask("rg", "outcome", "c")
    begins_at(java, java_scope, 2 * EVENT)
    assert left(java, java_scope) == numbered(2, 6)


def test_what_a_group_acknowledges_goes(java: JavaPeer, java_scope: str) -> None:
    """By a cut that it makes without a checkpoint; before that, nothing does."""
    filled(java, java_scope, 0, f"millis=1/{DAY}")
    words = "refresh=0", "retention=MANUAL", f"{java_scope}/s"
    assert java.ask("rg", "create", "g", java_scope, "g", *words) == ["true"]
    java.ask("writer", "send", "w", "key", *numbered(0, 4))
    java.ask("reader", "open", "r", java_scope, "g")
    assert java.ask("reader", "next", "r", 5000) == ["e00"]
    java.ask("rg", "generate", "g", "cut")
    assert java.ask("reader", "next", "r", 5000, 2) == numbered(1, 3)
    assert java.ask("rg", "outcome", "cut") == [f"s:0={EVENT}"]
    assert java.ask("head", java_scope, "s") == ["0=0"]
    java.ask("rg", "release", "g", "cut")
    begins_at(java, java_scope, EVENT)
    assert left(java, java_scope) == numbered(1, 4)


def test_the_slowest_of_several_groups_decides(java: JavaPeer, java_scope: str) -> None:
    """Until it is deleted, or reads on without a say in retention."""
    filled(java, java_scope, 0, f"millis=1/{DAY}")
    for name in ("slow", "middle", "fast"):
        java.ask("acknowledge", java_scope, name, "s", "0=0")
    java.ask("writer", "send", "w", "key", *numbered(0, 10))
    for name, read in (("slow", 1), ("middle", 3), ("fast", 8)):
        java.ask("acknowledge", java_scope, name, "s", f"0={read * EVENT}")
    groups = [f"{java_scope}/{name}" for name in ("fast", "middle", "slow")]
    assert java.ask("admin", "subscribers", java_scope, "s") == groups
    begins_at(java, java_scope, EVENT)
    java.ask("rg", "delete", java_scope, "slow")
    begins_at(java, java_scope, 3 * EVENT)
    java.ask("rg", "open", "middle", java_scope, "middle")
    java.ask("rg", "reset", "middle", "retention=NONE", f"{java_scope}/s")
    begins_at(java, java_scope, 8 * EVENT)
    assert java.ask("admin", "subscribers", java_scope, "s") == groups[:1]
    assert left(java, java_scope) == numbered(8, 10)


def test_a_policy_that_is_changed(java: JavaPeer, java_scope: str) -> None:
    """From one that keeps much for a group that has not read it to one that keeps little, as new events come."""
    filled(java, java_scope, 8, f"bytes={EVENT}/{10 * EVENT}")
    java.ask("acknowledge", java_scope, "g", "s", "0=0")
    java.ask("writer", "send", "w", "key", "e08")
    assert java.ask("head", java_scope, "s") == ["0=0"]
    java.ask("acknowledge", java_scope, "g", "s", f"0={2 * EVENT}")
    begins_at(java, java_scope, 2 * EVENT)
    assert java.ask("admin", "update", java_scope, "s", f"bytes={EVENT}/{4 * EVENT}") == ["true"]
    written = numbered(0, 9)

    def bounded() -> bool:
        written.extend(numbered(len(written), len(written) + 1))
        java.ask("writer", "send", "w", "key", written[-1])
        time.sleep(0.2)
        (head,) = java.ask("head", java_scope, "s")
        return int(head.split("=")[1]) >= 9 * EVENT

    wait_until(bounded)
    read = left(java, java_scope)
    assert read == written[-len(read) :], "the oldest ones, which the group never read, are gone"


def test_by_size_alone(java: JavaPeer, java_scope: str) -> None:
    """At least so many bytes are kept: old events go as new ones come."""
    filled(java, java_scope, 4, f"bytes={2 * EVENT}/{100 * EVENT}")
    begins_at(java, java_scope, 0)

    def moves() -> bool:
        java.ask("writer", "send", "w", "key", "new")
        (head,) = java.ask("head", java_scope, "s")
        return int(head.split("=")[1]) >= 4 * EVENT

    wait_until(moves)
    read = left(java, java_scope)
    assert set(read) == {"new"}
    assert len(read) >= 2


def test_by_time_alone(java: JavaPeer, java_scope: str) -> None:
    """Events that are old enough go, and later ones are read."""
    filled(java, java_scope, 4, f"millis=1000/{DAY}")
    begins_at(java, java_scope, 4 * EVENT)
    java.ask("admin", "update", java_scope, "s", f"millis={DAY}/{2 * DAY}")
    java.ask("writer", "send", "w", "key", "new")
    assert left(java, java_scope) == ["new"]
