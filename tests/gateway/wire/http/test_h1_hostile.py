"""HTTP/1.1 against hostile or broken clients, and absolute targets."""

import pytest
from support.http.story import answer_204, pull, said, tell

from penstock.model.failures import LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import Role
from penstock.wire.http import Body, End, Noise, RequestHead, ResponseHead
from penstock.wire.http.h1 import Http1Connection


def server() -> Http1Connection:
    return Http1Connection(Role.SERVER)


def ask(codec: Http1Connection, request: bytes) -> RequestHead:
    codec.receive(request)
    head = pull(codec)[0]
    assert isinstance(head, RequestHead)
    return head


def test_a_fault_after_a_head_request_is_answered() -> None:
    codec = server()
    heard, _ = tell(codec, [b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n"], answer_204)
    assert len(heard) == 2
    said(codec)
    codec.receive(b"GARBAGE\r\n\r\n")
    with pytest.raises(RemoteProtocolError):
        pull(codec)
    assert said(codec).endswith(b"illegal request line")


def test_what_is_said_after_a_fault_is_dropped() -> None:
    """A handler may not have heard yet that its client has broken the protocol."""
    codec = server()
    codec.receive(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")
    with pytest.raises(RemoteProtocolError):
        pull(codec)
    assert said(codec).startswith(b"HTTP/1.1 400 ")
    codec.send(ResponseHead(1, 200, []))
    codec.send(Body(1, [b"late"], end=True))
    assert said(codec) == b""


def test_an_error_quotes_nothing_of_the_client() -> None:
    codec = server()
    codec.receive(b"GET / HTTP/1.1\r\nhost: a\r\nAuthorization Bearer secret\r\n\r\n")
    with pytest.raises(RemoteProtocolError) as caught:
        pull(codec)
    assert caught.value.failure.message == "HTTP/1.1: illegal header line"
    assert b"secret" not in said(codec)


@pytest.mark.parametrize(
    "target, authority, path",
    [
        (b"http://b.localhost/v1?x=1", "b.localhost", "/v1?x=1"),
        (b"http://b.localhost:80?x=/1", "b.localhost:80", "/?x=/1"),
        (b"HTTPS://b.localhost", "b.localhost", "/"),
        (b"/v1/a://b", "other", "/v1/a://b"),
    ],
)
def test_absolute_targets(target: bytes, authority: str, path: str) -> None:
    head = ask(server(), b"GET " + target + b" HTTP/1.1\r\nhost: other\r\n\r\n")
    assert (head.authority, head.target) == (authority, path)


def test_unwanted_chunks_give_others_their_turn() -> None:
    codec = server()
    ask(codec, b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    codec.send(ResponseHead(1, 204, []))
    codec.send(End(1))
    codec.receive(b"1\r\nx\r\n" * 1000)
    assert codec.next_event() == Noise()
    assert codec.buffered > 5000


def test_an_answer_may_repeat_latin_1_text() -> None:
    codec = server()
    head = ask(codec, b"GET / HTTP/1.1\r\nhost: a\r\norigin: http://\xc3\xa9\r\n\r\n")
    origin = dict(head.headers)["origin"]
    codec.send(ResponseHead(1, 204, [("access-control-allow-origin", origin)]))
    assert b"access-control-allow-origin: http://\xc3\xa9\r\n" in said(codec)


def test_what_no_header_can_say_is_not_said() -> None:
    codec = server()
    ask(codec, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    with pytest.raises(LocalProtocolError):
        codec.send(ResponseHead(1, 204, [("x", "\u20ac")]))


def test_what_comes_after_a_fault_is_not_kept() -> None:
    codec = server()
    codec.receive(b"GARBAGE\r\n\r\n")
    with pytest.raises(RemoteProtocolError):
        pull(codec)
    held = codec.buffered
    codec.receive(bytes(100_000))
    assert codec.buffered == held


def test_half_a_head_goes_on_with_what_looks_like_a_request() -> None:
    codec = server()
    whole = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
    for number in (1, 2, 3):
        ask(codec, whole)
        codec.send(ResponseHead(number, 200, [("content-length", "0")], end=True))
    codec.receive(b"GET /last HTTP/1.1\r\nx: ")
    assert pull(codec) == []
    assert ask(codec, whole).target == "/last"
