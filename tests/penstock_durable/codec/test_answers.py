"""The client's side of requests and answers: what it sends, the server's side understands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, RemoteProtocolError
from penstock_durable.codec import (
    BEGINNING,
    AppendRequest,
    LiveMode,
    Producer,
    Sentinel,
    append_answer,
    append_headers,
    append_request,
    failure_of_answer,
    position_answer,
    read_query,
    read_request,
    spell_offset,
)
from penstock_durable.codec.requests import MOST_INTEGER

TEXT = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=256)
NUMBER = st.integers(0, MOST_INTEGER)
SENTINELS = ("-1", "now")
APPENDS = st.builds(
    AppendRequest,
    st.none() | st.sampled_from(["application/json", "text/plain; charset=utf-8"]),
    st.booleans(),
    st.none() | st.builds(Producer, TEXT, NUMBER, NUMBER),
    st.none() | TEXT,
)


def get(headers: Sequence[tuple[str, str]]) -> Callable[[str], str | None]:
    return dict(headers).get


@given(APPENDS)
def test_an_append(request: AppendRequest) -> None:
    assert append_request(get(append_headers(request))) == request


@given(st.integers(0, 10**16 - 1), st.none() | st.sampled_from(LiveMode), st.none() | st.integers(0, 10**15 - 1))
def test_a_read(seq_num: int, live: LiveMode | None, cursor: int | None) -> None:
    query = read_query(spell_offset(seq_num), live, None if cursor is None else str(cursor))
    found = read_request(parse_qsl(query, keep_blank_values=True))
    assert (found.start, found.live, found.cursor) == (seq_num, live, cursor)


@given(TEXT.filter(lambda text: text not in SENTINELS))
def test_an_offset_is_sent_back_as_it_is(offset: str) -> None:
    assert parse_qsl(read_query(offset), keep_blank_values=True) == [("offset", offset)]
    assert position_answer(get([("stream-next-offset", offset)])).next_offset == offset


@pytest.mark.parametrize("sentinel", SENTINELS)
def test_a_sentinel_is_no_offset_of_a_server(sentinel: str) -> None:
    with pytest.raises(RemoteProtocolError, match="is no offset"):
        position_answer(get([("stream-next-offset", sentinel)]))


def test_the_beginning() -> None:
    assert read_request(parse_qsl(read_query(BEGINNING))).start is Sentinel.BEGINNING


def test_the_head_of_an_answer() -> None:
    plain = position_answer(get([("stream-next-offset", "7_0"), ("content-type", "Text/Plain; charset=utf-8")]))
    assert (plain.content_type, plain.up_to_date, plain.closed) == ("text/plain", False, False)
    closed = position_answer(get([("stream-next-offset", "7_0"), ("stream-closed", "true")]))
    assert (closed.up_to_date, closed.closed) == (True, True)
    assert append_answer(get([])).next_offset is None


@pytest.mark.parametrize("headers", [[], [("stream-next-offset", "a b")], [("stream-next-offset", "")]])
def test_an_answer_without_an_offset(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(RemoteProtocolError, match="offset"):
        position_answer(get(headers))


@pytest.mark.parametrize(
    ("status", "headers", "code"),
    [
        (404, [], FailureCode.STREAM_NOT_FOUND),
        (410, [], FailureCode.OFFSET_TRUNCATED),
        (403, [], FailureCode.PERMISSION_DENIED),
        (403, [("producer-epoch", "3")], FailureCode.STALE_WRITER_POSITION),
        (409, [("stream-closed", "true")], FailureCode.STREAM_SEALED),
        (409, [("producer-expected-seq", "4")], FailureCode.STALE_WRITER_POSITION),
        (409, [], FailureCode.RESOURCE_ALREADY_EXISTS),
        (413, [], FailureCode.LIMIT_EXCEEDED),
        (301, [], FailureCode.UPSTREAM_FAULT),
        (500, [], FailureCode.UPSTREAM_FAULT),
    ],
)
def test_what_went_wrong(status: int, headers: list[tuple[str, str]], code: FailureCode) -> None:
    assert failure_of_answer(status, get(headers), b"because").code is code


def test_details_of_failures() -> None:
    gap = failure_of_answer(409, get([("producer-expected-seq", "4")]), b"")
    assert gap.details == {"position": 3}
    busy = failure_of_answer(429, get([("retry-after", "2")]), b"slow\ndown")
    assert (busy.code, busy.details, busy.message) == (
        FailureCode.RATE_LIMITED,
        {"retry_after": 2.0},
        "status 429: slow\\ndown",
    )
