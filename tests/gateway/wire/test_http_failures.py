"""Failures as HTTP statuses and JSON bodies. tests/penstock_s2/codec/test_errors.py reads them again."""

from __future__ import annotations

import json

import pytest

from penstock.model.failures import Failure, FailureCode
from penstock.model.records import StreamPosition
from penstock.wire.http_failures import failure_to_body, failure_to_http

C = FailureCode


@pytest.mark.parametrize(
    "code",
    [C.BAD_FORMAT, C.LIMIT_EXCEEDED, C.NON_MONOTONIC_TIMESTAMP, C.NOT_REPRESENTABLE],
    ids=lambda code: code.value,
)
def test_codes_that_s2_lacks_become_invalid(code: FailureCode) -> None:
    status, body = failure_to_http(Failure(code, "why"))
    assert (status, json.loads(body)) == (422, {"code": "invalid", "message": "why"})


def test_tail_may_be_a_position() -> None:
    failure = Failure(C.RANGE_NOT_SATISFIABLE, "why", {"tail": StreamPosition(3, 1000)})
    assert failure_to_http(failure) == (416, b'{"tail":{"seq_num":3,"timestamp":1000}}')


def test_message_of_lone_surrogates_is_no_crash() -> None:
    assert json.loads(failure_to_body(Failure(C.OTHER, "bad \udcff name")))["message"] == "bad ? name"
