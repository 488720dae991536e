"""Wireshark shows S3P exactly as the codecs decode it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from support.captures.tshark import Layer, Said, Talk, captured, client_says, cut, exported, layers, server_says, tshark
from support.peers import need

from penstock.model.records import U64_MAX, RecordId
from penstock_s3p.codec import (
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
from penstock_s3p.codec.events import Command

TWICE = ("-2", "-R", "tcp")
PASSES = ((), TWICE)
FOUND = Records.of(
    [(RecordId(5, 0), b"one"), (RecordId(U64_MAX, 0), b"*1\r\n$1\r\nx\r\n"), (RecordId(U64_MAX, U64_MAX), b"\0")]
)
EXCHANGES: list[tuple[Command, Reply]] = [
    (Create(b"orders"), Ok()),
    (Create(b"a/b \xc3\xa9\r\n\0"), ErrorReply("ERR_STREAM_EXISTS", "it is there")),
    (AppendRecords(b"orders", [b"one", b"tw\0", b"three" * 800]), AppendedId(RecordId(1, 2))),
    (AppendRecords(b"orders", [b"$5\r\n"], U64_MAX), AppendedId(RecordId(U64_MAX, U64_MAX))),
    (ReadRecords(b"orders"), FOUND),
    (ReadRecords(b"orders", 5, 10_000, RecordId(7, 8)), Records.of([])),
    (TrimRecords(b"orders", RecordId(0, U64_MAX)), Ok()),
    (Delete(b"\xff"), ErrorReply("ERR_UNKNOWN_STREAM", "no such stream")),
    (Create(b"x"), ErrorReply("ERR_OF_LATER", "")),
]
META = re.compile(
    r"s3p\.(response_in|request_in|request$|time|record\.length|records\.bytes|append$|error$)|penstock|_ws|^$"
)


def name(data: bytes) -> str:
    """As the dissector shows a name."""
    return re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", data.decode("utf-8", "backslashreplace"))


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
    capture = captured(tmp_path / "pairs.pcapng", Talk("s3p", pipelined))
    found = layers(capture, "s3p", arguments=TWICE)
    frames = [str(layer.frame) for layer in found]
    assert [layer.all("s3p.response_in") for layer in found] == [[frames[2]], [frames[4]], [], [frames[5]], [], []]
    assert [layer.all("s3p.request_in") for layer in found] == [[], [], [frames[0]], [], [frames[1]], [frames[3]]]
    assert [layer.all("s3p.request") for layer in found][2:] == [["CREATE"], [], ["CREATE"], ["APPEND"]]
    assert [layer.all("s3p.time") for layer in found][4:] == [["0.003000000"], ["0.002000000"]]


def test_a_recording_that_begins_in_the_middle(tmp_path: Path) -> None:
    """The end of a message is no error, and what follows it is decoded."""
    said = exchanges()
    commands, replies = [data for _, data in said[0::2]], [data for _, data in said[1::2]]
    middle = client_says(commands[2][-20:], commands[0], commands[3]) + server_says(replies[4][-9:], replies[0])
    whole = client_says(commands[0]) + server_says(replies[0])
    capture = captured(
        tmp_path / "middle.pcapng",
        Talk("s3p", middle, begins=False, port=4444),
        Talk("s3p", whole, begins=False, port=4444),
        Talk("", whole, begins=False, noted=False),
    )
    plain = wanted()
    for arguments in PASSES:
        found = layers(capture, "s3p", arguments=arguments)
        talks = [[decoded(layer) for layer in found if layer.talk == talk] for talk in range(3)]
        assert talks == [[plain[0], plain[6], plain[1]], plain[:2], plain[:2]]
    skipped = tshark(capture, "-Y", "penstock.problem", "-T", "fields", "-e", "penstock.connection").split()
    assert skipped == ["1", "1"]


def test_filters(tmp_path: Path) -> None:
    """By name, count and error, on a port and without a note that name the protocol."""
    capture = captured(tmp_path / "filters.pcapng", Talk("", exchanges(), port=7777, noted=False))
    names = tshark(capture, "-Y", 's3p.name == "orders" && s3p.records > 1', "-T", "fields", "-e", "s3p.command")
    assert names.split() == ["APPEND"]
    errors = tshark(capture, "-Y", "s3p.error.code", "-T", "fields", "-e", "s3p.error.code")
    assert errors.split() == ["ERR_STREAM_EXISTS", "ERR_UNKNOWN_STREAM", "ERR_OF_LATER"]


def test_a_capture_of_another_program(tmp_path: Path) -> None:
    """A pcap file, which has no notes, is exported with messages."""
    whole = captured(tmp_path / "whole.pcapng", Talk("s3p", exchanges()))
    foreign = tmp_path / "foreign.pcap"
    subprocess.run([need("editcap"), "-F", "pcap", whole, foreign], check=True, timeout=60)
    found = layers(exported(foreign, tmp_path / "exported.pcapng"), "s3p")
    assert all_of(found) == wanted()


def test_the_packet_list(tmp_path: Path) -> None:
    """It says what each message is, and of messages in one packet what each is."""
    commands = b"".join(encode_command(Create(b"a"))) + b"".join(encode_command(Create(b"b")))
    capture = captured(tmp_path / "list.pcapng", Talk("s3p", client_says(commands) + server_says(b"+OK\r\n")))
    lines = tshark(capture, "-Y", "s3p", "-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info").splitlines()
    assert lines == ["S3P\tCREATE a; CREATE b", "S3P\tOK a"]


MALFORMED = [
    b"hello\r\n",
    b"*2\r\n",
    b"*3\r\n$4\r\nPING\r\n",
    b"*3\r\n$4\r\nREAD\r\n$0\r\n",
    b"*3\r\n$4\r\nREAD\r\n$1\r\nxyz",
    b"*4\r\n$6\r\nappend\r\n$1\r\nx\r\n*0\r\n*0\r\n",
]


def test_what_is_malformed(tmp_path: Path) -> None:
    """Each on a connection of its own; an incomplete message is not malformed."""
    talks = [Talk("s3p", client_says(said)) for said in [*MALFORMED, b"*3\r", b"*3\r\n$4\r\nREAD\r\n$5\r\nabc"]]
    capture = captured(tmp_path / "malformed.pcapng", *talks)
    shown = ("-T", "fields", "-e", "penstock.connection", "-e", "_ws.expert.message", "-e", "penstock.malformed")
    rows = [line.split("\t") for line in tshark(capture, "-Y", "penstock.malformed", *shown).splitlines()]
    assert [row[0] for row in rows] == [str(number) for number, _ in enumerate(MALFORMED, 1)]
    assert all(row[2] and row[2] in row[1] for row in rows)
    incomplete = tshark(capture, "-Y", "penstock.problem", "-T", "fields", "-e", "penstock.connection").split()
    assert incomplete == ["7", "8"]
