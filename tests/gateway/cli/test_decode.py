"""`penstock decode`: its list of messages, and the place where it cannot go on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.segment.messages import WRITER, joined

from penstock.cli import main
from penstock.cli.decode import unhexed
from penstock.wire.codec import Role, installed_codecs
from penstock.wire.compression import Compression
from penstock_pravega.codec import append_messages, draft, encode, join_events, released
from penstock_proto import s2_pb2
from penstock_s2.codec.s2s.frames import compress_payload, encode_frame

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "penstock_pravega/codec/segment_vectors.json").read_text()
)
HELLO = released.Hello(16, 5)


def decode(protocol: str, data: bytes | str, *options: str) -> Result:
    return CliRunner().invoke(main, ["decode", "--protocol", protocol, *options, "-"], input=data)


def places(result: Result) -> list[tuple[int, str]]:
    """Offset and text of each line that has one."""
    found = re.findall(r"^ *(\d+)  +(.*)$", result.stdout, re.MULTILINE)
    return [(int(at), text) for at, text in found]


SAMPLES = [
    pytest.param(plugin, role, dialect, id=f"{name}-from-{'client' if role is Role.SERVER else 'server'}-{dialect}")
    for name, plugin in sorted(installed_codecs().items())
    if plugin.listing is not None
    for role in Role
    for dialect in plugin.dialects
    if plugin.sample(role, dialect)
]


@pytest.mark.parametrize(("plugin", "role", "dialect"), SAMPLES)
def test_samples(plugin: Any, role: Role, dialect: str) -> None:
    """Side and dialect are found out; given, the same comes out, and the other side is refused."""
    data = plugin.sample(role, dialect)
    found = decode(plugin.name, data)
    assert found.exit_code == 0, found.output
    sides = {Role.SERVER: "client", Role.CLIENT: "server"}
    side = sides.pop(role)
    assert decode(plugin.name, data, "--side", side, "--dialect", dialect).stdout == found.stdout
    assert decode(plugin.name, data, "--side", *sides.values(), "--dialect", dialect).exit_code == 1
    ats = [at for at, _ in places(found)]
    assert ats == sorted(ats) and ats[-1] <= len(data)


@pytest.mark.parametrize(("plugin", "role", "dialect"), SAMPLES)
def test_what_is_cut_off(plugin: Any, role: Role, dialect: str) -> None:
    """The messages before the cut are listed, then the error; never a traceback."""
    data = plugin.sample(role, dialect)
    whole = decode(plugin.name, data, "--dialect", dialect).stdout.splitlines()
    side = "client" if role is Role.SERVER else "server"
    for cut in range(1, len(data), max(1, len(data) // 40)):
        result = decode(plugin.name, data[:cut], "--dialect", dialect, "--side", side, "--format", "binary")
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code == 0 or re.search(r"Error: byte \d+: ", result.stderr), result.output
        lines = result.stdout.splitlines()
        same = sum(a == b for a, b in zip(lines, whole, strict=False))
        assert same >= len(lines) - 1  # the last may be a piece of what the whole has there


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["name"]) for vector in VECTORS])
def test_vectors(vector: dict[str, Any]) -> None:
    result = decode("segment", vector["hex"], "--dialect", vector["mode"])
    assert result.exit_code == 0, result.output
    if vector["type"] is not None:
        assert f"(type {vector['type']}, " in result.stdout.splitlines()[0]


def test_a_block_and_what_stands_in_it() -> None:
    (vector,) = [vector for vector in VECTORS if vector["type"] is None]
    result = decode("segment", vector["hex"])
    assert (36, "Event (type 0, 5 bytes, in a block)") in places(result)
    assert "completes Event(data=b'worldwide')" in result.stdout
    padded = joined(draft.BeginAppendBlock(WRITER, 0, 20)) + bytes(20) + joined(draft.EndAppendBlock(WRITER, 0, 0))
    assert (36, "20 bytes of zeros: 2 empty events, or padding") in places(decode("segment", padded))


def test_released_blocks_and_what_stands_in_them() -> None:
    events = [b"hello", b"worldwide"]
    for size, wanted in [
        (20, ["Event = b'hello'", "PartialEvent (7 bytes)"]),
        (40, ["Event = b'hello'", "Event = b'worldwide'", "Padding (10 bytes)"]),
    ]:
        result = decode("segment", joined(HELLO, *append_messages(WRITER, events, 2, 1, block_size=size)))
        texts = [text for _, text in places(result)]
        at = texts.index(wanted[0])
        assert texts[at : at + len(wanted)] == wanted
    read = released.SegmentRead("s", 0, False, False, join_events(events)[:-2], 1)
    assert "15 bytes of an event that continues in another block" in decode("segment", joined(HELLO, read)).stdout


def test_fields_that_are_left_out_or_too_many() -> None:
    short = b"".join(encode(released.NoSuchSegment(1, "s"), tail=False))
    result = decode("segment", short, "--dialect", "released")
    assert "offset: i64 = -1 (left out)" in result.stdout
    long = bytearray(joined(released.SegmentSealed(1, "s")) + b"abc")
    long[7] += 3
    assert "3 bytes more, which are ignored" in decode("segment", bytes(long), "--dialect", "released").stdout


@pytest.mark.parametrize(
    ("protocol", "data", "options", "said", "before"),
    [
        ("segment", joined(HELLO) + b"\0\0\0\x63\0\0\0\0", [], "byte 16: unknown message type 99", "low_version"),
        ("segment", joined(HELLO)[:-1], [], "byte 12: Hello.low_version: 4 bytes are needed and 3", "high_version"),
        ("segment", joined(HELLO) + b"\0\0\0", [], "byte 16: 3 bytes where a message of at least 8", "low_version"),
        ("segment", joined(HELLO) + b"\0\0\0\x64\1\0\0\0", [], "byte 20: KeepAlive of 16777216 bytes", "low_version"),
        (
            "segment",
            joined(draft.KeepAlive(b"abc"))[:-1],
            [],
            "byte 0: KeepAlive of 3 bytes is cut off, 1",
            "KeepAlive",
        ),
        (
            "segment",
            joined(HELLO, released.SegmentSealed(1, "s")),
            ["--side", "client"],
            "byte 16: SegmentSealed",
            "low",
        ),
        ("s3p", b"+OK\r\n+MAYBE\r\n", [], "byte 5: ", "Ok"),
        ("s3p", b"-ERR_LIMITS too much\r\n+OK\r\n", [], "byte 22: 5 bytes after an error that ends", "ERR_LIMITS"),
        ("s2s", b"\0\0\0\0", [], "byte 0: empty frame payload", ""),
        ("s2s", b"\0\0\1\0\0\0\5\0\x0a\x01", [], "byte 4: bytes remaining on stream", "AppendInput"),
        ("s2s", b"\0\0\3\0\x2a\x00", [], "byte 4: field 5 of wire type 2 is not one of AppendInput", "AppendInput"),
        ("s2s", b"\0\0\3\0\x0a\x09", [], "byte 4: records has 9 bytes, 0 are left", "AppendInput"),
        ("s2s", b"\0\0\3\0\x10\xff", [], "byte 5: a varint that does not end", "AppendInput"),
        ("s2s", b"\0\0\1\0", ["--side", "client", "--dialect", "read"], "byte 0: the client of a read session", ""),
    ],
)
def test_what_is_wrong(protocol: str, data: bytes, options: list[str], said: str, before: str) -> None:
    result = decode(protocol, data, "--format", "binary", *options)
    assert result.exit_code == 1
    assert f"Error: {said}" in result.stderr
    assert before in result.stdout


def test_parts_that_make_no_message_do_not_end_the_listing() -> None:
    parts = joined(*draft.partials(draft.KeepAlive(b"x"), [3])).replace(b"\x64", b"\x63")
    text = decode("segment", parts + joined(draft.Partial(draft.PartialKind.END, b""), draft.KeepAlive())).stdout
    assert "cannot be reassembled: unknown message type 99" in text
    assert "cannot be reassembled: Partial (End) without a Begin" in text
    assert text.splitlines()[-2].endswith("KeepAlive (type 100, 0 bytes, from either side)")


def test_compressed_frames() -> None:
    message = s2_pb2.AppendInput(records=[s2_pb2.AppendRecord(body=b"x" * 5000)])
    frame = b"".join(
        encode_frame([compress_payload(Compression.ZSTD, message.SerializeToString())[1]], Compression.ZSTD)
    )
    result = decode("s2s", frame)
    assert result.stdout.startswith("       0  AppendInput (") and ", zstd)" in result.stdout
    assert "body = b'xxx" in result.stdout and "(5000 bytes)" in result.stdout
    wrong = b"".join(encode_frame([compress_payload(Compression.ZSTD, b"\x2a" * 5000)[1]], Compression.ZSTD))
    assert "Error: byte 0: in the decompressed message, byte 0: field 5" in decode("s2s", wrong).stderr


def test_hex_with_white_space_and_comments(tmp_path: Path) -> None:
    text = "# a greeting\nFFffff81 00000008  # header\n\t0000000f 0000 0005"
    result = decode("segment", text)
    assert (8, "high_version: i32 = 15") in places(result)
    path = tmp_path / "capture"
    path.write_bytes(joined(released.Hello(15, 5)))
    again = CliRunner().invoke(main, ["decode", "--protocol", "segment", str(path)])
    assert (again.exit_code, again.stdout) == (0, result.stdout)


@pytest.mark.parametrize(
    ("arguments", "text", "said", "code"),
    [
        (["--format", "hex"], "00 # x\n0g", "line 2: b'g' is not a hex digit", 1),
        (["--format", "hex"], "000", "an odd number of hex digits: 3", 1),
        (["--dialect", "append"], "", "segment has released and draft", 2),
    ],
)
def test_what_the_user_gets_wrong(arguments: list[str], text: str, said: str, code: int) -> None:
    result = decode("segment", text, *arguments)
    assert (result.exit_code, said in result.stderr) == (code, True), result.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["decode", "--protocol", "s3p", str(tmp_path / "nothing")])
    assert result.exit_code == 1 and "No such file" in result.stderr


def test_nothing_is_listed_as_nothing() -> None:
    for protocol in ("segment", "s2s", "s3p"):
        result = decode(protocol, b"")
        assert (result.exit_code, result.output) == (0, "")


@given(st.binary(max_size=200))
def test_hex_is_found_out(data: bytes) -> None:
    assert unhexed(data.hex(" ").encode(), "auto") == data
    assert unhexed(data, "binary") == data


@examples(most=300)
@given(st.sampled_from(["segment", "s2s", "s3p"]), st.binary(max_size=60))
def test_garbage(protocol: str, data: bytes) -> None:
    result = decode(protocol, data, "--format", "binary")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code in (0, 1)
