"""Faults as S3P's clients meet them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.faults import injected
from support.process import GatewayProcess
from support.s3p.client import S3PClient, S3PError, options


@pytest.fixture
def client(faulty: GatewayProcess) -> Iterator[S3PClient]:
    with closing(S3PClient(("127.0.0.1", faulty.s3p_port))) as client:
        yield client


def bodies(client: S3PClient, stream: str) -> list[bytes]:
    return [body for _, body in client.read(stream)]


def begun(client: S3PClient, rule: str, *records: bytes) -> str:
    """A stream that a rule is for; its name."""
    stream = f"{rule}.s3p"
    client.create(stream)
    for record in records:
        client.append(stream, record)
    return stream


@pytest.mark.parametrize("rule", ["lost-append", "lost-ack"])
def test_an_append_without_an_answer(client: S3PClient, rule: str) -> None:
    """The next answer is that to the next command: which client takes it for its own?"""
    stream = begun(client, rule, b"1")
    client.send("APPEND", stream, [], [b"2"])
    client.send("READ", stream, [])
    found = client.reply()[1::2]
    assert found == ([b"1"] if rule == "lost-append" else [b"1", b"2"])


def test_appends_in_a_pipeline(client: S3PClient) -> None:
    """Each is a message of its own: each third is lost, the others are stored and acknowledged."""
    stream = begun(client, "thirds")
    for number in range(7):
        client.send("APPEND", stream, [], [b"%d" % number])
    client.send("READ", stream, [])
    assert all(isinstance(client.reply(), bytes) for _ in range(5))
    assert client.reply()[1::2] == [b"0", b"1", b"3", b"4", b"6"]


def test_a_command_that_comes_twice(client: S3PClient) -> None:
    stream = begun(client, "twice-in", b"1", b"2")
    assert bodies(client, stream) == [b"1", b"1", b"2"]


def test_a_cut_in_the_middle_of_an_answer(client: S3PClient) -> None:
    stream = begun(client, "cut-out", b"1")
    client.send("READ", stream, [])
    assert client.socket.recv(100, 0) == b"*2\r\n$15"
    assert client.socket.recv(100) == b""


@pytest.mark.parametrize(("rule", "stored"), [("cut-ack", [b"1"]), ("cut-in", [])])
def test_a_cut_instead_of_an_acknowledgement(
    faulty: GatewayProcess, client: S3PClient, rule: str, stored: list[bytes]
) -> None:
    stream = f"{rule}.s3p"
    client.create(stream)
    client.send("APPEND", stream, [], [b"1"])
    assert client.socket.recv(100) == b""
    with closing(S3PClient(("127.0.0.1", faulty.s3p_port))) as again:
        assert bodies(again, stream) == stored
        assert again.append(stream, b"2")


def test_errors(client: S3PClient) -> None:
    stream = begun(client, "refused", b"1")
    assert client.append(stream, b"2") == S3PError("ERR_RATE_LIMITED", "injected by fault refused")
    assert client.append(stream, b"3")
    assert bodies(client, stream) == [b"1", b"3"]
    stream = begun(client, "applied")
    assert client.append(stream, b"1") == S3PError("ERR_UNAVAILABLE", "injected by fault applied")
    assert bodies(client, stream) == [b"1"]
    stream = begun(client, "unread", b"1")
    assert bodies(client, stream) == [b"1"]
    assert client.read(stream) == S3PError("ERR_STORAGE", "no")
    assert client.create("no-control.s3p") == S3PError("ERR_UNAVAILABLE", "injected by fault no-control")


def test_a_terminal_is_an_error_after_so_many_records(client: S3PClient) -> None:
    """S3P has no sessions: the append of the fourth record is refused, and counting starts anew."""
    stream = begun(client, "ends")
    found = [client.append(stream, b"%d" % number) for number in range(8)]
    assert [isinstance(one, S3PError) for one in found] == [False, False, False, True] * 2


def test_a_slow_answer(client: S3PClient) -> None:
    stream = begun(client, "slow", b"x" * 10_000)
    begin = time.monotonic()
    assert bodies(client, stream) == [b"x" * 10_000]
    assert time.monotonic() - begin > 0.4


@pytest.mark.parametrize("rule", ["late", "late-out"])
def test_a_late_answer(client: S3PClient, rule: str) -> None:
    stream = begun(client, rule)
    begin = time.monotonic()
    client.append(stream, b"1")
    assert time.monotonic() - begin > 0.14


def test_what_no_rule_is_for(faulty: GatewayProcess, client: S3PClient) -> None:
    client.create("untouched")
    for number in range(10):
        assert client.append("untouched", b"%d" % number)
    assert len(client.read_all("untouched")) == 10
    assert client.call("READ", "untouched", options(COUNT=3))
    assert all(not event["stream"].endswith("untouched") for event in faulty.events("fault_injected"))
    assert injected(faulty, "nobody") == []
