"""A call as its client says and hears it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode
from penstock.wire.grpc import Code, basic, call_headers, error_in, failure_code, status_fields, timeout_seconds


@given(st.sampled_from([code for code in Code if code]), st.text(max_size=100))
def test_every_status_is_heard_as_it_was_said(code: Code, message: str) -> None:
    error = error_in(status_fields(code, message))
    assert error is not None
    assert (error.code, error.message) == (code, message.strip().encode("utf-8", "replace").decode())


def test_a_call_that_went_well() -> None:
    assert error_in(status_fields(Code.OK)) is None


@pytest.mark.parametrize("status", [None, "", "x", "99", "-1"])
def test_a_status_that_is_none(status: str | None) -> None:
    error = error_in([] if status is None else [("grpc-status", status)])
    assert error is not None
    assert error.code is Code.UNKNOWN


@pytest.mark.parametrize(("seconds", "said"), [(5, 5.0), (0.0001, 0.001), (1e9, 99_999.999)])
def test_the_timeout(seconds: float, said: float) -> None:
    headers = dict(call_headers(seconds))
    assert timeout_seconds(headers["grpc-timeout"]) == pytest.approx(said)
    assert headers["te"] == "trailers"
    assert "authorization" not in headers


def test_authorization() -> None:
    assert basic("who", "secret") == "Basic d2hvOnNlY3JldA=="
    assert dict(call_headers(1, "Basic x"))["authorization"] == "Basic x"


def test_what_a_status_means() -> None:
    assert failure_code(Code.NOT_FOUND) is FailureCode.STREAM_NOT_FOUND
    assert failure_code(Code.DATA_LOSS) is FailureCode.OTHER
