"""The segment protocol: delegation tokens are found in every message that has one, in both dialects."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.redaction import CLIENT, SERVER, at_every_cut, redacted

from penstock_codecs.segment import TableEntry, TableKey, draft, encode, released
from penstock_codecs.segment.layout import TYPE_TABLE, Message, decode_body

TOKEN = "hush.hush.hush"
WRITER = UUID(int=7)
HELLO = b"".join(encode(released.Hello(16, 5)))


def wire(*messages: Message) -> bytes:
    return b"".join(piece for message in messages for piece in encode(message))


@pytest.mark.parametrize("token", [TOKEN, ""])
def test_tokens_of_requests(token: str) -> None:
    entries = (TableEntry(TableKey(b"k", -1), b"v"),)

    def messages(token: str) -> list[Message]:
        return [
            released.Hello(16, 5),
            released.SetupAppend(1, WRITER, "s/t/0", token),
            released.ReadSegment("s/t/0", 0, 1000, token, 9),
            released.CreateSegment(2, "s/t/1", 3, 0, token, 5),
            released.MergeSegmentsBatch(3, "s/t/0", ("a", "b"), token),
            released.UpdateTableEntries(4, "s/t/0", token, entries),
            released.FlushToStorage(5, token, 6),
            released.KeepAlive(),
        ]

    client, _ = at_every_cut([(CLIENT, wire(*messages(token)))], protocol="segment")
    assert client == wire(*messages("*" * len(token)))


def test_every_message_with_a_token_is_known() -> None:
    """By their names: whoever adds a message with one need not think of redaction."""
    named = {cls for table in TYPE_TABLE.values() for cls in table.values() if "oken" in " ".join(cls.__annotations__)}
    for cls in named:
        names = [field.name for field in cls.fields if "oken" in field.name and field.name != "continuation_token"]
        assert set(names) <= {"delegation_token", "token"}


def test_the_draft_has_administration_with_tokens() -> None:
    data = wire(draft.SetupAppend(WRITER, "s/t/0"), released.SealSegment(1, "s/t/0", TOKEN), draft.KeepAlive(b"hi"))
    client, _ = at_every_cut([(CLIENT, data)], protocol="segment")
    assert client == data.replace(TOKEN.encode(), b"*" * len(TOKEN))


def test_replies_go_by_untouched() -> None:
    data = wire(released.Hello(16, 5), released.SegmentRead("s/t/0", 0, True, False, TOKEN.encode(), 1))
    _, server = at_every_cut([(SERVER, data)], protocol="segment")
    assert server == data


def test_a_message_whose_fields_cannot_be_read_is_blanked_whole() -> None:
    body = bytes(8) + b"\x00\x50" + TOKEN.encode() * 3
    data = HELLO + (28).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
    client, _ = at_every_cut([(CLIENT, data + HELLO)], protocol="segment")
    assert client == data[: -len(body)] + b"*" * len(body) + HELLO


def test_a_large_message_goes_by_behind_its_token() -> None:
    entries = tuple(TableEntry(TableKey(b"%d" % n, -1), bytes(10_000)) for n in range(100))
    data = HELLO + wire(released.UpdateTableEntries(4, "s/t/0", TOKEN, entries))
    client, _ = redacted([(CLIENT, data)], protocol="segment", cuts=range(0, len(data), 65536))
    assert client == data.replace(TOKEN.encode(), b"*" * len(TOKEN))
    message = decode_body(released.UpdateTableEntries, memoryview(client)[len(HELLO) + 8 :])
    assert message.delegation_token == "*" * len(TOKEN)


def test_unknown_messages_are_searched() -> None:
    data = HELLO + b"\x00\x00\x03\xe7\x00\x00\x00\x10" + b"cookie: hush\r\nx"
    client, _ = at_every_cut([(CLIENT, data)], protocol="segment")
    assert b"hush" not in client
