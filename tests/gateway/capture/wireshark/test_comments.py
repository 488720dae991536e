"""Messages as text in comments: every field has a name of a known kind, and texts are bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.captures import read, s2_talk, s3p_talk, story, written
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, events, hear
from support.segment.messages import MESSAGES, message_of

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.choosing import dialogue_for
from penstock.capture.pcapng import CaptureEvent, Chunk, Noted, Withheld
from penstock.capture.wireshark.comments import comments_of, wireshark_protocols
from penstock.capture.wireshark.fields import FieldKind, Shown, WiresharkProtocol
from penstock.capture.wireshark.writing import MessageCommentWriter
from penstock.model.records import RecordId
from penstock_pravega.codec import SegmentMessage
from penstock_pravega.codec.layout import Direction
from penstock_s3p.codec import AppendRecords, Create, ErrorReply, Ok, Records, encode_command, encode_reply
from penstock_s3p.codec.events import Command, Reply

MAX_OPTION = 65_535


def comments(protocol: str, said: Said) -> list[str]:
    of = conversation(protocol)
    return [comment.decode() for comment in comments_of(hear(dialogue_for(of), events(of, said)))]


def command(of: Command) -> bytes:
    return b"".join(encode_command(of))


def reply(of: Reply) -> bytes:
    return encode_reply(of)


def test_a_request_and_its_response() -> None:
    said = [(CLIENT, command(AppendRecords(b"orders", [b"one", b"\0\n"]))), (SERVER, b"$3\r\n5-7\r\n")]
    assert comments("s3p", said) == [
        "penstock decoded\n"
        "s3p APPEND orders 2 records size=5\n"
        " command=APPEND\n name=orders\n records=2\n  bytes=5\n"
        " record=6f6e65\n  length=3\n record=000a\n  length=2\n"
        " @sent=1:1000\n"
        "s3p ID orders id=5-7\n"
        " reply=id\n id=5-7\n  ms=5\n  seq=7\n"
        " time=1000\n @asked=1:1000"
    ]


def test_an_error_and_what_is_malformed() -> None:
    said = [(CLIENT, b"*3\r\n$4\r\nNOPE\r\n"), (SERVER, reply(ErrorReply("ERR_BAD_FORMAT", "unknown")))]
    (text,) = comments("s3p", said)
    assert "penstock malformed: " in text and " malformed=" in text and "(S3P 0.2.0" in text
    assert "\n error\n  code=ERR_BAD_FORMAT\n  message=unknown\n  fatal=1\n failure=ERR_BAD_FORMAT: unknown" in text
    assert "\ns3p ERR_BAD_FORMAT unknown\n" in text


def test_bytes_that_are_missing_break_no_protocol() -> None:
    (text,) = comments("s3p", [(CLIENT, command(Create(b"orders"))[:-3])])
    assert text.startswith("penstock decoded\npenstock problem: ") and " problem=" in text


def test_no_name_or_text_ends_a_line() -> None:
    """Control characters are shown as escapes, and bytes that are no text as the dialogue shows them."""
    (text,) = comments("s3p", [(CLIENT, command(Create(b"a\n malformed=x\x7f\xff")))])
    assert "\n name=a\\x0a malformed=x\\x7f\\xff\n" in text
    assert len(text.splitlines()) == 5


def test_http_is_left_to_wireshark() -> None:
    """Heads are not shown, S2's messages are, though they have no frames."""
    text = "".join(comment.decode() for comment in comments_of(heard(s2_talk())))
    assert "s2s AppendInput penstock/in 2 records" in text and "GET" not in text and "404" not in text
    assert "\n append_input\n  records\n   body=6669727374\n  records\n   body=7365636f6e64\n" in text
    assert "\n append_ack\n  start\n   seq_num=5\n   timestamp=9\n" in text and "flags" not in text


def heard(talk: Sequence[CaptureEvent]) -> list[Message | Problem]:
    return hear(dialogue_for(talk[0].conversation), talk)


def test_a_protocol_without_names_of_its_own() -> None:
    """It is shown by the dialogue's fields, whose names are made fit."""
    (message,) = heard(s3p_talk(ends=False))[:1]
    assert isinstance(message, Message)
    fields = {"a b=c": {"d": [1, 2], "none": None}, "text": "x\ny"}
    (comment,) = comments_of([replace(message, layer="strange", fields=fields, exchange=None)])
    assert comment.decode() == (
        "penstock decoded\n"
        "penstock strange APPEND orders 1 record text=x\\x0ay\n"
        " layer=strange\n kind=APPEND\n stream=orders\n a_b_c\n  d=1\n  d=2\n text=x\\x0ay\n record=7265636f72642030"
    )


# ---- kinds -----------------------------------------------------------------------------------------------------------


def paths(fields: Sequence[Shown], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value, inner in fields:
        yield f"{path}{name}", value
        yield from paths(inner, f"{path}{name}.")


TYPES: dict[FieldKind, type] = {
    FieldKind.BOOL: bool,
    FieldKind.BYTES: bytes,
    FieldKind.GUID: UUID,
    FieldKind.INT: int,
    FieldKind.UINT: int,
    FieldKind.STRING: str,
}


def check_kinds(protocol: WiresharkProtocol, message: Message) -> None:
    fields = protocol.describe(message)
    assert fields
    for path, value in paths(fields):
        if value is None:
            assert path in ("event", "sources") or protocol.kinds[path] is FieldKind.NONE
        else:
            assert isinstance(value, TYPES[protocol.kinds[path]]), path


@given(data=st.data())
@pytest.mark.parametrize("cls", [cls for _, cls in MESSAGES if cls.direction is not Direction.INNER])
def test_fields_of_segment_messages_have_kinds(cls: type[SegmentMessage], data: st.DataObject) -> None:
    of = conversation("segment")
    message = Message(of, CLIENT, 0, 0, 0, 8, "segment", cls.__name__, event=data.draw(message_of(cls)))
    check_kinds(wireshark_protocols()["pravega"], message)


def test_fields_of_other_messages_have_kinds() -> None:
    protocols = wireshark_protocols()
    replies: list[Reply] = [Ok(), ErrorReply("ERR_X", "text"), Records.of([(RecordId(1, 2), b"body")])]
    said = [*((CLIENT, command(Create(b"x"))) for _ in replies), *((SERVER, reply(each)) for each in replies)]
    of = conversation("s3p")
    for message in [*heard(s3p_talk(rounds=2)), *hear(dialogue_for(of), events(of, said)), *heard(s2_talk())]:
        if isinstance(message, Message) and (message.layer == "s3p" or "Append" in message.kind):
            check_kinds(protocols["s3p" if message.layer == "s3p" else "s2s"], message)


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_a_large_message_is_cut() -> None:
    bodies = [b"%d" % number * 100 for number in range(2000)]
    (text,) = comments("s3p", [(CLIENT, command(AppendRecords(b"orders", bodies)))])
    assert len(text.encode()) <= MAX_OPTION and text.endswith("\n rest=not shown") and " records=2000\n" in text
    (text,) = comments("s3p", [(CLIENT, command(AppendRecords(b"orders", [b"x" * 100_000])))])
    assert f" record={b'x'.hex() * 4096}\n  length=100000\n" in text


def test_many_messages_take_several_comments() -> None:
    many = comments("s3p", [(CLIENT, command(Create(b"stream %d" % number))) for number in range(2000)])
    assert len(many) > 1 and all(len(text.encode()) <= MAX_OPTION for text in many)
    assert sum(text.count("\ns3p CREATE") for text in many) == 2000


def test_of_too_many_messages_the_rest_is_counted() -> None:
    large = command(AppendRecords(b"orders", [b"x" * 4096] * 10))
    many = comments("s3p", [(CLIENT, large * 30)])
    assert sum(map(len, many)) < 1.1 * 2**20 and many[-1].startswith("penstock decoded\npenstock ")
    shown = sum(text.count("\ns3p APPEND") for text in many)
    assert many[-1].split()[3] == str(30 - shown) and shown > 10


# ---- captures --------------------------------------------------------------------------------------------------------


def test_a_capture_with_messages_is_read_like_one_without() -> None:
    plain = [*s3p_talk(1, rounds=3), *s2_talk(2)]
    of = plain[0].conversation
    plain.insert(5, Noted(of, plain[4].time_ns, "stream", "orders"))
    chunk = next(event for event in plain[6:] if isinstance(event, Chunk))
    plain.insert(plain.index(chunk), Withheld(of, chunk.time_ns, chunk.sender, chunk.offset, 4))
    writer = MessageCommentWriter("test")
    file = b"".join([*writer.begin(), *(piece for event in plain for piece in writer.encode(event))])
    again = read(file)
    assert story(again) == story(plain) and file.count(b"penstock decoded\n") == 10
    assert [type(event) for event in again] == [type(event) for event in read(written(plain))]


def test_messages_stand_in_the_packet_that_completes_them() -> None:
    talk = s3p_talk(ends=False)
    writer = MessageCommentWriter("test")
    writer.begin()
    for event in talk:
        block = b"".join(writer.encode(event))
        shown = [name for name in (b"s3p APPEND", b"s3p ID") if name in block]
        assert shown == (
            [] if not isinstance(event, Chunk) else [b"s3p APPEND" if event.sender is CLIENT else b"s3p ID"]
        )
