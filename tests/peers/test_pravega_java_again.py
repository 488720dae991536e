"""Pravega's Java client 0.13.0 on streams that are deleted and made again: as with Pravega, and by other protocols."""

from __future__ import annotations

import json

import pytest
from support.peers import unique
from support.pravega.java import MAVEN_SECONDS, JavaPeer
from support.process import BASIN
from support.s2.client import S2Client

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 120)

SEALED = "sealed"


def used(peer: JavaPeer, segments: int) -> str:
    """A new scope with a stream `s`, of which the group `old` has read 3 of 20 events, and a writer that is kept."""
    scope = unique("Again")
    assert peer.ask("scope", scope) == ["true"]
    assert peer.ask("stream", scope, "s", segments) == ["true"]
    peer.ask("write", scope, "s", "old", 20, 5, 1)
    peer.ask("group", scope, "old", "s")
    assert len(peer.ask("read", scope, "s", "old", "r", 3, 5000)) == 3
    peer.ask("keep", scope, "s")
    return scope


def events_of(words: list[str]) -> list[str]:
    return sorted(word.rsplit(":", 1)[1] for word in words)


def check_that_it_is_another(peer: JavaPeer, scope: str, segments: list[int]) -> None:
    """Nothing of before is good for this stream, which is as good as new."""
    assert peer.ask("segments", scope, "s") == [str(segment) for segment in segments]
    assert SEALED in peer.fails("again", "late")
    peer.ask("write", scope, "s", "new", 10, 5, 1)
    found = peer.ask("read", scope, "s", "old", "q", 4, 3000)
    assert found and set(found) == {"truncated"}, "not one event of the new stream"
    peer.ask("group", scope, "new", "s")
    assert events_of(peer.ask("read", scope, "s", "new", "p", 10, 5000)) == sorted(f"new-{n}-" for n in range(10))
    (transaction,) = peer.ask("begin", scope, "s", "t", 3)
    assert peer.ask("resume", scope, "s", transaction, "u", 2, "commit") == ["OPEN", "COMMITTED"]
    expected = [*(f"t-{n}" for n in range(3)), *(f"u-{n}" for n in range(2))]
    assert events_of(peer.ask("read", scope, "s", "new", "o", 5, 5000)) == expected


@pytest.mark.parametrize("segments", [1, 2])
def test_a_stream_that_is_made_again_is_another(java: JavaPeer, segments: int) -> None:
    scope = used(java, segments)
    for times in (1, 2):
        assert java.ask("delete", scope, "s") == ["true"]
        if times == 2:
            java.restart()
        assert java.ask("stream", scope, "s", segments) == ["true"]
    check_that_it_is_another(java, scope, list(range(2 * segments, 3 * segments)))


def test_a_client_of_another_protocol_makes_it_again(java: JavaPeer) -> None:
    if java.gateway is None:
        pytest.skip("Pravega has no other protocol")
    scope = used(java, 1)
    client = S2Client(("127.0.0.1", java.gateway.s2_port), BASIN)
    for number in (1, 2):
        assert client.request("DELETE", f"/v1/streams/{scope}%2Fs").status == 202
        body = json.dumps({"stream": f"{scope}/s"}).encode()
        assert client.request("POST", "/v1/streams", body, {"content-type": "application/json"}).status == 201
        java.restart()
        assert java.ask("segments", scope, "s") == [str(number)]
    check_that_it_is_another(java, scope, [2])


def test_a_reader_group_that_is_made_again(java: JavaPeer) -> None:
    """It begins at the head, and a reader of the old one has no part in it."""
    scope = used(java, 1)
    for _ in range(2):
        assert java.ask("deleteGroup", scope, "old") == []
        java.ask("group", scope, "old", "s")
        found = events_of(java.ask("read", scope, "s", "old", "again", 20, 5000))
        assert found == sorted(f"old-{n}-" for n in range(20))
