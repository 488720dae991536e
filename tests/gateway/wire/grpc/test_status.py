"""gRPC: status codes, their trailers, and the headers of a call."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import Failure, FailureCode
from penstock.wire.grpc import Code, GrpcError, accepts_content_type, error_of, status_fields, timeout_seconds

GIVEN_UP_AT_ONCE = {
    Code.NOT_FOUND,
    Code.INVALID_ARGUMENT,
    Code.ALREADY_EXISTS,
    Code.PERMISSION_DENIED,
    Code.OUT_OF_RANGE,
    Code.UNIMPLEMENTED,
}
"""Statuses that Pravega's clients do not retry (segment fact sheet 3.1)."""


EITHER_WAY = {FailureCode.QUOTA_EXHAUSTED, FailureCode.CLIENT_HANGUP, FailureCode.DAMAGED}
"""A quota may be free again; a client that hung up hears nothing; damaged data may be restored from a copy."""


@pytest.mark.parametrize("code", [code for code in FailureCode if code not in EITHER_WAY])
def test_clients_ask_again_what_may_succeed_later_and_nothing_else(code: FailureCode) -> None:
    failure = Failure(code, "why")
    error = error_of(failure)
    assert error.message == "why"
    assert (error.code not in GIVEN_UP_AT_ONCE) is failure.retryable


@pytest.mark.parametrize(
    "failure, code",
    [
        (FailureCode.STREAM_NOT_FOUND, Code.NOT_FOUND),
        (FailureCode.RESOURCE_ALREADY_EXISTS, Code.ALREADY_EXISTS),
        (FailureCode.INVALID, Code.INVALID_ARGUMENT),
        (FailureCode.SERVER_DRAINING, Code.UNAVAILABLE),
        (FailureCode.NOT_IMPLEMENTED, Code.UNIMPLEMENTED),
        (FailureCode.QUOTA_EXHAUSTED, Code.RESOURCE_EXHAUSTED),
        (FailureCode.CLIENT_HANGUP, Code.CANCELLED),
        (FailureCode.RATE_LIMITED, Code.RESOURCE_EXHAUSTED),
        (FailureCode.STORAGE, Code.INTERNAL),
    ],
)
def test_failures_as_codes(failure: FailureCode, code: Code) -> None:
    assert error_of(Failure(failure, "")).code is code


@given(st.text(max_size=500))
def test_a_message_survives_its_trailer(text: str) -> None:
    fields = dict(status_fields(Code.INTERNAL, text))
    value = fields.get("grpc-message", "")
    assert fields["grpc-status"] == "13"
    assert all(" " <= char <= "~" for char in value)
    assert value == value.strip()
    assert unquote(value) == text.strip().encode("utf-8", "replace").decode()


def test_a_message_has_an_end() -> None:
    value = dict(status_fields(Code.INTERNAL, "\U0001f600" * 10_000))["grpc-message"]
    assert len(value) == 500 * 12


def test_no_message_no_trailer() -> None:
    assert status_fields(Code.OK) == [("grpc-status", "0")]


@pytest.mark.parametrize(
    "value, seconds",
    [("1S", 1), ("250m", 0.25), ("2H", 7200), ("3M", 180), ("5000u", 0.005), ("99999999n", 0.099999999), ("0S", 0)],
)
def test_timeouts(value: str, seconds: float) -> None:
    assert timeout_seconds(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", "1S ", "\u0661S", "1" * 9999])
def test_what_is_no_timeout(value: str) -> None:
    with pytest.raises(GrpcError) as caught:
        timeout_seconds(value)
    assert caught.value.code is Code.INTERNAL
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "value, accepted",
    [
        ("application/grpc", True),
        ("application/grpc+proto", True),
        ("Application/gRPC; charset=utf-8", True),
        ("application/grpc+json", False),
        ("application/grpc-web", False),
        ("application/json", False),
        ("", False),
        (None, False),
    ],
)
def test_content_types(value: str | None, accepted: bool) -> None:
    assert accepts_content_type(value) is accepted


def test_what_no_header_may_hold_is_encoded() -> None:
    assert dict(status_fields(Code.INTERNAL, " a ~%\x7f\n\x1fé "))["grpc-message"] == "a ~%25%7F%0A%1F%C3%A9"
