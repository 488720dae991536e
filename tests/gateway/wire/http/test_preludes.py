"""Preludes: a reader that decodes them first understands the rest, wherever the connection is cut."""

from __future__ import annotations

import pytest
from support.captures.dialogues import CLIENT, conversation, hear, parts

from penstock.capture.dialogue import Message
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import CaptureEvent, Chunk, Joined, Opened
from penstock.wire.codec import Role
from penstock.wire.http import Body, Data, End, HttpCodec, Received, RequestHead, ResponseHead, connection

HEADERS = [
    ("s2-basin", "penstock"),
    ("content-type", "s2s/proto"),
    ("authorization", "Bearer a-secret"),
    ("transfer-encoding", "chunked"),
]
FRAME = b"\0\0\x0b\0\n\x08\x1a\x06record"
"""An AppendInput of one record."""


def request(stream_id: int, *more: tuple[str, str]) -> RequestHead:
    return RequestHead(stream_id, "POST", "/v1/streams/s/records", [*HEADERS, *more], "example.test")


def output(codec: HttpCodec) -> bytes:
    return b"".join(bytes(part) for part in codec.output(1 << 20))


def received(codec: HttpCodec, data: bytes) -> list[object]:
    codec.receive(data)
    found: list[object] = []
    while isinstance(event := codec.next_event(), Received):
        found.append(event)
    return found


def from_here(alpn: str, codec: HttpCodec, heard: int, said: int, rest: bytes) -> list[Message] | None:
    """Return what a reader that joins a server now decodes of its client's further bytes; None if it cannot join."""
    preludes = codec.preludes()
    if preludes is None:
        return None
    offsets = heard - len(preludes.held), said + preludes.unwritten
    of = conversation("s2")
    events: list[CaptureEvent] = [
        Opened(of, 0, *offsets),
        Joined(of, 0, codec.version, *offsets, preludes.received, preludes.sent),
        Chunk(of, 0, CLIENT, offsets[0], preludes.held),
        Chunk(of, 1, CLIENT, heard, rest),
    ]
    told, problems, _ = parts(hear(HttpDialogue(of), events))
    assert not [each for each in problems if "was not recorded" not in each.rule and "ends" not in each.rule], problems
    return told


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
def test_wherever_what_the_peer_says_is_cut(alpn: str) -> None:
    """Amid heads, frames, chunks and the lines between them."""
    client, server = connection(alpn, Role.CLIENT), connection(alpn, Role.SERVER)
    number = client.new_stream()
    client.send(request(number))
    client.send(Body(number, [FRAME]))
    client.send(Body(number, [FRAME * 3]))
    client.send(Body(number, [FRAME]))
    client.send(End(number))
    data = output(client)
    answered = False
    whole = said = 0
    for cut in range(len(data)):
        events = received(server, data[cut : cut + 1])
        if not answered and any(isinstance(event, RequestHead) for event in events):
            server.send(ResponseHead(number, 200, [("content-type", "s2s/proto"), ("transfer-encoding", "chunked")]))
            answered = True
        said += len(output(server))
        if answered:
            told = from_here(alpn, server, cut + 1, said, data[cut + 1 :])
            if told is not None:
                whole += 1
                assert [each for each in told if each.kind == "END"] or cut == len(data) - 1, cut
                frames = [each for each in told if each.kind == "AppendInput"]
                left = data[cut + 1 :].count(FRAME)
                assert len(frames) >= min(left, 1) and all(each.stream == "penstock/s" for each in frames), cut
    assert whole > len(FRAME) * 5


def test_heads_that_refer_to_what_went_before_are_read() -> None:
    """Over HTTP/2, of either side."""
    client, server = connection("h2", Role.CLIENT), connection("h2", Role.SERVER)
    asked, answered = 0, 0
    for turn in range(6):
        number = client.new_stream()
        client.send(request(number, ("x" * (1 + 30 * turn), "v"), ("x-long", "y" * 100 * turn)))
        client.send(End(number))
        data = output(client)
        if turn == 5:
            told = from_here("h2", server, asked, answered, data)
            assert told is not None
            head = next(each for each in told if each.kind == "POST")
            assert ["authorization", "Bearer a-secret"] in head.fields["headers"]
            assert head.exchange == number and head.stream == "penstock/s"
        asked += len(data)
        received(server, data)
        server.send(ResponseHead(number, 404, [("x-some", "header" * 20 * turn)], end=True))
        reply = output(server)
        answered += len(reply)
        received(client, reply)


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_body_of_known_length_goes_on_with_what_is_left(cut: int) -> None:
    body = b'{"records": [{"body": "x"}]}'
    head = [*HEADERS[:1], ("content-type", "application/json"), ("content-length", str(len(body)))]
    client, server = connection("http/1.1", Role.CLIENT), connection("http/1.1", Role.SERVER)
    client.send(RequestHead(client.new_stream(), "POST", "/v1/streams/s/records", head, "example.test"))
    client.send(Body(1, [body]))
    client.send(End(1))
    data = output(client)
    at = len(data) - cut
    received(server, data[:at])
    preludes = server.preludes()
    assert preludes is not None and b"content-length: %d\r\n\r\n" % cut in preludes.received
    reader = connection("http/1.1", Role.SERVER)
    heard = received(reader, preludes.received + preludes.held + data[at:])
    assert isinstance(heard[0], RequestHead) and heard[0].target == "/v1/streams/s/records"
    assert b"".join(bytes(event.data) for event in heard if isinstance(event, Data)) == data[at:]
    assert heard[-1] == End(1)


def test_a_connection_without_an_exchange_has_an_empty_one() -> None:
    preludes = connection("http/1.1", Role.SERVER).preludes()
    assert preludes is not None
    assert (preludes.received, preludes.held, preludes.sent, preludes.unwritten) == (b"", b"", b"", 0)


def test_a_request_that_was_not_pulled_is_held_once() -> None:
    """The second one is short, and known."""
    server = connection("http/1.1", Role.SERVER)
    asked = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
    for number in (1, 2):
        received(server, asked)
        server.send(ResponseHead(number, 200, [("content-length", "0")], end=True))
    output(server)
    server.receive(asked)
    preludes = server.preludes()
    assert preludes is not None and (preludes.received, preludes.held) == (b"", asked)


@pytest.mark.parametrize(
    "framing", [("content-length", "9"), ("transfer-encoding", "chunked"), None], ids=["length", "chunks", "closing"]
)
def test_an_answer_goes_on_with_what_is_left(framing: tuple[str, str] | None) -> None:
    server = connection("http/1.1", Role.SERVER)
    asked = b"GET /x HTTP/1.0\r\n\r\n" if framing is None else b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
    received(server, asked)
    server.send(ResponseHead(1, 206, [("x-some", "header"), *([framing] if framing else [])]))
    server.send(Body(1, [b"begin"]))
    output(server)
    preludes = server.preludes()
    assert preludes is not None and not preludes.unwritten
    head = received(connection("http/1.1", Role.SERVER), preludes.received)[0]
    assert isinstance(head, RequestHead) and (head.method, head.target) == ("GET", "/x")
    server.send(Body(1, [b"rest"]))
    server.send(End(1))
    client = connection("http/1.1", Role.CLIENT)
    client.send(RequestHead(client.new_stream(), "GET", "/", [], "x"))
    client.send(End(1))
    heard = received(client, preludes.sent + output(server))
    assert isinstance(heard[0], ResponseHead) and heard[0].status == 206
    assert ("x-some", "header") in heard[0].headers
    assert b"".join(bytes(event.data) for event in heard if isinstance(event, Data)) == b"rest"
    if framing is None:
        heard = received(client, b"")
    assert End(1) in heard


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
def test_a_connection_that_breaks_its_protocol_has_none(alpn: str) -> None:
    server = connection(alpn, Role.SERVER)
    server.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64 if alpn == "h2" else b"\0\r\n\r\n")
    with pytest.raises(Exception, match="HTTP"):
        while True:
            server.next_event()
    assert server.preludes() is None
