"""Pravega's Python client, unmodified: streams of bytes, transactions, an event that fits into no append."""

from __future__ import annotations

import pytest
from support.pravega.clients import Found, PravegaClient, PravegaFailed, bodies_by_s2s, bodies_by_s3p, numbered
from support.process import GatewayProcess

KEYS = 5


@pytest.fixture
def opened(client: PravegaClient, scope: str) -> PravegaClient:
    """With a byte stream called `b` that holds 100 bytes."""
    client.call("manage", "create_stream", scope, "b", 1)
    client.call("open_bytes", "b", scope, "b")
    assert client.call("write_bytes", "b", "0123456789" * 10) == 100
    return client


def test_bytes(opened: PravegaClient, pravega_gateway: GatewayProcess, scope: str) -> None:
    def of(call: str, *arguments: int) -> object:
        return opened.call("of_bytes", "b", call, *arguments)

    def read(size: int) -> object:
        return opened.call("read_bytes", "b", size)

    assert of("current_tail_offset") == 100
    assert (read(10), of("tell")) == ("0123456789", 10)
    assert (of("seek", 55, 0), read(7)) == (55, "5678901")
    assert (of("seek", 1, 1), read(3)) == (63, "345")
    assert (of("seek", -4, 2), read(100)) == (96, "6789")
    of("truncate", 33)
    assert (of("current_head_offset"), of("current_tail_offset")) == (33, 100)
    assert of("seek", 0, 0) == 0
    with pytest.raises(PravegaFailed, match="SegmentIsTruncated"):
        read(5)
    assert (of("seek", 33, 0), read(5)) == (33, "34567")
    assert b"".join(bodies_by_s2s(pravega_gateway, f"{scope}/b"))[-67:] == (b"0123456789" * 10)[33:]


def test_a_read_of_bytes_waits_at_the_tail(opened: PravegaClient, pravega_gateway: GatewayProcess, scope: str) -> None:
    """It returns once there is an append, or once the stream is sealed."""
    with PravegaClient(pravega_gateway.controller_port) as reader:
        reader.call("open_bytes", "b", scope, "b")
        assert reader.call("of_bytes", "b", "seek", 100, 0) == 100
        reader.start("read_bytes", "b", 5)
        opened.call("write_bytes", "b", "abcde")
        assert reader.finish() == "abcde"
        reader.start("read_bytes", "b", 5)
        opened.call("manage", "seal_stream", scope, "b")
        assert reader.finish() == ""
        assert reader.call("read_bytes", "b", 5) == ""
    with pytest.raises(PravegaFailed, match="Stream is sealed"):
        opened.call("write_bytes", "b", "late")


def test_bytes_that_another_wrote_are_not_overtaken(
    opened: PravegaClient, pravega_gateway: GatewayProcess, scope: str
) -> None:
    """The client appends on condition that the stream ends where it thinks; a new one thinks at 0."""
    with PravegaClient(pravega_gateway.controller_port) as other:
        other.call("open_bytes", "b", scope, "b")
        with pytest.raises(PravegaFailed, match="ConditionalCheckFailure"):
            other.call("write_bytes", "b", "abc")
        assert other.call("of_bytes", "b", "current_tail_offset") == 100
    assert opened.call("write_bytes", "b", "abc") == 3
    assert b"".join(bodies_by_s2s(pravega_gateway, f"{scope}/b")) == b"0123456789" * 10 + b"abc"


def test_transactions(client: PravegaClient, pravega_gateway: GatewayProcess, scope: str) -> None:
    """Nothing of a transaction is seen before it is committed, and of an aborted one nothing ever."""
    client.call("manage", "create_stream", scope, "s", 1)
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    for name, first in (("kept", 0), ("dropped", 100), ("open", 200)):
        client.call("begin", name, scope, "s")
        client.call("write_in", name, numbered(30, KEYS, first))
        assert client.call("of_transaction", name, "is_open") is True
    client.call("write", scope, "s", numbered(5, KEYS, 300))
    assert bodies_by_s2s(pravega_gateway, f"{scope}/s") == [body.encode() for body, _ in numbered(5, KEYS, 300)]
    client.call("of_transaction", "dropped", "abort")
    client.call("of_transaction", "kept", "commit")
    assert [client.call("of_transaction", name, "is_open") for name in ("kept", "dropped", "open")] == [
        False,
        False,
        True,
    ]
    expected = [body.encode() for body, _ in [*numbered(5, KEYS, 300), *numbered(30, KEYS)]]
    assert Found(client.call("read", ["r"], 35, 20)).bodies("r") == expected
    assert bodies_by_s2s(pravega_gateway, f"{scope}/s") == bodies_by_s3p(pravega_gateway, f"{scope}/s") == expected
    for name, call in (("kept", "commit"), ("dropped", "commit")):
        with pytest.raises(PravegaFailed, match="TxnFailed"):
            client.call("of_transaction", name, call)
    with pytest.raises(PravegaFailed, match="TxnFailed"):
        client.call("write_in", "dropped", [("late", "key")])


def test_a_transaction_over_three_segments(client: PravegaClient, scope: str) -> None:
    client.call("manage", "create_stream", scope, "s", 3)
    client.call("begin", "t", scope, "s")
    client.call("write_in", "t", numbered(60, 30))
    client.call("of_transaction", "t", "commit")
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    found = Found(client.call("read", ["r"], 60, 20)).bodies("r")
    assert sorted(found) == sorted(body.encode() for body, _ in numbered(60, 30))


def test_an_event_over_8_mib(client: PravegaClient, pravega_gateway: GatewayProcess, scope: str) -> None:
    """It comes by a transient segment that is merged; other protocols get it in records as large as they can be."""
    large = "".join(map(chr, range(32, 127))) * 95_000
    assert len(large) > 8 << 20
    client.call("manage", "create_stream", scope, "s", 1)
    client.call("write", scope, "s", [("before", "k"), (large, "k"), ("after", "k")])
    client.call("group", "g", scope, "s")
    client.call("reader", "r", "g")
    found = Found(client.call("read", ["r"], 3, 20))
    assert found.bodies("r") == [b"before", large.encode(), b"after"]
    first, *pieces, last = bodies_by_s2s(pravega_gateway, f"{scope}/s")
    assert (first, last) == (b"before", b"after")
    assert b"".join(pieces) == bytes(4) + len(large).to_bytes(4, "big") + large.encode()
    assert bodies_by_s3p(pravega_gateway, f"{scope}/s") == [first, *pieces, last]
