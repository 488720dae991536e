"""Pravega's Python client, unmodified: scopes and streams, events by routing key, groups of readers."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from support.peers import unique
from support.pravega.clients import (
    Found,
    PravegaClient,
    PravegaFailed,
    bodies_by_s2s,
    bodies_by_s3p,
    numbered,
    streams_of,
    wait_until,
)
from support.process import GatewayProcess

KEYS = 13
MISSING = {
    "create_stream": "Scope Not Found",
    "delete_scope": None,
    "seal_stream": "Not Found",
    "delete_stream": None,
    "get_stream_tags": "NotFound",
}
"""The client's result for the answers of Pravega's own controller: the error's text, or None for False."""


def by_key(events: list[bytes]) -> dict[int, list[int]]:
    """The numbers of `numbered` events by their keys' numbers, in the order given."""
    found = defaultdict(list)
    for event in events:
        number = int(event.split()[1])
        found[number % KEYS].append(number)
    return dict(found)


def offsets_of(bodies: list[bytes]) -> list[int]:
    """Return the offsets at which the events of a segment begin."""
    return list(accumulate((8 + len(body) for body in bodies), initial=0))[:-1]


def test_scopes_and_streams(client: PravegaClient) -> None:
    scope = unique("Admin")

    def manage(*call: object) -> Any:
        return client.call("manage", *call)

    assert manage("create_scope", scope) is True
    assert manage("create_scope", scope) is False
    assert scope in manage("list_scope")
    assert manage("create_stream", scope, "a", 1) is True
    assert manage("create_stream", scope, "a", 1) is False
    assert client.call("configure", "create_stream_with_policy", scope, "b", 2, ["red", "blue"]) is True
    assert {name for name in manage("list_stream", scope) if not name.startswith("_")} == {"a", "b"}
    assert set(manage("get_stream_tags", scope, "b")) == {"red", "blue"}
    assert client.call("configure", "update_stream_with_policy", scope, "b", 2, ["green"]) is True
    assert manage("get_stream_tags", scope, "b") == ["green"]
    with pytest.raises(PravegaFailed, match="Stream Not Sealed"):
        manage("delete_stream", scope, "a")
    with pytest.raises(PravegaFailed, match="Scope not empty"):
        manage("delete_scope", scope)
    for stream in "ab":
        assert manage("seal_stream", scope, stream) is True
        assert manage("delete_stream", scope, stream) is True
    assert manage("create_stream", scope, "a", 1) is True, "a name can be used again"
    assert manage("seal_stream", scope, "a") is manage("delete_stream", scope, "a") is True
    assert manage("delete_scope", scope) is True
    assert scope not in manage("list_scope")


@pytest.mark.parametrize(("call", "complaint"), MISSING.items())
def test_what_is_missing_is_refused_at_once(
    call: str, complaint: str | None, client: PravegaClient, scope: str
) -> None:
    """This client tries again for minutes where an answer is not one of those that it takes for final."""
    arguments = {"create_stream": ("No-such-scope", "a", 1), "delete_scope": ("No-such-scope",)}
    ask = partial(client.call, "manage", call, *arguments.get(call, (scope, "missing")), seconds=5)
    if complaint is None:
        assert ask() is False
    else:
        with pytest.raises(PravegaFailed, match=complaint):
            ask()


def test_events_of_one_segment(pravega_gateway: GatewayProcess, client: PravegaClient, scope: str) -> None:
    """One order for everybody: two readers of which one idles, S2S and S3P."""
    client.call("manage", "create_stream", scope, "s", 1)
    client.call("write", scope, "s", numbered(300, KEYS))
    client.call("group", "g", scope, "s")
    for reader in ("one", "two"):
        client.call("reader", reader, "g")
    found = Found(client.call("read", ["one", "two"], 300, 20))
    expected = [body.encode() for body, _ in numbered(300, KEYS)]
    assert sorted(map(len, (found["one"], found["two"]))) == [0, 300]
    assert [body for _, body in found.events] == expected
    assert [offset for offset, _ in found.events] == offsets_of(expected)
    assert bodies_by_s2s(pravega_gateway, f"{scope}/s") == expected
    assert bodies_by_s3p(pravega_gateway, f"{scope}/s") == expected
    for reader in ("one", "two"):
        client.call("offline", reader)
    client.call("manage", "delete_reader_group", "g", scope)


def test_events_of_three_segments(pravega_gateway: GatewayProcess, client: PravegaClient, scope: str) -> None:
    """Readers in two processes share the segments: every event once, and a routing key's in order with one reader.

    A reader takes its share of what is free when it is made, and looks for more after 10 s only. So the first two
    leave again, one after the other, and their successors find two segments free, and then one.
    """
    client.call("manage", "create_stream", scope, "s", 3)
    client.call("write", scope, "s", numbered(300, KEYS))
    with PravegaClient(pravega_gateway.controller_port) as other:
        for process in (client, other):
            process.call("group", "g", scope, "s")
        client.call("reader", "first", "g")
        other.call("reader", "second", "g")
        client.call("offline", "first")
        client.call("reader", "one", "g")
        other.call("offline", "second")
        other.call("reader", "two", "g")
        client.start("read_until_told", "one")
        other.start("read_until_told", "two")
        wait_until(lambda: client.progress + other.progress >= 300)
        found = Found({"one": client.stop(), "two": other.stop()})
    by_one, by_two = by_key(found.bodies("one")), by_key(found.bodies("two"))
    assert by_one and by_two and by_one.keys().isdisjoint(by_two)
    assert by_one | by_two == {key: list(range(key, 300, KEYS)) for key in range(KEYS)}

    streams = streams_of(f"{scope}/s", 3)
    segments = [bodies_by_s2s(pravega_gateway, stream) for stream in streams]
    assert segments == [bodies_by_s3p(pravega_gateway, stream) for stream in streams]
    keys = [by_key(bodies) for bodies in segments]
    assert all(keys)
    assert len(keys[0] | keys[1] | keys[2]) == sum(map(len, keys)), "a routing key has one segment"
    assert keys[0] | keys[1] | keys[2] == by_one | by_two
    expected = sorted(event for bodies in segments for event in zip(offsets_of(bodies), bodies, strict=True))
    assert sorted(found.events) == expected


def test_from_the_tail(client: PravegaClient, scope: str) -> None:
    client.call("manage", "create_stream", scope, "s", 3)
    client.call("write", scope, "s", numbered(50, KEYS))
    client.call("group", "g", scope, "s", tail=True)
    client.call("reader", "r", "g")
    client.call("write", scope, "s", numbered(50, KEYS, first=50))
    found = Found(client.call("read", ["r"], 50, 20))
    assert sorted(found.bodies("r")) == sorted(body.encode() for body, _ in numbered(50, KEYS, first=50))


def test_from_a_stream_cut(client: PravegaClient, scope: str) -> None:
    """A reader that leaves says where it was; another group goes on there."""
    events = numbered(60, KEYS)
    expected = [body.encode() for body, _ in events]
    client.call("manage", "create_stream", scope, "s", 1)
    client.call("write", scope, "s", events)
    client.call("group", "first", scope, "s")
    client.call("reader", "r", "first")
    assert Found(client.call("read", ["r"], 25, 20)).bodies("r") == expected[:25]
    client.call("offline", "r")
    assert client.call("cut", "here", "first") == {"0": sum(8 + len(body) for body in expected[:25])}
    client.call("group", "second", scope, "s", cut="here")
    client.call("reader", "q", "second")
    assert Found(client.call("read", ["q"], 35, 20)).bodies("q") == expected[25:]


def test_to_the_end_of_a_sealed_stream(client: PravegaClient, scope: str) -> None:
    """A reader that waits at the tail learns of the end; a writer is refused."""
    client.call("manage", "create_stream", scope, "s", 2)
    client.call("write", scope, "s", numbered(20, KEYS))
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    assert len(Found(client.call("read", ["r"], 20, 20)).events) == 20
    client.call("manage", "seal_stream", scope, "s")
    assert Found(client.call("read", ["r"], 1, 1)).events == []
    with pytest.raises(PravegaFailed):
        client.call("write", scope, "s", [("late", "key 1")])
    client.call("group", "later", scope, "s")
    client.call("reader", "q", "later")
    assert len(Found(client.call("read", ["q"], 20, 20)).events) == 20
    assert Found(client.call("read", ["q"], 1, 1)).events == []


def test_a_scope_that_is_a_basin(pravega_gateway: GatewayProcess, client: PravegaClient) -> None:
    scope = unique("pravega-scope")
    client.call("manage", "create_scope", scope)
    client.call("manage", "create_stream", scope, "s", 1)
    client.call("write", scope, "s", [("one", None), ("two", None)])
    assert bodies_by_s2s(pravega_gateway, "s", scope) == [b"one", b"two"]
