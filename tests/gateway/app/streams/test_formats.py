"""Records in files: every format, wherever its bytes are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app.streams import formats
from penstock.app.streams.formats import PARSERS, WRITERS, BadInput, NewRecord, for_terminal
from penstock.model.limits import MIB
from penstock.model.records import U64_MAX, Header, Record, RecordId


def parsed(form: str, *pieces: bytes) -> list[NewRecord]:
    parser = PARSERS[form]()
    records = [record for piece in pieces for record in parser.receive(piece)]
    return [*records, *parser.end()]


def bodies(form: str, *pieces: bytes) -> list[bytes]:
    return [record.body for record in parsed(form, *pieces)]


def refusal(form: str, *pieces: bytes) -> tuple[list[bytes], str]:
    """Return the records before the wrong one, and the error."""
    parser, before = PARSERS[form](), list[bytes]()
    with pytest.raises(BadInput) as caught:
        before.extend(record.body for piece in pieces for record in parser.receive(piece))
    return before, str(caught.value)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("lines", b"", []),
        ("lines", b"a\n\nb\n", [b"a", b"", b"b"]),
        ("lines", b"a\r\n\xff", [b"a\r", b"\xff"]),
        ("json", b'{"body":"a"}\n\n{"body_base64":"/w=="}', [b"a", b"\xff"]),
        ("length", b"\0\0\0\1a\0\0\0\0", [b"a", b""]),
        ("whole", b"a\nb", [b"a\nb"]),
        ("whole", b"", [b""]),
    ],
)
def test_bodies(form: str, text: bytes, expected: list[bytes]) -> None:
    assert bodies(form, text) == expected
    for cut in range(len(text) + 1):
        assert bodies(form, text[:cut], text[cut:]) == expected
    assert bodies(form, *(text[at : at + 1] for at in range(len(text)))) == expected


def test_keys_of_json() -> None:
    line = {
        "body": "x",
        "headers": [
            {"name": "a", "value": "1"},
            {"name_base64": "/w==", "value_base64": ""},
            {"name": "a", "value": ""},
        ],
        "timestamp": 5,
        "seq_num": 7,
        "record_id": "5-0",
        "stream": "penstock/other",
    }
    headers = (Header(b"a", b"1"), Header(b"\xff", b""), Header(b"a", b""))
    assert parsed("json", json.dumps(line).encode()) == [NewRecord(b"x", headers, 5)]
    assert parsed("json", b'{"body":"x","headers":{"a":"1"}}') == [NewRecord(b"x", (Header(b"a", b"1"),))]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", "JSON is malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "expected body or body_base64"),
        (b'{"body":"a","body_base64":"YQ=="}', "not both"),
        (b'{"body_base64":"Y"}', "body: "),
        (b'{"body":"a","heders":{}}', "unknown field `heders`"),
        (b'{"body":"a","headers":[{"name":"a"}]}', "expected value or value_base64"),
        (b'{"body":"a","timestamp":-1}', "timestamp -1"),
        (b'{"body":"a","timestamp":%d}' % (U64_MAX + 1), "timestamp"),
        (b'{"body":"\xff"}', "line 2 is no record"),
    ],
)
def test_wrong_json(line: bytes, why: str) -> None:
    before, error = refusal("json", b'{"body":"good"}\n' + line + b'\n{"body":"after"}\n')
    assert before == [b"good"]
    assert error.startswith("line 2 is no record: ") and why in error


def test_a_record_that_is_cut() -> None:
    parser = PARSERS["length"]()
    assert [record.body for record in parser.receive(b"\0\0\0\1a\0\0\0\2b")] == [b"a"]
    with pytest.raises(BadInput, match="record 2 is cut: only 5 bytes of it and its length are there"):
        list(parser.end())


def test_what_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, whatever the input claims to be."""
    monkeypatch.setattr(formats, "MOST_BYTES", 10)
    assert refusal("lines", b"a\n" + b"b" * 6, b"b" * 6) == ([b"a"], "line 2 has more than 10 bytes")
    assert refusal("whole", b"b" * 11) == ([], "record 1 has more than 10 bytes")
    assert refusal("length", b"\0\0\0\1a\0\0\0\x0b") == (
        [b"a"],
        "record 2 has a length of 11 bytes; the most is 10",
    )


@given(st.lists(st.tuples(st.binary(max_size=20), st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5))))))
def test_json_comes_back_as_it_was_written(said: list[tuple[bytes, list[tuple[bytes, bytes]]]]) -> None:
    records = [
        Record(number, 5, tuple(Header(*header) for header in headers), body)
        for number, (body, headers) in enumerate(said)
    ]
    text = b"".join(WRITERS["json"](record, RecordId(5, record.seq_num)) for record in records)
    assert parsed("json", text) == [NewRecord(record.body, record.headers, 5) for record in records]


@given(st.lists(st.binary(max_size=20)))
def test_bodies_after_their_length_come_back(said: list[bytes]) -> None:
    text = b"".join(WRITERS["length"](Record(0, 0, (), body), None) for body in said)
    assert bodies("length", text) == said


def test_output_for_people() -> None:
    record = Record(3, 1000, (Header(b"a", b"1"),), b"\x1b[31mred\xff\n")
    assert for_terminal(record, None) == b"\\x1b[31mred\\xff\\n\n"
    assert WRITERS["lines"](record, None) == b"\x1b[31mred\xff\n\n"
    assert WRITERS["hex"](record, None) == b"3 1b 5b 33 31 6d 72 65 64 ff 0a\n"
    assert WRITERS["json"](record, None) == (
        b'{"seq_num":3,"timestamp":1000,"body_base64":"G1szMW1yZWT/Cg==","headers":[{"name":"a","value":"1"}]}\n'
    )


def test_long_lines_take_time_in_proportion() -> None:
    """A line of a MiB that comes in small pieces is joined once."""
    piece = b"x" * 4096
    assert list(map(len, bodies("lines", *[piece] * 256, b"\n"))) == [MIB]
