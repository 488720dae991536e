"""The HTTP/1.1 server: requests that it understands and refuses, and its responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.http.story import answer_204, no_answer, pull, said, tell

from penstock.model.failures import FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire import conformance
from penstock.wire.codec import PAUSED, Role
from penstock.wire.http import (
    Body,
    Continue,
    Data,
    End,
    Ended,
    GoAway,
    HttpLimits,
    RequestHead,
    Reset,
    ResponseHead,
)
from penstock.wire.http.h1 import Http1Connection

CONVERSATION = (
    b"GET /v1/streams/a%2Fb/records?seq_num=0 HTTP/1.1\r\nHost: x:80\r\nAccept: s2s/proto\r\nAccept: */*\r\n\r\n"
    b"POST /up HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nt: 1\r\n\r\n"
    b"PUT http://other:81/abs?q HTTP/1.1\r\nHost: other:81\r\nContent-Length: 3\r\n\r\nabc"
    b"DELETE /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)


def server(limits: HttpLimits | None = None) -> Http1Connection:
    return Http1Connection(Role.SERVER, limits)


def ask(codec: Http1Connection, request: bytes) -> RequestHead:
    codec.receive(request)
    head = pull(codec)[0]
    assert isinstance(head, RequestHead)
    return head


def get(codec: Http1Connection, method: bytes = b"GET", version: bytes = b"1.1") -> RequestHead:
    return ask(codec, method + b" / HTTP/" + version + b"\r\nhost: a\r\n\r\n")


def test_a_conversation() -> None:
    heard, ending = tell(server(), [CONVERSATION], answer_204)
    assert ending == "open"
    assert heard == [
        ("request", 1, "GET", "/v1/streams/a%2Fb/records?seq_num=0", [("accept", "s2s/proto"), ("accept", "*/*")]),
        End(1),
        ("request", 2, "POST", "/up", []),
        ["body", 2, b"hello world"],
        End(2, (("t", "1"),)),
        ("request", 3, "PUT", "/abs?q", [("content-length", "3")]),
        ["body", 3, b"abc"],
        End(3),
        ("request", 4, "DELETE", "/last", []),
        End(4),
    ]


def test_the_head_names_authority_version_and_scheme() -> None:
    head = ask(Http1Connection(Role.SERVER, scheme="https"), b"GET / HTTP/1.1\r\nHost: b.localhost:8080\r\n\r\n")
    assert (head.authority, head.version, head.scheme) == ("b.localhost:8080", "1.1", "https")


@given(st.lists(st.integers(0, len(CONVERSATION)), max_size=8))
def test_cut_anywhere(cuts: list[int]) -> None:
    pieces = conformance.pieces_of(CONVERSATION, cuts)
    assert tell(server(), pieces, answer_204) == tell(server(), [CONVERSATION], answer_204)


def test_byte_by_byte() -> None:
    pieces = [CONVERSATION[at : at + 1] for at in range(len(CONVERSATION))]
    assert tell(server(), pieces, answer_204) == tell(server(), [CONVERSATION], answer_204)


@given(st.binary(max_size=300))
def test_garbage_gives_events_or_a_refusal(data: bytes) -> None:
    conformance.no_surprise(server, data)
    conformance.no_surprise(server, b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + data)
    conformance.no_surprise(lambda: Http1Connection(Role.CLIENT), data)


@given(st.data())
def test_near_misses_give_events_or_a_refusal(data: st.DataObject) -> None:
    mutated = bytearray(CONVERSATION)
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    tell(server(), [bytes(mutated), b""], answer_204)


@given(st.integers(1, len(CONVERSATION)))
def test_a_truncated_conversation_is_a_prefix(length: int) -> None:
    whole, _ = tell(server(), [CONVERSATION], answer_204)
    part, _ = tell(server(), [CONVERSATION[:length]], answer_204)
    if part and isinstance(part[-1], list):  # a body that is still coming
        unfinished = part.pop()[2]
        assert whole[len(part)][2].startswith(unfinished)
    assert whole[: len(part)] == part


@pytest.mark.parametrize(
    "data, status",
    [
        (b"GARBAGE\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00", b"400"),  # TLS on a plaintext port
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # no host
        (b"GET / HTTP/1.1\r\nhost: a\r\nbad header: 1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", b"501"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"HEAD / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 70000 + b"\r\n\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 70000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 70000, b"431"),
    ],
)
def test_bad_requests_are_answered_and_end_the_connection(data: bytes, status: bytes) -> None:
    codec = server()
    codec.receive(data)
    with pytest.raises(RemoteProtocolError) as caught:
        pull(codec)
    wanted = FailureCode.LIMIT_EXCEEDED if status == b"431" else FailureCode.BAD_FORMAT
    assert caught.value.failure.code is wanted
    answer = said(codec)
    assert answer.startswith(b"HTTP/1.1 " + status + b" ")
    assert b"connection: close\r\n" in answer.lower()
    assert codec.closed
    codec.receive(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    with pytest.raises(RemoteProtocolError):
        pull(codec)


def test_an_error_amid_a_response_adds_nothing_to_it() -> None:
    codec = server()
    ask(codec, b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    codec.send(ResponseHead(1, 200, []))
    said(codec)
    codec.receive(b"nonsense\r\n")
    with pytest.raises(RemoteProtocolError):
        pull(codec)
    assert said(codec) == b""
    assert codec.closed


def test_what_is_held_is_bounded() -> None:
    head = b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 40000
    conformance.bounded(server, head, limit=HttpLimits().max_head + 4096)
    chunked = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    conformance.bounded(server, chunked + b"1;" + b"e" * 200_000, limit=HttpLimits().max_head + 4096)
    conformance.bounded(server, chunked + b"ffffffffff\r\n" + b"d" * 200_000, limit=4096)


def test_full_duplex() -> None:
    codec = server()
    ask(codec, b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    codec.send(ResponseHead(1, 200, [("content-type", "s2s/proto")]))
    head = said(codec)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert b"connection" not in head.lower()
    for piece in (b"one", b"three"):
        codec.receive(b"%x\r\n%s\r\n" % (len(piece), piece))
        assert pull(codec) == [Data(1, piece, len(piece))]
        codec.send(Body(1, [piece, b"!"]))
        assert said(codec) == b"%x\r\n%s!\r\n" % (len(piece) + 1, piece)
    codec.send(End(1))
    assert said(codec) == b"0\r\n\r\n"
    assert not codec.closed
    codec.receive(b"4\r\nlate\r\n0\r\n\r\nGET /next HTTP/1.1\r\nhost: a\r\n\r\n")
    heard = pull(codec)
    assert heard[0] == End(1)  # bytes after the response are read and dropped
    assert isinstance(heard[1], RequestHead)
    assert heard[1].stream_id == 2


def test_too_much_body_after_the_answer_ends_the_connection() -> None:
    codec = server(HttpLimits(max_discard=100))
    ask(codec, b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    codec.send(ResponseHead(1, 200, []))
    codec.send(End(1))
    codec.receive(b"1\r\nx\r\n" * 100)
    assert pull(codec) == []
    assert not codec.closed
    codec.receive(b"1\r\nx\r\n")
    assert pull(codec) == []
    assert codec.closed


def test_very_many_small_chunks_and_informational_responses() -> None:
    codec = server()
    ask(codec, b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    codec.send(ResponseHead(1, 200, []))
    codec.send(End(1))
    codec.receive(b"1\r\nx\r\n" * 20_000)
    assert pull(codec) == []
    assert codec.noise == 20_000
    client = Http1Connection(Role.CLIENT)
    client.send(RequestHead(1, "GET", "/", [], "a"))
    client.receive(b"HTTP/1.1 102 Processing\r\n\r\n" * 2000)
    assert pull(client) == []


def test_pipelined_requests_wait_for_their_turn() -> None:
    codec = server()
    codec.receive(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n")
    assert len(pull(codec)) == 2
    assert codec.next_event() is PAUSED
    assert codec.buffered > 0
    codec.send(ResponseHead(1, 204, []))
    assert codec.next_event() is PAUSED
    codec.send(End(1))
    assert [type(event) for event in pull(codec)] == [RequestHead, End]
    assert codec.buffered == 0


def test_parts_are_not_copied() -> None:
    codec = server()
    get(codec)
    codec.send(ResponseHead(1, 200, []))
    said(codec)
    big = bytes(1 << 20)
    codec.send(Body(1, [big, b"tail"]))
    out = codec.output(1)
    assert any(part is big for part in out)
    assert b"".join(out) == b"100004\r\n" + big + b"tail\r\n"


@pytest.mark.parametrize("method, status", [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
def test_responses_without_a_body(method: bytes, status: int) -> None:
    codec = server()
    get(codec, method)
    codec.send(ResponseHead(1, status, [("content-length", "5")] if method == b"HEAD" else []))
    codec.send(Body(1, [b"hello"]))
    codec.send(End(1))
    answer = said(codec)
    assert answer.endswith(b"\r\n\r\n")
    assert b"hello" not in answer
    assert not codec.closed


def test_an_old_client_gets_no_chunks_and_a_closed_connection() -> None:
    codec = server()
    get(codec, version=b"1.0")
    codec.send(ResponseHead(1, 200, []))
    codec.send(Body(1, [b"plain"], end=True))
    answer = said(codec)
    assert b"connection: close" in answer.lower()
    assert b"chunked" not in answer
    assert answer.endswith(b"\r\n\r\nplain")
    assert codec.closed


EXPECTING = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n"


def test_continue_when_the_body_is_wanted() -> None:
    codec = server()
    head = ask(codec, EXPECTING)
    assert head.expects_continue
    codec.send(Continue(1))
    codec.send(Continue(1))
    assert said(codec) == b"HTTP/1.1 100 Continue\r\n\r\n"
    codec.receive(b"abc")
    assert pull(codec) == [Data(1, b"abc", 3), End(1)]
    codec.send(ResponseHead(1, 204, []))
    assert b"connection" not in said(codec).lower()


def test_a_refused_body_ends_the_connection() -> None:
    codec = server()
    ask(codec, EXPECTING)
    codec.send(ResponseHead(1, 413, [("content-length", "0")]))
    codec.send(End(1))
    answer = said(codec)
    assert b"100" not in answer
    assert b"connection: close" in answer.lower()
    assert codec.closed


def test_goaway_closes_an_idle_connection_and_marks_the_last_answer() -> None:
    idle = server()
    idle.send(GoAway())
    assert idle.closed
    busy = server()
    get(busy)
    busy.send(GoAway())
    assert not busy.closed
    busy.send(ResponseHead(1, 204, []))
    busy.send(End(1))
    assert b"connection: close" in said(busy).lower()
    assert busy.closed


def test_reset_means_closing_without_an_end() -> None:
    codec = server()
    get(codec)
    codec.send(ResponseHead(1, 200, []))
    codec.send(Body(1, [b"half"]))
    codec.send(Reset(1))
    assert not said(codec).endswith(b"0\r\n\r\n")
    assert codec.closed


def test_the_peer_closes_between_exchanges() -> None:
    codec = server()
    codec.receive(b"")
    assert pull(codec) == [Ended()]
    assert codec.closed


def test_the_peer_closes_amid_a_request() -> None:
    codec = server()
    ask(codec, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc")
    codec.receive(b"")
    with pytest.raises(RemoteProtocolError):
        pull(codec, no_answer)


def test_a_half_closed_client_is_still_answered() -> None:
    codec = server()
    get(codec)
    codec.receive(b"")
    assert pull(codec) == [Ended()]
    codec.send(ResponseHead(1, 204, []))
    codec.send(End(1))
    assert said(codec).startswith(b"HTTP/1.1 204")


@pytest.mark.parametrize(
    "event",
    [
        ResponseHead(1, 200, [("x", "a\r\nb: c")]),
        ResponseHead(1, 200, [("bad name", "x")]),
        Body(1, [b"before the head"]),
        ResponseHead(7, 200, []),
    ],
)
def test_what_the_protocol_forbids_is_not_said(event: ResponseHead | Body) -> None:
    codec = server()
    get(codec)
    with pytest.raises(LocalProtocolError):
        codec.send(event)
    assert said(codec) == b""


@pytest.mark.parametrize(("value", "fits"), [("y" * 86, True), ("y" * 87, False)])
def test_a_head_of_exactly_the_limit_fits(value: str, fits: bool) -> None:
    """Counted are the target, and names and values, with 4 bytes for each of the three."""
    codec = server(HttpLimits(max_head=105))
    codec.receive(f"GET / HTTP/1.1\r\nhost: a\r\nx: {value}\r\n\r\n".encode())
    if fits:
        assert isinstance(pull(codec)[0], RequestHead)
    else:
        with pytest.raises(RemoteProtocolError, match="head too long"):
            pull(codec)
        assert said(codec).startswith(b"HTTP/1.1 431 ")


def test_a_client_is_told_of_100_and_of_no_other_informational_response() -> None:
    codec = Http1Connection(Role.CLIENT)
    codec.send(RequestHead(codec.new_stream(), "GET", "/", [], "a"))
    codec.send(End(1))
    codec.receive(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 x\r\n\r\n")
    assert pull(codec) == [Continue(1), ResponseHead(1, 204, ()), End(1)]


@pytest.mark.parametrize("max_short", [0, 2048])
def test_the_last_answer_says_that_the_connection_closes(max_short: int) -> None:
    codec = server(HttpLimits(max_short=max_short))
    for number in (1, 2, 3):
        get(codec)
        if number == 3:
            codec.send(GoAway())
        codec.send(ResponseHead(number, 200, [("content-length", "1")]))
        codec.send(Body(number, [b"x"], end=True))
        assert (b"connection: close" in said(codec).lower()) is (number == 3)
    assert codec.closed
