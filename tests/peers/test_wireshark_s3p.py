"""Wireshark reads S3P with our dissector exactly as the codecs do."""

from __future__ import annotations

import random
import re
from pathlib import Path

from support.captures.tshark import Layer, Said, Talk, captured, client_says, cut, faults, layers, server_says, tshark

from penstock_codecs.model import U64_MAX, RecordId
from penstock_codecs.s3p import (
    AppendedId,
    AppendRecords,
    Create,
    Delete,
    ErrorReply,
    Ok,
    ReadRecords,
    Records,
    Reply,
    TrimRecords,
    encode_command,
    encode_reply,
)
from penstock_codecs.s3p.events import Command

TWICE = ("-2", "-R", "tcp")
PASSES = ((), TWICE)
FOUND = Records.of(
    [(RecordId(5, 0), b"one"), (RecordId(U64_MAX, U64_MAX), b"*1\r\n$1\r\nx\r\n"), (RecordId(U64_MAX, U64_MAX), b"\0")]
)
EXCHANGES: list[tuple[Command, Reply]] = [
    (Create(b"orders"), Ok()),
    (Create(b"a/b \xc3\xa9\r\n\0"), ErrorReply("ERR_STREAM_EXISTS", "it is there")),
    (AppendRecords(b"orders", [b"one", b"tw\0", b"three" * 1000]), AppendedId(RecordId(1, 2))),
    (AppendRecords(b"orders", [b"$5\r\n"], U64_MAX), AppendedId(RecordId(U64_MAX, U64_MAX))),
    (ReadRecords(b"orders"), FOUND),
    (ReadRecords(b"orders", 5, 10_000, RecordId(7, 8)), Records.of([])),
    (TrimRecords(b"orders", RecordId(0, U64_MAX)), Ok()),
    (Delete(b"\xff"), ErrorReply("ERR_UNKNOWN_STREAM", "no such stream")),
    (Create(b"x"), ErrorReply("ERR_BAD_FORMAT", "")),
]
META = re.compile(
    r"s3p\.(elements|option|response_in|request_in|request$|time|record\.length|records\.bytes|refused)|_ws|^$"
)


def name(data: bytes) -> str:
    """As the dissector shows a name."""
    try:
        return re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", data.decode())
    except UnicodeDecodeError:
        return re.sub(rb"[^\x20-\x7e]", lambda found: b"\\x%02x" % found[0][0], data).decode()


def identifier(prefix: str, found: RecordId) -> list[tuple[str, str]]:
    return [(prefix, str(found)), (f"{prefix}.ms", str(found.ms)), (f"{prefix}.seq", str(found.seq))]


def expected_command(command: Command) -> list[tuple[str, str]]:
    words = {Create: "CREATE", AppendRecords: "APPEND", ReadRecords: "READ", TrimRecords: "TRIM", Delete: "DELETE"}
    pairs = [("s3p.command", words[type(command)]), ("s3p.name", name(command.name))]
    match command:
        case AppendRecords(_, bodies, ms):
            pairs += [("s3p.append.ms", str(ms))] if ms is not None else []
            pairs += [("s3p.records", str(len(bodies))), *(("s3p.record", body.hex(":")) for body in bodies)]
        case ReadRecords(_, count, block_ms, min_id):
            pairs += [("s3p.count", str(count))] if count is not None else []
            pairs += [("s3p.block", str(block_ms))] if block_ms else []
            pairs += identifier("s3p.min_id", min_id) if min_id != RecordId(0, 0) else []
        case TrimRecords(_, min_id):
            pairs += identifier("s3p.min_id", min_id)
    return pairs


def expected_reply(reply: Reply) -> list[tuple[str, str]]:
    match reply:
        case Ok():
            return [("s3p.reply", "ok")]
        case AppendedId(record_id):
            return [("s3p.reply", "id"), *identifier("s3p.id", record_id)]
        case ErrorReply(code, message):
            pairs = [("s3p.reply", "error"), ("s3p.error.code", code), ("s3p.error.fatal", str(int(reply.fatal)))]
            return pairs + ([("s3p.error.message", message)] if message else [])
        case Records():
            pairs = [("s3p.reply", "records"), ("s3p.records", str(len(reply.bodies)))]
            for record_id, body in reply.pairs():
                pairs += [("s3p.record", body.hex(":")), *identifier("s3p.record.id", record_id)]
            return pairs


def exchanges() -> list[Said]:
    said: list[Said] = []
    for command, reply in EXCHANGES:
        said += client_says(b"".join(encode_command(command))) + server_says(encode_reply(reply))
    return said


def decoded(layer: Layer) -> list[tuple[str, str]]:
    return sorted(pair for pair in layer.fields if not META.match(pair[0]))


def wanted() -> list[list[tuple[str, str]]]:
    both = [(expected_command(command), expected_reply(reply)) for command, reply in EXCHANGES]
    return [sorted(message) for pair in both for message in pair]


def all_of(layers_of_talk: list[Layer]) -> list[list[tuple[str, str]]]:
    return [decoded(layer) for layer in layers_of_talk]


def test_every_command_and_reply(tmp_path: Path) -> None:
    """Whole, pipelined, cut anywhere, and on unassigned ports: recognised by the comment and by the first bytes."""
    said = exchanges()
    commands, replies = said[0::2], said[1::2]
    capture = captured(
        tmp_path / "s3p.pcapng",
        Talk("s3p", said),
        Talk("s3p", cut(said, 7), port=17_500),
        Talk("s3p", cut([*commands, *replies], 1 << 20), port=4444),
        Talk("", cut([*commands, *replies], 100), noted=False),
        Talk("s3p", cut(said[:4], 1)),
    )
    plain = wanted()
    for arguments in PASSES:
        found = layers(capture, "s3p", arguments=arguments)
        talks = [[decoded(layer) for layer in found if layer.talk == talk] for talk in range(5)]
        assert talks[0] == plain
        assert talks[1] == plain
        assert talks[2] == talks[3] == plain[0::2] + plain[1::2]
        assert talks[4] == plain[:4]


def test_replies_know_their_commands(tmp_path: Path) -> None:
    said = exchanges()
    commands, replies = said[0::2], said[1::2]
    pipelined = [commands[0], commands[1], replies[0], commands[2], replies[1], replies[2]]
    capture = captured(tmp_path / "pairs.pcapng", Talk("s3p", [replies[3], *pipelined]))
    found = layers(capture, "s3p", arguments=TWICE)
    frames = [str(layer.frame) for layer in found]
    assert [layer.all("s3p.response_in") for layer in found] == [[], [frames[3]], [frames[5]], [], [frames[6]], [], []]
    assert [layer.all("s3p.request_in") for layer in found] == [[], [], [], [frames[1]], [], [frames[2]], [frames[4]]]
    assert [layer.all("s3p.request") for layer in found][3:] == [["CREATE"], [], ["CREATE"], ["APPEND"]]
    assert [layer.all("s3p.time") for layer in found][5:] == [["0.003000000"], ["0.002000000"]]


def test_a_recording_that_begins_in_the_middle(tmp_path: Path) -> None:
    """The end of a message is no error, and what follows it is decoded."""
    said = exchanges()
    commands, replies = [data for _, data in said[0::2]], [data for _, data in said[1::2]]
    middle = client_says(commands[2][-20:] + commands[0] + commands[3]) + server_says(replies[4][-9:] + replies[0])
    whole = client_says(commands[0]) + server_says(replies[0])
    capture = captured(
        tmp_path / "middle.pcapng",
        Talk("s3p", middle, begins=False, port=4444),
        Talk("s3p", whole, begins=False, port=4444),
        Talk("s3p", client_says(commands[2][-20:], commands[0]), begins=False, port=4444),
    )
    plain = wanted()
    for arguments in PASSES:
        found = [one for one in layers(capture, "s3p", arguments=arguments) if not one.all("s3p.undecoded")]
        talks = [[decoded(layer) for layer in found if layer.talk == talk] for talk in range(3)]
        assert talks == [[plain[0], plain[6], plain[1]], [plain[0], plain[1]], [plain[0]]]
    assert len(tshark(capture, "-Y", "s3p.cut").splitlines()) == 3


def test_ports_and_filters(tmp_path: Path) -> None:
    """A port that a preference names, and no comment; filters by name, count and error."""
    capture = captured(tmp_path / "ports.pcapng", Talk("s3p", exchanges(), port=7777, noted=False))
    ports = ("-o", "s3p.ports:7500,7770-7780")
    names = tshark(
        capture, *ports, "-Y", 's3p.name == "orders" && s3p.records > 1', "-T", "fields", "-e", "s3p.command"
    )
    assert names.split() == ["APPEND"]
    errors = tshark(capture, *ports, "-Y", "s3p.error.code", "-T", "fields", "-e", "s3p.error.code")
    assert errors.split() == ["ERR_STREAM_EXISTS", "ERR_UNKNOWN_STREAM", "ERR_BAD_FORMAT"]


MALFORMED = {
    b"hello\r\n": "'*' was expected here, with a command",
    b"*2\r\n": "a command is an array of 3 or 4 elements, not 2",
    b"*3\r\n$4\r\nPING\r\n": "an unknown command",
    b"*3\r\n$6\r\nAPPEND\r\n": "APPEND is an array of 4 elements, not 3",
    b"*3\r\n$4\r\nREAD\r\n$0\r\n": "an empty stream name",
    b"*3\r\n$4\r\nREAD\r\n$1\r\nxyz": "CRLF was expected behind stream name",
    b"*3\r\n$4\r\nREAD\r\n$1\r\nx\r\n*1\r\n": "options are pairs of key and value, not 1 elements",
    b"*3\r\n$4\r\nREAD\r\n$1\r\nx\r\n*2\r\n$2\r\nID\r\n": "an unknown option",
    b"*4\r\n$6\r\nappend\r\n$1\r\nx\r\n*0\r\n*0\r\n": "no records",
    b"*" + b"1" * 40: "a line of more than 32 bytes",
}


def test_what_is_malformed(tmp_path: Path) -> None:
    """Each on a connection of its own; an incomplete message is not malformed."""
    talks = [Talk("s3p", client_says(said)) for said in [*MALFORMED, b"*3\r", b"*3\r\n$4\r\nREAD\r\n$5\r\nabc"]]
    capture = captured(tmp_path / "malformed.pcapng", *talks)
    shown = ("-T", "fields", "-e", "penstock.connection", "-e", "_ws.expert.message")
    rows = [line.split("\t") for line in tshark(capture, "-Y", "s3p.malformed", *shown).splitlines()]
    assert rows == [[str(number), what] for number, what in enumerate(MALFORMED.values(), 1)]


def test_garbage(tmp_path: Path) -> None:
    """No bytes cause an error of Lua. Most samples begin well."""
    dice = random.Random(3)
    whole = [data for _, data in exchanges()]

    def junk() -> bytes:
        data = bytearray(dice.choice(whole)[:200])
        for _ in range(dice.choice([0, 1, 5])):
            data[dice.randrange(len(data))] = dice.choice(b"*$+-\r\n0129\0\xff")
        return bytes(data[: dice.choice([3, 20, 200])])

    talks = [
        Talk("s3p", client_says(*(junk() for _ in range(6))) + server_says(*(junk() for _ in range(6))))
        for _ in range(80)
    ]
    capture = captured(tmp_path / "garbage.pcapng", *talks)
    assert faults(capture, "s3p.undecoded") > 50
