"""Headers and queries of requests (protocol, section 5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock_durable.codec import (
    AppendRequest,
    CreateRequest,
    Fork,
    LiveMode,
    Producer,
    ReadRequest,
    Sentinel,
    append_request,
    check_conditions,
    create_request,
    failure_to_status,
    read_request,
    spell_failure,
    spell_offset,
)
from penstock_durable.codec.requests import MOST_INTEGER

PRODUCER = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}


def headers(given: dict[str, str]) -> Callable[[str], str | None]:
    return given.get


@pytest.mark.parametrize(
    "name",
    [
        *("content-type", "content-length", "expect", "x-timezone-offset", "sequence", "x-tenant-id", "authorization"),
        *("stream-closed", "stream-seq", "producer-id", "producer-epoch", "producer-seq"),
    ],
)
def test_headers_that_are_no_unknown_conditions(name: str) -> None:
    check_conditions("POST", [name], [])


@pytest.mark.parametrize(
    "name",
    [
        *("stream-next-offset", "stream-match-offset", "producer-tail", "x-stream-offset", "expected-offset"),
        *("x-expected-seq", "match-seq-num", "offset", "if-tail", "expected-length", "upload-offset"),
    ],
)
def test_unknown_conditions_of_writes(name: str) -> None:
    for method in ("PUT", "POST", "DELETE"):
        for headers, query in (([name], []), ([], [(name.replace("-", "_").title(), "1")])):
            with pytest.raises(OperationFailed, match="nothing was done"):
                check_conditions(method, headers, query)
    check_conditions("GET", [name], [(name, "1")])


def test_an_empty_create() -> None:
    assert create_request(headers({})) == CreateRequest(None, None, None, closed=False, fork=None)


def test_a_full_create() -> None:
    asked = {
        "content-type": "text/plain",
        "stream-ttl": "60",
        "stream-closed": "TRUE",
        "stream-forked-from": "/v1/stream/a",
        "stream-fork-offset": spell_offset(3),
        "stream-fork-sub-offset": "2",
    }
    wanted = CreateRequest("text/plain", 60, None, closed=True, fork=Fork("/v1/stream/a", 3, 2))
    assert create_request(headers(asked)) == wanted


@pytest.mark.parametrize(("offset", "place"), [("-1", 0), ("now", None), (spell_offset(0), 0), (spell_offset(9), 9)])
def test_places_of_forks(offset: str, place: int | None) -> None:
    asked = {"stream-forked-from": "/a", "stream-fork-offset": offset}
    assert create_request(headers(asked)).fork == Fork("/a", place, 0)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01.5z", 1500),
        ("2030-01-31T12:00:00.123456Z", 1_896_091_200_123),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert create_request(headers({"stream-expires-at": text})).expires_at == milliseconds


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"stream-ttl": "1", "stream-expires-at": "2030-01-31T12:00:00Z"}, "stream-ttl"),
        *(({"stream-ttl": bad}, "stream-ttl") for bad in ("", "-1", "+1", "01", "1.0", "1e3", "x", "9" * 17, "１")),
        *(
            ({"stream-expires-at": bad}, "stream-expires-at")
            for bad in ("", "tomorrow", "2030-01-31", "2030-02-31T12:00:00Z", "2030-01-31T12:00:00", "20300131T120000Z")
        ),
        ({"content-type": "text"}, "content-type"),
        ({"stream-fork-offset": spell_offset(0)}, "stream-fork-offset"),
        ({"stream-fork-sub-offset": "0"}, "stream-fork-sub-offset"),
        ({"stream-forked-from": "/a", "stream-fork-sub-offset": "1"}, "stream-fork-sub-offset"),
        ({"stream-forked-from": "/a", "stream-fork-offset": "x"}, "stream-fork-offset"),
        *(
            ({"stream-forked-from": "/a", "stream-fork-offset": "-1", "stream-fork-sub-offset": bad}, "sub-offset")
            for bad in ("-1", "05", "1.5", "abc")
        ),
    ],
)
def test_creates_that_are_refused(asked: dict[str, str], name: str) -> None:
    with pytest.raises(OperationFailed, match=name) as raised:
        create_request(headers(asked))
    assert raised.value.failure.code is FailureCode.BAD_HEADER


def test_appends() -> None:
    assert append_request(headers({})) == AppendRequest(None, closed=False, producer=None, seq=None)
    asked = {"content-type": "text/plain", "stream-closed": "true", "stream-seq": "a 1", **PRODUCER}
    wanted = AppendRequest("text/plain", closed=True, producer=Producer("p", 0, 0), seq="a 1")
    assert append_request(headers(asked)) == wanted
    largest = {**PRODUCER, "producer-epoch": str(MOST_INTEGER), "producer-seq": str(MOST_INTEGER)}
    assert append_request(headers(largest)).producer == Producer("p", MOST_INTEGER, MOST_INTEGER)
    assert append_request(headers({"stream-seq": "x" * 256})).seq == "x" * 256
    with pytest.raises(OperationFailed, match="stream-seq: expected 1 to 256"):
        append_request(headers({"stream-seq": "x" * 257}))


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        *(({key: PRODUCER[key]}, "is missing") for key in PRODUCER),
        *(({one: PRODUCER[one] for one in PRODUCER if one != key}, key) for key in PRODUCER),
        *(({**PRODUCER, "producer-id": bad}, "producer-id") for bad in ("", " ", "é", "x" * 257, "a\x00")),
        *(
            ({**PRODUCER, key: bad}, key)
            for key in ("producer-epoch", "producer-seq")
            for bad in ("", "-1", "1abc", "1e3", "01", str(MOST_INTEGER + 1))
        ),
        *(({"stream-seq": bad}, "stream-seq") for bad in ("", "x" * 257, "é")),
        ({"content-type": "x"}, "content-type"),
    ],
)
def test_appends_that_are_refused(asked: dict[str, str], name: str) -> None:
    with pytest.raises(OperationFailed, match=name) as raised:
        append_request(headers(asked))
    assert raised.value.failure.code is FailureCode.BAD_HEADER


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ([], ReadRequest(None, None, None)),
        ([("offset", "-1"), ("foo", "bar")], ReadRequest(Sentinel.BEGINNING, None, None)),
        ([("offset", spell_offset(4)), ("live", "sse")], ReadRequest(4, LiveMode.SSE, None)),
        ([("offset", "now"), ("live", "long-poll"), ("cursor", "7")], ReadRequest(Sentinel.NOW, LiveMode.LONG_POLL, 7)),
        ([("cursor", "1"), ("cursor", "2")], ReadRequest(None, None, 2)),
    ],
)
def test_reads(query: list[tuple[str, str]], wanted: ReadRequest) -> None:
    assert read_request(query) == wanted


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ([("offset", "")], "offset"),
        ([("offset", "-1"), ("offset", "-1")], "offset: given more than once"),
        ([("live", "sse")], "offset: live=sse needs one"),
        ([("live", "long-poll")], "offset: live=long-poll needs one"),
        ([("offset", "-1"), ("live", "SSE")], "live"),
        ([("offset", "-1"), ("cursor", "x")], "cursor"),
    ],
)
def test_reads_that_are_refused(query: list[tuple[str, str]], name: str) -> None:
    with pytest.raises(OperationFailed, match=name) as raised:
        read_request(query)
    assert raised.value.failure.code is FailureCode.BAD_QUERY


NAMES = st.sampled_from(
    [
        *("content-type", "stream-ttl", "stream-expires-at", "stream-closed", "stream-forked-from", "stream-seq"),
        *("stream-fork-offset", "stream-fork-sub-offset", *PRODUCER),
    ]
)


@given(st.dictionaries(NAMES, st.text(max_size=30)))
def test_any_headers_are_understood_or_refused(asked: dict[str, str]) -> None:
    for parse in (create_request, append_request):
        try:
            parse(headers(asked))
        except OperationFailed as error:
            assert error.failure.code is FailureCode.BAD_HEADER


@given(st.lists(st.tuples(st.sampled_from(["offset", "live", "cursor", "x"]), st.text(max_size=40)), max_size=5))
def test_any_query_is_understood_or_refused(query: list[tuple[str, str]]) -> None:
    try:
        read_request(query)
    except OperationFailed as error:
        assert error.failure.code is FailureCode.BAD_QUERY


# Written out once more, so that a slip in the table is seen.
STATUSES = {
    400: "bad_header bad_json bad_path bad_query invalid range_not_satisfiable",
    401: "authn",
    403: "permission_denied quota_exhausted",
    404: "basin_not_found stream_not_found",
    408: "request_timeout",
    409: "stream_sealed stale_writer_position resource_already_exists transaction_conflict basin_deletion_pending "
    "fencing_token_mismatch",
    410: "stream_deletion_pending offset_truncated",
    413: "limit_exceeded",
    422: "not_representable encryption_key decryption_failed",
    429: "rate_limited",
    501: "not_implemented",
    502: "upstream_fault",
    503: "hot_server server_draining unavailable",
    504: "upstream_timeout",
}


@pytest.mark.parametrize("code", FailureCode)
def test_the_status_of_each_failure(code: FailureCode) -> None:
    status = next((status for status, codes in STATUSES.items() if code.value in codes.split()), 500)
    assert failure_to_status(Failure(code, "why")) == status


@pytest.mark.parametrize("code", FailureCode)
def test_every_failure_is_an_answer(code: FailureCode) -> None:
    failure = Failure(code, 'a "reason"')
    assert spell_failure(failure) == b'{"error":{"code":"%b","message":"a \\"reason\\""}}' % code.value.encode()
