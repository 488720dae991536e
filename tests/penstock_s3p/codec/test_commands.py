"""Commands as a server hears them, clause by clause of S3P 0.2.0 and of the S3P fact sheet, section 3."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.failures import FailureCode, RemoteProtocolError
from penstock.model.records import RecordId
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_s3p.codec import (
    AppendRecords,
    Command,
    Create,
    Delete,
    ReadRecords,
    S3PLimits,
    S3PServer,
    TrimRecords,
    error_reply,
)

MAX = 2**64 - 1
BAD, LIMITS = FailureCode.BAD_FORMAT, FailureCode.LIMIT_EXCEEDED


def wire(value: Any) -> bytes:
    """Bytes become a bulk string, a list an array."""
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(wire, value))


def heard(data: bytes, limits: S3PLimits | None = None) -> list[Command]:
    """Everything in `data`, which must end with a command."""
    server = S3PServer(limits or S3PLimits())
    server.receive(data)
    events: list[Command] = []
    while (event := server.next_event()) is not NEED_DATA:
        assert event is not PAUSED
        events.append(event)
    assert server.buffered == 0
    return events


def refused(data: bytes, limits: S3PLimits | None = None) -> tuple[FailureCode, str]:
    """Return the code and message with which `data` is refused, which must happen before any command is read."""
    server = S3PServer(limits or S3PLimits())
    server.receive(data)
    with pytest.raises(RemoteProtocolError) as caught:
        pytest.fail(f"heard {server.next_event()}")
    failure = caught.value.failure
    line = b"".join(server.send(error_reply(failure)))
    assert line.endswith(b"\r\n") and all(0x20 <= byte <= 0x7E for byte in line[:-2]), line
    return failure.code, failure.message


def command(word: bytes, options: list[Any], *more: list[Any], name: bytes = b"s") -> bytes:
    return wire([word, name, options, *more])


# ---- what is accepted ------------------------------------------------------------------------------------------------

EXAMPLES = [
    ("8.1", b"*3\r\n$6\r\nCREATE\r\n$6\r\norders\r\n*0\r\n", Create(b"orders")),
    (
        "8.2",
        b"*4\r\n$6\r\nAPPEND\r\n$6\r\norders\r\n*0\r\n*2\r\n$5\r\nhello\r\n$5\r\nworld\r\n",
        AppendRecords(b"orders", [b"hello", b"world"]),
    ),
    (
        "8.2, example 3",
        b"*4\r\n$6\r\nAPPEND\r\n$6\r\norders\r\n*2\r\n$2\r\nID\r\n$13\r\n1700000001000\r\n*1\r\n$7\r\npayload\r\n",
        AppendRecords(b"orders", [b"payload"], 1_700_000_001_000),
    ),
    (
        "8.3",
        b"*3\r\n$4\r\nREAD\r\n$6\r\norders\r\n*4\r\n$5\r\nCOUNT\r\n$2\r\n10\r\n$6\r\nMIN_ID\r\n$3\r\n0-0\r\n",
        ReadRecords(b"orders", 10),
    ),
    (
        "8.4",
        b"*3\r\n$4\r\nTRIM\r\n$6\r\norders\r\n*2\r\n$6\r\nMIN_ID\r\n$15\r\n1700000001235-0\r\n",
        TrimRecords(b"orders", RecordId(1_700_000_001_235, 0)),
    ),
    ("8.5", b"*3\r\n$6\r\nDELETE\r\n$6\r\norders\r\n*0\r\n", Delete(b"orders")),
]


@pytest.mark.parametrize(("data", "event"), [example[1:] for example in EXAMPLES], ids=[e[0] for e in EXAMPLES])
def test_the_examples_of_the_specification(data: bytes, event: Command) -> None:
    assert heard(data) == [event]


ACCEPTED = {
    "3: bulk strings hold any bytes, CRLF and headers among them": (
        command(b"APPEND", [], [b"\r\n$0\r\n\r\n", b"\x00\xff*1\r\n", b"\n"]),
        AppendRecords(b"s", [b"\r\n$0\r\n\r\n", b"\x00\xff*1\r\n", b"\n"]),
    ),
    "6: names are any bytes": (wire([b"CREATE", b"a \r\nb\x00\xff", []]), Create(b"a \r\nb\x00\xff")),
    "6, 11: a name as long as is allowed": (wire([b"CREATE", b"n" * 256, []]), Create(b"n" * 256)),
    "10: command names in any case": (wire([b"cReAtE", b"S", []]), Create(b"S")),
    "10: option keys in any case, values as they are": (
        command(b"read", [b"count", b"1", b"Min_Id", b"1-2", b"bLOCK", b"3"]),
        ReadRecords(b"s", 1, 3, RecordId(1, 2)),
    ),
    "7: the last occurrence of a key counts": (
        command(b"READ", [b"COUNT", b"1", b"count", b"2", b"Count", b"3"]),
        ReadRecords(b"s", 3),
    ),
    "7: an occurrence that does not count need not be valid": (
        command(b"READ", [b"COUNT", b"0", b"COUNT", b"7"]),
        ReadRecords(b"s", 7),
    ),
    "8.2: the largest ID": (command(b"APPEND", [b"ID", b"%d" % MAX], [b"x"]), AppendRecords(b"s", [b"x"], MAX)),
    "fact 17: ID 0": (command(b"APPEND", [b"ID", b"0"], [b"x"]), AppendRecords(b"s", [b"x"], 0)),
    "fact 18: leading zeros in ID": (
        command(b"APPEND", [b"ID", b"0" * 30 + b"7"], [b"x"]),
        AppendRecords(b"s", [b"x"], 7),
    ),
    "8.3: without options": (command(b"READ", []), ReadRecords(b"s", 1000, 0, RecordId(0, 0))),
    "5, 8.3: the largest MIN_ID": (
        command(b"READ", [b"MIN_ID", b"%d-%d" % (MAX, MAX)]),
        ReadRecords(b"s", 1000, 0, RecordId(MAX, MAX)),
    ),
    "fact 18: leading zeros in MIN_ID": (
        command(b"TRIM", [b"MIN_ID", b"007-0" + b"0" * 25]),
        TrimRecords(b"s", RecordId(7, 0)),
    ),
    "8.3, 11: COUNT and BLOCK at their limits": (
        command(b"READ", [b"COUNT", b"1000", b"BLOCK", b"10000"]),
        ReadRecords(b"s", 1000, 10_000),
    ),
    "fact 4: leading zeros in lengths": (
        b"*00000000000000000003\r\n$06\r\nDELETE\r\n$00000000000000000001\r\ns\r\n*00\r\n",
        Delete(b"s"),
    ),
    "fact 4: leading zeros in lengths of records": (
        b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*09\r\n" + b"$1\r\na\r\n" * 4 + b"$01\r\nb\r\n" + b"$1\r\na\r\n" * 4,
        AppendRecords(b"s", [b"a"] * 4 + [b"b"] + [b"a"] * 4),
    ),
}


@pytest.mark.parametrize(("data", "event"), ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(data: bytes, event: Command) -> None:
    assert heard(data) == [event]
    assert heard(data * 3) == [event] * 3, "13: commands may be pipelined"


def test_defaults_and_limits_are_the_configured_ones() -> None:
    """Section 11."""
    limits = S3PLimits(default_count=7, max_count=9, max_block_ms=5, max_name_bytes=2, max_records_per_append=2)
    assert heard(command(b"READ", []), limits) == [ReadRecords(b"s", 7)]
    for data in (
        command(b"READ", [b"COUNT", b"10"]),
        command(b"READ", [b"BLOCK", b"6"]),
        command(b"READ", [], name=b"abc"),
        command(b"APPEND", [], [b"x"] * 3),
    ):
        assert refused(data, limits)[0] is LIMITS


def test_numbers_as_long_as_an_operator_allows() -> None:
    """Fact 28: of any size; also of more digits than Python converts."""
    limits = S3PLimits(max_option_bytes=10_000)
    zeros, nines = b"0" * 9000, b"9" * 9000
    assert heard(command(b"READ", [b"COUNT", zeros + b"5"]), limits) == [ReadRecords(b"s", 5)]
    assert heard(command(b"READ", [b"BLOCK", b"-" + zeros]), limits) == [ReadRecords(b"s", 1000)]
    for options, code in (
        ([b"COUNT", nines], LIMITS),
        ([b"BLOCK", b"-" + nines], LIMITS),
        ([b"MIN_ID", nines + b"-0"], BAD),
        ([b"MIN_ID", b"0-" + nines], BAD),
    ):
        assert refused(command(b"READ", options), limits)[0] is code
    assert refused(command(b"APPEND", [b"ID", nines], [b"x"]), limits)[0] is BAD


# ---- what is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    # framing
    "3: LF only": (BAD, b"*3\n$6\nCREATE\n$1\nq\n*0\n"),
    "3: CR only": (BAD, b"*3\r$6\rCREATE\r"),
    "3: LF after the first CRLF": (BAD, b"*3\r\n$6\nCREATE"),
    "3: LF after a bulk string": (BAD, b"*3\r\n$6\r\nCREATE\n"),
    "3: two other bytes after a bulk string": (BAD, b"*3\r\n$6\r\nCREATExx"),
    "3: CR and another byte after a bulk string": (BAD, b"*3\r\n$6\r\nCREATE\rx"),
    "3: a body longer than announced": (BAD, b"*3\r\n$5\r\nCREATE\r\n"),
    "3: $0 as command name": (BAD, b"*3\r\n$0\r\n\r\n"),
    "3: $0 as stream name": (BAD, b"*3\r\n$6\r\nCREATE\r\n$0\r\n"),
    "3: $00 as stream name": (BAD, b"*3\r\n$6\r\nCREATE\r\n$00\r\n"),
    "3: $0 as option key": (BAD, b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*2\r\n$0\r\n"),
    "3: $0 as option value": (BAD, b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*2\r\n$5\r\nCOUNT\r\n$0\r\n"),
    "3, 8.2: $0 as record": (BAD, b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*2\r\n$5\r\nhello\r\n$0\r\n"),
    "3: null bulk string": (BAD, b"*3\r\n$-1\r\n"),
    "3: null array": (BAD, b"*-1\r\n"),
    "3: integer": (BAD, b":1\r\n"),
    "3: RESP3 map": (BAD, b"%1\r\n"),
    "3, fact 5: empty array as command": (BAD, b"*0\r\n"),
    "4: simple string as command": (BAD, b"+OK\r\n"),
    "4: inline text": (BAD, b"CREATE s\r\n"),
    "4: bulk string as command": (BAD, b"$6\r\nCREATE\r\n"),
    "3: arrays in the options": (BAD, wire([b"READ", b"s", [[], []]])),
    "3: an array as stream name": (BAD, wire([b"READ", [], []])),
    "3: an array as command name": (BAD, wire([[b"READ"], b"s", []])),
    "3: an array as record": (BAD, command(b"APPEND", [], [b"x", []])),
    "3, 8.2: a simple string as record": (BAD, b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*1\r\n+x\r\n"),
    "3: an error as option key": (BAD, b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*2\r\n-x\r\n"),
    "4: a bulk string as options": (BAD, wire([b"READ", b"s", b"x"])),
    "4: a bulk string as records": (BAD, wire([b"APPEND", b"s", [], b"x"])),
    "15: plus sign in a length": (BAD, b"*+3\r\n"),
    "15: blank in a length": (BAD, b"*3\r\n$ 6\r\n"),
    "15: hexadecimal length": (BAD, b"*3\r\n$0x6\r\n"),
    "15: underscore in a length": (BAD, b"*3\r\n$1_0\r\n"),
    "15: no digits at all": (BAD, b"*\r\n"),
    "fact 4: more than 20 digits": (BAD, b"*" + b"0" * 21 + b"\r\n"),
    "fact 6: a length that never ends": (BAD, b"*3\r\n$" + b"1" * 40),
    "15: absurd number of elements": (BAD, b"*99999999999999999999\r\n"),
    # shape
    "14: unknown command": (BAD, wire([b"XADD", b"s", []])),
    "14: what Redis clients send": (BAD, wire([b"PING"])),
    "8.1: CREATE of four": (BAD, wire([b"CREATE", b"s", [], []])),
    "8.2: APPEND of three": (BAD, wire([b"APPEND", b"s", []])),
    "8.3: READ of two": (BAD, wire([b"READ", b"s"])),
    "8.5: DELETE of five": (BAD, wire([b"DELETE", b"s", [], [], []])),
    "8.2: no records": (BAD, command(b"APPEND", [], [])),
    # options
    "7: an odd number of elements": (BAD, b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*1\r\n"),
    "7, 8.1: CREATE has no options": (BAD, command(b"CREATE", [b"MAX_SIZE", b"1000"])),
    "7, 8.5: DELETE has no options": (BAD, command(b"DELETE", [b"MIN_ID", b"0-0"])),
    "7: an option of another command": (BAD, command(b"READ", [b"ID", b"5"])),
    "7: an unknown option among known ones": (BAD, command(b"TRIM", [b"MIN_ID", b"1-0", b"UNTIL", b"2-0"])),
    "10: keys are matched as ASCII": (BAD, command(b"APPEND", ["ıd".encode(), b"5"], [b"x"])),
    "8.4, fact 27: TRIM without MIN_ID": (BAD, command(b"TRIM", [])),
    "7: the last occurrence of a key is the one that is bad": (BAD, command(b"READ", [b"COUNT", b"1", b"COUNT", b"x"])),
    # values
    "8.2: ID over 64 bits": (BAD, command(b"APPEND", [b"ID", b"%d" % (MAX + 1)], [b"x"])),
    "5, 8.2: a whole identifier as ID": (BAD, command(b"APPEND", [b"ID", b"1-0"], [b"x"])),
    "fact 18: ID with a sign": (BAD, command(b"APPEND", [b"ID", b"+1"], [b"x"])),
    "fact 18: negative ID": (BAD, command(b"APPEND", [b"ID", b"-1"], [b"x"])),
    "fact 18: ID with a fraction": (BAD, command(b"APPEND", [b"ID", b"1.5"], [b"x"])),
    "fact 18: ID with a blank": (BAD, command(b"APPEND", [b"ID", b" 1"], [b"x"])),
    "fact 18: ID with a newline": (BAD, command(b"APPEND", [b"ID", b"1\n"], [b"x"])),
    "15: ID of other digits": (BAD, command(b"APPEND", [b"ID", "١".encode()], [b"x"])),
    "fact 19: MIN_ID without seq": (BAD, command(b"READ", [b"MIN_ID", b"5"])),
    "5: MIN_ID with an empty seq": (BAD, command(b"READ", [b"MIN_ID", b"5-"])),
    "5: MIN_ID with an empty ms": (BAD, command(b"READ", [b"MIN_ID", b"-5"])),
    "5: MIN_ID of three parts": (BAD, command(b"READ", [b"MIN_ID", b"1-2-3"])),
    "5: MIN_ID with a sign": (BAD, command(b"READ", [b"MIN_ID", b"+1-0"])),
    "5: MIN_ID with a newline": (BAD, command(b"READ", [b"MIN_ID", b"1-0\n"])),
    "8.3: ms over 64 bits": (BAD, command(b"READ", [b"MIN_ID", b"%d-0" % (MAX + 1)])),
    "8.3: seq over 64 bits": (BAD, command(b"READ", [b"MIN_ID", b"0-%d" % (MAX + 1)])),
    "8.4: bad identifier": (BAD, command(b"TRIM", [b"MIN_ID", b"abc"])),
    "fact 28: COUNT with a sign": (BAD, command(b"READ", [b"COUNT", b"+1"])),
    "fact 28: COUNT with a fraction": (BAD, command(b"READ", [b"COUNT", b"1.5"])),
    "fact 28: COUNT in words": (BAD, command(b"READ", [b"COUNT", b"many"])),
    "fact 28: BLOCK with a unit": (BAD, command(b"READ", [b"BLOCK", b"5ms"])),
    # limits
    "8.3: COUNT 0": (LIMITS, command(b"READ", [b"COUNT", b"0"])),
    "8.3: COUNT too large": (LIMITS, command(b"READ", [b"COUNT", b"1001"])),
    "fact 28: COUNT negative": (LIMITS, command(b"READ", [b"COUNT", b"-1"])),
    "fact 28: COUNT of thirty digits": (LIMITS, command(b"READ", [b"COUNT", b"9" * 30])),
    "8.3: BLOCK too large": (LIMITS, command(b"READ", [b"BLOCK", b"10001"])),
    "8.3: BLOCK negative": (LIMITS, command(b"READ", [b"BLOCK", b"-1"])),
    "8.1, 6: a name too long, at its header": (LIMITS, b"*3\r\n$6\r\nCREATE\r\n$257\r\n"),
    "15: an absurd name, at its header": (LIMITS, b"*3\r\n$6\r\nCREATE\r\n$99999999999999999999\r\n"),
    "8.2: too many records, at the header": (LIMITS, b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*1001\r\n"),
    "8.2: a record too large, at its header": (LIMITS, b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*1\r\n$1048577\r\n"),
    "fact 29: too many options, at the header": (LIMITS, b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*130\r\n"),
    "15: a command name too long": (LIMITS, b"*3\r\n$257\r\n"),
    "15: an option key too long": (LIMITS, b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*2\r\n$257\r\n"),
    "15: an option value too long": (LIMITS, b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*2\r\n$5\r\nCOUNT\r\n$257\r\n"),
    # fact 10: the first in the order of the bytes
    "fact 10: an unknown option before a bad record": (
        BAD,
        b"*4" + command(b"APPEND", [b"TTL", b"5"])[2:] + b"*1\r\n$0\r\n",
    ),
    "fact 10: a bad ID before too many records": (
        BAD,
        b"*4" + wire([b"APPEND", b"s", [b"ID", b"x"]])[2:] + b"*9999\r\n",
    ),
    "fact 10: too large a record before an empty one": (
        LIMITS,
        b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*2\r\n$1048577\r\n" + b"x" * 1048577 + b"\r\n$0\r\n",
    ),
}


@pytest.mark.parametrize(("code", "data"), REFUSED.values(), ids=REFUSED)
def test_refused(code: FailureCode, data: bytes) -> None:
    found, message = refused(data)
    assert found is code, message
    assert "command 1, byte" in message


def test_records_together_too_large() -> None:
    """Section 8.2 and fact 37: the sum of the records' bytes, without framing, decided at the header."""
    limits = S3PLimits(max_append_bytes=10, max_record_bytes=8)
    assert heard(command(b"APPEND", [], [b"12345", b"6789", b"0"]), limits) == [
        AppendRecords(b"s", [b"12345", b"6789", b"0"])
    ]
    begin = b"*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*3\r\n$5\r\n12345\r\n$4\r\n6789\r\n"
    assert refused(begin + b"$2\r\n", limits)[0] is LIMITS
    assert "the 1 bytes that 10 in total leave for it" in refused(begin + b"$2\r\n", limits)[1]


def test_many_short_records_one_of_them_too_large() -> None:
    """The fast way takes none of them, and the strict way names the right one."""
    limits = S3PLimits(max_record_bytes=9)
    records = [b"x"] * 50 + [b"y" * 10] + [b"z"] * 50
    code, message = refused(command(b"APPEND", [], records), limits)
    assert code is LIMITS and message.startswith("record 51 of 10 bytes")


def test_where_a_fault_is() -> None:
    """The message names the command and the byte, counted over the whole connection."""
    good = command(b"CREATE", [])
    server = S3PServer()
    server.receive(good + good + b"*3\r\n$6\r\nCREATE\r\n$1\r\ns\r\n+1\r\n")
    assert server.next_event() == server.next_event() == Create(b"s")
    with pytest.raises(RemoteProtocolError, match=rf"\(command 3, byte {2 * len(good) + 4 + 12 + 7}\)"):
        server.next_event()
    for size in (1, 5):
        server = S3PServer()
        with pytest.raises(RemoteProtocolError, match=rf"\(command 3, byte {2 * len(good) + 4 + 12 + 7}\)"):
            for at in range(0, 999, size):
                server.receive((good + good + b"*3\r\n$6\r\nCREATE\r\n$1\r\ns\r\n+1\r\n")[at : at + size])
                while server.next_event() is not NEED_DATA:
                    pass


def test_a_length_of_as_many_digits_as_are_allowed_may_come_in_parts() -> None:
    data = b"*%020d\r\n$%020d\r\nCREATE\r\n$%020d\r\ns\r\n*%020d\r\n" % (3, 6, 1, 0)
    for cut in range(1, len(data)):
        server = S3PServer()
        server.receive(data[:cut])
        assert server.next_event() is NEED_DATA
        server.receive(data[cut:])
        assert server.next_event() == Create(b"s")
    assert "more than 20 digits" in refused(b"*%021d" % 3)[1]


def test_as_many_options_as_are_allowed() -> None:
    limits = S3PLimits(max_option_pairs=3)
    assert heard(command(b"READ", [b"COUNT", b"7"] * 3), limits) == [ReadRecords(b"s", 7)]
    assert refused(command(b"READ", [b"COUNT", b"7"] * 4), limits)[0] is LIMITS


def test_names_in_errors_cannot_break_the_line() -> None:
    """Section 9, fact 14: an error is one line of printable ASCII, for any bytes from the peer."""
    _, message = refused(command(b"READ", [b"a\r\n-ERR \x00\xff\\", b"1"]))
    assert r"unknown option A\r\n-ERR \x00\xff\\ of READ" in message
    _, message = refused(wire([b"X" * 200, b"s", []]))
    assert "X" * 64 + "..." in message and "X" * 65 not in message


def test_a_wrong_first_byte_is_refused_at_once() -> None:
    assert "expected an array" in refused(b"x")[1]


@pytest.mark.parametrize("end", [b"\0\0", b"zz", b"\rz", b"\xff\xff"])
@pytest.mark.parametrize("at", [0, 1, 19])
def test_each_record_ends_with_a_line_end(end: bytes, at: int) -> None:
    records = [b"$1\r\nx\r\n"] * 20
    records[at] = b"$1\r\nx" + end
    data = command(b"APPEND", [], [b"x"] * 20).removesuffix(b"$1\r\nx\r\n" * 20)
    assert f"record {at + 1} of 1 bytes is followed by" in refused(data + b"".join(records))[1]


@pytest.mark.parametrize("line", [b"*1", b"+1", b"$01", b"$+1", b"$ 1", b"$1 ", b"1"])
@pytest.mark.parametrize("at", [0, 19])
def test_a_wrong_header_among_records_is_refused_or_read_as_it_is(line: bytes, at: int) -> None:
    """Leading zeros are good."""
    records = [b"$1\r\nx\r\n"] * 20
    records[at] = line + b"\r\nx\r\n"
    data = command(b"APPEND", [], [b"x"] * 20).removesuffix(b"$1\r\nx\r\n" * 20) + b"".join(records)
    if line == b"$01":
        assert heard(data) == [AppendRecords(b"s", [b"x"] * 20)]
    else:
        assert f"record {at + 1}" in refused(data)[1]


@pytest.mark.parametrize("data", [b"*x", b"*3x", b"*3\rx", b"*3\r\n$x", b"*-", b"*\r"])
def test_a_wrong_byte_is_refused_as_soon_as_it_comes(data: bytes) -> None:
    server = S3PServer()
    server.receive(data[:-1])
    assert server.next_event() is NEED_DATA
    server.receive(data[-1:])
    with pytest.raises(RemoteProtocolError):
        server.next_event()
