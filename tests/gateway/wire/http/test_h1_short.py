"""Short exchanges without h11, held against connections on which h11 takes every request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.examples import examples

from penstock.model.failures import FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import NEED_DATA, Pull, Role
from penstock.wire.http import (
    Body,
    Continue,
    End,
    GoAway,
    HttpLimits,
    RequestHead,
    Reset,
    ResponseHead,
)
from penstock.wire.http.h1 import Http1Connection

LENGTH = "content-length"


def both(max_head: int = 65536) -> tuple[Http1Connection, Http1Connection]:
    return Http1Connection(Role.SERVER, HttpLimits(max_head=max_head)), Http1Connection(
        Role.SERVER, HttpLimits(max_head=max_head, max_short=0)
    )


def pulled(codec: Http1Connection, most: int) -> list[Any]:
    """Return events, at most so many, and what ends them."""
    found: list[Any] = []
    for _ in range(most):
        try:
            event = codec.next_event()
        except RemoteProtocolError as error:
            return [*found, error.failure]
        found.append(event)
        if isinstance(event, Pull):
            break
    return found


def told(codec: Http1Connection, event: Any) -> str:
    try:
        codec.send(event)
    except (LocalProtocolError, AttributeError) as error:  # h11 raises the latter for a second answer to CONNECT
        return str(error)
    return ""


def state(codec: Http1Connection) -> object:
    written = b"".join(map(bytes, codec.output(1 << 20)))
    return written, codec.closed, codec.amid_answered


lines = st.sampled_from(
    [
        *(b"host: a", b"Host: b:80", b"accept: */*", b"connection: keep-alive", b"Connection: Keep-Alive"),
        *(b"connection: close", b"connection: x, close", b"expect: 100-continue", b"upgrade: h2c"),
        *(b"transfer-encoding: chunked", b"content-length: 1", b"content-length: 05", b"Content-Length: 5"),
        *(b"content-length:5", b"content-length: 5 ", b"content-length: +5", b"content-length: 5, 5"),
        *(b"x: y", b" folded", b"bad name: 1", b"x: \xe9", b"x: \x00", b"x:\ty\t", b"x: a\nhost: b", b""),
    ]
)
heads = st.one_of(
    st.lists(lines, max_size=6),
    st.lists(lines, max_size=3).map(lambda some: [b"Host: a", *some]),
    st.just([b"host: a", b"content-length: 5"]),
)
first_lines = st.sampled_from(
    [
        *[b"GET / HTTP/1.1"] * 6,
        *(b"POST /v1/streams/a%2Fb/records?x=1 HTTP/1.1", b"HEAD /x HTTP/1.1", b"GET http://c/d HTTP/1.1"),
        *(b"GET / HTTP/1.0", b"CONNECT a:1 HTTP/1.1", b"CONNECT /a HTTP/1.1", b"GET  / HTTP/1.1", b"get / HTTP/1.1"),
        *(b"GET /\xe9 HTTP/1.1", b"GET / HTTP/1.1 ", b"\r\nGET / HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GARBAGE"),
    ]
)
requests = st.builds(
    lambda first, head, end, body: b"\r\n".join([first, *head, b""]) + end + body,
    first_lines,
    heads,
    st.sampled_from([b"\r\n"] * 8 + [b"\n", b""]),
    st.sampled_from([b""] * 4 + [b"hello"] * 4 + [b"x", b"hello!", b"5\r\nhello\r\n0\r\n\r\n", b"GET / HTTP/1.1\r\n"]),
)
response_headers = st.lists(
    st.sampled_from(
        [
            *((LENGTH, "5"), (LENGTH, "0"), (LENGTH, "x"), ("Content-Length", "5"), ("date", "now"), ("x", "\xe9")),
            *(("connection", "close"), ("transfer-encoding", "chunked"), ("host", "z"), ("bad name", "1")),
            *(("x", "\u20ac"), ("x", "a\nb"), ("X-Y", "z")),
        ]
    ),
    max_size=4,
)
usual_headers = st.just([("date", "now"), (LENGTH, "5")])
statuses = st.sampled_from([200] * 6 + [204, 304, 404, 599, 999, 1000])
acts = st.one_of(
    st.builds(ResponseHead, st.just(0), statuses, usual_headers),
    st.builds(ResponseHead, st.just(0), statuses, st.one_of(usual_headers, response_headers), st.booleans()),
    st.builds(
        Body, st.just(0), st.sampled_from([[b"hello"], [b"he", b"llo"], [b"hi"], [], [b"too long"]]), st.booleans()
    ),
    st.builds(End, st.just(0), st.sampled_from([(), (), (("t", "1"),)])),
    st.just(Body(0, [b"hello"], end=True)),
    st.sampled_from([Continue(0), Reset(0), GoAway(), "preludes", "pull one", "more", "eof"]),
)


usual_requests = st.sampled_from(
    [b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n", b"POST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"]
)
usual_acts = st.sampled_from([[ResponseHead(0, 200, [("date", "now"), (LENGTH, "5")]), Body(0, [b"hello"], end=True)]])
rounds_of_both = st.one_of(
    st.tuples(usual_requests, st.integers(2, 4), usual_acts),
    st.tuples(usual_requests, st.integers(0, 4), st.lists(acts, max_size=6)),
    st.tuples(requests, st.integers(1, 4), usual_acts),
    st.tuples(requests, st.integers(0, 4), st.lists(acts, max_size=6)),
)


@examples(least=100, most=500)
@given(
    rounds=st.lists(rounds_of_both, min_size=1, max_size=4),
    repeats=st.integers(2, 4),
    cut=st.integers(0, 400) | st.none(),
    max_head=st.sampled_from([65536, 65536, 100]),
)
def test_nothing_shows_that_h11_was_left_out(
    rounds: list[tuple[bytes, int, list[Any]]], repeats: int, cut: int | None, max_head: int
) -> None:
    short, law = both(max_head)
    exchange = 0
    for request, first_pull, answer in rounds * repeats:
        pieces = [request] if cut is None else [request[:cut], request[cut:]]
        for piece in filter(None, pieces):
            short.receive(piece)
            law.receive(piece)
        event("short" if short._short is not None else "h11")
        found = pulled(short, first_pull)
        assert found == pulled(law, first_pull)
        exchange = max([getattr(event, "stream_id", exchange) for event in found], default=exchange)
        assert state(short) == state(law)
        for act in answer if exchange else []:  # a request is answered once its head was delivered
            steps = [_do(codec, act, exchange) for codec in (short, law)]
            assert steps[0] == steps[1]
            assert state(short) == state(law)
            if act == "eof":
                return
            if act != "pull one":
                assert short.buffered == law.buffered or short.buffered <= len(request)
        found = pulled(short, 8)
        assert found == pulled(law, 8)
        exchange = max([getattr(event, "stream_id", exchange) for event in found], default=exchange)
        assert state(short) == state(law)


def _do(codec: Http1Connection, act: Any, exchange: int) -> object:
    match act:
        case "preludes":
            return codec.preludes()
        case "pull one":
            return pulled(codec, 1)
        case "more":
            return pulled(codec, 8), codec.receive(b"GET /next HTTP/1.1\r\nhost: a\r\n\r\n")
        case "eof":
            return pulled(codec, 8), codec.receive(b"")
        case GoAway():
            return told(codec, act)
        case ResponseHead():
            return told(codec, ResponseHead(exchange, act.status, act.headers, act.end))
        case Body():
            return told(codec, Body(exchange, act.parts, act.end))
        case End():
            return told(codec, End(exchange, act.trailers))
        case _:
            return told(codec, type(act)(exchange))


def rounds_of(codec: Http1Connection, requests: Iterable[bytes]) -> list[bool]:
    """Answer each request, and return for each whether h11 was left out."""
    found = []
    for request in requests:
        codec.receive(request)
        head = codec.next_event()
        assert isinstance(head, RequestHead)
        found.append(codec._short is not None)
        while codec.next_event() is not NEED_DATA:
            pass
        codec.send(ResponseHead(head.stream_id, 200, [(LENGTH, "2")]))
        codec.send(Body(head.stream_id, [b"ok"], end=True))
        assert b"".join(codec.output(99)).endswith(b"\r\n\r\nok")
    return found


def post(body: bytes, name: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nhost: %b\r\nContent-Length: %d\r\n\r\n%b" % (name, len(body), body)


def test_headers_are_known_from_the_second_request_on_whatever_the_length_of_the_body() -> None:
    codec, _ = both()
    bodies = (b"a", b"bc", b"d" * 100, b"", b"e")
    assert rounds_of(codec, [post(body, b"learning") for body in bodies]) == [False, True, True, True, True]
    assert rounds_of(both()[0], [post(b"other connection", b"learning")]) == [False]


def test_a_connection_knows_a_few_headers() -> None:
    codec, _ = both()
    few = [post(b"", b"h%d" % number) for number in range(4) for _ in range(2)]
    assert rounds_of(codec, few) == [False, True] * 4
    assert rounds_of(codec, [post(b"", b"h%d" % number) for number in (0, 1, 2, 3)]) == [True] * 4
    assert rounds_of(codec, [post(b"", b"more")] * 2 + [post(b"", b"h0")]) == [False, True, False], "the oldest is gone"


def test_headers_that_change_with_each_request_are_not_kept() -> None:
    codec, _ = both()
    assert not any(rounds_of(codec, [post(b"", b"h%d" % number) for number in range(20)]))


@pytest.mark.parametrize("size, is_short", [(16_000, True), (16_384, False)])
def test_long_requests_are_left_to_h11(size: int, is_short: bool) -> None:
    codec, _ = both()
    assert rounds_of(codec, [post(bytes(size), b"long")] * 3)[-1] is is_short


def test_a_head_that_is_too_long_as_h11_counts_it_is_refused() -> None:
    """Four bytes count for each header beside its name and value, also where no space stands behind the colon."""
    template = b"GET /%b HTTP/1.1\r\nhost: a\r\n" + b"a:\r\n" * 300 + b"\r\n"
    for one in both(max_head=2000):
        rounds_of(one, [template % b""] * 3)
        one.receive(template % (b"x" * 550))
        [failure] = pulled(one, 9)
        assert failure.code is FailureCode.LIMIT_EXCEEDED


def test_a_length_that_stands_twice_is_compared() -> None:
    """The block of the second request differs from the first one only in digits that are not its key."""
    codec, law = both()
    template = b"POST / HTTP/1.1\r\nhost: twice\r\ncontent-length: %d\r\ncontent-length: 0\r\n\r\n"
    rounds_of(codec, [template % 0] * 3)
    rounds_of(law, [template % 0] * 3)
    for one in (codec, law):
        one.receive(template % 1 + b"x")
    assert pulled(codec, 9) == pulled(law, 9)


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_known_headers_are_read_and_answered_as_h11_does_it(more: bytes) -> None:
    """The length stands between other headers; the answer comes in parts."""
    codec, law = both()
    template = b"POST /%d HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\nx: y\r\n" + more + b"\r\n%b"
    for number, body in enumerate((b"a", b"bc", b"d" * 1000, b"", b"e"), start=1):
        request = template % (number, len(body), body)
        stories: list[list[object]] = [[], []]
        for one, story in zip((codec, law), stories, strict=True):
            one.receive(request)
            while not isinstance(heard := one.next_event(), Pull):
                story += [heard, one.buffered]
            parts = [b"o", b"", b"kk"] if number != 3 else []
            one.send(ResponseHead(number, 200, [("k", "v"), ("content-length", str(len(b"".join(parts))))]))
            for part in parts:
                one.send(Body(number, [part], end=number == 4 and part == b"kk"))
                story.append(b"".join(one.output(99)))
            if number != 4:
                one.send(End(number))
            story.append(b"".join(one.output(99)))
        assert stories[0] == stories[1]


@pytest.mark.parametrize("parts", [[b"abcd"], [b"ab", b"cd"], [b"ab"]])
def test_an_answer_of_another_length_is_refused_as_h11_refuses_it(parts: list[bytes]) -> None:
    for one in both():
        rounds_of(one, [post(b"x", b"short")] * 2)
        one.receive(post(b"x", b"short"))
        head = pulled(one, 1)[0]
        assert isinstance(head, RequestHead)
        pulled(one, 9)
        one.send(ResponseHead(head.stream_id, 200, [("content-length", "3")]))
        with pytest.raises(LocalProtocolError):
            for index, part in enumerate(parts):
                one.send(Body(head.stream_id, [part], end=index == len(parts) - 1))
