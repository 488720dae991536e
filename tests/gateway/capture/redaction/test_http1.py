"""HTTP/1.1: secret headers and parameters are blanked in any spelling and any chunks."""

from __future__ import annotations

import pytest
from support.captures.redaction import CLIENT, SERVER, Tape, at_every_cut, redacted

from penstock.capture.pcapng import Chunk, Sender
from penstock.capture.redaction.rules import RedactionRules

REQUEST = (
    b"POST /v1/streams/x/records?token=hush&n=1 HTTP/1.1\r\nHost: b.localhost\r\nAuthorization: Bearer hush-hush\r\n"
    b"Content-Length: 5\r\n\r\nhello"
)
ANSWER = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=hush\r\ncontent-length: 2\r\n\r\n{}"


def test_secret_values_are_blanked_and_the_scheme_stays() -> None:
    client, server = at_every_cut([(CLIENT, REQUEST), (SERVER, ANSWER)])
    assert client == REQUEST.replace(b"hush-hush", b"*" * 9).replace(b"token=hush", b"token=****")
    assert server == ANSWER.replace(b"a=hush", b"******")


@pytest.mark.parametrize(
    ("line", "blanked"),
    [
        (b"authorization:hush", b"authorization:****"),
        (b"AUTHORIZATION :\t hush \t", b"AUTHORIZATION :\t **** \t"),
        (b"authorization: hush hush", b"authorization: *********"),
        (b"authorization: bearer  hush", b"authorization: bearer  ****"),
        (b"authorization: Bearer", b"authorization: ******"),
        (b"cookie: a=hush; b=hush", b"cookie: " + b"*" * 14),
        (b"authorization: Bearer\r\n\thush\r\n hush", b"authorization: ******\r\n\t****\r\n ****"),
        (b"s2-encryption-key: aHVzaA==", b"s2-encryption-key: ********"),
        (b"referer: http://a/?b=1&Access%5Ftoken=hush&c=2", b"referer: http://a/?b=1&Access%5Ftoken=****&c=2"),
        (b"location: http://me:hush@a/?b#access_token=hush", b"location: http://*******@a/?b#access_token=****"),
        (b"x-authorization: 1", b"x-authorization: 1"),
    ],
)
@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
def test_any_spelling_of_a_header(line: bytes, blanked: bytes, newline: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nhost: b\r\n%b\r\nx: y\r\n\r\n"
    client, _ = at_every_cut([(CLIENT, (head % line).replace(b"\r\n", newline))])
    assert client == (head % blanked).replace(b"\r\n", newline)


CHUNKED = (
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    b"5;x=y\r\nhello\r\nA\r\ncookie: \r\n\r\n0\r\nCookie: hush\r\nx: y\r\n\r\n"
    b"GET / HTTP/1.1\r\ncookie: hush\r\n\r\n"
)


def test_bodies_in_chunks_and_trailers() -> None:
    client, server = at_every_cut(
        [(CLIENT, CHUNKED), (SERVER, b"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\n\r\ncookie: body until the end")]
    )
    assert client == CHUNKED.replace(b"hush", b"****")
    assert server.endswith(b"cookie: body until the end")


def test_answers_to_head_have_no_body() -> None:
    said = [
        (CLIENT, b"HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        (SERVER, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"),
        (SERVER, b"HTTP/1.1 304 Not\r\ncontent-length: 9\r\n\r\nHTTP/1.1 200 OK\r\nset-cookie: hush\r\n\r\n"),
    ]
    _, server = at_every_cut(said)
    assert server.endswith(b"set-cookie: ****\r\n\r\n")


def test_what_breaks_the_rules_is_searched_for_header_lines() -> None:
    said = [
        (CLIENT, b"what is this\r\nAuthorization: Bearer hush\r\n and more hush\r\nx: y\r\n"),
        (SERVER, b"HTTP/1.1 200 OK\r\nno colon here\r\nSet-Cookie:hush\n\r\n"),
    ]
    client, server = at_every_cut(said)
    assert b"hush" not in client + server
    assert client.endswith(b"\r\nx: y\r\n")
    assert server.startswith(b"HTTP/1.1 200 OK\r\nno colon here\r\n")


def test_a_carriage_return_alone_ends_no_header_in_silence() -> None:
    head = b"GET / HTTP/1.1\r\nx: y\rauthorization: hush\rz: w\r\n\r\n"
    assert at_every_cut([(CLIENT, head)])[0] == head.replace(b" hush\rz: w", b"*****\r****")


def test_users_in_authorities() -> None:
    head = b"GET http://me:hush@a/ HTTP/1.1\r\nHost: me:hush@a\r\n\r\n"
    assert at_every_cut([(CLIENT, head)])[0] == head.replace(b"me:hush", b"*******")


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_a_first_line_that_is_none(sender: Sender) -> None:
    said = b"\r\nAuthorization: hush\r\n\r\n"
    assert b"hush" not in b"".join(at_every_cut([(sender, said)]))


def test_the_middle_of_a_connection() -> None:
    said = [
        (CLIENT, b"rest of a body\r\ncookie: hush\r\n"),
        (CLIENT, b"GET /?token=hush HTTP/1.1\r\nauthorization: hush\r\n\r\n"),
        (SERVER, b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nHTTP/1.1 200 OK\r\nset-cookie: hush\r\n\r\n"),
    ]
    client, server = redacted(said, start=77)
    assert b"hush" not in client + server
    assert client.startswith(b"**************\r\n")


def test_a_secret_line_without_an_end() -> None:
    head = b"GET / HTTP/1.1\r\nauthorization: "
    client, _ = redacted([(CLIENT, head + b"hush" * 50_000)], cuts=range(0, 200_000, 999))
    assert client.startswith(b"GET / HTTP/1.1\r\nauthorization:")
    assert b"hush" not in client


def test_bodies_are_passed_on_by_reference() -> None:
    tape = Tape()
    tape.say(CLIENT, b"POST / HTTP/1.1\r\ncontent-length: 200000\r\n\r\n")
    piece = bytes(65536)
    for _ in range(3):
        (chunk,) = tape.say(CLIENT, piece)
        assert isinstance(chunk, Chunk)
        assert chunk.data is piece


def test_a_pattern_that_is_found_everywhere_leaves_what_holds_it_together() -> None:
    said = [
        (CLIENT, b"POST /x HTTP/1.1\r\ncontent-length: 2\r\nx: yz\r\n\r\nhi"),
        (SERVER, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\n\r\n"),
    ]
    client, server = at_every_cut(said, RedactionRules(patterns=(b"(?s).",)))
    assert client == b"POST ** HTTP/1.1\r\ncontent-length: 2\r\n*: **\r\n\r\n**"
    assert server == b"HTTP/1.1 200 **\r\ntransfer-encoding: chunked\r\n\r\n2;***\r\n**\r\n0\r\n\r\n"


def test_other_names() -> None:
    rules = RedactionRules(headers=("X-Key",), parameters=())
    said = [(CLIENT, b"GET /?token=seen HTTP/1.1\r\nx-key: hush\r\nauthorization: seen\r\n\r\n")]
    client, _ = at_every_cut(said, rules)
    assert client == said[0][1].replace(b"hush", b"****")


def test_patterns_in_names() -> None:
    data = b"GET / HTTP/1.1\r\nHost: b\r\nX-12345678-Y: 1\r\nContent-Length: 0\r\n\r\n"
    client, _ = at_every_cut([(CLIENT, data)], RedactionRules(patterns=(rb"[0-9]{8}", b"(?i)content-length")))
    assert client == data.replace(b"12345678", b"*" * 8)
