"""Pravega's Java client 0.13.0, unmodified: `java/client/Peer.java` behind a relay that records what it sends."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.peers import unique
from support.pravega.clients import (
    PravegaClient,
    advertising,
    bodies_by_s2s,
    bodies_by_s3p,
    need_pravega,
    streams_of,
    wait_until,
)
from support.pravega.java import MAVEN_SECONDS, JavaProgram, running_again, running_java
from support.pravega.relay import NO_TARGET, Relay
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.segment.messages import pull
from support.tls.gateway import secured_gateway

from penstock_pravega.codec import BlockAppended, SegmentMessage, SegmentServer, join_events, released
from penstock_pravega.codec.layout import HEADER, HEADER_BYTES

pytestmark = pytest.mark.timeout(MAVEN_SECONDS + 60)

PROJECT = Path(__file__).parent / "java" / "client"
SEGMENTS = 2
KEYS = 11
ROUNDS = 5


class Event(NamedTuple):
    """An event and its pointer: `SEGMENT:OFFSET-LENGTH`."""

    at: str
    body: bytes


class Peer(NamedTuple):
    """The gateway, the relay before its segment store, and the Java client, whose classes are in `classes`."""

    gateway: GatewayProcess
    relay: Relay
    java: JavaProgram
    classes: Path

    def ask(self, *question: object) -> list[str]:
        """The words of an answer that is no failure."""
        verdict, *words = self.java.ask(*question)
        assert verdict == "ok", words
        return words

    def read(
        self, scope: str, stream: str, group: str, reader: str, count: int, millis: int = 20_000, pause: int = 0
    ) -> list[Event]:
        """Read `count` events with a new reader of a group, which then leaves; `pause`: ms before each event."""
        words = self.ask("read", scope, stream, group, reader, count, millis, pause)
        return [Event(at, text.encode()) for at, text in (word.rsplit(":", 1) for word in words)]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with Relay() as relay, Relay() as controller, running_gateway(advertising(relay.port)) as gateway:
        relay.target, controller.target = gateway.segment_port, gateway.controller_port
        uri = f"tcp://127.0.0.1:{controller.port}"
        classes = tmp_path_factory.mktemp("java")
        with running_java(PROJECT, "Peer", classes, uri) as java:
            yield Peer(gateway, relay, java, classes)


@pytest.fixture
def scope(peer: Peer) -> str:
    """A scope with a stream `s` of two segments and one called `one`."""
    name = unique("Java")
    assert peer.ask("scope", name) == ["true"]
    assert peer.ask("stream", name, "s", SEGMENTS) == peer.ask("stream", name, "one", 1) == ["true"]
    return name


def filled(prefix: str, count: int, longest: int) -> list[bytes]:
    """The events that `write` of Peer.java makes."""
    return [f"{prefix}-{n}-".ljust(n * 7919 % longest, ".").encode() for n in range(count)]


def number_of(event: bytes) -> int:
    return int(event.split(b"-")[1])


def by_key(events: list[bytes]) -> dict[int, list[int]]:
    """The numbers of events by the numbers of their routing keys."""
    found = defaultdict(list)
    for event in events:
        found[number_of(event) % KEYS].append(number_of(event))
    return dict(found)


def messages_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message."""
    at = 0
    while at < len(data):
        type_id, length = HEADER.unpack_from(data, at)
        at += HEADER_BYTES + length
        yield type_id, data[at - length : at]


def wrappers_in(said: bytes) -> list[int]:
    """The types of the messages that stand behind the whole events of blocks."""
    found, block = [], b""
    for type_id, body in messages_in(said):
        if type_id == released.AppendBlock.type_id:
            block = body[16:]
        elif type_id == released.AppendBlockEnd.type_id and block:
            size = int.from_bytes(body[16:20], "big")
            if size < len(block):
                found.append(HEADER.unpack_from(block, size)[0])
            block = b""
    return found


def heard(said: bytes) -> list[SegmentMessage | BlockAppended]:
    server = SegmentServer(observer=True)
    server.receive(said)
    return pull(server)


def all_bodies(peer: Peer, stream: str) -> list[bytes]:
    """The events of all segments that a stream has or had."""
    client = S2Client(("127.0.0.1", peer.gateway.s2_port), BASIN)
    listed = json.loads(client.request("GET", f"/v1/streams?limit=1000&prefix={stream}").body)["streams"]
    return [body for one in listed for body in bodies_by_s2s(peer.gateway, one["name"])]


def test_pipelined_events(peer: Peer, scope: str) -> None:
    """Blocks of which the client says the size before it has filled them: Padding and PartialEvent, really used."""
    earlier = len(peer.relay.said)
    peer.ask("write", scope, "s", "e", 4000, KEYS, 3000)
    events = filled("e", 4000, 3000)
    segments = [bodies_by_s2s(peer.gateway, stream) for stream in streams_of(f"{scope}/s", SEGMENTS)]
    keys = [by_key(bodies) for bodies in segments]
    assert keys[0].keys() and keys[1].keys() and keys[0].keys().isdisjoint(keys[1])
    assert keys[0] | keys[1] == {key: list(range(key, 4000, KEYS)) for key in range(KEYS)}
    assert sorted(segments[0] + segments[1]) == sorted(events)

    said = [bytes(data) for data in peer.relay.said[earlier:]]
    assert {wrapper for data in said for wrapper in wrappers_in(data)} == {
        released.Padding.type_id,
        released.PartialEvent.type_id,
    }
    messages = [message for data in said for message in heard(data)]
    assert sum(message.number_of_events for message in messages if isinstance(message, BlockAppended)) == 4000
    assert released.KeepAlive() in messages
    assert released.Hello(16, 5) in messages


def test_a_reader_group(peer: Peer, scope: str) -> None:
    """The group's state is a stream of the client's own making, `_RG` and the group's name."""
    peer.ask("write", scope, "s", "a", 60, KEYS, 50)
    peer.ask("group", scope, "g", "s")
    size = len(join_events(filled("a", 60, 50)))
    assert peer.ask("unread", scope, "g") == [str(size)]
    first = peer.read(scope, "s", "g", "r", 25)
    peer.ask("write", scope, "s", "b", 5, KEYS, 50)
    found = first + peer.read(scope, "s", "g", "q", 40)
    assert sorted(event.body for event in found) == sorted(filled("a", 60, 50) + filled("b", 5, 50))
    assert peer.ask("unread", scope, "g") == ["0"]
    expected = []
    for number, stream in enumerate(streams_of(f"{scope}/s", SEGMENTS)):
        offset = 0
        for body in bodies_by_s2s(peer.gateway, stream):
            expected.append(Event(f"{scope}/s/{number}.#epoch.0:{offset}-{len(body) + 8}", body))
            offset += len(body) + 8
    assert sorted(found) == sorted(expected)
    assert peer.ask("seal", scope, "s") == ["true"]
    assert peer.read(scope, "s", "g", "p", 1, 1000) == []
    streams = S2Client(("127.0.0.1", peer.gateway.s2_port), BASIN).request("GET", "/v1/streams?limit=1000")
    assert f"{scope}/s".encode() in streams.body
    assert b"_RG" not in streams.body


def test_a_group_that_reads_a_part(peer: Peer, scope: str) -> None:
    """From where the stream was truncated to a stream cut."""
    peer.ask("write", scope, "one", "x", 5, 1, 1)
    assert peer.ask("truncate", scope, "one", "0=12") == ["true"]
    peer.ask("group", scope, "g", "one", "0=36")
    found = peer.read(scope, "one", "g", "r", 3, 1000)
    assert found == [Event(f"{scope}/one/0.#epoch.0:{12 * n}-12", b"x-%d-" % n) for n in (1, 2)]


def test_events_of_other_protocols(peer: Peer, scope: str) -> None:
    peer.ask("group", scope, "g", "one")
    S2Client(("127.0.0.1", peer.gateway.s2_port), BASIN).append(f"{scope}/one", "by-s2", "too")
    peer.ask("write", scope, "one", "java", 1, 1, 10)
    expected = [b"by-s2", b"too", b"java-0-"]
    assert [event.body for event in peer.read(scope, "one", "g", "r", 3)] == expected
    assert bodies_by_s3p(peer.gateway, f"{scope}/one") == expected


def test_transactions(peer: Peer, scope: str) -> None:
    assert peer.ask("transaction", scope, "s", "dropped", 5, "abort") == ["OPEN", "ABORTED"]
    assert peer.ask("transaction", scope, "s", "kept", 5, "commit") == ["OPEN", "COMMITTED"]
    found = [body for stream in streams_of(f"{scope}/s", SEGMENTS) for body in bodies_by_s2s(peer.gateway, stream)]
    assert sorted(found) == [f"kept-{n}".encode() for n in range(5)]


@pytest.mark.parametrize(("end", "ended"), [("commit", "COMMITTED"), ("abort", "ABORTED")])
def test_a_transaction_is_found_by_its_id_after_a_scale(peer: Peer, scope: str, end: str, ended: str) -> None:
    """getTxn, by a client that knows the id alone: it writes on in the transaction and ends it."""
    (begun,) = peer.ask("begin", scope, "s", "t", 5)
    assert peer.ask("scale", scope, "s", "0,1", "0.0-1.0") == ["true"]
    (later,) = peer.ask("begin", scope, "s", "t", 5)
    assert peer.ask("scale", scope, "s", (1 << 32) + 2, "0.0-0.3,0.3-1.0") == ["true"]
    for transaction in (begun, later):
        assert peer.ask("resume", scope, "s", transaction, "t", 0, "look") == ["OPEN"]
        assert peer.ask("resume", scope, "s", transaction, "u", 5, end) == ["OPEN", ended]
        assert peer.ask("resume", scope, "s", transaction, "t", 0, "look") == [ended]
    expected = [f"{prefix}-{n}".encode() for prefix in "tu" for n in range(5)] * 2 if end == "commit" else []
    assert sorted(all_bodies(peer, f"{scope}/s")) == sorted(expected)


def test_a_group_that_lacks_keys_while_a_segment_waits(peer: Peer, scope: str) -> None:
    """Of two segments that were joined one is finished, so the group's position is the other alone."""
    peer.ask("write", scope, "s", "x", 20, 1, 1)
    (written,) = (
        number
        for number, stream in enumerate(streams_of(f"{scope}/s", SEGMENTS))
        if bodies_by_s2s(peer.gateway, stream)
    )
    assert peer.ask("scale", scope, "s", "0,1", "0.0-1.0") == ["true"]
    peer.ask("write", scope, "s", "y", 10, 1, 1)
    peer.ask("checkpointed", scope, "g", "s", 1000)
    found = peer.read(scope, "s", "g", "r", 6, 20_000, 700)
    assert {event.at.split(":")[0] for event in found} == {f"{scope}/s/{written}.#epoch.0"}
    after_each = [len(join_events(filled("x", 20, 1)[at:] + filled("y", 10, 1))) for at in range(7)]
    (unread,) = peer.ask("unread", scope, "g")
    assert int(unread) in after_each, "counted from the last checkpoint"
    rest = peer.read(scope, "s", "g", "q", 24)
    assert [event.body for event in rest] == filled("x", 20, 1)[6:] + filled("y", 10, 1)


def test_a_scale_that_is_done_already(peer: Peer, scope: str) -> None:
    for done in ("true", "false"):
        assert peer.ask("scale", scope, "s", "0,1", "0.0-1.0") == [done]


def test_bytes(peer: Peer, scope: str) -> None:
    assert peer.ask("appendBytes", scope, "one", "hello") == ["5"]
    assert peer.ask("appendBytes", scope, "one", "world") == ["10"], "a writer of bytes begins at the end"
    assert peer.ask("readBytes", scope, "one", 2, 7) == ["0", "10", "lloworl"]
    assert peer.ask("truncateBytes", scope, "one", 4) == ["4"]
    assert peer.ask("readBytes", scope, "one", 4, 6) == ["4", "10", "oworld"]
    verdict, complaint, *_ = peer.java.ask("readBytes", scope, "one", 3, 1)
    assert (verdict, "SegmentTruncatedException" in complaint) == ("failed", True)
    assert peer.ask("seal", scope, "one") == ["true"]
    assert peer.ask("readBytes", scope, "one", 4, 100) == ["4", "10", "oworld"]


def test_a_shared_state(peer: Peer, scope: str) -> None:
    """Two writers of conditional appends on one segment, of which each sees what the other did before."""
    assert peer.ask("count", scope, "one", 2, 15) == ["30", "30"]


def test_the_mark_of_a_stream(peer: Peer, scope: str) -> None:
    """The first write is taken, the second on the same condition is not; so with the mark, a segment's attribute."""
    assert peer.ask("mark", scope, "one") == ["true", "true", "false", "true", "true", "true"]


def test_both_clients_of_pravega_on_one_stream(peer: Peer, scope: str) -> None:
    """They share no group of readers, but streams, routing keys and order."""
    need_pravega()
    with PravegaClient(peer.gateway.controller_port) as python:
        python.call("group", "g", scope, "s")
        python.call("reader", "r", "g")
        peer.ask("write", scope, "s", "java", 20, KEYS, 30)
        python.call("write", scope, "s", [(f"python-{n}-", f"key{n % KEYS}") for n in range(20)])
        read = python.call("read", ["r"], 40, 20)["r"]
    peer.ask("group", scope, "g", "s")
    by_java = [event.body for event in peer.read(scope, "s", "g", "r", 40)]
    expected = sorted(filled("java", 20, 30) + [f"python-{n}-".encode() for n in range(20)])
    assert sorted(body.encode() for _, body in read) == sorted(by_java) == expected
    segments = [bodies_by_s2s(peer.gateway, stream) for stream in streams_of(f"{scope}/s", SEGMENTS)]
    keys = [by_key(bodies).keys() for bodies in segments]
    assert keys[0].isdisjoint(keys[1]), "both put a routing key into the same segment"


def stored(peer: Peer, scope: str) -> list[int]:
    """The numbers of the events of `s`; those of a routing key are in one segment, and in order."""
    segments = [bodies_by_s2s(peer.gateway, stream) for stream in streams_of(f"{scope}/s", SEGMENTS)]
    keys = [by_key(bodies) for bodies in segments]
    assert keys[0].keys().isdisjoint(keys[1])
    for numbers in [*keys[0].values(), *keys[1].values()]:
        assert numbers == list(range(numbers[0] % KEYS, numbers[-1] + 1, KEYS))
    return sorted(number for numbers in [*keys[0].values(), *keys[1].values()] for number in numbers)


def test_kill_nine_during_pipelined_appends(peer: Peer, scope: str) -> None:
    """Under the same writer, with events in flight by the hundred: all that it wrote is there, once, in order.

    Acknowledgements get lost before each kill, so that there are events which are stored and which the writer sends
    again unless it asks.
    """
    began, in_doubt = time.monotonic(), 0
    peer.ask("start", scope, "s", KEYS, 200)

    def acknowledged() -> int:
        (number,) = peer.ask("acknowledged")
        return int(number)

    def reach(number: int) -> None:
        wait_until(lambda: acknowledged() >= number)

    for _ in range(ROUNDS):
        reach(acknowledged() + 1000)
        peer.relay.swallows = True
        wait_until(lambda: len(stored(peer, scope)) > acknowledged())
        peer.gateway.kill()
        told = acknowledged()
        port, peer.relay.target, peer.relay.swallows = peer.relay.target, NO_TARGET, False
        peer.gateway.start()
        found = stored(peer, scope)
        assert found[:told] == list(range(told))
        in_doubt += len(found) - told
        peer.relay.target = port
    (written,) = peer.ask("stop")
    print(f"{ROUNDS} rounds in {time.monotonic() - began:.0f} s: {written} events, {in_doubt} of them were in doubt")
    assert stored(peer, scope) == list(range(int(written)))
    assert in_doubt >= ROUNDS


@pytest.mark.long
def test_over_tls(peer: Peer, tmp_path: Path) -> None:
    """Controller and segments. The client checks names too."""
    with secured_gateway(tmp_path) as secured:
        uri, authority = f"tls://localhost:{secured.port('controller.tls')}", secured.authority.ca
        with running_again("Peer", peer.classes, uri, authority) as java:
            other, name = peer._replace(java=java), unique("Java")
            assert other.ask("scope", name) == ["true"]
            assert other.ask("stream", name, "s", 1) == ["true"]
            other.ask("group", name, "group", "s")
            other.ask("write", name, "s", "x", 20, KEYS, 1000)
            read = other.read(name, "s", "group", "reader", 20)
        assert [event.body for event in read] == filled("x", 20, 1000)
