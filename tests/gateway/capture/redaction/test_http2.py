"""HTTP/2: header blocks keep their bytes and their tables, and give up their secrets."""

from __future__ import annotations

from typing import Any

import hpack
import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PushPromiseFrame,
    SettingsFrame,
)
from support.captures.redaction import CLIENT, SERVER, Said, at_every_cut, redacted
from support.http.h2_frames import parse

from penstock.capture.redaction.hpack_blanking import filler
from penstock.capture.redaction.rules import RedactionRules
from penstock.wire.http import PREFACE

SECRET = "sk-3fQ.hush+/=~{}$"
HEAD = [
    (":method", "POST"),
    (":path", f"/v1/x?n=1&token={SECRET}&m=2"),
    (":scheme", "http"),
    ("authorization", f"Bearer {SECRET}"),
    ("x-a", "b"),
    ("cookie", SECRET),
]


def frame(stream: int, block: bytes, *flags: str) -> bytes:
    return HeadersFrame(stream, block, flags=["END_HEADERS", *flags]).serialize()


def client_bytes(huffman: bool, *heads: Any) -> bytes:
    encoder = hpack.Encoder()
    out = PREFACE + SettingsFrame(0).serialize()
    for number, head in enumerate(heads):
        out += frame(2 * number + 1, encoder.encode(head, huffman=huffman))
        out += DataFrame(2 * number + 1, b"authorization: body", flags=["END_STREAM"]).serialize()
    return out


def heads_of(data: bytes) -> list[list[tuple[str, str]]]:
    decoder = hpack.Decoder()
    blocks: list[bytes] = []
    for one in parse(data.removeprefix(PREFACE)):
        if isinstance(one, HeadersFrame | PushPromiseFrame):
            blocks.append(one.data)
        elif isinstance(one, ContinuationFrame):
            blocks[-1] += one.data
    return [[(str(name), str(value)) for name, value in decoder.decode(block)] for block in blocks]


def blanked(value: str, huffman: bool) -> str:
    return filler(value.encode()).decode() if huffman else "*" * len(value)


def shown(head: list[tuple[str, str]], huffman: bool) -> list[tuple[str, str]]:
    secret = blanked(SECRET, huffman)
    return [(name, value.replace(SECRET, secret)) for name, value in head]


@pytest.mark.parametrize("huffman", [True, False])
def test_values_are_blanked_in_place_and_decode(huffman: bool) -> None:
    data = client_bytes(huffman, HEAD, HEAD[:3], HEAD)
    client, _ = at_every_cut([(CLIENT, data)])
    assert heads_of(client) == [shown(head, huffman) for head in (HEAD, HEAD[:3], HEAD)]
    assert SECRET.encode() not in client
    assert hpack.Encoder().huffman_coder.encode(SECRET.encode())[1:-1] not in client
    assert [(type(one), one.stream_id, one.flags) for one in parse(client.removeprefix(PREFACE))] == [
        (type(one), one.stream_id, one.flags) for one in parse(data.removeprefix(PREFACE))
    ]
    changed = sum(a != b for a, b in zip(client, data, strict=True))
    assert 0 < changed <= 3 * len(SECRET)


@pytest.mark.parametrize("huffman", [True, False])
def test_tables_are_kept_up_over_evictions_and_resizes(huffman: bool) -> None:
    encoder = hpack.Encoder()
    heads = [
        [("x-filler", f"{n:03}" * 40), ("authorization", f"Basic {SECRET}{n}"), ("x-auth", "seen")] for n in range(40)
    ]
    out = PREFACE + SettingsFrame(0).serialize()
    for number, head in enumerate(heads):
        if number % 7 == 3:
            encoder.header_table_size = 4096 if number % 2 else 300
        out += frame(2 * number + 1, encoder.encode(head, huffman=huffman), "END_STREAM")
        out += frame(2 * number + 101, encoder.encode(head, huffman=huffman), "END_STREAM")
    client, _ = redacted([(CLIENT, out)], cuts=range(0, len(out), 61))
    found = heads_of(client)
    assert len(found) == 80
    for number, head in enumerate(found):
        secret = f"{SECRET}{number // 2}"
        assert head[1] == ("authorization", f"Basic {blanked(secret, huffman)}")
        assert head[0] == heads[number // 2][0]


@pytest.mark.parametrize("huffman", [True, False])
def test_blocks_in_several_frames_with_padding_and_priority(huffman: bool) -> None:
    block = hpack.Encoder().encode(HEAD, huffman=huffman)
    third = len(block) // 3
    first = HeadersFrame(1, block[:third], flags=["PADDED", "PRIORITY", "END_STREAM"], pad_length=7)
    out = PREFACE + SettingsFrame(0).serialize() + first.serialize()
    out += ContinuationFrame(1, block[third : 2 * third]).serialize()
    out += ContinuationFrame(1, block[2 * third :], flags=["END_HEADERS"]).serialize()
    client, _ = at_every_cut([(CLIENT, out)])
    assert heads_of(client) == [shown(HEAD, huffman)]


def test_answers_trailers_and_promises() -> None:
    encoder = hpack.Encoder()
    out = SettingsFrame(0).serialize()
    promise = [(":method", "GET"), ("cookie", SECRET)]
    answer = [(":status", "200"), ("set-cookie", SECRET)]
    trailers = [("grpc-status", "0"), ("cookie", SECRET)]
    out += PushPromiseFrame(1, 2, encoder.encode(promise), flags=["END_HEADERS", "PADDED"], pad_length=3).serialize()
    out += frame(1, encoder.encode(answer)) + DataFrame(1, b"hi", flags=["PADDED"], pad_length=5).serialize()
    out += frame(1, encoder.encode(trailers), "END_STREAM")
    _, server = at_every_cut([(CLIENT, client_bytes(True, HEAD)), (SERVER, out)])
    assert heads_of(server) == [shown(head, True) for head in (promise, answer, trailers)]


def test_a_block_that_cannot_be_read_is_blanked_whole() -> None:
    bad = frame(1, b"\x00\x07cookie\xff" + SECRET.encode())
    out = PREFACE + SettingsFrame(0).serialize() + bad + frame(3, hpack.Encoder().encode(HEAD))
    client, _ = at_every_cut([(CLIENT, out)])
    frames = parse(client.removeprefix(PREFACE))
    assert isinstance(frames[1], HeadersFrame)
    assert frames[1].data == b"\x80" * (len(bad) - 9)
    with pytest.raises(hpack.HPACKError):
        hpack.Decoder().decode(frames[1].data)
    assert isinstance(frames[2], HeadersFrame)
    assert hpack.Decoder().decode(frames[2].data)


def test_a_block_longer_than_is_read_is_blanked_whole() -> None:
    block = hpack.Encoder().encode([("x", "y" * 300_000), ("cookie", SECRET)], huffman=False)
    pieces = [block[at : at + 16384] for at in range(0, len(block), 16384)]
    frames: list[Frame] = [HeadersFrame(1, pieces[0])]
    frames += [ContinuationFrame(1, piece) for piece in pieces[1:]]
    frames[-1].flags.add("END_HEADERS")
    out = PREFACE + b"".join(one.serialize() for one in frames) + frame(3, hpack.Encoder().encode(HEAD, huffman=False))
    client, _ = redacted([(CLIENT, out)], cuts=range(0, len(out), 5000))
    assert SECRET.encode() not in client
    assert hpack.Decoder().decode(parse(client.removeprefix(PREFACE))[-1].data)


def test_the_middle_of_a_connection() -> None:
    encoder = hpack.Encoder()
    first = frame(1, encoder.encode([("x-session", SECRET), ("x-seen", "1")]))
    later = frame(3, encoder.encode([("x-session", SECRET), ("x-seen", "2"), ("cookie", SECRET)]))
    data = frame(5, encoder.encode([("x-session", "other"), ("cookie", SECRET)], huffman=False))
    client, _ = redacted([(CLIENT, DataFrame(1, b"hi").serialize() + later), (CLIENT, data)], start=len(first) + 24)
    assert SECRET.encode() not in client
    assert hpack.Encoder().huffman_coder.encode(SECRET.encode())[1:-1] not in client
    assert client.startswith(DataFrame(1, b"hi").serialize())


def test_amid_a_frame_heads_are_blanked_whole() -> None:
    block = frame(3, hpack.Encoder().encode(HEAD, huffman=False))
    data = b"of a body" * 20 + block + DataFrame(3, b"hi").serialize()
    for cut in range(len(data)):
        client, _ = redacted([(CLIENT, data)], cuts=[cut], start=5000)
        assert SECRET.encode() not in client
        assert client.startswith(b"*" * 180)
        assert (client[180:189] == block[:9]) is (cut == 180)
        assert client.endswith(DataFrame(3, b"hi").serialize()) is (cut in (180, 180 + len(block)))
    assert SECRET.encode() not in redacted([(CLIENT, data)], cuts=range(len(data)), start=5000)[0]


def test_a_frame_amid_a_block() -> None:
    block = hpack.Encoder().encode(HEAD, huffman=False)
    out = PREFACE + HeadersFrame(1, block[:200]).serialize() + frame(3, block)
    client, _ = at_every_cut([(CLIENT, out)])
    assert SECRET.encode() not in client


def test_a_pattern_that_is_found_everywhere_leaves_what_holds_it_together() -> None:
    goaway = GoAwayFrame(0, last_stream_id=7, error_code=2, additional_data=b"hush").serialize()
    head = client_bytes(True, [(":method", "GET"), ("content-length", "0"), ("x", "hush")])
    client, _ = at_every_cut([(CLIENT, head + goaway)], RedactionRules(patterns=(b"(?s).",)))
    assert heads_of(client)[0][:2] == [(":method", "GET"), ("content-length", "0")]
    assert heads_of(client)[0][2] == ("x", blanked("hush", True))
    assert client.endswith(goaway.replace(b"hush", b"****"))


@pytest.mark.parametrize("huffman", [True, False])
def test_patterns_in_names(huffman: bool) -> None:
    head = [(":method", "GET"), ("x-12345678-hush", "1")]
    client, _ = at_every_cut([(CLIENT, client_bytes(huffman, head, head))], RedactionRules(patterns=(rb"[0-9]{8}",)))
    assert heads_of(client) == [[(":method", "GET"), (f"x-{blanked('12345678', huffman)}-hush", "1")]] * 2


def test_patterns_in_values() -> None:
    said: Said = [(CLIENT, client_bytes(True, [(":method", "GET"), ("x-note", "number 12345678 of many")]))]
    client, _ = at_every_cut(said, RedactionRules(patterns=(rb"[0-9]{8}",)))
    assert heads_of(client)[0][1] == ("x-note", f"number {blanked('12345678', True)} of many")
