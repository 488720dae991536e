"""Failures as HTTP statuses and JSON bodies, both ways (S2 fact sheet, section 6)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import Failure, FailureCode
from penstock.model.records import U64_MAX
from penstock.wire.http_failures import failure_to_body, failure_to_http
from penstock_s2.codec.errors import failure_from_body, failure_from_http

C = FailureCode

# The table of the fact sheet, written out once more so that a slip in the code's table is seen.
TABLE = {
    400: ["bad_frame", "bad_header", "bad_json", "bad_path", "bad_proto", "bad_query"],
    401: ["authn"],
    403: ["permission_denied", "quota_exhausted"],
    404: ["access_token_not_found", "basin_not_found", "stream_not_found"],
    408: ["request_timeout"],
    409: ["transaction_conflict", "basin_deletion_pending", "stream_deletion_pending", "resource_already_exists"],
    422: ["invalid"],
    429: ["rate_limited"],
    499: ["client_hangup"],
    500: ["other", "storage"],
    501: ["not_implemented"],
    502: ["hot_server"],
    503: ["server_draining", "unavailable"],
    504: ["upstream_timeout"],
}
CODES = [(status, code) for status, codes in TABLE.items() for code in codes]
OWN_SHAPES = [
    (412, C.SEQ_NUM_MISMATCH, {"seq_num_mismatch": 7}, b'{"seq_num_mismatch":7}'),
    (412, C.SEQ_NUM_MISMATCH, {"seq_num_mismatch": U64_MAX}, b'{"seq_num_mismatch":18446744073709551615}'),
    (412, C.SEQ_NUM_MISMATCH, {"seq_num_mismatch": 0}, b'{"seq_num_mismatch":0}'),
    (412, C.FENCING_TOKEN_MISMATCH, {"fencing_token_mismatch": ""}, b'{"fencing_token_mismatch":""}'),
    (412, C.FENCING_TOKEN_MISMATCH, {"fencing_token_mismatch": 'a"b'}, b'{"fencing_token_mismatch":"a\\"b"}'),
    (
        416,
        C.RANGE_NOT_SATISFIABLE,
        {"tail": {"seq_num": 3, "timestamp": 1000}},
        b'{"tail":{"seq_num":3,"timestamp":1000}}',
    ),
]


@pytest.mark.parametrize(("status", "code"), CODES)
def test_every_code_of_s2(status: int, code: str) -> None:
    got_status, body = failure_to_http(Failure(FailureCode(code), "why"))
    assert (got_status, json.loads(body)) == (status, {"code": code, "message": "why"})
    assert failure_from_http(status, body) == Failure(FailureCode(code), "why")


@pytest.mark.parametrize("code", list(FailureCode), ids=lambda code: code.value)
def test_no_code_is_forgotten(code: FailureCode) -> None:
    status, body = failure_to_http(Failure(code, "why"))
    assert 400 <= status < 600
    assert json.loads(body)["message"] == "why"
    understood = failure_from_http(status, body)
    # The nature must survive the wire: a client decides by it whether to ask again (fact sheet, section 6).
    assert (understood.retryable, understood.side_effect_possible) == (
        Failure(code, "").retryable,
        Failure(code, "").side_effect_possible,
    )


@pytest.mark.parametrize(("status", "code", "details", "body"), OWN_SHAPES)
def test_own_shapes(status: int, code: FailureCode, details: dict[str, object], body: bytes) -> None:
    assert failure_to_http(Failure(code, "why", details)) == (status, body)
    understood = failure_from_http(status, body)
    assert (understood.code, understood.details) == (code, details)
    assert failure_from_body(body) == understood


@pytest.mark.parametrize(
    ("status", "code"), [(412, C.SEQ_NUM_MISMATCH), (412, C.FENCING_TOKEN_MISMATCH), (416, C.RANGE_NOT_SATISFIABLE)]
)
def test_own_shapes_without_details_fall_back(status: int, code: FailureCode) -> None:
    assert failure_to_http(Failure(code, "why"))[0] == status
    assert failure_from_http(status, failure_to_body(Failure(code, "why"))) == Failure(code, "why")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, C.INVALID),
        (401, C.AUTHN),
        (403, C.PERMISSION_DENIED),
        (404, C.INVALID),
        (408, C.REQUEST_TIMEOUT),
        (412, C.INVALID),
        (416, C.RANGE_NOT_SATISFIABLE),
        (429, C.RATE_LIMITED),
        (500, C.OTHER),
        (501, C.NOT_IMPLEMENTED),
        (502, C.UNAVAILABLE),
        (503, C.UNAVAILABLE),
        (504, C.UPSTREAM_TIMEOUT),
        (599, C.OTHER),
        (302, C.OTHER),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b'{"code":"brand_new","message":"x"}', b"[1]"])
def test_strange_bodies_give_what_the_status_proves(status: int, code: FailureCode, body: bytes) -> None:
    failure = failure_from_http(status, body)
    assert failure.code is code
    assert str(status) in failure.message
    assert body.decode() in failure.message


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq_num_mismatch":-1}',
        b'{"seq_num_mismatch":true}',
        b'{"seq_num_mismatch":18446744073709551616}',
        b'{"seq_num_mismatch":"7"}',
        b'{"fencing_token_mismatch":null}',
        b'{"tail":{"seq_num":1}}',
        b'{"tail":[1,2]}',
        b'{"tail":{"seq_num":1,"timestamp":1.5}}',
        b'{"code":7}',
        b'{"code":"invalid"',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_near_misses_are_not_understood(body: bytes) -> None:
    assert failure_from_body(body).code is C.OTHER
    assert "status" in failure_from_http(500, body).details


def test_a_huge_body_does_not_become_the_message() -> None:
    assert len(failure_from_http(500, b"x" * 1_000_000).message) < 300


@given(st.integers(0, 1000), st.binary(max_size=64) | st.text(max_size=64).map(lambda text: json.dumps(text).encode()))
def test_garbage_never_raises(status: int, body: bytes) -> None:
    failure = failure_from_http(status, body)
    failure_to_http(failure)
    failure_to_http(failure_from_body(body))
