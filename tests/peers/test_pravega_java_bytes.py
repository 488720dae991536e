"""Byte streams with Pravega's Java client 0.13.0: seeking, waiting, truncation, the end, many bytes at once."""

from __future__ import annotations

import pytest
from support.pravega.java import MAVEN_SECONDS, JavaPeer

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

MIB = 1 << 20


def opened(java: JavaPeer, scope: str) -> None:
    """A stream of bytes with a writer and a reader."""
    assert java.ask("stream", scope, "s", 1) == ["true"]
    java.ask("bytes", "writer", "w", scope, "s")
    java.ask("bytes", "reader", "r", scope, "s")


def test_reading_while_writing(java: JavaPeer, java_scope: str) -> None:
    """From any offset; what is not there yet cannot be read without waiting."""
    opened(java, java_scope)
    assert java.ask("bytes", "where", "r") == ["0", "0", "0"]
    assert java.ask("bytes", "available", "r") == ["0"]
    java.ask("bytes", "put", "w", "abcdefghij")
    assert java.ask("bytes", "flush", "w") == ["0", "10"]
    assert java.ask("bytes", "get", "r", 4) == ["abcd"]
    assert java.ask("bytes", "skip", "r", 3) == ["3"]
    assert java.ask("bytes", "where", "r") == ["7", "0", "10"]
    assert java.ask("bytes", "get", "r", 100) == ["hij"]
    assert java.ask("bytes", "seek", "r", 2) == ["2"]
    assert java.ask("bytes", "get", "r", 2) == ["cd"]
    assert java.ask("bytes", "seek", "r", 10) == ["10"]
    java.ask("bytes", "await", "r")
    java.ask("bytes", "put", "w", "klm")
    assert java.ask("bytes", "flush", "w") == ["0", "13"]
    (ready,) = java.ask("bytes", "awaited", "r")
    assert int(ready) > 0
    assert java.ask("bytes", "get", "r", 100) == ["klm"]


def test_truncation_of_bytes(java: JavaPeer, java_scope: str) -> None:
    """A reader before the new head is told so, and can go there."""
    opened(java, java_scope)
    java.ask("bytes", "put", "w", "0123456789")
    java.ask("bytes", "flush", "w")
    java.ask("bytes", "truncate", "w", 6)
    assert java.ask("bytes", "where", "r") == ["0", "6", "10"]
    java.ask("bytes", "reader", "q", java_scope, "s")
    assert java.ask("bytes", "where", "q") == ["6", "6", "10"], "a reader begins at the head"
    java.ask("bytes", "seek", "q", 1)
    assert "SegmentTruncatedException" in java.fails("bytes", "get", "q", 2)
    java.ask("bytes", "seek", "q", 6)
    assert java.ask("bytes", "get", "q", 10) == ["6789"]
    java.ask("bytes", "put", "w", "more")
    assert java.ask("bytes", "flush", "w") == ["6", "14"]
    assert java.ask("bytes", "get", "q", 10) == ["more"]


def test_the_end_of_bytes(java: JavaPeer, java_scope: str) -> None:
    """A stream that its writer seals: its bytes, then the end, and no further writer."""
    opened(java, java_scope)
    java.ask("bytes", "put", "w", "all")
    java.ask("bytes", "seal", "w")
    assert java.ask("bytes", "get", "r", 10) == ["all"]
    assert java.ask("bytes", "get", "r", 10) == ["end"]
    java.ask("bytes", "seek", "r", 1)
    assert java.ask("bytes", "get", "r", 10) == ["ll"]
    java.ask("bytes", "reader", "q", java_scope, "s")
    assert java.ask("bytes", "where", "q") == ["0", "0", "3"]
    if java.gateway is not None:  # there the stream is sealed with its only segment
        assert "Stream is sealed" in java.fails("bytes", "writer", "late", java_scope, "s")
        return
    java.ask("bytes", "writer", "late", java_scope, "s")
    java.ask("bytes", "put", "late", "x")
    assert "SegmentSealed" in java.fails("bytes", "flush", "late")


def test_a_reader_that_waits_for_the_end(java: JavaPeer, java_scope: str) -> None:
    opened(java, java_scope)
    java.ask("bytes", "await", "r")
    java.ask("bytes", "seal", "w")
    assert java.ask("bytes", "awaited", "r")[0] in ("-1", "0")
    assert java.ask("bytes", "get", "r", 10) == ["end"]


def test_many_bytes_at_once(java: JavaPeer, java_scope: str) -> None:
    """More than one append can have, read back in as many reads as it takes, by a reader that is ahead of it too."""
    opened(java, java_scope)
    size = 20 * MIB + 7
    (written,) = java.ask("bytes", "fill", "w", size)
    assert java.ask("bytes", "flush", "w") == ["0", str(size)]
    assert java.ask("bytes", "all", "r", size) == [written]
    java.ask("bytes", "reader", "q", java_scope, "s")
    java.ask("bytes", "seek", "q", size - 1)
    java.ask("bytes", "put", "w", "!")
    java.ask("bytes", "flush", "w")
    found = "".join(java.ask("bytes", "get", "q", 1)[0] for _ in range(2))
    assert found.endswith("!")


def test_a_second_writer_goes_on_at_the_end(java: JavaPeer, java_scope: str) -> None:
    opened(java, java_scope)
    java.ask("bytes", "put", "w", "one,")
    java.ask("bytes", "close", "w")
    java.ask("bytes", "writer", "v", java_scope, "s")
    java.ask("bytes", "put", "v", "two")
    assert java.ask("bytes", "flush", "v") == ["0", "7"]
    assert java.ask("bytes", "get", "r", 4) + java.ask("bytes", "get", "r", 4) == ["one,", "two"]


def test_a_stream_of_several_segments_has_no_bytes(java: JavaPeer, java_scope: str) -> None:
    assert java.ask("stream", java_scope, "s", 2) == ["true"]
    assert "IllegalStateException" in java.fails("bytes", "writer", "w", java_scope, "s")
    assert "IllegalStateException" in java.fails("bytes", "reader", "r", java_scope, "s")
