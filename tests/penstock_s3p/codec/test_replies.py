"""Replies as a client hears them, and commands as it says them (S3P 0.2.0, sections 3, 8 and 9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.model.records import RecordId
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_s3p.codec import (
    AppendedId,
    AppendRecords,
    Command,
    Create,
    Delete,
    ErrorReply,
    Ok,
    ReadRecords,
    Records,
    Reply,
    S3PClient,
    S3PLimits,
    TrimRecords,
    encode_reply,
    error_reply,
    failure_of,
)

MAX = 2**64 - 1

SAID = {
    "8.1": (Create(b"orders"), b"*3\r\n$6\r\nCREATE\r\n$6\r\norders\r\n*0\r\n"),
    "8.2": (
        AppendRecords(b"orders", [b"hello", b"world"]),
        b"*4\r\n$6\r\nAPPEND\r\n$6\r\norders\r\n*0\r\n*2\r\n$5\r\nhello\r\n$5\r\nworld\r\n",
    ),
    "8.2 with ID": (
        AppendRecords(b"s", [b"x"], 5),
        b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*2\r\n$2\r\nID\r\n$1\r\n5\r\n*1\r\n$1\r\nx\r\n",
    ),
    "8.3": (ReadRecords(b"s"), b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*0\r\n"),
    "8.3 with everything": (
        ReadRecords(b"s", 3, 250, RecordId(1, 2)),
        b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*6\r\n"
        b"$5\r\nCOUNT\r\n$1\r\n3\r\n$5\r\nBLOCK\r\n$3\r\n250\r\n$6\r\nMIN_ID\r\n$3\r\n1-2\r\n",
    ),
    "8.4": (TrimRecords(b"s", RecordId(0, 0)), b"*3\r\n$4\r\nTRIM\r\n$1\r\ns\r\n*2\r\n$6\r\nMIN_ID\r\n$3\r\n0-0\r\n"),
    "8.5": (Delete(b"s"), b"*3\r\n$6\r\nDELETE\r\n$1\r\ns\r\n*0\r\n"),
}


@pytest.mark.parametrize(("command", "data"), SAID.values(), ids=SAID)
def test_commands_as_bytes(command: Command, data: bytes) -> None:
    assert b"".join(S3PClient().send(command)) == data


@pytest.mark.parametrize(
    "command",
    [
        Create(b""),
        AppendRecords(b"s", []),
        AppendRecords(b"s", [b"x", b""]),
        AppendRecords(b"s", [b"x"], MAX + 1),
        AppendRecords(b"s", [b"x"], -1),
        TrimRecords(b"s", RecordId(0, MAX + 1)),
    ],
)
def test_commands_that_cannot_be_said(command: Command) -> None:
    """A command that is refused here is not waited for either."""
    client = S3PClient()
    with pytest.raises(LocalProtocolError):
        client.send(command)
    client.receive(b"+OK\r\n")
    with pytest.raises(RemoteProtocolError):
        client.next_event()


HEARD = {
    "8.1": (b"+OK\r\n", Ok()),
    "8.2": (b"$15\r\n1700000001234-1\r\n", AppendedId(RecordId(1_700_000_001_234, 1))),
    "8.2, the largest": (b"$41\r\n%d-%d\r\n" % (MAX, MAX), AppendedId(RecordId(MAX, MAX))),
    "8.3": (
        b"*4\r\n$15\r\n1700000001234-0\r\n$5\r\nhello\r\n$15\r\n1700000001235-0\r\n$5\r\nworld\r\n",
        Records([1_700_000_001_234, 1_700_000_001_235], [0, 0], [b"hello", b"world"]),
    ),
    "8.3, nothing": (b"*0\r\n", Records([], [], [])),
    "8.3, the largest": (b"*2\r\n$41\r\n%d-%d\r\n$1\r\nx\r\n" % (MAX, MAX), Records([MAX], [MAX], [b"x"])),
    "9": (
        b"-ERR_STREAM_EXISTS stream s already exists\r\n",
        ErrorReply("ERR_STREAM_EXISTS", "stream s already exists"),
    ),
    "9, without a message": (b"-ERR_STREAM_EXISTS\r\n", ErrorReply("ERR_STREAM_EXISTS", "")),
}


@pytest.mark.parametrize(("data", "reply"), HEARD.values(), ids=HEARD)
def test_replies_from_bytes(data: bytes, reply: Reply) -> None:
    client = S3PClient(observer=True)
    client.receive(data * 2)
    assert [client.next_event(), client.next_event(), client.next_event()] == [reply, reply, NEED_DATA]


REFUSED = {
    "another simple string": b"+PONG\r\n",
    "an integer": b":1\r\n",
    "an error that is not ASCII": b"-ERR_X caf\xc3\xa9\r\n",
    "an error without a code": b"-\r\n",
    "an error with a stray CR": b"-ERR_X a\rb\r\n",
    "a line that never ends": b"-ERR_X " + b"x" * 5000,
    "an empty bulk string": b"$0\r\n\r\n",
    "a null": b"$-1\r\n",
    "not an identifier": b"$3\r\nabc\r\n",
    "half an identifier": b"$2\r\n5-\r\n",
    "an identifier over 64 bits": b"$22\r\n0-18446744073709551616\r\n",
    "an odd number of elements": b"*1\r\n",
    "more records than COUNT can ask for": b"*2002\r\n",
    "identifiers that do not increase": b"*4\r\n$3\r\n1-1\r\n$1\r\nx\r\n$3\r\n1-1\r\n$1\r\nx\r\n",
    "an identifier with a comma": b"*2\r\n$7\r\n1-0,2-0\r\n$1\r\nx\r\n",
    "an identifier among records that is none": b"*4\r\n$3\r\n1-1\r\n$1\r\nx\r\n$3\r\n2,1\r\n$1\r\nx\r\n",
    "an array in an array": b"*2\r\n$3\r\n1-1\r\n*0\r\n",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_replies_that_are_none(data: bytes) -> None:
    client = S3PClient(observer=True)
    client.receive(data)
    with pytest.raises(RemoteProtocolError, match="reply 1, byte"):
        client.next_event()
    with pytest.raises(LocalProtocolError):
        client.send(Create(b"s"))


def test_replies_are_matched_to_commands() -> None:
    client = S3PClient()
    client.send(Create(b"s"))
    client.send(ReadRecords(b"s"))
    client.receive(b"-ERR_STREAM_EXISTS x\r\n+OK\r\n")
    assert client.next_event() == ErrorReply("ERR_STREAM_EXISTS", "x")
    with pytest.raises(RemoteProtocolError, match=r"Ok came where Records was expected \(reply 2\)"):
        client.next_event()


def test_an_unrecoverable_error_is_the_last_reply() -> None:
    """Section 9: replies to later commands are lost, and no more can be said."""
    client = S3PClient()
    client.send(Create(b"s"))
    client.send(Create(b"t"))
    client.receive(b"-ERR_LIMITS too large\r\n+OK\r\n")
    reply = client.next_event()
    assert isinstance(reply, ErrorReply) and reply.fatal
    assert client.next_event() is PAUSED
    assert client.buffered == 0
    client.receive(b"")
    assert client.next_event() is PAUSED
    with pytest.raises(LocalProtocolError):
        client.send(Create(b"u"))


def test_the_server_goes_away() -> None:
    for data in (b"", b"+O", b"*2\r\n$3\r\n1-0\r\n$4\r\nab"):
        client = S3PClient()
        client.send(ReadRecords(b"s"))
        client.receive(data) if data else None
        client.receive(b"")
        with pytest.raises(RemoteProtocolError) as caught:
            client.next_event()
        assert caught.value.failure.code is FailureCode.UNAVAILABLE
    client = S3PClient()
    client.receive(b"")
    assert client.next_event() is PAUSED


def test_one_reply_is_bounded() -> None:
    client = S3PClient(S3PLimits(max_record_bytes=50), max_reply_bytes=60, observer=True)
    client.receive(b"*4\r\n$3\r\n1-0\r\n$40\r\n" + b"x" * 40 + b"\r\n$3\r\n2-0\r\n$15\r\n")
    with pytest.raises(RemoteProtocolError, match="element 4 of 15 bytes") as caught:
        client.next_event()
    assert caught.value.failure.code is FailureCode.LIMIT_EXCEEDED


@pytest.mark.parametrize("code", FailureCode)
def test_every_failure_has_an_error_and_back(code: FailureCode) -> None:
    """Several failures share an error where S3P's clients need no difference."""
    reply = error_reply(Failure(code, "caf\xe9\r\n+OK \U0001f600 \x00"))
    assert reply.message == r"caf\xe9\r\n+OK \U0001f600 \x00"
    assert reply.fatal is (code in {FailureCode.BAD_FORMAT, FailureCode.LIMIT_EXCEEDED})
    assert error_reply(failure_of(reply)) == reply


def test_the_codes_of_the_specification() -> None:
    """Section 9."""
    codes = {
        FailureCode.BAD_FORMAT: "ERR_BAD_FORMAT",
        FailureCode.LIMIT_EXCEEDED: "ERR_LIMITS",
        FailureCode.RESOURCE_ALREADY_EXISTS: "ERR_STREAM_EXISTS",
        FailureCode.STREAM_NOT_FOUND: "ERR_UNKNOWN_STREAM",
        FailureCode.NON_MONOTONIC_TIMESTAMP: "ERR_NON_MONOTONIC_ID",
    }
    for code, spelled in codes.items():
        assert error_reply(Failure(code, "x")) == ErrorReply(spelled, "x")
        assert failure_of(ErrorReply(spelled, "x")) == Failure(code, "x")
    # It is the server that is not there, and what was asked of it may be done.
    assert failure_of(ErrorReply("ERR_UNAVAILABLE", "x")) == Failure(FailureCode.UNAVAILABLE, "x")
    assert failure_of(ErrorReply("ERR_NEW", "x")) == Failure(FailureCode.OTHER, "ERR_NEW x")


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 9, 95, 997, 9990, 9999, 10_000]), st.integers(1, 40))),
    st.data(),
)
def test_records_with_few_timestamps_are_encoded_as_any_others(
    runs: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    timestamps: list[int] = []
    seqs: list[int] = []
    for step, first, count in runs:
        timestamps += [(timestamps[-1] if timestamps else 0) + step * 999] * count
        seqs += range(first, first + count)
    if seqs and data.draw(st.booleans()):
        seqs[data.draw(st.integers(0, len(seqs) - 1))] += 1
    are_encoded_as_any_others(timestamps, seqs)


def are_encoded_as_any_others(timestamps: list[int], seqs: list[int]) -> None:
    bodies = [b"%d" % (number**3) for number in range(len(seqs))]
    expected = b"*%d\r\n" % (2 * len(seqs))
    for timestamp, seq, body in zip(timestamps, seqs, bodies, strict=True):
        record_id = b"%d-%d" % (timestamp, seq)
        expected += b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(record_id), record_id, len(body), body)
    assert encode_reply(Records(timestamps, seqs, bodies)) == expected


@pytest.mark.parametrize("first", [0, 5, 95, 985, 9975, 9981, 9990, 10_000])
def test_runs_whose_identifiers_become_longer(first: int) -> None:
    are_encoded_as_any_others([999] * 20 + [1000] * 20, [*range(first, first + 20), *range(20)])
    are_encoded_as_any_others([999] * 20, [*range(first, first + 19), first + 20])
    are_encoded_as_any_others([999] * 20, [first, *range(first + 2, first + 21)])


def test_records_whose_timestamps_fall_are_encoded_as_any_others() -> None:
    are_encoded_as_any_others([5, *range(1, 5), *[5] * 40], [*range(45)])
