"""Records out of messages, and their normal forms."""

from __future__ import annotations

from typing import Any

import pytest
from support.captures.dialogues import CLIENT, SERVER, conversation, events, hear

from penstock.capture.dialogue import APPENDED, DELIVERED, SeenRecord
from penstock.capture.dialogue.records import (
    RecordPosition,
    differences,
    normal_form,
    plain_stream,
    position_of,
    records_in,
)
from penstock.model.envelope import ENVELOPE_MARK, wrap
from penstock.model.records import Header, RecordId
from penstock_s3p.capture.conversation import S3PDialogue
from penstock_s3p.codec import AppendedId, AppendRecords, ReadRecords, Records
from penstock_s3p.codec.encoding import encode_command, encode_reply

HEADERS = (Header(b"name", b"value"), Header(b"", b"fence"))


def seen(body: bytes = b"x", **fields: Any) -> SeenRecord:
    return SeenRecord(DELIVERED, "s", body, **fields)


def test_records_come_in_the_order_of_their_messages() -> None:
    said = [
        (CLIENT, b"".join(encode_command(AppendRecords(b"a", [b"1", b"2"])))),
        (CLIENT, b"".join([*encode_command(ReadRecords(b"b")), b"rubbish"])),
        (SERVER, encode_reply(AppendedId(RecordId(5, 1)))),
        (SERVER, encode_reply(Records.of([(RecordId(7, 0), b"3")]))),
    ]
    of = conversation("s3p")
    heard = hear(S3PDialogue(of), events(of, said))
    assert [record.body for record in records_in(heard)] == [b"1", b"2", b"3"]
    assert [record.body for record in records_in(heard, action=APPENDED)] == [b"1", b"2"]
    assert [record.body for record in records_in(heard, streams={"b"})] == [b"3"]
    assert not list(records_in(heard, action=APPENDED, streams=["b"]))


@pytest.mark.parametrize(
    ("stream", "plain"),
    [
        ("scope/stream/0.#epoch.0", "scope/stream"),
        ("scope/stream/12", "scope/stream"),
        ("scope/stream/3.#epoch.7#transaction.00112233445566778899aabbccddeeff", "scope/stream"),
        ("basin/orders", "basin/orders"),
        ("basin/1", "basin/1"),
        ("orders", "orders"),
        ("basin/a/b", "basin/a/b"),
    ],
)
def test_streams_without_what_only_segments_have(stream: str, plain: str) -> None:
    assert plain_stream(stream) == plain


def test_envelopes_are_opened() -> None:
    """A record with headers over S2 equals its envelope over S3P; a body that only resembles one stays a body."""
    plain, enveloped = seen(b"body", headers=HEADERS), seen(wrap(HEADERS, b"body"))
    assert differences(plain, enveloped) == ()
    assert differences(plain, enveloped, envelopes=False) == ("body", "headers")
    assert normal_form(seen(ENVELOPE_MARK + b"?")).body == ENVELOPE_MARK + b"?"
    assert differences(seen(b""), seen(wrap((), b""))) == ()


def test_fields_are_compared_where_both_say_them() -> None:
    s2 = seen(seq_num=3, timestamp=5)
    s3p = seen(record_id="5-0", timestamp=5)
    segment = seen(offset=70)
    assert differences(s2, s3p) == differences(s2, segment) == differences(s3p, segment) == ()
    assert differences(s2, seen(b"y", headers=HEADERS, seq_num=4, timestamp=6)) == (
        "body",
        "headers",
        "timestamp",
        "seq_num",
    )
    assert differences(s3p, seen(record_id="05-00")) == ()
    assert differences(s3p, seen(record_id="5-1")) == ("record_id",)
    assert differences(segment, seen(offset=71)) == ("offset",)
    assert differences(segment, seen(b"y", offset=71), ignore=("body", "offset")) == ()


def test_positions() -> None:
    assert position_of(seen(seq_num=3, timestamp=5)) == RecordPosition("seq_num", (3,))
    assert position_of(seen(record_id="10-2")) == RecordPosition("record_id", (10, 2))
    assert position_of(seen(offset=7)) == RecordPosition("offset", (7,))
    assert position_of(seen()) is None
    nine, ten = position_of(seen(record_id="9-0")), position_of(seen(record_id="10-0"))
    assert nine is not None and ten is not None and nine < ten
