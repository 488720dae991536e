"""The course of a conversation at the server's end (S3P 0.2.0, sections 4, 9 and 13)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.failures import FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.model.records import RecordId
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_s3p.codec import AppendedId, Create, ErrorReply, Ok, Records, S3PServer, error_reply

MAX = 2**64 - 1


def wire(value: Any) -> bytes:
    """Bytes become a bulk string, a list an array."""
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(wire, value))


def command(word: bytes, options: list[Any], *more: list[Any], name: bytes = b"s") -> bytes:
    return wire([word, name, options, *more])


def test_replies_answer_commands_in_order() -> None:
    server = S3PServer()
    server.receive(command(b"CREATE", []) + command(b"READ", []) + command(b"APPEND", [], [b"x"]))
    for _ in range(3):
        server.next_event()
    with pytest.raises(LocalProtocolError):
        server.send(Records.of([]))
    assert server.send(Ok()) == [b"+OK\r\n"]
    with pytest.raises(LocalProtocolError):
        server.send(AppendedId(RecordId(1, 0)))
    assert b"".join(server.send(Records.of([(RecordId(1, 0), b"x")]))) == b"*2\r\n$3\r\n1-0\r\n$1\r\nx\r\n"
    assert b"".join(server.send(AppendedId(RecordId(0, MAX)))) == b"$22\r\n0-18446744073709551615\r\n"
    with pytest.raises(LocalProtocolError):
        server.send(Ok())


def test_recoverable_errors_leave_the_conversation_open() -> None:
    """Section 9."""
    server = S3PServer()
    server.receive(command(b"CREATE", []) * 2)
    server.next_event()
    assert server.send(ErrorReply("ERR_STREAM_EXISTS", "stream s already exists")) == [
        b"-ERR_STREAM_EXISTS stream s already exists\r\n"
    ]
    assert server.next_event() == Create(b"s")
    server.send(Ok())


def test_unrecoverable_errors_end_the_conversation() -> None:
    """Sections 9 and 13: earlier commands are answered first; later ones are not even parsed."""
    server = S3PServer()
    server.receive(command(b"CREATE", []) + b"?" + command(b"CREATE", []))
    server.next_event()
    with pytest.raises(RemoteProtocolError) as caught:
        server.next_event()
    assert server.buffered == 0
    server.receive(b"x" * 100_000)
    assert server.buffered == 0
    with pytest.raises(RemoteProtocolError):
        server.next_event()
    server.send(Ok())
    with pytest.raises(LocalProtocolError):
        server.send(ErrorReply("ERR_STREAM_EXISTS", "a recoverable error cannot answer a fault"))
    assert server.send(error_reply(caught.value.failure))[0].startswith(b"-ERR_BAD_FORMAT expected an array (*)")
    with pytest.raises(LocalProtocolError):
        server.send(Ok())


def test_an_unrecoverable_reply_to_a_sound_command_ends_the_conversation_too() -> None:
    server = S3PServer()
    server.receive(command(b"CREATE", []) * 2)
    server.next_event()
    server.send(ErrorReply("ERR_LIMITS", "no"))
    assert server.next_event() is PAUSED


def test_the_peer_finishes() -> None:
    server = S3PServer()
    server.receive(command(b"CREATE", []))
    server.receive(b"")
    assert server.next_event() == Create(b"s")
    assert server.next_event() is PAUSED
    assert server.send(Ok()) == [b"+OK\r\n"], "a peer that finished sending may still read"


@pytest.mark.parametrize("length", range(1, len(command(b"CREATE", []))))
def test_the_peer_goes_away_inside_a_command(length: int) -> None:
    """Fact 7."""
    server = S3PServer()
    server.receive(command(b"CREATE", [])[:length])
    assert server.next_event() is NEED_DATA
    server.receive(b"")
    with pytest.raises(RemoteProtocolError, match=f"after {length} bytes of command 1") as caught:
        server.next_event()
    assert caught.value.failure.code is FailureCode.CLIENT_HANGUP


@pytest.mark.parametrize(
    "reply",
    [
        Records([1], [0], [b""]),
        Records([1], [0], []),
        Records([1], [0, 1], [b"x", b"y"]),
        Records([1, 1], [0], [b"x", b"y"]),
        ErrorReply("no code", "x"),
    ],
)
def test_what_cannot_be_said(reply: Records | ErrorReply) -> None:
    """Section 3: no empty bulk string is ever emitted."""
    server = S3PServer()
    server.receive(command(b"READ", []))
    server.next_event()
    with pytest.raises(LocalProtocolError):
        server.send(reply)
    server.send(Records.of([]))
