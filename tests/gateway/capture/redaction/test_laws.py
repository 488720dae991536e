"""Laws of redaction for any conversation in any chunks: lengths stay, nothing raises, and no secret is written."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import hpack
from hyperframe.frame import ContinuationFrame, DataFrame, HeadersFrame, SettingsFrame
from hypothesis import example, given
from hypothesis import strategies as st
from support.captures.redaction import CLIENT, SERVER, leaks, redacted
from support.http.h2_frames import parse
from support.http.story import pull, said

from penstock.capture.pcapng import Sender
from penstock.capture.plugin import plugins
from penstock.capture.redaction.hpack_blanking import filler
from penstock.capture.redaction.rules import RedactionRules
from penstock.wire.codec import Role
from penstock.wire.compression import Compression, compress
from penstock.wire.http import PREFACE, Body, Credit, Data, End, Received, RequestHead, ResponseHead, connection

secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=60)
words = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9)
cuts = st.lists(st.integers(1, 1500), max_size=12)
PROTOCOLS = (*plugins(), "")
TELLTALE = b"hush-4711-hush"
RULES = RedactionRules(patterns=(rb"hush-[0-9]{4}-hush",), record_headers=(b"k",))


@given(
    secret=secrets,
    others=st.lists(st.tuples(words, secrets), max_size=4),
    huffman=st.booleans(),
    rounds=st.integers(1, 4),
    sensitive=st.booleans(),
    places=cuts,
    split=st.integers(1, 200),
)
def test_secret_values_over_http2(
    secret: str,
    others: list[tuple[str, str]],
    huffman: bool,
    rounds: int,
    sensitive: bool,
    places: list[int],
    split: int,
) -> None:
    secret = "S{" + secret
    encoder, decoder = hpack.Encoder(), hpack.Decoder()
    out, heads = PREFACE + SettingsFrame(0).serialize(), []
    for number in range(rounds):
        head: list[Any] = [(":method", "GET"), *((f"x-{name}", value) for name, value in others)]
        head.append(("authorization", f"Bearer {secret}", sensitive))
        heads.append([(name, value) for name, value, *_ in head])
        block = encoder.encode(head, huffman=huffman)
        first = HeadersFrame(2 * number + 1, block[:split])
        rest = ContinuationFrame(2 * number + 1, block[split:], flags=["END_HEADERS"])
        out += first.serialize() + rest.serialize()
    client, _ = redacted([(CLIENT, out)], cuts=places)
    blank = filler(secret.encode()).decode() if huffman else "*" * len(secret)
    frames = parse(client.removeprefix(PREFACE))[1:]
    for begin, end, head in zip(frames[::2], frames[1::2], heads, strict=True):
        decoded = decoder.decode(begin.data + end.data)  # type: ignore[attr-defined]
        assert decoded == [*head[:-1], ("authorization", f"Bearer {blank}")]
    if not any(secret in value for _, value in others):
        assert not leaks(client, secret.encode())


def conversation(alpn: str, headers: list[tuple[str, str]], bodies: list[bytes]) -> list[tuple[Sender, bytes]]:
    """A client's and a server's codec in three exchanges, and what went over the wire."""
    client, server = connection(alpn, Role.CLIENT), connection(alpn, Role.SERVER)
    wire: list[tuple[Sender, bytes]] = []

    def settle() -> list[Received]:
        heard: list[Received] = []
        moved = True
        while moved:
            moved = False
            for source, target, sender in ((client, server, CLIENT), (server, client, SERVER)):
                data = bytes(said(source))
                if data:
                    moved = True
                    wire.append((sender, data))
                    target.receive(data)
                    for event in pull(target):
                        heard.append(event)
                        if isinstance(event, Data):
                            target.send(Credit(event.stream_id, event.credit))
        return heard

    settle()
    chunked = [("transfer-encoding", "chunked")] if alpn == "http/1.1" else []
    for body in bodies:
        stream = client.new_stream()
        client.send(RequestHead(stream, "POST", "/x?token=sss", [*headers, *chunked], "host", "http"))
        client.send(Body(stream, [body]))
        settle()
        client.send(End(stream, [("cookie", "trailing")]))
        settle()
        server.send(ResponseHead(stream, 200, [*headers, *chunked]))
        server.send(Body(stream, [body, body]))
        server.send(End(stream))
        settle()
    return wire


def heard_by(alpn: str, wire: list[tuple[Sender, bytes]], role: Role) -> list[Received]:
    """Return a codec's events for a conversation.

    As a client it must send requests in between, so that only a server's side can be decoded again.
    """
    codec = connection(alpn, role)
    codec.receive(b"".join(data for sender, data in wire if sender is CLIENT))
    heard = []
    for event in pull(codec):
        heard.append(event)
    return heard


@given(secret=secrets, bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=3), places=cuts)
@example(secret="aaaaaa", bodies=[b"cookie: x\r\n\r\n"], places=[])
def test_requests_are_heard_as_they_were_but_for_secrets(secret: str, bodies: list[bytes], places: list[int]) -> None:
    secret = "S{" + secret
    headers = [("authorization", secret), ("x-a", "seen"), ("cookie", secret)]
    for alpn in ("h2", "http/1.1"):
        wire = conversation(alpn, headers, bodies)
        client, server = redacted(wire, cuts=places)
        before = heard_by(alpn, wire, Role.SERVER)
        after = heard_by(alpn, [(CLIENT, client)], Role.SERVER)
        assert [type(event) for event in after] == [type(event) for event in before]
        for old, new in zip(before, after, strict=True):
            if isinstance(old, RequestHead):
                assert isinstance(new, RequestHead)
                assert (new.method, new.authority) == (old.method, old.authority)
                kept = [(name, len(value)) for name, value in old.headers]
                assert [(name, len(value)) for name, value in new.headers] == kept
                assert not any(secret == value for _, value in new.headers)
            elif isinstance(old, Data):
                assert new == old
        if secret.encode() not in b"".join(bodies):
            assert secret not in str([value for event in after for value in getattr(event, "headers", ())])
            assert len(server) == sum(len(data) for sender, data in wire if sender is SERVER)


starts = st.sampled_from(
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        PREFACE[:20],
        b"*1\r\n$x\r\n",
        b"\xff\xff\xff\x81\x00\x00\x00\x08\x00\x00\x00\x10\x00\x00\x00\x05",
        b"\xff\xff\xff\x81\x80",
    ]
)


@given(
    protocol=st.sampled_from(PROTOCOLS),
    sender=st.sampled_from(Sender),
    start=starts,
    noise=st.lists(st.binary(max_size=60), min_size=2, max_size=5),
    places=cuts,
    offset=st.sampled_from([0, 77]),
)
def test_garbage_never_raises_and_never_leaks(
    protocol: str, sender: Sender, start: bytes, noise: list[bytes], places: list[int], offset: int
) -> None:
    data = start + TELLTALE.join(noise)
    client, server = redacted([(sender, data)], RULES, protocol, places, offset)
    assert TELLTALE not in client + server


@given(noise=st.binary(max_size=400), places=cuts, protocol=st.sampled_from(PROTOCOLS))
def test_frames_of_garbage_never_raise(noise: bytes, places: list[int], protocol: str) -> None:
    blocks = HeadersFrame(1, noise[:200], flags=["END_HEADERS"]).serialize() + DataFrame(1, noise[200:]).serialize()
    for rules in (None, RULES):
        redacted([(CLIENT, PREFACE + blocks + noise), (SERVER, blocks + noise)], rules, protocol, places)


@given(secret=st.binary(min_size=9, max_size=40), before=st.binary(max_size=4), after=st.binary(max_size=4))
def test_the_search_for_leaks_finds_every_form(secret: bytes, before: bytes, after: bytes) -> None:
    whole = before + secret + after
    assert "raw" in leaks(whole, secret)
    assert any(found.startswith("base64") for found in leaks(b64encode(whole), secret))
    assert "Huffman" in leaks(hpack.Encoder().encode([(b"x", secret)]), secret)
    assert "in zstd" in leaks(before + compress(Compression.ZSTD, whole), secret)
    assert "in gzip" in leaks(before + compress(Compression.GZIP, whole) + after, secret)


broken = st.sampled_from(
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nx: y",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd",
        b"PRI * HTTP/2.1\r\n\r\n",
    ]
)
letters = st.binary(max_size=30) | st.text("\r\n :\tGETHTP/1.0ab", max_size=30).map(str.encode)


@given(
    start=broken,
    noise=st.lists(letters, min_size=2, max_size=4),
    name=st.sampled_from([b"Authorization", b"COOKIE ", b"set-cookie\t", b"s2-encryption-key"]),
    places=cuts,
    offset=st.sampled_from([0, 77]),
    protocol=st.sampled_from(["s2", "controller", "management", ""]),
)
@example(start=b"", noise=[b"", b""], name=b"Authorization", places=[], offset=0, protocol="s2")
@example(start=b"", noise=[b"*", b""], name=b"Authorization", places=[], offset=0, protocol="s2")
@example(start=b"", noise=[b"*3", b""], name=b"Authorization", places=[], offset=0, protocol="s2")
@example(start=b"*1\r\n+", noise=[b"", b""], name=b"set-cookie\t", places=[], offset=0, protocol="")
def test_lines_of_secret_headers_are_blanked_wherever_a_head_is_broken(
    start: bytes, noise: list[bytes], name: bytes, places: list[int], offset: int, protocol: str
) -> None:
    data = start + (b"\r\n" + name + b": " + TELLTALE + b"\r\n").join(noise)
    client, _ = redacted([(CLIENT, data)], None, protocol, places, offset)
    assert TELLTALE not in client
