"""Every message: there and back, with and without its optional fields, cut short, and with bytes behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.segment.messages import MESSAGES, WRITER, message_of

from penstock.model.failures import LocalProtocolError
from penstock_pravega.codec import Dialect, SegmentMessage, TableEntry, TableKey, draft, encode, released
from penstock_pravega.codec.layout import HEADER, HEADER_BYTES, decode_body, fields_of, spans
from penstock_pravega.codec.limits import SEGMENT_MAX_ITEMS, SEGMENT_MAX_LENGTH, SEGMENT_MAX_NAME
from penstock_pravega.codec.wire import MalformedValue, decode_text, encode_text

EACH = pytest.mark.parametrize(
    "cls", [pytest.param(cls, id=f"{dialect.value}-{cls.__name__}") for dialect, cls in MESSAGES]
)
FEW = examples(share=4, most=20)
"""Of each class; there are 90."""


def body(message: SegmentMessage, version: int = 16) -> bytes:
    return b"".join(encode(message, version=version))[HEADER_BYTES:]


def decoded(cls: type[SegmentMessage], data: bytes, version: int = 16) -> SegmentMessage:
    return decode_body(cls, memoryview(data), version)


@EACH
@FEW
@given(data=st.data())
def test_there_and_back(cls: type[SegmentMessage], data: st.DataObject) -> None:
    message = data.draw(message_of(cls))
    whole = b"".join(encode(message))
    assert HEADER.unpack_from(whole) == (cls.type_id, len(whole) - HEADER_BYTES)
    again = decoded(cls, whole[HEADER_BYTES:])
    assert again == message
    assert repr(again) == repr(message)
    ends = [end for *_, end in spans(cls, memoryview(whole)[HEADER_BYTES:], 16)]
    assert not ends or ends[-1] == len(whole) - HEADER_BYTES


OPEN_ENDED = {"rest", "zero bytes"}


@EACH
@FEW
@given(data=st.data())
def test_cut_short(cls: type[SegmentMessage], data: st.DataObject) -> None:
    """A body that ends too early is refused, or lacks optional fields only, which have their defaults then."""
    message = data.draw(message_of(cls))
    whole = body(message)
    if not whole or cls.fields[-1].wire.name in OPEN_ENDED:
        return
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        again = decoded(cls, cut)
    except MalformedValue:
        return
    for field in cls.fields:
        if getattr(again, field.name) != getattr(message, field.name):
            assert field.tail and getattr(again, field.name) == field.default


@EACH
@FEW
@given(data=st.data())
def test_the_short_form(cls: type[SegmentMessage], data: st.DataObject) -> None:
    message = data.draw(message_of(cls))
    short = b"".join(encode(message, tail=False))[HEADER_BYTES:]
    again = decoded(cls, short)
    for field in cls.fields:
        assert getattr(again, field.name) == (field.default if field.tail else getattr(message, field.name))


@EACH
def test_a_field_that_older_peers_leave_out_is_unknown_or_empty(cls: type[SegmentMessage]) -> None:
    """-1 stands for a number that is not known; a size and the start of a segment are 0 (segment fact sheet 0)."""
    zero = {"start_offset", "rollover_size_bytes", "key_length", "sorted"}
    for field in cls.fields:
        if field.tail:
            number = isinstance(field.default, int)
            assert field.default == (0 if field.name in zero else -1) if number else not field.default


@EACH
@FEW
@given(data=st.data(), surplus=st.binary(min_size=1, max_size=9))
def test_bytes_behind_the_last_field_are_ignored(
    cls: type[SegmentMessage], data: st.DataObject, surplus: bytes
) -> None:
    if cls.fields and cls.fields[-1].wire.name in OPEN_ENDED:
        return
    message = data.draw(message_of(cls))
    assert decoded(cls, body(message) + surplus) == message


def test_both_dialects_share_the_type_ids() -> None:
    names: dict[int, set[str]] = {}
    for _, cls in MESSAGES:
        names.setdefault(cls.type_id, set()).add(cls.__name__)
    different = {type_id: found for type_id, found in names.items() if len(found) > 1}
    assert different == {
        -2: {"PartialEvent", "Partial"},
        3: {"AppendBlock", "BeginAppendBlock"},
        4: {"AppendBlockEnd", "EndAppendBlock"},
    }


def test_every_command_of_the_fact_sheet_is_there() -> None:
    plumbing = [-127, -6, -5, -4, -3, -2, -1, 0, 100]
    append_and_read = [1, 2, 3, 4, 5, 7, 8, 89, 9, 10]
    administration = [11, 12, 20, 21, *range(28, 43), 58, 59, 90, 91]
    errors = [50, 51, 52, 53, 55, 56, 57, 60, 61]
    tables = [68, 69, 70, 71, *range(74, 89)]
    wanted = sorted(plumbing + append_and_read + administration + errors + tables)
    assert sorted(cls.type_id for dialect, cls in MESSAGES if dialect is Dialect.RELEASED) == wanted


@FEW
@given(st.data())
def test_invalid_event_number_has_two_layouts(data: st.DataObject) -> None:
    message = data.draw(message_of(released.InvalidEventNumber))
    assert isinstance(message, released.InvalidEventNumber)
    old = decoded(released.InvalidEventNumber, body(message, 15), 15)
    assert isinstance(old, released.InvalidEventNumber)
    assert (old.writer_id, old.event_number, old.server_stack_trace) == (
        message.writer_id,
        message.event_number,
        message.server_stack_trace,
    )
    assert old.request_id == -1
    assert [field.name for field in fields_of(released.InvalidEventNumber, 16)][1] == "request_id"


@examples(most=500)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_modified_utf8(text: str) -> None:
    encoded = encode_text(text)
    assert b"\0" not in encoded and all(byte < 0xF0 for byte in encoded)
    assert decode_text(encoded) == text
    assert decode_text(text.encode()) == text  # as the Rust and Python clients write it


@pytest.mark.parametrize("data", [b"\xff", b"\xc3", b"\xed\xa0\xbd", b"\xed\xb8\x80\xed\xa0\xbd", b"\xc1\x81"])
def test_text_that_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="not UTF-8"):
        decode_text(data)
    with pytest.raises(MalformedValue, match=r"SegmentCreated.segment: text that is not UTF-8"):
        decoded(released.SegmentCreated, bytes(8) + len(data).to_bytes(2, "big") + data)


@pytest.mark.parametrize(
    ("cls", "data", "said", "at"),
    [
        (released.SetupAppend, "00", "request_id: 8 bytes are needed and 1 are left", 0),
        (released.SegmentCreated, "0000000000000001 0005 61", "segment: 5 bytes are needed and 1 are left", 10),
        (released.SegmentCreated, "0000000000000001 0401" + "61" * 1025, "a name of 1025 bytes, at most 1024", 8),
        (released.TableEntriesUpdated, "0000000000000001 ffffffff", "versions: a count of -1", 8),
        (released.TableEntriesUpdated, "0000000000000001 00001001", "a list of 4097, at most 4096", 8),
        (released.TableEntriesUpdated, "0000000000000001 00001000", "8 bytes are needed and 0 are left", 12),
        (released.AppendBlockEnd, "00" * 20 + "ffffffff", "data: a length of -1", 20),
        (released.AppendBlockEnd, "00" * 20 + "7fffffff", "data: 2147483647 bytes are needed", 24),
        (released.ConditionalAppend, "00" * 32 + "00000001 00000000", "message type 1 where an Event", 32),
        (released.ReadTable, "00" * 12 + "00000001 0000000c 00000001 61", "a key of 1 bytes in 12 bytes, 13", 16),
        (
            released.TableRead,
            "00" * 10 + "00000001 0000000c 00000000 00000009 00000001 61",
            "a value of 1 bytes in 9",
            22,
        ),
        (draft.Partial, "03", "part: 3 is none of Begin", 0),
        (draft.Partial, "", "part: 1 bytes are needed and 0 are left", 0),
        (released.NoSuchSegment, "0000000000000001 0000 00", "server_stack_trace: 2 bytes are needed", 10),
    ],
)
def test_malformed(cls: type[SegmentMessage], data: str, said: str, at: int) -> None:
    with pytest.raises(MalformedValue, match=said) as caught:
        decoded(cls, bytes.fromhex(data))
    assert caught.value.at == at


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (released.Hello(1 << 31, 5), r"Hello\.high_version: 2147483648 is no i32"),
        (released.SegmentCreated(1, "a" * (SEGMENT_MAX_NAME + 1)), "a name of 1025 bytes, at most 1024"),
        (released.SegmentCreated(1, "\ud800"), "surrogates not allowed"),
        (released.CreateSegment(1, "a", 1, 256), "256 is no u8"),
        (released.TableEntriesUpdated(1, (0,) * (SEGMENT_MAX_ITEMS + 1)), "a list of 4097"),
        (released.Padding(-1), "-1 zero bytes"),
        (released.OperationUnsupported(1, "x" * 65_536), "a str of 65536 bytes, at most 65535"),
        (released.PartialEvent(bytes(SEGMENT_MAX_LENGTH + 1)), "16777216 bytes, at most 16777215 fit"),
    ],
)
def test_what_cannot_be_said(message: SegmentMessage, said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        encode(message)


def test_any_byte_but_zero_is_true() -> None:
    message = decoded(released.SegmentAttributeUpdated, bytes(8) + b"\x07")
    assert message == released.SegmentAttributeUpdated(0, True)


def test_the_other_flag_bits_are_ignored() -> None:
    for bits, flags in (("ff", (True, True)), ("bf", (True, False)), ("7f", (False, True)), ("3f", (False, False))):
        message = decoded(draft.SegmentRead, bytes.fromhex(f"0000 0000000000000000 {bits} 61"))
        assert message == draft.SegmentRead("", 0, draft.Flags(*flags), b"a")


def test_repr_is_short_and_tells_apart() -> None:
    one, other = (released.AppendBlock(WRITER, bytes(100_000) + end) for end in (b"a", b"b"))
    assert len(repr(one)) < 200 and repr(one) != repr(other)
    assert repr(released.KeepAlive()) == "KeepAlive()"
    assert repr(draft.Partial(draft.PartialKind.BEGIN, b"a")) == "Partial(part=BEGIN, data=b'a')"
    entry = TableEntry(TableKey(b"k", 1), bytes(1000))
    assert "<1000 bytes, 0000" in repr(released.TableRead(1, "s", (entry,)))


def test_large_data_is_not_copied() -> None:
    data = bytes(1 << 20)
    pieces = encode(released.SegmentRead("s", 0, False, False, data, 1))
    assert any(piece is data for piece in pieces)


I64, I32 = 2**63, 2**31


@pytest.mark.parametrize(
    "message",
    [
        released.CreateSegment(-I64, "s", -I32, 0),
        released.CreateSegment(I64 - 1, "n" * SEGMENT_MAX_NAME, I32 - 1, 255),
        released.OperationUnsupported(1, "x" * 65_535),
        released.TableEntriesUpdated(1, (-I64,) * SEGMENT_MAX_ITEMS),
    ],
)
def test_the_largest_and_smallest_values(message: SegmentMessage) -> None:
    assert decoded(type(message), body(message)) == message


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (released.CreateSegment(I64, "s", 0, 0), f"{I64} is no i64"),
        (released.CreateSegment(-I64 - 1, "s", 0, 0), f"{-I64 - 1} is no i64"),
        (released.CreateSegment(1, "s", I32, 0), f"{I32} is no i32"),
        (released.CreateSegment(1, "s", -I32 - 1, 0), f"{-I32 - 1} is no i32"),
        (released.CreateSegment(1, "s", 0, -1), "-1 is no u8"),
        (released.CreateSegment(1, "n" * (SEGMENT_MAX_NAME + 1), 0, 0), "1025 bytes"),
    ],
)
def test_values_beyond_these_cannot_be_said(message: SegmentMessage, said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        encode(message)
