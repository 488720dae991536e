"""The segment protocol: delegation tokens are found in every message that has one, in both dialects."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.captures.redaction import CLIENT, SERVER, at_every_cut, redacted

from penstock.capture.redaction.rules import RedactionRules
from penstock.model.envelope import wrap
from penstock.model.records import Header
from penstock_pravega.codec import TableEntry, TableKey, append_messages, draft, encode, join_events, released
from penstock_pravega.codec.layout import TYPE_TABLE, SegmentMessage, decode_body
from penstock_pravega.codec.wire import encode_text

TOKEN = "hush.hush.hush"
WRITER = UUID(int=7)
HELLO = b"".join(encode(released.Hello(16, 5)))


def wire(*messages: SegmentMessage) -> bytes:
    return b"".join(piece for message in messages for piece in encode(message))


@pytest.mark.parametrize("token", [TOKEN, ""])
def test_tokens_of_requests(token: str) -> None:
    entries = (TableEntry(TableKey(b"k", -1), b"v"),)

    def messages(token: str) -> list[SegmentMessage]:
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
    """Token fields are recognised by name, so a message that is added with one is redacted too."""
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


def test_unknown_messages_of_clients_are_blanked_and_those_of_servers_searched() -> None:
    said = b"\x00\x00\x03\xe7\x00\x00\x00\x0ehush of a kind"
    client, server = at_every_cut([(CLIENT, HELLO + said + HELLO), (SERVER, HELLO + said)], protocol="segment")
    assert client == HELLO + said[:8] + b"*" * 14 + HELLO
    assert server == HELLO + said
    rules = RedactionRules(patterns=(b"hush",))
    assert at_every_cut([(SERVER, HELLO + said)], rules, "segment")[1] == HELLO + said.replace(b"hush", b"****")


def test_behind_a_fault_nothing_is_shown_that_could_be_a_token() -> None:
    data = b"\xff\xff\xff\x81\xff\xff\xff\xff" + bytes(8) + TOKEN.encode()
    client, _ = at_every_cut([(CLIENT, HELLO + data)], protocol="segment")
    assert client == HELLO + data[:12] + b"*" * (len(data) - 12)


# ---- patterns and record headers -----------------------------------------------------------------------------

HUSH = b"hush-hush-4711"
BLANK = b"*" * len(HUSH)
RULES = RedactionRules(record_headers=(b"x-key",), patterns=(rb"hush-[a-z]+-[0-9]+", rb"(?s)\x00\x00.\x0e"))


def events(secret: bytes) -> list[bytes]:
    enveloped = wrap((Header(b"x-key", secret[:9]), Header(b"o", b"seen")), b"body " + secret)
    return [b"a" + secret, secret, b"", enveloped, b"b" * 40 + secret]


@pytest.mark.parametrize("block", [None, 20, 60, 100, 150, 1000])
def test_events_of_appends_in_every_form(block: int | None) -> None:
    def data(secret: bytes) -> bytes:
        messages = append_messages(WRITER, events(secret), 5, 1, block_size=block) if block is None else []
        for number, event in enumerate(events(secret)):
            messages += append_messages(WRITER, [event], 5 + number, 1, block_size=block)
        conditional = released.ConditionalAppend(WRITER, 1, 2, b"x" + secret, 3)
        raw = released.ConditionalBlockEnd(WRITER, 1, 2, secret, 3)
        return HELLO + wire(*messages, conditional, raw)

    client, _ = at_every_cut([(CLIENT, data(HUSH))], RULES, "segment")
    assert client == data(BLANK)


def test_events_that_end_in_the_next_reply() -> None:
    def replies(secret: bytes) -> bytes:
        stored = join_events(events(secret))
        pieces = [(at, stored[at : at + 37]) for at in range(0, len(stored), 37)]
        reads = [
            released.SegmentRead("s/t/0", at, at + len(piece) == len(stored), False, piece, 1) for at, piece in pieces
        ]
        raw = released.SegmentRead("s/b/0", 7, True, False, b"raw " + secret, 1)
        return HELLO + wire(*reads, raw)

    _, server = redacted([(SERVER, replies(HUSH))], RULES, "segment")
    assert server == replies(BLANK)
    _, server = redacted([(SERVER, replies(HUSH))], RULES, "segment", range(5000))
    assert server == replies(BLANK)


def test_tables_and_texts() -> None:
    def messages(secret: bytes) -> bytes:
        entries = (TableEntry(TableKey(b"k" + secret, 3), secret), TableEntry(TableKey(b""), b"v"))
        return HELLO + wire(
            released.UpdateTableEntries(4, f"s/{secret.decode()}/0", "", entries),
            released.ReadTable(5, "s/t/0", "", (TableKey(secret, 1), TableKey(b"x", 2))),
            released.CreateSegment(6, "s/t/1", 1, 0, ""),
        )

    client, _ = at_every_cut([(CLIENT, messages(HUSH))], RULES, "segment")
    assert client == messages(BLANK)
    said = HELLO + wire(released.TableRead(1, "t", (TableEntry(TableKey(b"k", 7), HUSH),)), released.Hello(16, 5))
    _, server = at_every_cut([(SERVER, said)], RULES, "segment")
    assert server == said.replace(HUSH, BLANK)


def test_texts_in_lists() -> None:
    def merge(secret: str) -> bytes:
        return HELLO + wire(released.MergeSegmentsBatch(1, f"s/{secret}/0", (f"s/{secret}/1", "s/t/2"), ""))

    client, _ = at_every_cut([(CLIENT, merge(HUSH.decode()))], RULES, "segment")
    assert client == merge(BLANK.decode())
    # Clients also send plain UTF-8, in which a text has another length than Penstock would encode it with.
    plain = encode_text("\U0001f4a7") + b"x" * 2, "\U0001f4a7".encode() + b"x" * 4
    modified = HELLO + wire(released.MergeSegmentsBatch(1, "s/t/0", (f"\U0001f4a7xx{HUSH.decode()}",), ""))
    client, _ = at_every_cut([(CLIENT, modified.replace(*plain))], RULES, "segment")
    assert HUSH not in client and len(client) == len(modified)


def test_blocks_and_partials_of_the_draft() -> None:
    def messages(secret: bytes) -> bytes:
        begin, *middle, end = draft.partials(draft.Event(b"worldwide " + secret), [6, 20, 25])
        return wire(
            draft.SetupAppend(WRITER, "s/t/0"),
            draft.BeginAppendBlock(WRITER, 0, 28),
            draft.Event(b"x" + secret),
            begin,
            draft.EndAppendBlock(WRITER, 30, 30),
            *middle,
            draft.KeepAlive(b"x"),
            end,
        )

    client, _ = at_every_cut([(CLIENT, messages(HUSH))], RULES, "segment")
    assert client == messages(BLANK)


@pytest.mark.parametrize("rules", [RedactionRules(), RULES])
def test_tokens_in_partials(rules: RedactionRules) -> None:
    def messages(token: str) -> bytes:
        seal = draft.partials(released.SealSegment(1, "s/t/0", token), [3, 30])
        return wire(draft.SetupAppend(WRITER, "s/t/0"), *seal, *draft.partials(draft.ReadSegment("s/t/0", 0, 9), [8]))

    client, _ = at_every_cut([(CLIENT, messages(TOKEN))], rules, "segment")
    assert client == messages("*" * len(TOKEN))


def test_reads_of_the_draft() -> None:
    def replies(secret: bytes) -> bytes:
        stored = join_events(events(secret))
        return wire(
            draft.AppendSetup("s/t/0", WRITER, 0),
            draft.SegmentRead("s/t/0", 0, draft.Flags(), stored[:50]),
            draft.SegmentRead("s/t/0", 50, draft.Flags(at_tail=True), stored[50:]),
            *draft.partials(draft.SegmentRead("s/t/0", 0, draft.Flags(at_tail=True), stored), [5, 60]),
        )

    _, server = redacted([(SERVER, replies(HUSH))], RULES, "segment", range(5000))
    assert server == replies(BLANK)
    assert redacted([(SERVER, replies(HUSH))], RULES, "segment")[1] == server


def test_a_message_longer_than_is_waited_for_is_blanked() -> None:
    data = wire(released.AppendBlockEnd(WRITER, 10_000_000, HUSH + bytes(10_000_000 - len(HUSH)), 1, 1, 1))
    client, _ = redacted([(CLIENT, HELLO + data + HELLO)], RULES, "segment", range(0, 11_000_000, 65536))
    assert client == HELLO + data[:8] + b"*" * (len(data) - 8) + HELLO
