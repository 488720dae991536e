"""Faults as clients of the segment protocol meet them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from support.faults import injected
from support.pravega.clients import wait_until
from support.process import GatewayProcess
from support.segment.client import ReleasedSocket, append_messages

from penstock_pravega.codec import released, split_events


@pytest.fixture
def client(faulty: GatewayProcess) -> Iterator[ReleasedSocket]:
    with connected(faulty) as client:
        yield client


def connected(gateway: GatewayProcess) -> ReleasedSocket:
    return ReleasedSocket(("127.0.0.1", gateway.segment_port))


def bodies(gateway: GatewayProcess, segment: str) -> list[bytes]:
    """Return the bodies in a segment, read by a separate client."""
    with connected(gateway) as client:
        return split_events(client.content(segment))


def begun(client: ReleasedSocket, rule: str) -> str:
    return client.create(f"penstock/{rule}.segment")


def test_a_lost_acknowledgement(faulty: GatewayProcess, client: ReleasedSocket) -> None:
    """The next one tells of both."""
    segment = begun(client, "lost-ack")
    writer = client.writer(segment)
    assert client.append(writer, [b"1"], 1).event_number == 1
    client.send(*append_messages(writer, [b"2"], 2, client.next_id()))
    reply = client.append(writer, [b"3"], 3)
    assert (reply.previous_event_number, reply.event_number) == (2, 3)
    assert bodies(faulty, segment) == [b"1", b"2", b"3"]


def test_a_lost_append(faulty: GatewayProcess, client: ReleasedSocket) -> None:
    """Later appends are refused: they would raise the writer's position above the missing event."""
    segment = begun(client, "lost-append")
    writer = client.writer(segment)
    client.append(writer, [b"1"], 1)
    client.send(*append_messages(writer, [b"2"], 2, client.next_id()))
    client.send(*append_messages(writer, [b"3"], 3, client.next_id()))
    assert isinstance(client.reply(), released.InvalidEventNumber)
    assert bodies(faulty, segment) == [b"1"]


def test_an_append_that_comes_twice(faulty: GatewayProcess, client: ReleasedSocket) -> None:
    """It is stored once, since its writer has numbered it."""
    segment = begun(client, "twice-in")
    writer = client.writer(segment)
    assert client.append(writer, [b"1"], 1).event_number == 1
    assert client.append(writer, [b"2"], 2).event_number == 2
    assert injected(faulty, "twice-in") == ["duplicate"]
    assert bodies(faulty, segment) == [b"1", b"2"]


@pytest.mark.parametrize(("rule", "stored"), [("cut-ack", [b"1"]), ("cut-in", [])])
def test_a_cut_instead_of_an_acknowledgement(
    faulty: GatewayProcess, client: ReleasedSocket, rule: str, stored: list[bytes]
) -> None:
    segment = begun(client, rule)
    client.send(*append_messages(client.writer(segment), [b"1"], 1, client.next_id()))
    assert client.ended()
    assert bodies(faulty, segment) == stored


def test_a_cut_in_the_middle_of_a_reply(client: ReleasedSocket) -> None:
    segment = begun(client, "cuts")
    client.append(client.writer(segment), [b"1"], 1)
    client.send(released.ReadSegment(segment, 0, 100, "", client.next_id()))
    got = b""
    while data := client.socket.recv(100):
        got += data
    assert len(got) == 7


def test_a_read_that_is_never_answered(faulty: GatewayProcess, client: ReleasedSocket) -> None:
    segment = begun(client, "dropped-read")
    client.append(client.writer(segment), [b"1"], 1)
    client.send(released.ReadSegment(segment, 0, 100, "", client.next_id()))
    wait_until(lambda: bool(injected(faulty, "dropped-read")))  # reads go on side by side
    second = client.next_id()
    client.send(released.ReadSegment(segment, 0, 100, "", second))
    assert client.reply().request_id == second


def test_errors(faulty: GatewayProcess, client: ReleasedSocket) -> None:
    """An append that fails ends its writer: later appends must not be stored either."""
    segment = begun(client, "refused")
    writer = client.writer(segment)
    client.append(writer, [b"1"], 1)
    client.send(*append_messages(writer, [b"2"], 2, client.next_id()))
    client.send(*append_messages(writer, [b"3"], 3, client.next_id()))
    replies = []
    with contextlib.suppress(EOFError, TimeoutError):
        while True:
            replies.append(client.reply(0.3))
    assert not any(isinstance(reply, released.DataAppended) for reply in replies)
    assert bodies(faulty, segment) == [b"1"]


def test_a_late_and_a_slow_reply(client: ReleasedSocket) -> None:
    segment = begun(client, "slow")
    client.append(client.writer(segment), [b"x" * 10_000], 1)
    begin = time.monotonic()
    client.read(segment, 0)
    assert time.monotonic() - begin > 0.4
    segment = begun(client, "late")
    writer = client.writer(segment)
    begin = time.monotonic()
    client.append(writer, [b"1"], 1)
    assert time.monotonic() - begin > 0.14
