"""Transactions with Pravega's Java client 0.13.0: their order, their ends, and segments that change meanwhile."""

from __future__ import annotations

import uuid
from itertools import chain

import pytest
from support.pravega.clients import wait_until
from support.pravega.java import MAVEN_SECONDS, JavaPeer

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

SECOND = 1 << 32
"""The part of a segment's id that stands for the second epoch of its stream."""
ENDED = "TxnFailedException"


def opened(java: JavaPeer, scope: str, segments: int = 1, *lease: int) -> None:
    """A stream with a group, a reader, a writer, and a transactional writer."""
    assert java.ask("stream", scope, "s", segments) == ["true"]
    assert java.ask("rg", "create", "g", scope, "g", "refresh=0", f"{scope}/s") == ["true"]
    java.ask("reader", "open", "r", scope, "g")
    java.ask("writer", "open", "w", scope, "s")
    java.ask("txn", "open", "t", scope, "s", *lease)


def test_events_beside_a_transaction_come_first(java: JavaPeer, java_scope: str) -> None:
    """A transaction's events are where its commit is, together, and in the order in which they were written."""
    opened(java, java_scope)
    java.ask("writer", "send", "w", "key", "w0")
    java.ask("txn", "begin", "one", "t")
    for number in range(3):
        java.ask("txn", "put", "one", "key", f"t{number}")
        java.ask("writer", "send", "w", "key", f"w{number + 1}")
    assert java.ask("txn", "commit", "one") == ["COMMITTED"]
    java.ask("writer", "send", "w", "key", "w4")
    expected = ["w0", "w1", "w2", "w3", "t0", "t1", "t2", "w4"]
    assert java.ask("reader", "next", "r", 5000, 9) == [*expected, "none"]
    assert ENDED in java.fails("txn", "put", "one", "key", "late")
    assert ENDED in java.fails("txn", "commit", "one")


def test_an_aborted_transaction_leaves_nothing(java: JavaPeer, java_scope: str) -> None:
    opened(java, java_scope)
    java.ask("txn", "begin", "one", "t")
    java.ask("txn", "put", "one", "key", "dropped")
    java.ask("txn", "flush", "one")
    assert java.ask("txn", "abort", "one") == ["ABORTED"]
    java.ask("txn", "ask", "one", "abort")
    assert ENDED in java.fails("txn", "put", "one", "key", "late")
    assert ENDED in java.fails("txn", "ask", "one", "commit")
    java.ask("writer", "send", "w", "key", "kept")
    assert java.ask("reader", "next", "r", 5000, 3) == ["kept", "none"]


def test_an_empty_transaction_is_committed(java: JavaPeer, java_scope: str) -> None:
    opened(java, java_scope, 2)
    java.ask("txn", "begin", "one", "t")
    assert java.ask("txn", "status", "one") == ["OPEN"]
    assert java.ask("txn", "commit", "one") == ["COMMITTED"]


def test_transactions_are_stored_in_the_order_of_their_commits(java: JavaPeer, java_scope: str) -> None:
    """Not in that of their beginnings; across scales from one segment to two and back."""
    opened(java, java_scope)
    for number in range(4):
        java.ask("txn", "begin", f"t{number}", "t")
        java.ask("txn", "put", f"t{number}", "key", f"t{number}")
        if number == 1:
            assert java.ask("scale", java_scope, "s", "0", "0.0-0.5,0.5-1.0") == ["true"]
        if number == 2:
            both = ",".join(java.ask("segments", java_scope, "s"))
            assert java.ask("scale", java_scope, "s", both, "0.0-1.0") == ["true"]
    order = [2, 0, 3, 1]
    for number in order:
        java.ask("txn", "ask", f"t{number}", "commit")
    wait_until(lambda: all(java.ask("txn", "status", f"t{number}") == ["COMMITTED"] for number in order))
    found: list[str] = []

    def reads() -> bool:
        java.ask("rg", "checkpoint", "g", f"c{len(found)}-{uuid.uuid4()}")
        found.extend(word for word in java.ask("reader", "next", "r", 1000, 8) if word.startswith("t"))
        return len(found) == 4

    wait_until(reads)
    if java.gateway is not None:
        assert found == [f"t{number}" for number in order]
    assert sorted(found) == [f"t{number}" for number in range(4)]


def test_a_transaction_of_before_a_scale(java: JavaPeer, java_scope: str) -> None:
    """It goes on in its own segments; what is committed comes after the events of before and beside the later ones."""
    opened(java, java_scope)
    java.ask("writer", "send", "w", "key", "w0")
    java.ask("txn", "begin", "one", "t")
    java.ask("txn", "put", "one", "key", "t0")
    assert java.ask("scale", java_scope, "s", "0", "0.0-0.33,0.33-0.66,0.66-1.0") == ["true"]
    java.ask("txn", "put", "one", "key", "t1")
    java.ask("writer", "send", "w", "key", "w1")
    assert java.ask("txn", "commit", "one") == ["COMMITTED"]
    java.ask("txn", "begin", "two", "t")
    java.ask("txn", "put", "two", "key", "t2")
    assert java.ask("txn", "commit", "two") == ["COMMITTED"]
    found: list[str] = []

    def reads() -> bool:
        java.ask("rg", "checkpoint", "g", f"c{uuid.uuid4()}")
        found.extend(word for word in java.ask("reader", "next", "r", 1000, 8) if word[0] in "wt")
        return len(found) == 5

    wait_until(reads)
    assert sorted(found) == ["t0", "t1", "t2", "w0", "w1"]
    assert found[0] == "w0"
    assert [word for word in found if word.startswith("t")] == ["t0", "t1", "t2"]


def test_a_transaction_whose_writer_falls_silent(java: JavaPeer, java_scope: str) -> None:
    """Its lease ends once its writer was closed, and it is aborted; another writer's goes on, since that one pings."""
    opened(java, java_scope, 1, 10_000)
    java.ask("txn", "open", "silent", java_scope, "s", 10_000)
    java.ask("txn", "begin", "lost", "silent")
    java.ask("txn", "put", "lost", "key", "lost")
    java.ask("txn", "begin", "kept", "t")
    java.ask("txn", "put", "kept", "key", "kept")
    java.ask("txn", "close", "silent")
    wait_until(lambda: java.ask("txn", "status", "lost") == ["ABORTED"], 40)
    assert java.ask("txn", "status", "kept") == ["OPEN"]
    assert java.ask("txn", "commit", "kept") == ["COMMITTED"]
    assert java.ask("reader", "next", "r", 5000, 3) == ["kept", "none"]


def test_the_outcomes_of_transactions(java: JavaPeer, java_scope: str) -> None:
    """The stream manager lists those that ended; a client that knows an id learns its end."""
    opened(java, java_scope, 2)
    ends = {}
    for number in range(6):
        (identity,) = java.ask("txn", "begin", "one", "t")
        java.ask("txn", "put", "one", f"key{number}", f"event{number}")
        (ends[identity],) = java.ask("txn", "commit" if number % 2 else "abort", "one")
    assert list(ends.values()) == ["ABORTED", "COMMITTED"] * 3
    listed = dict(word.split("=") for word in java.ask("admin", "completed", java_scope, "s"))
    if java.gateway is not None:  # Pravega's list lacks the newest ones at times
        assert listed == ends
    for identity, end in ends.items():
        java.ask("txn", "find", "again", "t", identity)
        assert java.ask("txn", "status", "again") == [end]


def test_writing_in_batches(java: JavaPeer, java_scope: str) -> None:
    """writeEvents, many events as one append, beside single events, with a connection of the writer's own or shared."""
    opened(java, java_scope)
    java.ask("writer", "open", "pooled", java_scope, "s", "pooled")
    expected = []
    for number, writer in enumerate(("w", "pooled")):
        texts = [f"b{number}-{n}" for n in range(200)]
        java.ask("writer", "batch", writer, "key", *texts)
        java.ask("writer", "send", writer, "key", f"single{number}")
        expected += [*texts, f"single{number}"]
    assert java.ask("reader", "next", "r", 5000, 403) == [*expected, "none"]


def test_transactions_and_events_while_the_stream_is_scaled_and_the_gateway_dies(
    java: JavaPeer, java_scope: str
) -> None:
    """Four readers beside two transactional writers and one of single events: each event comes exactly once."""
    assert java.ask("admin", "create", java_scope, "s", "events=1000000/2/2") == ["true"]
    words = "refresh=500", "checkpoints=1000", f"{java_scope}/s"
    assert java.ask("rg", "create", "g", java_scope, "g", *words) == ["true"]
    for reader in "abcd":
        java.ask("reader", "open", reader, java_scope, "g")
        java.ask("reader", "start", reader)
    java.ask("writer", "open", "w", java_scope, "s")
    for writer in ("t", "u"):
        java.ask("txn", "open", writer, java_scope, "s")
    expected = []
    for turn in range(10):
        for writer in ("t", "u"):
            java.ask("txn", "begin", f"{writer}{turn}", writer)
            for key in range(6):
                java.ask("txn", "put", f"{writer}{turn}", f"key{key}", f"{writer}{turn}-{key}")
        if turn % 3 == 1:
            current = java.ask("segments", java_scope, "s")
            ranges = ("0.0-0.25,0.25-0.5,0.5-1.0", "0.0-0.5,0.5-1.0")[turn // 3 % 2]
            assert java.ask("scale", java_scope, "s", ",".join(current), ranges) == ["true"]
        if turn == 5 and java.gateway is not None:
            java.gateway.restart(kill=True)
        java.ask("writer", "send", "w", f"key{turn}", single := f"w{turn}")
        expected.append(single)
        for writer, end in (("t", "commit"), ("u", "commit" if turn % 2 else "abort")):
            ended = java.ask("txn", end, f"{writer}{turn}")
            assert ended == ["COMMITTED" if end == "commit" else "ABORTED"]
            if end == "commit":
                expected += [f"{writer}{turn}-{key}" for key in range(6)]
    wait_until(lambda: sum(int(java.ask("reader", "seen", reader)[0]) for reader in "abcd") >= len(expected), 60)
    read = sorted(chain(*(java.ask("reader", "stop", reader) for reader in "abcd")))
    assert read == sorted(expected)
