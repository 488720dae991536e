"""Pravega's Python client while its streams are scaled, sealed or truncated under its hands by another client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from support.pravega.clients import Found, PravegaClient, numbered
from support.process import GatewayProcess

from penstock_proto import pravega_controller_pb2 as pb

KEYS = 7
SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"]
Ask = Callable[[str, Message], Any]


@pytest.fixture
def ask(pravega_gateway: GatewayProcess) -> Iterator[Ask]:
    """Calls of the controller, by grpcio."""
    with grpc.insecure_channel(f"127.0.0.1:{pravega_gateway.controller_port}") as channel:

        def call(name: str, request: Message) -> Any:
            answer = GetMessageClass(SERVICE.methods_by_name[name].output_type)
            method = channel.unary_unary(
                f"/{SERVICE.full_name}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return method(request, timeout=20)

        yield call


@contextmanager
def another(gateway: GatewayProcess) -> Iterator[PravegaClient]:
    with PravegaClient(gateway.controller_port) as client:
        yield client


def scale_to(ask: Ask, stream: pb.StreamInfo, count: int) -> None:
    """Replace all segments by that many new ones."""
    old = [each.segmentId.segmentId for each in ask("getCurrentSegments", stream).segmentRanges]
    ranges = [pb.ScaleRequest.KeyRangeEntry(start=at / count, end=(at + 1) / count) for at in range(count)]
    answer = ask("scale", pb.ScaleRequest(streamInfo=stream, sealedSegments=old, newKeyRanges=ranges))
    assert answer.status == pb.ScaleResponse.STARTED
    status = ask("checkScale", pb.ScaleStatusRequest(streamInfo=stream, epoch=answer.epoch)).status
    assert status == pb.ScaleStatusResponse.SUCCESS


def test_a_writer_and_a_reader_follow_every_scale(
    pravega_gateway: GatewayProcess, client: PravegaClient, scope: str, ask: Ask
) -> None:
    """Nothing is lost or doubled, and the events of each key stay in order."""
    stream = pb.StreamInfo(scope=scope, stream="s")
    client.call("manage", "create_stream", scope, "s", 2)
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    with another(pravega_gateway) as writer:
        writer.start("write_until_told", scope, "s", KEYS, 50)
        for written, segments in ((500, 4), (1000, 1), (1500, 3)):
            writer.wait_for(written)
            scale_to(ask, stream, segments)
        writer.wait_for(writer.progress + 500)
        count = writer.stop()
    found = Found(client.call("read", ["r"], count, 60, seconds=90)).bodies("r")
    assert sorted(map(int, found)) == list(range(count))
    by_key = defaultdict(list)
    for body in found:
        by_key[int(body) % KEYS].append(int(body))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_transaction_of_before_a_scale_is_committed_after_it(client: PravegaClient, scope: str, ask: Ask) -> None:
    stream = pb.StreamInfo(scope=scope, stream="s")
    client.call("manage", "create_stream", scope, "s", 1)
    client.call("write", scope, "s", numbered(10, KEYS))
    client.call("begin", "t", scope, "s")
    client.call("write_in", "t", numbered(10, KEYS, 10))
    scale_to(ask, stream, 3)
    client.call("write", scope, "s", numbered(10, KEYS, 20))
    client.call("of_transaction", "t", "commit")
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    found = Found(client.call("read", ["r"], 30, 30, seconds=60)).bodies("r")
    assert sorted(found) == sorted(body.encode() for body, _ in numbered(30, KEYS))


def test_a_transaction_is_found_by_its_id_after_a_scale(
    pravega_gateway: GatewayProcess, client: PravegaClient, scope: str, ask: Ask
) -> None:
    """By another client, which can look at it: this client takes a transaction that it found for closed, so it cannot
    write in it or end it."""
    stream = pb.StreamInfo(scope=scope, stream="s")
    client.call("manage", "create_stream", scope, "s", 1)
    scale_to(ask, stream, 2)
    number = client.call("begin", "t", scope, "s")
    client.call("write_in", "t", numbered(10, KEYS))
    scale_to(ask, stream, 3)
    with another(pravega_gateway) as other:
        other.call("resume", "found", str(number), scope, "s")
        assert other.call("of_transaction", "found", "is_open")
        client.call("of_transaction", "t", "commit")
        assert not other.call("of_transaction", "found", "is_open")
        other.call("resume", "again", str(number), scope, "s")
        assert not other.call("of_transaction", "again", "is_open")


@pytest.mark.parametrize("segments", [1, 2])
def test_a_group_of_a_stream_that_was_made_again(
    pravega_gateway: GatewayProcess, client: PravegaClient, scope: str, ask: Ask, segments: int
) -> None:
    """It is given nothing of the new stream, and a new group all of it."""
    stream = pb.StreamInfo(scope=scope, stream="s")
    client.call("manage", "create_stream", scope, "s", segments)
    client.call("write", scope, "s", numbered(20, KEYS))
    client.call("group", "old", scope, "s")
    client.call("reader", "r", "old")
    assert len(Found(client.call("read", ["r"], 3, 20)).bodies("r")) == 3
    client.call("offline", "r")
    for call in ("seal_stream", "delete_stream"):
        client.call("manage", call, scope, "s")
    client.call("manage", "create_stream", scope, "s", segments)
    current = ask("getCurrentSegments", stream).segmentRanges
    assert [each.segmentId.segmentId for each in current] == list(range(segments, 2 * segments))
    with another(pravega_gateway) as writer:
        writer.call("write", scope, "s", numbered(10, KEYS, 100))
    client.call("reader", "q", "old")
    assert Found(client.call("read", ["q"], 1, 3)).bodies("q") == []
    client.call("group", "new", scope, "s")
    client.call("reader", "p", "new")
    found = Found(client.call("read", ["p"], 10, 20)).bodies("p")
    assert sorted(found) == sorted(body.encode() for body, _ in numbered(10, KEYS, 100))


def test_a_reader_begins_at_a_truncation(client: PravegaClient, scope: str, ask: Ask) -> None:
    stream = pb.StreamInfo(scope=scope, stream="s")
    client.call("manage", "create_stream", scope, "s", 2)
    client.call("write", scope, "s", numbered(20, KEYS))
    scale_to(ask, stream, 3)
    current = ask("getCurrentSegments", stream).segmentRanges
    cut = pb.StreamCut(streamInfo=stream, cut={each.segmentId.segmentId: 0 for each in current})
    assert ask("truncateStream", cut).status == pb.UpdateStreamStatus.SUCCESS
    client.call("write", scope, "s", numbered(10, KEYS, 20))
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    found = Found(client.call("read", ["r"], 10, 20)).bodies("r")
    assert sorted(found) == sorted(body.encode() for body, _ in numbered(10, KEYS, 20))
